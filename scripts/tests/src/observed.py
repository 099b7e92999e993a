# SPDX-License-Identifier: GPL-2.0
"""Checks the output of rdma-resource(8) and rdma-statistic(8), and the trace events, while the wire peer sends to
a program of verbs."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import time

from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
import pyverbs.enums as e

import cases_active as active
import mpa
import rdmap
from harness import ADDRESS, FOREIGN, LOCAL, PORT, RO, RW, WO, Link, Victim, request, tcp

DEVICE = "r0"
COUNTERS = f"/sys/class/infiniband/{DEVICE}/ports/1/hw_counters"
TRACING = os.environ.get("RSIW_TRACING")
CAUSES = ("connect_refused", "connect_rejected", "connect_timeouts", "connect_unreachable", "connect_resets",
          "connect_protocol_errors", "connect_local_errors", "rejects_sent", "accept_failures")


def show(kind):
    """The objects of one kind on the device, with the driver's attributes."""
    text = subprocess.run(["rdma", "-j", "-dd", "resource", "show", kind], check=True, stdout=subprocess.PIPE,
                          text=True, timeout=20).stdout
    found = [entry for entry in json.loads(text or "[]") if entry.get("ifname", DEVICE) == DEVICE]
    return [{name.removeprefix("drv_"): value for name, value in entry.items()} for entry in found]


def counter(name):
    """A counter; ib_core reads the counters again after 10 ms (RDMA_HW_STATS_DEFAULT_LIFESPAN)."""
    time.sleep(0.02)
    with open(f"{COUNTERS}/{name}", encoding="ascii") as file:
        return int(file.read())


def counters():
    return {name: counter(name) for name in os.listdir(COUNTERS) if name != "lifespan"}


@contextlib.contextmanager
def counted(**wanted):
    """These counters rise by so much in the block; the causes of failures that are not named do not."""
    before = counters()
    yield
    end = time.monotonic() + 5
    if set(wanted) & set(CAUSES):
        wanted = {**dict.fromkeys(CAUSES, 0), **wanted}
        wanted["connect_failures"] = sum(wanted[name] for name in CAUSES)
    while True:
        now = counters()
        got = {name: now[name] - before[name] for name in wanted}
        if got == wanted or time.monotonic() > end:
            break
    assert got == wanted, f"counted {got}, wanted {wanted}"


def has(entry, **wanted):
    for name, value in wanted.items():
        assert name in entry, f"{name} is not told: {entry}"
        assert entry[name] == value, f"{name} is {entry[name]}, wanted {value}: {entry}"


def qp_of(made):
    found = [entry for entry in show("qp") if entry["lqpn"] == made.qpn]
    assert len(found) == 1, f"queue pair {made.qpn} among {found}"
    return found[0]


class Trace:
    """The module's trace events since it was made."""

    def __init__(self):
        if TRACING:
            self.write("trace", "")
            self.write("events/rsiw/enable", "1")

    @staticmethod
    def write(name, text):
        with open(f"{TRACING}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    def expect(self, event, *texts):
        """Waits for an event with all these texts, which may have come before."""
        end = time.monotonic() + 5
        while TRACING:
            with open(f"{TRACING}/trace", encoding="ascii") as file:
                lines = [line for line in file if f" {event}: " in line]
            if any(all(text in line for text in texts) for line in lines):
                return
            assert time.monotonic() < end, f"no {event} with {texts}: {lines}"
            time.sleep(0.05)


def ends_of(port, remote_port):
    local = f"local=[::ffff:{ADDRESS}]:{port}"
    return (local, f"remote=[::ffff:{ADDRESS}]:{remote_port}")


def connection(victim, trace):
    link = Link(victim, recvs=8, ird=3, ord_=5)
    port = link.stream.sock.getsockname()[1]
    entry = qp_of(link.made)
    has(entry, qp_state="rts", rendezvous="no", stream="open", role="responder", local_port=PORT,
        remote_port=port, tcp_state="ESTAB", crc="yes", markers_rx="no", markers_tx="no", ird=link.reply.word["ird"],
        ord=link.reply.word["ord"], rq_posted=8,
        sq_posted=0, reads=0, peer_reads=0, rnr_held="no", tcp_unread=0)
    assert entry["rq_depth"] >= 8, entry
    trace.expect("rsiw_accept", f"qpn={link.made.qpn} ", *ends_of(PORT, port), "error=0")
    ids = show("cm_id")
    listening = [i for i in ids if i.get("stage") == "listens"]
    assert len(listening) == 1, f"listeners {ids}"
    has(listening[0], half_open=0)
    connections = [i for i in ids if i.get("stage") == "established"]
    assert len(connections) == 1, f"connections {ids}"
    has(connections[0], local_port=PORT, remote_port=port, tcp_state="ESTAB")
    # A peer that has sent nothing yet.
    silent = tcp()
    end = time.monotonic() + 5
    while [i["half_open"] for i in show("cm_id") if i.get("stage") == "listens"] != [1]:
        assert time.monotonic() < end, f"a peer that says nothing: {show('cm_id')}"
    silent.sock.close()
    print("ok: a queue pair, its connection and its listener")
    return link


def regions(link):
    rights = {RW: "yes yes yes", WO: "yes yes no", RO: "no no yes", LOCAL: "yes no no", FOREIGN: "yes yes yes"}
    found = {(entry.get("iova"), entry.get("octets")): entry for entry in show("mr") if entry.get("kind") == "user"}
    for region, said in rights.items():
        entry = found.get((f"0x{link.made.at(region):x}", region[1]))
        assert entry, f"region {region} of {link.made.arena:x}: {found}"
        write, remote_write, remote_read = said.split()
        has(entry, valid="yes", stag=f"0x{int(entry['rkey'], 16):x}", remote_write=remote_write, remote_read=remote_read, one_qp_only="no")
        if not remote_write == "no" or region == LOCAL:
            has(entry, local_write=write)
    print("ok: memory regions")


def messages(victim, link):
    made, stream = link.made, link.stream
    with counted(rx_sends=3, rx_writes=1, rx_read_requests=1, tx_sends=1, tx_writes=1, tx_reads=1, rx_fpdus=8):
        for number in range(3):
            stream.send(rdmap.send(number + 1, b"counted"))
            victim.expect_recv(number, 7)
        # A Write in two segments, and one of nothing, which counts as an FPDU only.
        stream.send(rdmap.write(made.rw, made.at(RW), b"first", last=0), rdmap.write(made.rw, made.at(RW, 5), b"rest"))
        stream.send(rdmap.write(made.rw, made.at(RW), b""))
        stream.send(rdmap.read_request(1, 0x1234, 0, 16, made.rw, made.at(RW)))
        assert len(link.recv_segment().data) == 16
        assert victim.ask("send 7 100 -") == "ok" and victim.poll()[:3] == ("send", 7, 0)
        assert len(link.recv_segment().data) == 100
        assert victim.ask("write 8 99 0 50") == "ok" and victim.poll()[:3] == ("send", 8, 0)
        assert len(link.recv_segment().data) == 50
        # The answer is an FPDU, and no message of its own.
        assert victim.ask("read 9 1234 0 10") == "ok"
        sink, sink_to = link.recv_segment().read()[:2]
        has(qp_of(made), reads=1, sends_under_way=1)
        stream.send(rdmap.tagged(rdmap.READ_RESPONSE, sink, sink_to, bytes(10)))
        assert victim.poll()[:3] == ("send", 9, 0)
    print("ok: messages by kind")


# So many objects that an answer needs several messages of netlink, each 32 KiB at most.
MANY_PORT, CONNECTIONS, REGIONS = 7181, 48, 150


def many():
    """Answers of several messages have each object once, with all its attributes."""
    program = subprocess.Popen([os.path.join(os.environ["RSIW_TESTBIN"], "unread"), ADDRESS, str(MANY_PORT)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert program.stdout.readline() == "ok\n", "unread does not listen"
    program.stdin.write(f"accept {CONNECTIONS}\n")
    streams = []
    for _ in range(CONNECTIONS):
        stream = tcp(MANY_PORT)
        stream.send_raw(request())
        stream.recv_startup()
        streams.append(stream)
    assert program.stdout.readline().startswith("made "), "unread does not accept"
    context = Context(name=DEVICE)
    pd = PD(context)
    memory = [MR(pd, 64 + i, e.IBV_ACCESS_LOCAL_WRITE) for i in range(REGIONS)]
    ports = sorted(stream.sock.getsockname()[1] for stream in streams)
    for kind, attributes in (("qp", ("qp_state", "role", "tcp_state", "ird", "tcp_retransmits")),
                             ("cm_id", ("tcp_state", "local_port"))):
        found = [entry for entry in show(kind) if entry.get("remote_port") in ports]
        assert sorted(entry["remote_port"] for entry in found) == ports, f"{kind}: {len(found)} of {CONNECTIONS}"
        for entry in found:
            assert not [name for name in attributes if name not in entry], f"{kind} lacks some of {attributes}: {entry}"
    keys = sorted(mr.rkey for mr in memory)
    found = [entry for entry in show("mr") if int(entry.get("rkey", "0"), 16) in keys]
    assert sorted(int(entry["rkey"], 16) for entry in found) == keys, f"mr: {len(found)} of {REGIONS}"
    for entry in found:
        assert entry.get("kind") == "user" and "one_qp_only" in entry, f"mr lacks attributes: {entry}"
    assert sorted(entry["octets"] for entry in found) == [64 + i for i in range(REGIONS)], "lengths of regions"
    for mr in memory:
        mr.close()
    pd.close()
    context.close()
    for stream in streams:
        stream.reset()
    program.kill()
    program.wait()
    print("ok: objects of which an answer has several messages")


def ends(victim, link, trace):
    wrong = rdmap.write(0x7777, 0, b"nowhere")
    link.stream.send(wrong)
    link.expect_terminate("1/1/00", wrong)
    victim.expect_event("DISCONNECTED", error=errno.ECONNABORTED)
    entry = qp_of(link.made)
    has(entry, qp_state="error", end="terminate_sent")
    assert entry["terminate_sent"] == "0x1100", entry
    assert "stream" not in entry, f"a stream that has ended: {entry}"
    qpn = f"qpn={link.made.qpn} "
    trace.expect("rsiw_terminate", qpn, "sent", "0x1100")
    trace.expect("rsiw_stream_end", qpn, "reason=terminate_sent", "error=0")
    victim.close()
    link = Link(victim)
    link.stream.send(rdmap.terminate(1, 2, 2))
    victim.expect_event("DISCONNECTED", error=errno.ECONNRESET)
    entry = qp_of(link.made)
    has(entry, end="terminate_received")
    assert entry["terminate_received"] == "0x1202", entry
    trace.expect("rsiw_stream_end", f"qpn={link.made.qpn} ", "reason=terminate_received")
    victim.close()
    link = Link(victim)
    link.stream.reset()
    victim.expect_event("DISCONNECTED", error=errno.ECONNRESET)
    has(qp_of(link.made), end="peer_reset")
    trace.expect("rsiw_stream_end", f"qpn={link.made.qpn} ", "reason=peer_reset")
    victim.close()
    link = Link(victim)
    link.stream.sock.shutdown(socket.SHUT_WR)
    victim.expect_event("DISCONNECTED")
    trace.expect("rsiw_stream_end", f"qpn={link.made.qpn} ", "reason=peer_closed")
    victim.close()
    print("ok: ends and their reasons")


def connect(victim, port):
    return active.Made(victim.ask(f"connect {ADDRESS} {port} 4 4 4 100 -"))


def failures(victim, trace):
    with counted(connect_refused=1):
        with socket.create_server((ADDRESS, 0)) as server:
            port = server.getsockname()[1]
        made = connect(victim, port)
        active.expect_failure(victim, "REJECTED", errno.ECONNREFUSED)
        trace.expect("rsiw_connect", f"qpn={made.qpn} ", f"remote=[::ffff:{ADDRESS}]:{port} ",
                     f"error=-{errno.ECONNREFUSED}")
        victim.close()
    for name, answer, event, error in (
            ("connect_rejected", lambda stream, frame: stream.send_raw(active.reply_for(frame, r=1)), "REJECTED",
             errno.ECONNREFUSED),
            ("connect_protocol_errors", lambda stream, _: stream.send_raw(b"HTTP/1.1 400 Bad Request\r\n"),
             "CONNECT_ERROR", errno.EPROTO),
            ("connect_resets", lambda stream, _: stream.reset(), "REJECTED", errno.ECONNRESET),
            ("connect_timeouts", lambda stream, _: None, "UNREACHABLE", errno.ETIMEDOUT)):
        with counted(**{name: 1}):
            listener = active.Listener()
            made = connect(victim, listener.port)
            stream = listener.accept()
            answer(stream, stream.recv_startup())
            active.expect_failure(victim, event, error)
            trace.expect("rsiw_connect", f"qpn={made.qpn} ", f":{listener.port} ", f"error=-{error}")
            victim.close()
    with counted(rejects_sent=1):
        stream = tcp()
        port = stream.sock.getsockname()[1]
        stream.send_raw(request())
        victim.expect_event("CONNECT_REQUEST")
        assert victim.ask("reject -") == "ok"
        assert stream.recv_startup().r, "the Reply does not reject"
        trace.expect("rsiw_reject", *ends_of(PORT, port), "error=0")
    with counted(connects=1):
        stream, made, _ = active.connected(victim)
        trace.expect("rsiw_connect", f"qpn={made.qpn} ", "error=0")
        has(qp_of(made), role="initiator", remote_port=stream.sock.getsockname()[1])
        victim.close()
    print("ok: failures by cause")


def settings(victim):
    """A setting of the device holds for connections that begin afterwards."""
    path = f"/sys/class/infiniband/{DEVICE}/rsiw"

    def write(name, value):
        with open(f"{path}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))

    def read(name):
        with open(f"{path}/{name}", encoding="ascii") as file:
            return int(file.read())

    for name, values, wrong in (("crc", (0, 1), (2,)), ("doorbell_coalesce_usecs", (0, 1000, 5), (1001, -1, "x"))):
        for value in values:
            write(name, value)
            assert read(name) == value, f"{name} is {read(name)}, wanted {value}"
        for value in wrong:
            try:
                write(name, value)
            except OSError as error:
                assert error.errno in (errno.EINVAL, errno.ERANGE), f"{name} of {value}: {error}"
            else:
                raise AssertionError(f"{name} takes {value}")
            assert read(name) == values[-1], f"{name} after {value}: {read(name)}"
    for crc, told in ((0, "no"), (1, "yes")):
        write("crc", crc)
        link = Link(victim, c_flag=0)
        assert link.reply.c == crc, f"C of the Reply is {link.reply.c} with crc {crc}"
        has(qp_of(link.made), crc=told)
        victim.close()
        stream, _, frame = active.connected(victim)
        assert frame.c == crc, f"C of the Request is {frame.c} with crc {crc}"
        stream.sock.close()
        victim.expect_event("DISCONNECTED")
        victim.close()
    print("ok: settings")


def tc(*words):
    subprocess.run(["tc", "qdisc", *words], check=True, timeout=20)


def retransmits(victim):
    """Segments of the module's that are lost, while the stream runs and when it has ended."""
    link = Link(victim)
    # The module may send when it has received an FPDU.
    link.stream.send(rdmap.send(1, b"first"))
    victim.expect_recv(0, 5)
    before = counter("tcp_retransmits")
    tc("add", "dev", "lo", "root", "netem", "loss", "100%")
    try:
        assert victim.ask("send 1 1000 -") == "ok"
        end = time.monotonic() + 10
        while counter("tcp_retransmits") < before + 2:
            assert time.monotonic() < end, f"nothing was sent again: {qp_of(link.made)}"
        told = qp_of(link.made)["tcp_retransmits"]
        assert told >= 2, f"the queue pair tells {told}"
    finally:
        tc("del", "dev", "lo", "root")
    assert len(link.recv_segment(20).data) == 1000
    running = counter("tcp_retransmits")
    link.stream.reset()
    victim.expect_event("DISCONNECTED", error=errno.ECONNRESET)
    assert counter("tcp_retransmits") >= running, "the counter fell when the stream ended"
    victim.close()
    print("ok: retransmissions")


def port(victim):
    """The port has the state of the interface, and the program gets an event."""
    link = Link(victim)
    for state, told in (("down", "port error"), ("up", "port active")):
        subprocess.run(["ip", "link", "set", "rd0", state], check=True, timeout=20)
        heard = []
        while told not in heard:
            event = victim.ask("async 5000")
            assert event != "none", f"the interface is {state}: the program was told {heard}, wanted {told}"
            heard.append(event.removeprefix("async "))
    link.stream.reset()
    victim.expect_event("DISCONNECTED", error=errno.ECONNRESET)
    victim.close()
    print("ok: the port's state")


def main():
    victim, trace = Victim(), Trace()
    link = connection(victim, trace)
    regions(link)
    many()
    messages(victim, link)
    ends(victim, link, trace)
    failures(victim, trace)
    settings(victim)
    retransmits(victim)
    port(victim)
    victim.kill()


main()
