# SPDX-License-Identifier: GPL-2.0
"""Sends that find no receive posted. The module holds a Send, and the octets behind it, until a receive is posted
or the time limit is over (RFC 5041 section 7.1: recovery by means of the LLP)."""

import contextlib
import errno
import socket
import time

import rdmap
from harness import RNR_SECONDS, RW, Link, case, check_terminate

# Octets to a segment; the last is more than any of these messages.
PIECES = (1, 7, 30, 4000)
# enum ibv_wc_status.
LOC_PROT_ERR, FLUSHED = 4, 5
# include/uapi/linux/if_ether.h
ETH_P_ALL = 3


@contextlib.contextmanager
def copied():
    """Inside the block a packet socket holds a clone of each segment, so that TCP cannot join their buffers."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as sock:
        yield sock


def held(victim, link):
    """The module neither answers nor completes anything for a while."""
    link.stream.silent(0.2)
    assert victim.poll(0) is None, "a completion without a receive"
    assert victim.ask("state") == "RTS", "the QP's state"


def receives(victim, number, text):
    assert victim.ask(f"recv {number}") == "ok"
    victim.expect_recv(number, len(text))
    assert victim.ask(f"buffer {number} {len(text)}") == text.hex(), f"receive {number}: not what was sent"


@case("DDP-51 DDP-65 RPC-05")
def late_receives(victim):
    for pieces in PIECES:
        link = Link(victim, recvs=0)
        link.stream.pieces = pieces
        texts = [b"late %d" % i + bytes(i) for i in range(6)]
        link.stream.send(*(rdmap.send(i + 1, text) for i, text in enumerate(texts)))
        held(victim, link)
        for number, text in enumerate(texts):
            receives(victim, number, text)
        victim.close()


@case("DDP-51 DDP-65 MPA-52")
def late_receives_in_buffers_of_their_own(victim):
    """Each FPDU comes in two segments; the second ends with the FPDU. TCP cannot join the segments in its queue."""
    with copied():
        link = Link(victim, recvs=0)
        texts = [b"apart %d" % i + bytes(i) for i in range(6)]
        for i, text in enumerate(texts):
            fpdu = link.stream.fpdu(rdmap.send(i + 1, text))
            link.stream.send_raw(fpdu[:9])
            link.stream.send_raw(fpdu[9:])
        held(victim, link)
        for number, text in enumerate(texts):
            receives(victim, number, text)


@case("DDP-65 RDMAP-50b")
def late_for_several_segments(victim):
    """The first segment of a message takes the receive; the octets behind the message wait, too."""
    link = Link(victim, recvs=0)
    text = bytes(range(200)) * 5
    made = link.made
    link.stream.send(
        rdmap.send(1, text[:400], last=0), rdmap.send(1, text[400:], mo=400),
        rdmap.write(made.rw, made.at(RW), b"behind"), rdmap.send(2, b"second"),
    )
    held(victim, link)
    assert victim.untouched(), "the Write behind a held Send was placed"
    receives(victim, 0, text)
    receives(victim, 1, b"second")
    assert victim.memory(RW[0], 6) == b"behind", "the Write behind the Send"


@case("DDP-65")
def closed_behind_a_held_send(victim):
    link = Link(victim, recvs=0)
    link.stream.send(rdmap.send(1, b"last words"))
    link.stream.sock.shutdown(socket.SHUT_WR)
    # The owner gets the event in time, and may still post receives for the held Sends.
    victim.expect_event("DISCONNECTED", ms=int(RNR_SECONDS * 500))
    receives(victim, 0, b"last words")
    assert victim.event(0) is None, "a second event"


@case("DDP-65")
def reset_behind_a_held_send(victim):
    link = Link(victim, recvs=0)
    link.stream.send(rdmap.send(1, b"lost"))
    held(victim, link)
    begin = time.monotonic()
    link.stream.reset()
    victim.expect_event("DISCONNECTED", int(RNR_SECONDS * 500), errno.ECONNRESET)
    assert time.monotonic() - begin < RNR_SECONDS / 2
    assert victim.ask("state") == "ERR", "the QP's state"


@case("DDP-65 RDMAP-31")
def terminate_behind_a_held_send(victim):
    """A Terminate is read in order, behind the Send. The FIN that follows is reported in a second."""
    link = Link(victim, recvs=0)
    assert victim.ask("read 7 1234 0 100") == "ok"
    link.stream.send(rdmap.send(1, b"last words"))
    link.recv_segment().read()
    held(victim, link)
    begin = time.monotonic()
    link.stream.send(rdmap.terminate(0, 0, 0))
    link.stream.sock.shutdown(socket.SHUT_WR)
    victim.expect_event("DISCONNECTED", ms=int(RNR_SECONDS * 500))
    assert time.monotonic() - begin < RNR_SECONDS / 2, "DISCONNECTED is late"
    assert victim.ask("state") == "RTS", "the QP's state"
    receives(victim, 0, b"last words")
    got = victim.poll()
    assert got and got[:3] == ("send", 7, FLUSHED), f"completion {got} of the Read"
    assert victim.ask("state") == "ERR", "the QP's state"
    assert victim.event(100) is None, "a second event"
    link.stream.expect_close()


@case("DDP-65 RDMAP-31")
def terminate_and_no_receive(victim):
    """The hold ends at its limit, too, where a Terminate is behind it."""
    link = Link(victim, recvs=0)
    begin = time.monotonic()
    link.stream.send(rdmap.send(1, b"lost"), rdmap.terminate(0, 0, 0))
    link.stream.sock.shutdown(socket.SHUT_WR)
    victim.expect_event("DISCONNECTED", ms=int(RNR_SECONDS * 500))
    bad = rdmap.send(1, b"lost")
    link.expect_terminate("1/2/02", bad)
    assert time.monotonic() - begin > 0.95 * RNR_SECONDS, "the hold is short"
    assert victim.ask("state") == "ERR", "the QP's state"


@case("DDP-65 RDMAP-65")
def local_error_with_a_held_send(victim):
    """A Send with a bad local key ends the hold, and a Terminate leaves."""
    link = Link(victim, recvs=0)
    link.stream.send(rdmap.send(1, b"lost"))
    held(victim, link)
    begin = time.monotonic()
    assert victim.ask("send 7 100 b") == "ok"
    segment = link.recv_segment()
    assert segment.is_terminate(), f"segment {segment.raw[:20].hex()}"
    check_terminate(segment, "0/0/00")
    link.stream.expect_close()
    assert time.monotonic() - begin < RNR_SECONDS / 2, "the hold went on"
    assert victim.poll() == ("send", 7, LOC_PROT_ERR, 0), "the completion"
    victim.expect_event("DISCONNECTED", error=errno.ECONNABORTED)
    assert victim.ask("state") == "ERR", "the QP's state"
    # The Send is dropped: a receive that is posted now is flushed.
    assert victim.ask("recv 0") == "ok"
    assert victim.poll() == ("recv", 0, FLUSHED, 0), "the receive"


@case("DDP-65")
def destroyed_with_a_held_send(victim):
    link = Link(victim, recvs=0)
    link.stream.send(rdmap.send(1, b"lost"))
    held(victim, link)
    victim.close()
    link.stream.expect_close(RNR_SECONDS / 2)


@case("DDP-65")
def sends_with_a_held_send(victim):
    """The other direction sends while a Send is held."""
    link = Link(victim, recvs=0)
    link.stream.send(rdmap.send(1, b"held"))
    held(victim, link)
    assert victim.ask("send 1 100 -") == "ok"
    assert len(link.recv_segment().data) == 100
    got = victim.poll()
    assert got and got[:3] == ("send", 1, 0), f"completion {got}"
    receives(victim, 0, b"held")


@case("DDP-65")
def read_behind_a_held_send(victim):
    link = Link(victim, recvs=0)
    assert victim.ask("read 7 1234 0 100") == "ok"
    # The peer's first FPDU, a Send, allows the module to send, and is held.
    link.stream.send(rdmap.send(1, b"first"))
    sink, sink_to = link.recv_segment().read()[:2]
    link.stream.send(rdmap.tagged(rdmap.READ_RESPONSE, sink, sink_to, bytes(100)))
    held(victim, link)
    receives(victim, 0, b"first")
    got = victim.poll()
    assert got and got[:3] == ("send", 7, 0), f"completion {got}"


@contextlib.contextmanager
def short_window():
    """Inside the block TCP's receive buffers keep their first length."""
    path = "/proc/sys/net/ipv4/tcp_rmem"
    with open(path, encoding="ascii") as file:
        before = file.read()
    with open(path, "w", encoding="ascii") as file:
        file.write("4096 65536 65536")
    try:
        yield
    finally:
        with open(path, "w", encoding="ascii") as file:
            file.write(before)


@case("DDP-65")
def closed_window(victim):
    """TCP's window closes, and opens again, with nothing lost."""
    with short_window():
        link = Link(victim, recvs=0)
        sock, text, sent = link.stream.sock, bytes(4000), 0
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
        # More octets than all buffers take. They are made before the hold begins, since CRCs take long in Python.
        fpdus = [link.stream.fpdu(rdmap.send(number, text)) for number in range(1, 65)]
        rest = b""
        sock.settimeout(0.3)
        try:
            for rest in fpdus:
                sent += 1
                while rest:
                    rest = rest[sock.send(rest):]
        except (TimeoutError, socket.timeout):
            pass
        assert rest and sent > 4, f"{sent} messages, and the window is open"
        for number in range(sent):
            assert victim.ask("recv 0") == "ok"
            # The last message has not been sent whole.
            if number == sent - 3:
                sock.settimeout(5)
                sock.sendall(rest)
            victim.expect_recv(0, len(text))


@case("DDP-51 DDP-65 RPC-05 MPA-96 DDP-63")
def no_receive_in_time(victim):
    link = Link(victim, recvs=0)
    bad = rdmap.send(1, b"x")
    begin = time.monotonic()
    link.stream.send(bad, rdmap.send(2, b"behind"))
    link.expect_terminate("1/2/02", bad)
    lasted = time.monotonic() - begin
    assert lasted > 0.95 * RNR_SECONDS, f"after {lasted:.2f} s"
    assert victim.untouched(), "memory was written"
    victim.expect_event("DISCONNECTED", error=errno.ECONNABORTED)
    assert victim.ask("state") == "ERR", "the QP's state"
