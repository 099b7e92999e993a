# SPDX-License-Identifier: GPL-2.0
"""The module as initiator: this peer listens, answers right and wrong, and
serves (or forges) Read Responses."""

import errno
import socket
import time

import mpa
import rdmap
from faults import COPY_PRIVATE_DATA, STREAM_NEW, has_refused_objects, refused_objects
from harness import (ADDRESS, CRC, FALLBACK, FLUSHED, MARKERS, PEER_TO_PEER, RECV_SIZE, REM_ACCESS, REPLY_SECONDS,
                     REVISION, RW, Made, case, check_terminate, needs)
from rdmap import Segment


# Receives that connected() posts, after an error.
ALL_FLUSHED = [(number, FLUSHED) for number in range(4)]


class Listener:
    def __init__(self, room=None):
        self.socket = socket.create_server((ADDRESS, 0), backlog=8)
        if room:
            # An accepted socket inherits the size, which limits its window.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.port = self.socket.getsockname()[1]

    def accept(self, seconds=5.0):
        self.socket.settimeout(seconds)
        sock, _ = self.socket.accept()
        return mpa.Stream(sock)

    def connect(self, victim, ird=16, ord_=16, data="-", recvs=4):
        made = Made(victim.ask(f"connect {ADDRESS} {self.port} {ird} {ord_} {recvs} {RECV_SIZE} {data}"))
        return made


def reply_for(request, rev=None, ird=16, ord_=16, data=b"", r=0, c=0, flags=None, **more):
    """A Reply to this Request. `c` asks for CRCs, and `flags` are A to D of the enhanced word. The default
    names the Write alone as RTR, as common implementations do."""
    rev = request.rev if rev is None else rev
    word = b""
    if rev == 2 and request.s:
        more["s"] = 1
        if flags is None:
            flags = {"a": 1, "c": 1} if request.word["a"] else {}
        word = mpa.enhanced(ird, ord_, **flags)
    return mpa.startup(mpa.REPLY_KEY, rev=rev, c=c, r=r, data=word + data, **more)


def answered(victim, listener=None, **more):
    """A connection that the victim begins, up to this peer's Reply; `more` are arguments of the Reply."""
    listener = listener or Listener()
    listener.connect(victim)
    stream = listener.accept()
    request = stream.recv_startup()
    stream.crc = bool(request.c or more.get("c", 0))
    stream.tx_markers = bool(request.m)
    stream.rx_markers = bool(more.get("m", 0))
    stream.send_raw(reply_for(request, **more))
    return stream, request


def connected(victim, room=None, **more):
    """A connection of the victim to this peer in full operation. `room` is the octets of the receive buffer, and
    `more` are arguments of the Reply."""
    listener = Listener(room)
    made = listener.connect(victim)
    stream = listener.accept()
    request = stream.recv_startup()
    stream.send_raw(reply_for(request, **more))
    stream.crc = bool(request.c or more.get("c", 0))
    stream.tx_markers = bool(request.m)
    stream.rx_markers = bool(more.get("m", 0))
    victim.expect_event("ESTABLISHED")
    expect_rtr(stream)
    return stream, made, request


def expect_rtr(stream):
    """An empty Write comes first, agreed on or not, after which the responder may send."""
    segment = segment_of(stream)
    assert (segment.op, segment.data) == (rdmap.WRITE, b""), f"RTR {segment.raw.hex()}"


def segment_of(stream, seconds=5.0):
    return Segment(stream.recv(seconds))


def expect_terminate(stream, error, bad=None):
    check_terminate(segment_of(stream), error, bad)
    stream.expect_close()


def expect_failure(victim, name, error):
    """The victim's connection fails with this event and error."""
    return victim.expect_event(name, 10000, error)


@case("MPA-60 MPA-70 MPA-31 EMC-01 EMC-12")
def the_request(victim):
    listener = Listener()
    listener.connect(victim, ird=9, ord_=4, data=b"request data".hex())
    stream = listener.accept()
    request = stream.recv_startup()
    assert request.key == mpa.REQUEST_KEY, f"key {request.key}"
    enhanced = int(REVISION == 2)
    assert (request.rev, request.s, request.r) == (REVISION, enhanced, 0), f"rev {request.rev}, {request.flags:02x}"
    assert request.flags & 0x0F == 0, f"reserved bits {request.flags:02x}"
    assert (request.c, request.m) == (int(CRC), int(MARKERS)), f"C {request.c} M {request.m}"
    if REVISION == 2:
        asked = int(PEER_TO_PEER)
        # Never the zero-length Send (EMC-12).
        wanted = {"a": asked, "b": 0, "c": asked, "d": asked, "ird": 9, "ord": 4}
        assert request.word == wanted, f"the enhanced word {request.word}, wanted {wanted}"
    else:
        assert request.word is None, "an enhanced word in revision 1"
    assert request.data == b"request data", f"private data {request.data}"
    stream.silent(0.3)
    stream.send_raw(reply_for(request, data=b"reply data"))
    event = victim.expect_event("ESTABLISHED")
    assert event[4] == b"reply data", f"private data {event[4]}"


@case("MPA-14")
def crc_that_one_end_asks_for(victim):
    # C is set in exactly one frame: in the Reply with crc=0, else in the Request.
    stream, _, request = connected(victim, c=int(not CRC))
    assert request.c == int(CRC), f"C {request.c} in the Request"
    assert victim.ask("send 1 64 -") == "ok"
    assert len(segment_of(stream).data) == 64
    assert stream.last_crc_good, "our FPDU's CRC"
    assert victim.poll() == ("send", 1, 0, 64)
    stream.send(rdmap.send(1, b"back"))
    victim.expect_recv(0, 4)
    stream.send_raw(stream.fpdu(rdmap.send(2, b"bad"), crc_xor=1))
    expect_terminate(stream, "2/0/02")


@case("MPA-21 MPA-23 MPA-25 MPA-26")
def reply_asks_for_markers(victim):
    stream, _, _ = connected(victim, m=1)
    # An initiator that has received a message sends no further zero-length Write.
    stream.send(rdmap.send(1, b"here"))
    victim.expect_recv(0, 4)
    for number, size in enumerate((1, 100, 470, 474, 478, 500, 1000, 5000), start=1):
        assert victim.ask(f"send {number} {size} -") == "ok"
        got = 0
        while got < size:
            segment = segment_of(stream)
            assert (segment.op, segment.msn, segment.mo) == (rdmap.SEND, number, got), f"{segment.raw[:18].hex()}"
            got += len(segment.data)
        assert segment.last and got == size, f"{got} of {size} octets"


@case("EMC-07 EMC-09 VRB-02")
def depths_are_told(victim):
    # The responder's IRD and ORD in the Reply, and those in the event; a depth that is not stated has a default.
    said = ((3, 5, (3, 5)), (0, 0, (0, 0)), (0x3FFF, 0x3FFF, (16, 16)), (0x3FFF, 2, (16, 2)), (300, 16, (255, 16)))
    for ird, ord_, wanted in said if REVISION == 2 else ((3, 5, (16, 16)),):
        answered(victim, ird=ird, ord_=ord_)
        event = victim.expect_event("ESTABLISHED")
        assert event[2:4] == wanted, f"IRD and ORD {ird} and {ord_} are told as {event[2:4]}, wanted {wanted}"
        victim.close()


@case("EMC-17 VRB-07")
def reply_that_cannot_be_handed_up(victim):
    # Private data is legal up to 512 octets, and iw_cm has room for 255: a local error (RFC 6581 9.3).
    stream, _ = answered(victim, data=bytes(300))
    if REVISION == 2:
        expect_terminate(stream, "2/0/05")
    else:
        stream.expect_close()
    expect_failure(victim, "CONNECT_ERROR", errno.EMSGSIZE)


def only_try(listener):
    """No second connection comes."""
    try:
        listener.accept(0.5)
    except (TimeoutError, socket.timeout):
        return
    raise AssertionError("a second try that nobody wants")


def second_try(victim, listener, data=b""):
    """A second connection comes, with revision 1 (EMC-05). It reaches full operation."""
    stream = listener.accept()
    request = stream.recv_startup()
    assert (request.rev, request.s, request.data) == (1, 0, data), f"rev {request.rev}, data {request.data}"
    stream.tx_markers = bool(request.m)
    stream.crc = bool(request.c)
    stream.send_raw(reply_for(request))
    victim.expect_event("ESTABLISHED")
    expect_rtr(stream)
    assert victim.ask("send 1 10 -") == "ok"
    assert len(segment_of(stream).data) == 10


@case("EMC-17")
def set_up_without_memory(victim):
    # Neither the stream nor the event has memory: local errors without a code of their own (RFC 6581 9.3).
    needs(REVISION == 2, "mpa_rev=2")
    needs(has_refused_objects(), "fault injection")
    for function, started in ((STREAM_NEW, False), (COPY_PRIVATE_DATA, True)):
        with refused_objects(function):
            stream, _ = answered(victim, data=b"private")
            if started:
                expect_rtr(stream)
            expect_terminate(stream, "2/0/05")
            expect_failure(victim, "CONNECT_ERROR", errno.ENOMEM)
        victim.close()


@case("EMC-04 EMC-05")
def reply_of_another_revision(victim):
    listener = Listener()
    stream, _ = answered(victim, listener, rev=3 - REVISION)
    stream.expect_close()
    if REVISION == 2 and FALLBACK:
        second_try(victim, listener)
    else:
        expect_failure(victim, "CONNECT_ERROR", errno.EPROTO)
        only_try(listener)


@case("EMC-10 EMC-11 EMC-13 EMC-14 (initiator)")
def rtr_that_is_picked(victim):
    needs(PEER_TO_PEER, "peer_to_peer=1")
    for flags, op in (
        ({"c": 1}, rdmap.WRITE),
        ({"d": 1}, rdmap.READ_REQUEST),
        ({"b": 1, "d": 1}, rdmap.READ_REQUEST),
        ({"b": 1, "c": 1, "d": 1}, rdmap.WRITE),
    ):
        stream, _ = answered(victim, flags={"a": 1, **flags})
        victim.expect_event("ESTABLISHED")
        segment = segment_of(stream)
        assert segment.op == op, f"{flags}: RTR {segment.raw.hex()}"
        if op == rdmap.WRITE:
            assert segment.data == b"", f"{flags}: RTR {segment.raw.hex()}"
        else:
            sink, sink_to, size, _, _ = segment.read()
            assert size == 0, f"{flags}: RTR {segment.raw.hex()}"
            stream.send(rdmap.tagged(rdmap.READ_RESPONSE, sink, sink_to))
        stream.send(rdmap.send(1, b"first"))
        victim.expect_recv(0, 5)
        assert victim.poll(100) is None, f"{flags}: the RTR made a completion"
        assert victim.ask("send 1 10 -") == "ok"
        assert segment_of(stream).op == rdmap.SEND
        victim.close()


@case("EMC-10 EMC-13")
def no_rtr_to_pick(victim):
    needs(PEER_TO_PEER, "peer_to_peer=1")
    # No RTR, one that was not offered, and flags that mean nothing without A.
    for flags in ({"a": 1}, {"a": 1, "b": 1}, {"c": 1}, {"b": 1, "c": 1, "d": 1}):
        stream, _ = answered(victim, flags=flags)
        expect_terminate(stream, "2/0/07")
        expect_failure(victim, "CONNECT_ERROR", errno.EPROTO)
        victim.close()


@case("MPA-74 MPA-64")
def rejected(victim):
    for data in (b"", b"no", bytes(range(150))):
        listener = Listener()
        listener.connect(victim)
        stream = listener.accept()
        stream.send_raw(reply_for(stream.recv_startup(), r=1, data=data))
        event = victim.expect_event("REJECTED", error=errno.ECONNREFUSED)
        assert event[4] == data, f"private data {event[4]}"
        stream.expect_close()
        victim.close()


@case("MPA-61 MPA-74 MPA-79 MPA-95")
def bad_reply(victim):
    def wrong_key(good):
        return b"X" + good[1:]

    def a_request(good):
        return mpa.REQUEST_KEY + good[16:]

    def bad_revision(good):
        return good[:17] + b"\x03" + good[18:]

    def too_long(good):
        return good[:18] + b"\x02\x01" + bytes(513)

    for spoil in (wrong_key, a_request, bad_revision, too_long):
        listener = Listener()
        listener.connect(victim)
        stream = listener.accept()
        stream.send_raw(spoil(reply_for(stream.recv_startup())))
        stream.expect_close()
        expect_failure(victim, "CONNECT_ERROR", errno.EPROTO)
        victim.close()


@case("MPA-80")
def silent_responder(victim):
    listener = Listener()
    listener.connect(victim)
    stream = listener.accept()
    stream.recv_startup()
    begin = time.monotonic()
    expect_failure(victim, "UNREACHABLE", errno.ETIMEDOUT)
    took = time.monotonic() - begin
    assert took > REPLY_SECONDS * 0.5, f"gave up after {took:.1f} s"
    stream.expect_close()


@case("MPA-54")
def hang_up_instead_of_a_reply(victim):
    for how in ("fin", "rst", "half a reply", "half a reply in one segment with FIN"):
        listener = Listener()
        listener.connect(victim)
        stream = listener.accept()
        request = stream.recv_startup()
        half = how.startswith("half")
        if how.endswith("FIN"):
            stream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        if half:
            stream.send_raw(reply_for(request)[:12])
        # The module asks a peer that closes on rev 2 again with rev 1 (EMC-05): that connection is refused, too.
        listener.socket.close()
        if how == "rst":
            stream.reset()
        else:
            stream.sock.close()
        again = not half and FALLBACK and REVISION == 2
        expect_failure(victim, "REJECTED", errno.ECONNREFUSED if again else errno.ECONNRESET)
        victim.close()


@case("EMC-05")
def old_responder(victim):
    listener = Listener()
    listener.connect(victim, data=b"old".hex())
    first = listener.accept()
    assert first.recv_startup().rev == REVISION
    first.sock.close()
    if REVISION == 1 or not FALLBACK:
        expect_failure(victim, "REJECTED", errno.ECONNRESET)
        only_try(listener)
    else:
        second_try(victim, listener, b"old")


@case("EMC-08")
def reply_wants_more_reads_than_we_take(victim):
    for ord_ in (129, 16382):
        stream, _ = answered(victim, ord_=ord_)
        expect_terminate(stream, "2/0/06")
        expect_failure(victim, "CONNECT_ERROR", errno.EPROTO)
        victim.close()


@case("MPA-84 (trap 14)")
def fpdu_right_behind_the_reply(victim):
    listener = Listener()
    listener.connect(victim)
    stream = listener.accept()
    request = stream.recv_startup()
    stream.crc = bool(request.c)
    stream.tx_markers = bool(request.m)
    assert stream.tx_markers == MARKERS, f"M {request.m}"
    stream.send_raw(reply_for(request) + stream.fpdu(rdmap.send(1, b"at once")))
    victim.expect_event("ESTABLISHED")
    victim.expect_recv(0, 7)


@case("MPA-52 MPA-10")
def reply_one_octet_at_a_time(victim):
    listener = Listener()
    listener.connect(victim)
    stream = listener.accept()
    request = stream.recv_startup()
    stream.pieces = 1
    stream.send_raw(reply_for(request, data=b"slow reply"))
    assert victim.expect_event("ESTABLISHED")[4] == b"slow reply"


@case("RDMAP-12 RDMAP-17 RDMAP-60 RDMAP-62 EMC-08")
def reads_one_at_a_time(victim):
    # The Reply's IRD is 1: one Read may be outstanding.
    stream, made, _ = connected(victim, ird=1)
    for number in range(4):
        assert victim.ask(f"read {number} {0xAB000000 + number:x} {4096 * number:x} 100") == "ok"
    for number in range(4):
        segment = segment_of(stream)
        assert segment.op == rdmap.READ_REQUEST and segment.qn == 1 and segment.msn == number + 1 and segment.mo == 0
        sink, sink_to, size, source, source_to = segment.read()
        assert (size, source, source_to) == (100, 0xAB000000 + number, 4096 * number), f"request {number}"
        stream.silent(0.1)
        data = bytes([number + 1]) * 100
        # In two segments, the first half first.
        stream.send(
            rdmap.tagged(rdmap.READ_RESPONSE, sink, sink_to, data[:40], last=0),
            rdmap.tagged(rdmap.READ_RESPONSE, sink, sink_to + 40, data[40:]),
        )
        got = victim.poll()
        assert got == ("send", number, 0, 100), f"completion {got}"
        assert victim.memory(RW[0], 100) == data


@case("RDMAP-17 RDMAP-55")
def forged_responses(victim):
    def other_key(sink, to):
        return rdmap.tagged(rdmap.READ_RESPONSE, sink ^ 0x100, to, bytes(100))

    def other_offset(sink, to):
        return rdmap.tagged(rdmap.READ_RESPONSE, sink, to + 8, bytes(100))

    def too_long(sink, to):
        return rdmap.tagged(rdmap.READ_RESPONSE, sink, to, bytes(101))

    def too_short(sink, to):
        return rdmap.tagged(rdmap.READ_RESPONSE, sink, to, bytes(99))

    for forge, error in (
        (other_key, "1/1/00"), (other_offset, "1/1/01"), (too_long, "1/1/01"), (too_short, "0/2/ff"),
    ):
        stream, made, _ = connected(victim)
        assert victim.ask("read 1 1234 0 100") == "ok"
        sink, sink_to = segment_of(stream).read()[:2]
        bad = forge(sink, sink_to)
        stream.send(bad)
        expect_terminate(stream, error, bad)
        victim.expect_completions([(1, FLUSHED)], ALL_FLUSHED)
        if forge is not too_short:
            assert victim.untouched(), f"{forge.__name__}: memory was written"
        victim.close()


@case("RDMAP-50e")
def fence(victim):
    stream, made, _ = connected(victim)
    assert victim.ask("read 1 1234 0 100") == "ok"
    assert victim.ask("send 2 10 f") == "ok"
    sink, sink_to = segment_of(stream).read()[:2]
    stream.silent(0.3)
    stream.send(rdmap.tagged(rdmap.READ_RESPONSE, sink, sink_to, bytes(100)))
    assert segment_of(stream).op == rdmap.SEND, "the fenced Send"
    assert [victim.poll()[1], victim.poll()[1]] == [1, 2], "order of completions"


@case("RDMAP-51 RDMAP-65")
def completions_wait_for_the_read(victim):
    stream, made, _ = connected(victim)
    assert victim.ask("read 1 1234 0 100") == "ok"
    assert victim.ask("send 2 10 -") == "ok"
    sink, sink_to = segment_of(stream).read()[:2]
    assert segment_of(stream).op == rdmap.SEND, "an unfenced Send waits for nobody"
    got = victim.poll(300)
    assert got is None, f"{got} before the Read completed"
    stream.reset()
    victim.expect_completions([(1, FLUSHED), (2, FLUSHED)], ALL_FLUSHED)


@case("DDP-01 DDP-02 DDP-25 RDMAP-20 MPA-04 MPA-40")
def what_we_send(victim):
    stream, made, _ = connected(victim)
    assert victim.ask("write 1 77 5000 5000") == "ok"
    assert victim.ask("send 2 4500 -") == "ok"
    assert victim.ask("send 3 10 s") == "ok"
    assert victim.ask("send 4 0 -") == "ok"
    got = 0
    while got < 5000:
        segment = segment_of(stream)
        assert (segment.op, segment.stag, segment.to) == (rdmap.WRITE, 0x77, 0x5000 + got), f"{segment.raw[:14].hex()}"
        got += len(segment.data)
        assert segment.last == (got == 5000), "L"
    got = 0
    while got < 4500:
        segment = segment_of(stream)
        assert (segment.op, segment.msn, segment.mo) == (rdmap.SEND, 1, got), f"{segment.raw[:18].hex()}"
        got += len(segment.data)
        assert segment.last == (got == 4500), "L"
    segment = segment_of(stream)
    assert (segment.op, segment.msn, len(segment.data), segment.inv) == (rdmap.SEND_SE, 2, 10, 0), "the solicited Send"
    segment = segment_of(stream)
    assert (segment.op, segment.msn, len(segment.data)) == (rdmap.SEND, 3, 0), "the empty Send"


@case("DDP-72 MPA-90 MPA-91")
def graceful_close(victim):
    stream, made, _ = connected(victim)
    for number in range(20):
        assert victim.ask(f"send {number} 3000 -") == "ok"
    assert victim.ask("disconnect") == "ok"
    octets = 0
    try:
        while True:
            octets += len(segment_of(stream).data)
    except mpa.Closed as closed:
        assert not closed.reset, "reset instead of FIN"
    assert octets == 60000, f"{octets} octets of 60000 before the FIN"
    stream.sock.close()
    victim.expect_event("DISCONNECTED")


@case("RDMAP-31 RDMAP-41 RDMAP-53 (status)")
def terminate_tells_the_work_request(victim):
    # A peer's protection error shows in the status of the Read that it is about, and of no other message. All sets
    # of M, D and R: the length is there with M or D, the headers with D and with R (RFC 5040 section 4.8).
    for flags in range(8):
        for about_the_read in (True, False):
            stream, _, _ = connected(victim)
            assert victim.ask("read 1 1234 0 100") == "ok"
            read = segment_of(stream).raw
            quoted = read if about_the_read else rdmap.write(0x77, 0, b"data")
            rest = b""
            if flags & 6:
                # Without M the field has any value.
                rest += len(quoted).to_bytes(2, "big") if flags & 4 else b"\xff\xff"
            if flags & 2:
                rest += quoted[:18] if about_the_read else quoted[:14]
            if flags & 1:
                rest += read[18:]
            stream.send(rdmap.terminate(0, 1, 0, flags=flags, rest=rest))
            stream.expect_close()
            # Without a DDP header the error may be that of the oldest Read.
            status = REM_ACCESS if about_the_read or not flags & 2 else FLUSHED
            try:
                victim.expect_completions([(1, status)], ALL_FLUSHED)
            except AssertionError as failure:
                raise AssertionError(f"flags {flags}, about the Read {about_the_read}: {failure}") from None
            victim.close()
