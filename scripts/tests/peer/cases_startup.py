# SPDX-License-Identifier: GPL-2.0
"""Start-up frames against the module as responder (RFC 5044 7, RFC 6581)."""

import errno
import socket
import struct
import time

import mpa
import rdmap
from faults import STREAM_NEW, has_refused_objects, refused_objects
from harness import (ADDRESS, CRC, FLUSHED, MARKERS, PORT, RECV_SIZE, REQUEST_SECONDS, Link, Made, case,
                     check_terminate, needs, request, tcp)
from rdmap import Segment

# The deepest queues of the device, and what an event has for depths that a Request does not state.
MAX_RD_ATOM = 128
UNSAID = (MAX_RD_ATOM, MAX_RD_ATOM)


def refused(victim, octets, what, fin=False):
    """These octets must end in a close, and no connection request may show up."""
    stream = tcp()
    try:
        stream.send_raw(octets)
        if fin:
            stream.sock.shutdown(1)
    except ConnectionError:
        # The module has reset before all octets were sent. The event is checked below.
        pass
    try:
        stream.expect_close(REQUEST_SECONDS + 3)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
    event = victim.event(50)
    assert event is None, f"{what}: event {event}"


@case("MPA-12 MPA-31 MPA-60 EMC-04 EMC-06 EMC-07")
def default_reply(victim):
    link = Link(victim, ird=5, ord_=7, accept_data="616263", data=b"hello")
    reply = link.reply
    assert link.request_event[4] == b"hello", f"private data {link.request_event[4]}"
    assert (reply.rev, reply.s, reply.r) == (2, 1, 0), f"Reply rev {reply.rev} flags {reply.flags:02x}"
    assert reply.c == 1, "the initiator asked for CRC"
    assert reply.m == int(MARKERS), "M"
    assert reply.data == b"abc", f"private data {reply.data}"
    # IRD rises to the Request's ORD, and ORD stays below the Request's IRD.
    assert (reply.word["ird"], reply.word["ord"]) == (16, 7), f"IRD and ORD: {reply.word}"


def accepted(victim, stream):
    """The Request that `stream` carries is accepted, and a message arrives."""
    victim.expect_event("CONNECT_REQUEST")
    Made(victim.ask(f"accept 16 16 4 {RECV_SIZE} -"))
    assert not stream.recv_startup().r, "rejected"
    stream.send(rdmap.send(1, b"rides"))
    victim.expect_event("ESTABLISHED")
    victim.expect_recv(0, 5)


@case("MPA-83")
def request_on_the_ack_of_the_handshake(victim):
    # TCP sends the ACK alone after 200 ms: a busy machine may be slower.
    for _ in range(3):
        stream = tcp(rides=True)
        stream.send_raw(request())
        # tcpi_segs_out: SYN, and the ACK with the Request.
        info = stream.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 140)
        segments = struct.unpack_from("=I", info, 136)[0]
        accepted(victim, stream)
        if segments == 2:
            return
    raise AssertionError(f"the Request has a segment of its own: {segments} segments")


@case("MPA-83")
def request_in_the_syn(victim):
    # TCP Fast Open (RFC 7413), which the test's sysctl turns on for all listeners, without a cookie.
    with open("/proc/sys/net/ipv4/tcp_fastopen", encoding="ascii") as file:
        needs(int(file.read()) & 0x602 == 0x602, "Fast Open")
    sock = socket.socket()
    sock.settimeout(5)
    sent = sock.sendto(request(), socket.MSG_FASTOPEN, (ADDRESS, PORT))
    assert sent == len(request()), f"{sent} octets sent"
    stream = mpa.Stream(sock)
    accepted(victim, stream)
    # TCPI_OPT_SYN_DATA: the SYN's data were acknowledged.
    options = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5]
    assert options & 32, f"the SYN carried no data: options {options:#x}"


@case("MPA-12 MPA-14 MPA-15")
def crc_choice(victim):
    for asked in (0, 1):
        link = Link(victim, c_flag=asked)
        assert link.reply.c == int(CRC or asked), f"C={link.reply.c} to a Request with C={asked}"
        link.stream.send(rdmap.send(1, b"after the choice"))
        victim.expect_recv(0, 16)
        assert victim.ask("send 1 100 -") == "ok"
        assert len(link.recv_segment().data) == 100
        assert victim.poll() == ("send", 1, 0, 100)
        if link.reply.c:
            # Also where C is in the Reply alone, both ends generate CRCs and check them.
            assert link.stream.last_crc_good, "our FPDU's CRC"
            link.stream.send_raw(link.stream.fpdu(rdmap.send(2, b"bad"), crc_xor=1))
            link.expect_terminate("2/0/02")
        victim.close()


@case("EMC-04 EMC-18 MPA-66")
def revision_one(victim):
    link = Link(victim, rev=1, data=b"one")
    assert (link.reply.rev, link.reply.s) == (1, 0), f"Reply rev {link.reply.rev} S {link.reply.s}"
    assert link.reply.word is None and link.reply.data == b"", "an enhanced word to a rev 1 peer"
    assert link.request_event[4] == b"one", "private data"
    assert link.request_event[2:4] == UNSAID, f"ORD and IRD of a rev 1 peer: {link.request_event}"
    link.stream.send(rdmap.send(1, b"x"))
    victim.expect_recv(0, 1)


@case("EMC-07 EMC-09 VRB-02 VRB-07")
def request_depths_are_told(victim):
    # The event has ORD and IRD of the Request, whatever the device supports; its fields have 8 bits. rdma_accept takes
    # the lower one of a depth and the device's if it gets 255.
    open_, most = 0x3FFF, MAX_RD_ATOM
    for ird, ord_, told, reply in (
        (3, 5, (5, 3), (5, 3)),
        (0, 0, (0, 0), (0, 0)),
        (130, 200, (200, 130), (most, most)),
        (200, 1, (1, 200), (1, most)),
        (300, 256, (255, 255), (most, most)),
        (open_, 2, (2, most), (2, open_)),
        (4, open_, (most, 4), (open_, 4)),
    ):
        link = Link(victim, ird=255, ord_=255, request_ird=ird, request_ord=ord_)
        event, word = link.request_event[2:4], link.reply.word
        assert event == told, f"ORD and IRD {ord_} and {ird} are told as {event}, wanted {told}"
        got = word["ird"], word["ord"]
        assert got == reply, f"ORD and IRD {ord_} and {ird} are answered by {got}, wanted {reply}"
        link.stream.send(rdmap.send(1, b"x"))
        victim.expect_recv(0, 1)
        victim.close()


@case("EMC-02")
def revision_two_without_the_word(victim):
    link = Link(victim, s=0, data=b"plain")
    assert link.request_event[4] == b"plain", f"private data {link.request_event[4]}"
    assert link.request_event[2:4] == UNSAID, f"ORD and IRD of a peer that states none: {link.request_event}"
    link.stream.send(rdmap.send(1, b"x"))
    victim.expect_recv(0, 1)


@case("EMC-03")
def enhanced_without_room(victim):
    for length in range(4):
        stream = tcp()
        stream.send_raw(mpa.startup(mpa.REQUEST_KEY, s=1, data=bytes(length)))
        stream.expect_close(REQUEST_SECONDS + 3)
        assert victim.event(50) is None, f"PD_Length {length} was handed up"


@case("MPA-61 MPA-76")
def wrong_key(victim):
    for at in range(16):
        octets = bytearray(request())
        octets[at] ^= 0x20
        refused(victim, bytes(octets), f"key wrong at {at}")
    refused(victim, mpa.startup(mpa.REPLY_KEY, rev=1), "a Reply from an initiator")


@case("MPA-66")
def wrong_revision(victim):
    for rev in (0, 3, 255):
        refused(victim, mpa.startup(mpa.REQUEST_KEY, rev=rev), f"rev {rev}")


@case("MPA-67 MPA-81 VRB-07")
def private_data_too_long(victim):
    for length in (513, 4096, 65535):
        refused(victim, mpa.startup(mpa.REQUEST_KEY, rev=1, length=length) + bytes(length), f"PD_Length {length}")
    # 256 to 512 octets are legal on the wire, but iw_cm cannot take them whole: refused, not cut.
    for length in (256, 512):
        stream = tcp()
        stream.send_raw(mpa.startup(mpa.REQUEST_KEY, rev=1, data=bytes(length)))
        reply = stream.recv_startup(REQUEST_SECONDS + 3)
        assert reply.r == 1, f"{length} octets accepted"
        stream.expect_close()
        event = victim.event(50)
        assert event is None, f"{length} octets of private data: event {event}"


@case("MPA-68 EMC-06")
def private_data_lengths(victim):
    for rev, length in ((1, 0), (1, 1), (1, 255), (2, 0), (2, 1), (2, 251), (2, 255)):
        data = bytes(i * 7 & 255 for i in range(length))
        link = Link(victim, rev=rev, data=data, accept_data=data[::-1].hex() or "-")
        assert link.request_event[4] == data, f"rev {rev}, {length} octets: {len(link.request_event[4])} came up"
        assert link.reply.data == data[::-1], f"rev {rev}, {length} octets back: {len(link.reply.data)}"
        victim.close()


@case("MPA-64 MPA-65")
def reserved_bits(victim):
    link = Link(victim, r=1, reserved=0x0F)
    assert link.reply.flags & 0x0F == 0, f"reserved bits in the Reply: {link.reply.flags:02x}"
    link.stream.send(rdmap.send(1, b"x"))
    victim.expect_recv(0, 1)


@case("MPA-71")
def garbage(victim):
    refused(victim, bytes(range(64)), "garbage")
    refused(victim, request()[:19], "19 octets and FIN", fin=True)
    refused(victim, request(data=b"12345678")[:-1], "all but the last octet and FIN", fin=True)
    refused(victim, b"", "FIN at once", fin=True)


@case("MPA-80")
def stalls(victim):
    for octets in (b"", request()[:10], request(data=b"abcd")[:-1]):
        stream = tcp()
        stream.send_raw(octets)
        took = stream.expect_close(REQUEST_SECONDS + 4)
        assert took > REQUEST_SECONDS * 0.5, f"{len(octets)} octets: closed after only {took:.1f} s"
    assert victim.event(50) is None, "a stalled peer was announced"


@case("MPA-86")
def fpdu_before_the_reply(victim):
    stream = tcp()
    stream.send_raw(request() + stream.fpdu(rdmap.send(1, b"too early")))
    event = victim.event(500)
    if event:
        # The event may precede the FPDU. The accepted connection must not be established.
        victim.ask(f"accept 16 16 4 {RECV_SIZE} -")
    try:
        stream.recv_startup(5)
        stream.expect_close()
    except mpa.Closed:
        pass
    if event:
        got = victim.poll(200)
        assert got in (None, ("recv", 0, FLUSHED, 0)), f"an FPDU before the Reply was delivered: {got}"


@case("MPA-10 MPA-52 MPA-57")
def one_octet_per_segment(victim):
    stream = tcp()
    stream.pieces = 1
    stream.send_raw(request(data=b"slow"))
    event = victim.expect_event("CONNECT_REQUEST")
    assert event[4] == b"slow"
    made = Made(victim.ask(f"accept 16 16 4 {RECV_SIZE} -"))
    stream.tx_markers = bool(stream.recv_startup().m)
    victim.expect_event("ESTABLISHED")
    stream.send(rdmap.send(1, b"one octet at a time"), rdmap.write(made.rw, made.at((4099, 0)), b"placed"))
    stream.send(rdmap.send(2, b""))
    victim.expect_recv(0, 19)
    victim.expect_recv(1, 0)
    assert victim.ask("buffer 0 19") == b"one octet at a time".hex()
    assert victim.memory(4099, 6) == b"placed"


@case("MPA-72 MPA-77")
def reject_with_data(victim):
    for data in (b"", b"no", bytes(range(200))):
        stream = tcp()
        stream.send_raw(request())
        victim.expect_event("CONNECT_REQUEST")
        assert victim.ask(f"reject {data.hex() or '-'}") == "ok"
        reply = stream.recv_startup()
        assert reply.r == 1, "R is not set"
        assert reply.data == data, f"private data {reply.data}"
        stream.expect_close()


@case("MPA-75 EMC-15")
def responder_waits_for_the_first_fpdu(victim):
    link = Link(victim)
    assert victim.ask("send 7 100 -") == "ok"
    link.stream.silent(0.5)
    link.stream.send(rdmap.send(1, b"go"))
    segment = link.recv_segment()
    assert (segment.op, segment.msn, segment.mo, len(segment.data)) == (rdmap.SEND, 1, 0, 100), "the queued Send"


def ready(link, kind):
    """Sends an RTR frame: a FULPDU of no octets, a Send of none, an empty Write or Read."""
    if kind == "read":
        link.stream.send(rdmap.read_request(1, 0, 0, 0, 0, 0))
        segment = link.recv_segment()
        assert (segment.op, segment.data) == (rdmap.READ_RESPONSE, b""), "the RTR Read's Response"
    else:
        link.stream.send({"fulpdu": b"", "send": rdmap.send(1), "write": rdmap.write(0, 0)}[kind])


@case("EMC-10 EMC-11 EMC-14 EMC-16")
def peer_to_peer(victim):
    for b, c, d, kinds in (
        (0, 1, 0, ("write",)),
        (0, 0, 1, ("read",)),
        (1, 0, 0, ("fulpdu", "send")),
        (0, 1, 1, ("write", "read")),
        (1, 1, 1, ("fulpdu", "send", "write", "read")),
    ):
        for kind in kinds:
            link = Link(victim, a=1, b=b, c=c, d=d)
            word = link.reply.word
            # The Reply names all RTR frames that suit both ends, and the initiator picks one (RFC 6581 9.2).
            assert [word[flag] for flag in "abcd"] == [1, b, c, d], f"B C D {b}{c}{d}: {word}"
            event = victim.event(200)
            assert event is None, f"{event} before the RTR"
            ready(link, kind)
            victim.expect_event("ESTABLISHED")
            assert victim.poll(100) is None, f"{kind}: the RTR made a completion"
            # Now the responder may send first. The RTR has taken no receive.
            assert victim.ask("send 1 10 -") == "ok"
            assert link.recv_segment().op == rdmap.SEND
            assert victim.poll() == ("send", 1, 0, 10)
            link.stream.send(rdmap.send(2 if kind == "send" else 1, b"next"))
            victim.expect_recv(0, 4)
            victim.close()


def never_established(victim, error):
    """The failure of an accepted connection: iw_cm demands the start and the end, both with the error."""
    victim.expect_event("ESTABLISHED", error=error)
    victim.expect_event("DISCONNECTED", error=error)
    assert victim.event(100) is None, "a third event"


@case("EMC-11 EMC-13")
def rtr_that_nobody_offers(victim):
    link = Link(victim, a=1)
    word = link.reply.word
    # The Reply names all RTR frames that the module supports.
    assert [word[flag] for flag in "abcd"] == [1, 1, 1, 1], f"{word}"
    # An initiator that can send none of the RTR frames sends a Terminate.
    link.stream.send(rdmap.terminate(2, 0, 7))
    link.stream.expect_close()
    never_established(victim, errno.ECONNRESET)


@case("EMC-16")
def rtr_that_was_not_agreed_on(victim):
    for segment in (b"", rdmap.send(1), rdmap.send(1, b"x"), rdmap.read_request(1, 0, 0, 0, 0, 0)):
        link = Link(victim, a=1, c=1)
        link.stream.send(segment)
        check_terminate(link.recv_segment(), "2/0/07")
        link.stream.expect_close()
        never_established(victim, errno.ECONNABORTED)
        victim.close()


@case("EMC-15")
def flags_without_peer_to_peer(victim):
    link = Link(victim, b=1, c=1, d=1)
    word = link.reply.word
    assert [word[flag] for flag in "abcd"] == [0, 0, 0, 0], f"{word}"
    # A Send of nothing is a message, not an RTR.
    link.stream.send(rdmap.send(1))
    victim.expect_recv(0, 0)


@case("EMC-17")
def rtr_that_never_comes(victim):
    # A local error without a code of its own (RFC 6581 9.3).
    link = Link(victim, a=1, c=1)
    begin = time.monotonic()
    check_terminate(link.recv_segment(REQUEST_SECONDS + 4), "2/0/05")
    took = time.monotonic() - begin
    assert took > REQUEST_SECONDS * 0.5, f"gave up after {took:.1f} s"
    link.stream.expect_close()
    never_established(victim, errno.ETIMEDOUT)


@case("EMC-17")
def stream_that_cannot_start(victim):
    # The Reply is sent when the stream has no memory: a local error without a code of its own (RFC 6581 9.3).
    needs(has_refused_objects(), "fault injection")
    for rev in (2, 1):
        stream = tcp()
        stream.send_raw(request(rev=rev))
        victim.expect_event("CONNECT_REQUEST")
        with refused_objects(STREAM_NEW):
            answer = victim.ask(f"accept 16 16 4 {RECV_SIZE} -")
        assert answer == f"error {errno.ENOMEM}", f"the accept: {answer}"
        stream.tx_markers = bool(stream.recv_startup().m)
        # Revision 1 has no Terminate for it.
        if rev == 2:
            check_terminate(Segment(stream.recv()), "2/0/05")
        stream.expect_close()
        victim.close()


@case("EMC-07 EMC-09")
def depths_that_are_not_negotiated(victim):
    open_ = 0x3FFF
    # The Reply's IRD answers the Request's ORD, and its ORD the Request's IRD (RFC 6581 9.1).
    for said, wanted in (((open_, open_), (open_, open_)), ((4, open_), (open_, 4)), ((open_, 4), (16, open_))):
        stream = tcp()
        stream.send_raw(request(ird=said[0], ord_=said[1]))
        victim.expect_event("CONNECT_REQUEST")
        Made(victim.ask(f"accept 16 16 4 {RECV_SIZE} -"))
        word = stream.recv_startup().word
        assert (word["ird"], word["ord"]) == wanted, f"IRD and ORD {said} are answered by {word}"
        victim.expect_event("ESTABLISHED")
        victim.close()


@case("MPA-54 MPA-92")
def hang_up_at_each_state(victim):
    for how in ("fin", "rst"):
        for state in ("connected", "half a request", "requested", "accepted", "half an FPDU"):
            stream = tcp()
            if state == "half a request":
                stream.send_raw(request()[:11])
            elif state != "connected":
                stream.send_raw(request())
                victim.expect_event("CONNECT_REQUEST")
                if state != "requested":
                    victim.ask(f"accept 16 16 4 {RECV_SIZE} -")
                    stream.tx_markers = bool(stream.recv_startup().m)
                    victim.expect_event("ESTABLISHED")
                if state == "half an FPDU":
                    stream.send_raw(stream.fpdu(rdmap.send(1, bytes(100)))[:50])
            if how == "rst":
                stream.reset()
            else:
                stream.sock.close()
            if state in ("accepted", "half an FPDU"):
                # FIN between FPDUs is a graceful end, FIN within one is a lost stream.
                error = errno.ECONNRESET if how == "rst" else errno.EPIPE if state == "half an FPDU" else 0
                victim.expect_event("DISCONNECTED", error=error)
                victim.expect_completions(recvs=[(number, FLUSHED) for number in range(4)])
            elif state == "requested":
                # Accepting a dead request may fail or be followed by an event, but must not hang.
                victim.ask(f"accept 16 16 4 {RECV_SIZE} -")
            victim.close()
    link = Link(victim)
    link.stream.send(rdmap.send(1, b"alive"))
    victim.expect_recv(0, 5)


@case("MPA-80 DDP-94")
def stalled_requests_delay_nothing(victim):
    stalled = []
    for number in range(1000):
        stream = tcp()
        stream.send_raw(request()[:number % 20])
        stalled.append(stream)
    begin = time.monotonic()
    link = Link(victim)
    link.stream.send(rdmap.send(1, b"legitimate"))
    victim.expect_recv(0, 10)
    took = time.monotonic() - begin
    for stream in stalled:
        stream.sock.close()
    # Sooner than any of the stalled Requests times out.
    assert took < REQUEST_SECONDS * 0.8, f"a legitimate connection took {took:.1f} s"


@case("MPA-18 MPA-81")
def random_requests(victim):
    import random
    rng = random.Random(5044)
    for _ in range(100):
        octets = bytearray(request(data=b"abc"))
        for _ in range(rng.randrange(1, 5)):
            octets[rng.randrange(len(octets))] = rng.randrange(256)
        stream = tcp()
        stream.send_raw(bytes(octets) + struct.pack(">I", rng.getrandbits(32)) * rng.randrange(2))
        stream.sock.close()
    while victim.event(100):
        pass
    victim.close()
    link = Link(victim)
    link.stream.send(rdmap.send(1, b"alive"))
    victim.expect_recv(0, 5)
