# SPDX-License-Identifier: GPL-2.0
"""Valid and invalid segments to the module in full operation: the octets placed, the
messages delivered, and the Terminate for each error (requirements 2 and 3)."""

import contextlib
import errno
import random
import socket
import time

import rdmap
from faults import no_large_blocks
from harness import CRC, FACTOR, FLUSHED, RW, MARKERS, TOO_LONG, Link, case, needs, tcp_row

NOWHERE = 0x12345678  # a key of no region


def flushed(victim, status=FLUSHED):
    """The first receive has this status, without data."""
    got = victim.poll()
    assert got == ("recv", 0, status, 0), f"completion {got}, wanted the first receive with status {status}"


def refused(victim, build, error, recvs=8, behind_is_dropped=True, told=False):
    """build(made) gives one bad segment: Terminate, flushed receives, memory untouched."""
    link = Link(victim, recvs=recvs)
    bad = build(link.made)
    # A good Send right behind the bad segment must never be delivered (MPA-96, DDP-63).
    link.stream.send(bad, rdmap.send(1, b"behind"))
    link.expect_terminate(error, bad, told=told)
    if recvs and behind_is_dropped:
        flushed(victim, TOO_LONG if told else FLUSHED)
    assert victim.untouched(), "memory was written"
    victim.expect_event("DISCONNECTED", error=errno.ECONNABORTED)
    victim.close()


@case("MPA-09 MPA-93 MPA-96 MPA-97")
def bad_crc(victim):
    needs(CRC, "crc=1")
    for build in (lambda m: rdmap.send(1, b"payload"), lambda m: rdmap.write(m.rw, m.at(RW), b"payload")):
        link = Link(victim)
        for xor in (1,):
            octets = link.stream.fpdu(build(link.made), crc_xor=xor)
        link.stream.send_raw(octets + link.stream.fpdu(rdmap.send(1, b"behind")))
        link.expect_terminate("2/0/02")
        flushed(victim)
        assert victim.untouched(), "placed before the CRC was verified"
        victim.close()


@case("MPA-03")
def padding_is_ignored(victim):
    link = Link(victim)
    link.stream.send_raw(link.stream.fpdu(rdmap.send(1, b"12345"), pad=0xEE))
    victim.expect_recv(0, 5)


@case("MPA-05 MPA-15 MPA-16")
def crc_off(victim):
    needs(not CRC, "crc=0")
    link = Link(victim, c_flag=0)
    assert link.reply.c == 0, "C in the Reply"
    link.stream.send_raw(link.stream.fpdu(rdmap.send(1, b"garbage"), crc_xor=0xDEADBEEF))
    victim.expect_recv(0, 7)
    assert victim.ask("buffer 0 7") == b"garbage".hex()
    assert victim.ask("send 1 333 -") == "ok"
    assert len(link.recv_segment().data) == 333


@case("MPA-14")
def crc_asked_for_by_the_peer_alone(victim):
    link = Link(victim, c_flag=1)
    link.stream.send(rdmap.send(1, b"checked"))
    victim.expect_recv(0, 7)
    assert victim.ask("send 1 100 -") == "ok"
    link.recv_segment()
    assert link.stream.last_crc_good, "our FPDU's CRC"
    link.stream.send_raw(link.stream.fpdu(rdmap.send(2, b"bad"), crc_xor=0x80000000))
    link.expect_terminate("2/0/02")


@case("DDP-50")
def queue_number(victim):
    for qn in (3, 4, 0xFFFFFFFF):
        refused(victim, lambda m: rdmap.send(1, b"x", qn=qn), "1/2/01")


@case("DDP-52")
def message_number(victim):
    for msn in (0, 1 << 31, 0xFFFFFFFF):
        refused(victim, lambda m: rdmap.send(msn, b"x"), "1/2/03")
    link = Link(victim)
    bad = rdmap.send(1, b"again")
    link.stream.send(rdmap.send(1, b"first"), bad)
    victim.expect_recv(0, 5)
    link.expect_terminate("1/2/03", bad)


@case("DDP-53")
def message_offset(victim):
    refused(victim, lambda m: rdmap.send(1, b"x", mo=4), "1/2/04")
    link = Link(victim)
    bad = rdmap.send(1, b"efgh", mo=8)
    link.stream.send(rdmap.send(1, b"abcd", last=0), bad)
    link.expect_terminate("1/2/04", bad)
    flushed(victim)


@case("DDP-54")
def message_too_long(victim):
    refused(victim, lambda m: rdmap.send(1, bytes(4097)), "1/2/05", told=True)
    link = Link(victim)
    bad = rdmap.send(1, bytes(97), mo=4000)
    link.stream.send(rdmap.send(1, bytes(4000), last=0), bad)
    link.expect_terminate("1/2/05", bad, told=True)
    victim.close()
    link = Link(victim)
    link.stream.send(rdmap.send(1, bytes(4000), last=0), rdmap.send(1, bytes(96), mo=4000))
    victim.expect_recv(0, 4096)


@case("DDP-04 DDP-55 DDP-60")
def ddp_version(victim):
    for dv in (0, 2, 3):
        refused(victim, lambda m: rdmap.send(1, b"x", dv=dv), "1/2/06")
        refused(victim, lambda m: rdmap.write(m.rw, m.at(RW), b"x", dv=dv), "1/1/04")


@case("DDP-03 RDMAP-01 RDMAP-03")
def reserved_bits(victim):
    link = Link(victim)
    link.stream.send(rdmap.send(1, b"x", ddp_rsv=15, rsv=3, inv=0xFFFFFFFF))
    victim.expect_recv(0, 1)


@case("RDMAP-01")
def rdmap_version(victim):
    for rv in (0, 2, 3):
        refused(victim, lambda m: rdmap.send(1, b"x", rv=rv), "0/2/05")
        refused(victim, lambda m: rdmap.write(m.rw, m.at(RW), b"x", rv=rv), "0/2/05")


@case("RDMAP-02 RDMAP-04 EXT-12")
def opcode(victim):
    for op in (8, 9, 10, 11, 12, 13, 14, 15):
        refused(victim, lambda m: rdmap.untagged(op, 1, bytes(8)), "0/2/06")
    # Tagged messages with untagged opcodes and the reverse, and messages on wrong queues.
    refused(victim, lambda m: rdmap.tagged(rdmap.SEND, m.rw, m.at(RW), b"x"), "0/2/06")
    refused(victim, lambda m: rdmap.untagged(rdmap.WRITE, 1, b"x"), "0/2/06")
    refused(victim, lambda m: rdmap.read_request(1, 1, 0, 8, m.rw, m.at(RW), qn=0), "0/2/06")
    refused(victim, lambda m: rdmap.send(1, b"x", qn=1), "0/2/06")
    refused(victim, lambda m: rdmap.send(1, b"x", qn=2), "0/2/06")


@case("RDMAP-02 RDMAP-17")
def response_nobody_asked_for(victim):
    refused(victim, lambda m: rdmap.tagged(rdmap.READ_RESPONSE, m.rw, m.at(RW), b"x"), "0/2/06")


@case("RDMAP-13")
def read_request_with_more_octets(victim):
    refused(victim, lambda m: rdmap.read_request(1, 1, 0, 8, m.rw, m.at(RW), extra=b"more"), "1/2/05")


@case("MPA-18")
def segments_too_short(victim):
    for length in (0, 1, 2, 13, 17):
        for first in (0x41, 0xC1):
            if length > (13 if first & 0x80 else 17):
                continue
            link = Link(victim)
            link.stream.send(bytes([first, 0x43 if first == 0x41 else 0x40]).ljust(length, b"\0")[:length])
            if length:
                link.expect_terminate("2/0/03")
            else:
                # An empty FPDU as the very first one is an RTR (trap 30), and nothing more.
                link.stream.send(rdmap.send(1, b"x"))
                victim.expect_recv(0, 1)
            assert victim.untouched()
            victim.close()


@case("RDMAP-30 RDMAP-31 RDMAP-32 RDMAP-34")
def terminate_received(victim):
    for error in ((0, 0, 0), (1, 1, 1), (2, 0, 2), (15, 15, 255)):
        link = Link(victim, recvs=2)
        link.stream.send(rdmap.terminate(*error))
        link.stream.expect_close()
        victim.expect_completions(recvs=[(0, FLUSHED), (1, FLUSHED)])
        assert victim.ask("state") == "ERR", "the QP's state"
        victim.expect_event("DISCONNECTED", error=errno.ECONNRESET)
        victim.close()
    # A Terminate that lacks the headers its flags promise (RDMAP-42).
    link = Link(victim, recvs=1)
    link.stream.send(rdmap.terminate(1, 1, 0, flags=7))
    link.stream.expect_close()


@case("RDMAP-36 DDP-89")
def invalidate_what_is_not_the_peers(victim):
    for stag, code in (
        (lambda m: m.rw, "0/1/09"),
        (lambda m: m.foreign, "0/1/09"),
        (lambda m: NOWHERE, "0/1/00"),
        (lambda m: 0, "0/1/00"),
    ):
        link = Link(victim)
        bad = rdmap.send(1, b"x", op=rdmap.SEND_INV, inv=stag(link.made))
        link.stream.send(bad)
        link.expect_terminate(code, bad)
        flushed(victim)
        victim.close()


@case("RDMAP-21")
def solicited_only(victim):
    link = Link(victim)
    assert victim.ask("arm solicited") == "ok"
    link.stream.send(rdmap.send(1, b"plain"))
    victim.expect_recv(0, 5)
    assert victim.ask("notified 300") == "none", "a plain Send woke a solicited-only waiter"
    link.stream.send(rdmap.send(2, b"event", op=rdmap.SEND_SE))
    assert victim.ask("notified 5000") == "yes", "a solicited Send did not wake"
    victim.expect_recv(1, 5)
    assert victim.ask("arm all") == "ok"
    link.stream.send(rdmap.send(3, b"plain"))
    assert victim.ask("notified 5000") == "yes", "a plain Send did not wake"


@case("MPA-21 MPA-23 MPA-25 MPA-26")
def we_ask_for_markers(victim):
    link = Link(victim, m=1)
    link.stream.send(rdmap.send(1, b"go"))
    victim.expect_recv(0, 2)
    for number, size in enumerate((1, 100, 470, 471, 472, 473, 474, 475, 476, 477, 478, 480, 500, 1000, 5000), start=1):
        assert victim.ask(f"send {number} {size} -") == "ok"
        got = 0
        while got < size:
            segment = link.recv_segment()
            assert segment.op == rdmap.SEND and segment.mo == got, "a Send's segment"
            got += len(segment.data)
        assert segment.last == 1 and got == size, f"{got} of {size} octets"
    link.stream.send(rdmap.read_request(1, 1, 0, 5000, link.made.rw, link.made.at(RW)))
    segment = link.recv_segment()
    while not segment.last:
        segment = link.recv_segment()


@case("MPA-22")
def markers_only_if_asked_for(victim):
    link = Link(victim)
    link.stream.send(rdmap.send(1, b"go"))
    assert victim.ask("send 1 3000 -") == "ok"
    segment = link.recv_segment()
    while not segment.last:
        segment = link.recv_segment()


@case("MPA-24 MPA-30 MPA-94")
def markers_we_send(victim):
    needs(MARKERS, "markers=1")
    link = Link(victim)
    assert link.reply.m == 1, "the module was told to ask for markers"
    for msn in range(1, 9):
        link.stream.send(rdmap.write(link.made.rw, link.made.at(RW), bytes(msn * 97)), rdmap.send(msn, bytes(msn * 60)))
        victim.expect_recv(msn - 1, msn * 60)
    victim.close()
    link = Link(victim)
    link.stream.send_raw(link.stream.fpdu(rdmap.send(1, bytes(1000)), pointer_add=4))
    link.expect_terminate("2/0/03")
    victim.close()
    # The only marker is between the ULPDU, which is in one piece then, and its CRC.
    link = Link(victim)
    link.stream.send(rdmap.send(1, bytes(100)))
    victim.expect_recv(0, 100)
    ulpdu = 512 - link.stream.tx_at - 2
    link.stream.send_raw(link.stream.fpdu(rdmap.send(2, bytes(ulpdu - 18)), pointer_add=4))
    assert link.stream.tx_at == 512 + 8, f"the CRC ends at {link.stream.tx_at}"
    link.expect_terminate("2/0/03")


@case("MPA-48 RDMAP-33")
def error_while_answering(victim):
    # A long Read Response is being sent when an error arrives: whole FPDUs follow, then the Terminate. This peer reads
    # everything, so the module has no reason to reset the connection instead.
    link = Link(victim)
    made = link.made
    link.stream.send(*(rdmap.read_request(n, 1, 0, 5000, made.rw, made.at(RW)) for n in range(1, 9)))
    bad = rdmap.send(1, b"x", qn=9)
    link.stream.send(bad)
    link.expect_terminate("1/2/01", bad)


@case("MPA-10 MPA-52 MPA-57")
def long_fpdus_in_parts(victim):
    length = 65000
    rng = random.Random(3)
    with no_large_blocks():
        link = Link(victim, recvs=3, recv_size=length)
        for number in range(3):
            link.stream.pieces = rng.randrange(3000, 40000)
            data = rng.randbytes(length - number)
            link.stream.send(rdmap.send(number + 1, data))
            victim.expect_recv(number, len(data))
            assert victim.ask(f"buffer {number} {len(data)}") == data.hex(), f"message {number} differs"


# The longest ULPDU, all of it the Send's. Its FPDU takes more memory than a stream may have without a charge.
LONGEST = 65535 - 18


# Octets that one connection holds: TCP's account leaves out up to 1 MiB of each processor.
HELD = 4 << 20


@contextlib.contextmanager
def no_memory_for_tcp():
    """TCP's sockets have more than its hard limit (tcp_mem of tcp(7)): each charge is refused."""
    path = "/proc/sys/net/ipv4/tcp_mem"
    with open(path, encoding="ascii") as file:
        before = file.read()
    with contextlib.ExitStack() as ends:
        listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        # SO_RCVBUFFORCE and SO_SNDBUFFORCE (asm-generic/socket.h).
        listener.setsockopt(socket.SOL_SOCKET, 33, HELD)
        writer = ends.enter_context(socket.create_connection(listener.getsockname()))
        writer.setsockopt(socket.SOL_SOCKET, 32, HELD)
        ends.enter_context(listener.accept()[0])
        writer.settimeout(0.5)
        with contextlib.suppress(TimeoutError, socket.timeout):
            writer.sendall(bytes(2 * HELD))
        try:
            with open(path, "w", encoding="ascii") as file:
                file.write("0 0 0")
            yield
        finally:
            with open(path, "w", encoding="ascii") as file:
                file.write(before)


def octets_in_tcp(stream):
    """Octets that TCP has received and the module has not read."""
    return int(tcp_row(stream)[4].split(":")[1], 16)


@case("MPA-10 MPA-48 MPA-57 DDP-94")
def memory_for_a_long_fpdu_is_refused(victim):
    data = random.Random(11).randbytes(LONGEST)
    link = Link(victim, recvs=2, recv_size=LONGEST)
    sock, rest = link.stream.sock, link.stream.fpdu(rdmap.send(1, data))
    with no_memory_for_tcp():
        sock.settimeout(0.5)
        try:
            while rest:
                rest = rest[sock.send(rest):]
        except (TimeoutError, socket.timeout):
            pass
        end = time.monotonic() + 5 * FACTOR
        while not octets_in_tcp(link.stream):
            assert time.monotonic() < end, "the module reads an FPDU for which it may have no memory"
        got = victim.poll(1000)
        assert got is None, f"completion {got} without memory for the FPDU"
        assert victim.ask("state") == "RTS", "the QP's state while memory is short"
        assert octets_in_tcp(link.stream), "the octets wait no more in TCP's queue"
    sock.settimeout(20 * FACTOR)
    sock.sendall(rest)
    got = victim.poll(10000 * FACTOR)
    assert got == ("recv", 0, 0, LONGEST), f"completion {got} when there is memory again"
    assert victim.ask(f"buffer 0 {LONGEST}") == data.hex(), "the message differs"
    link.stream.send(rdmap.send(2, b"behind"))
    victim.expect_recv(1, 6)


@case("MPA-18 DDP-63")
def random_segments(victim):
    rng = random.Random(5041)
    for _ in range(60):
        link = Link(victim)
        made = link.made
        good = rng.choice((
            rdmap.send(1, rng.randbytes(rng.randrange(60))),
            rdmap.write(made.rw, made.at(RW), rng.randbytes(rng.randrange(60))),
            rdmap.read_request(1, 1, 0, 64, made.rw, made.at(RW)),
            rdmap.terminate(1, 1, 1, flags=rng.randrange(8), rest=rng.randbytes(rng.randrange(40))),
        ))
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            bad[rng.randrange(min(len(bad), 46))] = rng.randrange(256)
        link.stream.send(bytes(bad))
        link.stream.sock.close()
        victim.close()
    link = Link(victim)
    link.stream.send(rdmap.send(1, b"alive"))
    victim.expect_recv(0, 5)
