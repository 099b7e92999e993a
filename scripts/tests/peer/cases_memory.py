# SPDX-License-Identifier: GPL-2.0
"""Access of peers' Writes and Reads to memory, and the Terminate for each that is not allowed
(requirements 2 and 3)."""

import random
import time

import rdmap
from cases_receive import NOWHERE, refused
from faults import refused_blocks
from harness import FACTOR, FOREIGN, LOCAL, RO, RW, WO, Link, case, check_terminate, tcp_row


@case("DDP-56 DDP-96")
def write_bad_stag(victim):
    for stag in (NOWHERE, 0, 1, 0xFFFFFFFF):
        refused(victim, lambda m: rdmap.write(stag, m.at(RW), b"x"), "1/1/00")
    refused(victim, lambda m: rdmap.write(m.rw ^ 1, m.at(RW), b"x"), "1/1/00")


@case("DDP-57 DDP-86 DDP-82")
def write_bounds(victim):
    refused(victim, lambda m: rdmap.write(m.rw, m.at(RW) - 1, b"x"), "1/1/01")
    refused(victim, lambda m: rdmap.write(m.rw, m.at(RW) - 1, b"xy"), "1/1/01")
    refused(victim, lambda m: rdmap.write(m.rw, m.at(RW, 5000), b"x"), "1/1/01")
    refused(victim, lambda m: rdmap.write(m.rw, m.at(RW, 4999), b"xy"), "1/1/01")
    refused(victim, lambda m: rdmap.write(m.rw, 0, b"x"), "1/1/01")
    link = Link(victim)
    link.stream.send(
        rdmap.write(link.made.rw, link.made.at(RW), b"a"),
        rdmap.write(link.made.rw, link.made.at(RW, 4999), b"z"),
        rdmap.send(1),
    )
    victim.expect_recv(0, 0)
    assert victim.memory(4098, 3) == b"\xa5a\xa5" and victim.memory(4098 + 4999, 3) == b"\xa5z\xa5"


@case("DDP-58 DDP-80")
def write_other_domain(victim):
    refused(victim, lambda m: rdmap.write(m.foreign, m.at(FOREIGN), b"x"), "1/1/02")


@case("DDP-59")
def write_wrap(victim):
    refused(victim, lambda m: rdmap.write(m.rw, (1 << 64) - 4, bytes(8)), "1/1/03")


@case("RDMAP-53 DDP-85 DDP-87")
def write_rights(victim):
    # RFC 5040 figure 10 keeps 0/1/02 for Reads; for DDP the key has no buffer that allows placement (RFC 5041 7.1).
    refused(victim, lambda m: rdmap.write(m.ro, m.at(RO), b"x"), "1/1/00")
    refused(victim, lambda m: rdmap.write(m.local, m.at(LOCAL), b"x"), "1/1/00")
    link = Link(victim)
    link.stream.send(rdmap.write(link.made.wo, link.made.at(WO), b"yes"), rdmap.send(1))
    victim.expect_recv(0, 0)
    assert victim.memory(WO[0], 3) == b"yes"


@case("DDP-23 RDMAP-56")
def empty_write_checks_nothing(victim):
    link = Link(victim)
    link.stream.send(rdmap.write(0, 0), rdmap.write(NOWHERE, (1 << 64) - 1), rdmap.write(link.made.foreign, 0), rdmap.send(1))
    victim.expect_recv(0, 0)


@case("RDMAP-12 RDMAP-14 RDMAP-15")
def read_is_answered(victim):
    link = Link(victim)
    made = link.made
    for number, (offset, size) in enumerate(((0, 1), (1, 3), (0, 5000), (4999, 1), (7, 4000)), start=1):
        link.stream.send(rdmap.read_request(number, 0xCAFE0000 + number, 1000 * number, size, made.rw, made.at(RW, offset)))
        got = b""
        while True:
            segment = link.recv_segment()
            assert segment.tagged and segment.op == rdmap.READ_RESPONSE, f"{segment.raw[:18].hex()}"
            assert segment.stag == 0xCAFE0000 + number, "the sink's key"
            assert segment.to == 1000 * number + len(got), "the sink's offset"
            got += segment.data
            if segment.last:
                break
        assert got == b"\xa5" * size, f"{len(got)} octets of {size}"
    link.stream.send(rdmap.read_request(6, 1, 0, 16, made.ro, made.at(RO)))
    assert link.recv_segment().data == b"\xa5" * 16, "a read-only region"


@case("MPA-42 MPA-44 MPA-47 RDMAP-14")
def short_segments(victim):
    # Segments of an MTU of 576, then shorter ones than an FPDU with the least ULPDU. No part of a message is shorter
    # than that but the last one, whatever the lengths of the messages before it.
    for mss in (536, 148, 88):
        for markers in (0, 1):
            link = Link(victim, mss=mss, m=markers)
            made, shortest = link.made, 65536
            sizes = [5000 if n % 2 else 300 + 8 * n for n in range(1, 17)]
            link.stream.send(*(rdmap.read_request(n, n, 0, size, made.rw, made.at(RW))
                               for n, size in enumerate(sizes, start=1)))
            for n, size in enumerate(sizes, start=1):
                got, last = b"", 0
                while not last:
                    segment = link.recv_segment()
                    assert (segment.op, segment.stag, segment.to) == (rdmap.READ_RESPONSE, n, len(got)), "another segment"
                    got, last = got + segment.data, segment.last
                    if not last:
                        shortest = min(shortest, len(segment.raw))
                assert got == b"\xa5" * size, f"{len(got)} octets of {size}"
            assert shortest >= 128, f"MSS {mss}, M={markers}: a part of {shortest} octets"
            victim.close()


@case("MPA-48 RDMAP-14")
def answers_without_memory(victim):
    # Buffers for FPDUs are refused at random. The answers wait or are cut shorter; none is lost or damaged.
    link = Link(victim)
    made = link.made
    number = 0
    with refused_blocks(75) as refused_yet:
        for _ in range(30):
            refused_yet()
            reads = range(number + 1, number + 9)
            link.stream.send(*(rdmap.read_request(n, n, 0, 5000, made.rw, made.at(RW)) for n in reads))
            for number in reads:
                to, last = 0, 0
                while not last:
                    segment = link.recv_segment(20.0)
                    assert segment.op == rdmap.READ_RESPONSE, f"{segment.raw[:18].hex()}"
                    assert (segment.stag, segment.to) == (number, to), f"Read {number}, octet {to}"
                    assert segment.data == b"\xa5" * len(segment.data), f"the octets of Read {number} from {to}"
                    to, last = to + len(segment.data), segment.last
                assert to == 5000, f"{to} octets of 5000"
        count = refused_yet()
    assert count is None or count > 100, f"only {count} requests for memory were refused"


@case("RDMAP-16 RDMAP-56")
def empty_read_checks_nothing(victim):
    link = Link(victim)
    link.stream.send(rdmap.read_request(1, NOWHERE, 99, 0, 0, (1 << 64) - 1))
    segment = link.recv_segment()
    assert (segment.op, segment.data, segment.last, segment.stag, segment.to) == (rdmap.READ_RESPONSE, b"", 1, NOWHERE, 99)


@case("RDMAP-54 RDMAP-55 DDP-96")
def read_protection(victim):
    cases = (
        ("unknown key", lambda m: NOWHERE, lambda m: m.at(RW), 8, "0/1/00"),
        ("key 0", lambda m: 0, lambda m: m.at(RW), 8, "0/1/00"),
        ("one octet too many", lambda m: m.rw, lambda m: m.at(RW, 4993), 8, "0/1/01"),
        ("one octet too early", lambda m: m.rw, lambda m: m.at(RW, -1), 8, "0/1/01"),
        ("4 GiB", lambda m: m.rw, lambda m: m.at(RW), 0xFFFFFFFF, "0/1/01"),
        ("no right to read", lambda m: m.wo, lambda m: m.at(WO), 8, "0/1/02"),
        ("other domain", lambda m: m.foreign, lambda m: m.at(FOREIGN), 8, "0/1/03"),
        ("wrap", lambda m: m.rw, lambda m: (1 << 64) - 4, 8, "0/1/04"),
    )
    for what, stag, to, size, error in cases:
        try:
            # A Read is carried out when it is answered; a Send behind it may well be delivered before (5040 5.5).
            refused(
                victim,
                lambda m: rdmap.read_request(1, 1, 0, size, stag(m), to(m)),
                error,
                behind_is_dropped=False,
            )
        except Exception as failure:
            raise AssertionError(f"{what}: {type(failure).__name__}: {failure}") from failure


@case("DDP-52 RDMAP-12")
def read_request_numbers(victim):
    refused(victim, lambda m: rdmap.read_request(0, 1, 0, 8, m.rw, m.at(RW)), "1/2/03")
    refused(victim, lambda m: rdmap.read_request(1, 1, 0, 8, m.rw, m.at(RW), mo=4), "1/2/04")


@case("RDMAP-61 DDP-51 DDP-94")
def more_reads_than_agreed(victim):
    link = Link(victim, ird=2, ord_=2)
    depth = link.reply.word["ird"]
    made = link.made
    # All Read Requests in one TCP segment, each with a long answer: one more than IRD must be refused.
    requests = [rdmap.read_request(n, 1, 0, 5000, made.rw, made.at(RW)) for n in range(1, 400)]
    link.stream.send(*requests)
    segment = link.recv_segment()
    answered = 0
    while not segment.is_terminate():
        answered += segment.last
        segment = link.recv_segment()
        assert answered < 399, f"all Reads were answered, though IRD is {depth}"
    _, header, _ = segment.terminated()
    msn = int.from_bytes(header[10:14], "big")
    # Read Requests take no place in the queue once they are answered.
    assert msn == depth + answered + 1, f"Read {msn} is refused after {answered} answers, IRD is {depth}"
    check_terminate(segment, "1/2/02", requests[msn - 1])


@case("DDP-27 RDMAP-50b RDMAP-20 DDP-28")
def writes_are_there_when_the_send_is(victim):
    link = Link(victim, recvs=32)
    made, rng = link.made, random.Random(7)
    want = bytearray(b"\xa5" * 5000)
    for msn in range(1, 33):
        segments = []
        for _ in range(rng.randrange(1, 6)):
            offset = rng.randrange(5000)
            data = rng.randbytes(rng.randrange(1, min(900, 5001 - offset)))
            want[offset:offset + len(data)] = data
            segments.append(rdmap.write(made.rw, made.at(RW, offset), data, last=rng.randrange(2)))
        # The peer sends pieces that ignore FPDU boundaries (MPA-52).
        link.stream.pieces = rng.randrange(1, 1500)
        link.stream.send(*segments, rdmap.send(msn, b"now"))
        victim.expect_recv(msn - 1, 3)
        assert victim.memory(RW[0], 5000) == want, f"memory after message {msn}"


def waiting_in_tcp(stream):
    """Octets that TCP holds at the module's end: sent or not, and not acknowledged."""
    return int(tcp_row(stream)[4].split(":")[0], 16)


@case("RDMAP-43")
def read_fails_part_way(victim):
    # Read Responses fill TCP until one stops in the middle; then the region is deregistered. The Terminate quotes the
    # rest of that Read (RFC 5040 4.8). If TCP is full between two Responses, another size is tried.
    for size in (5000, 4999, 4990, 4900):
        link = Link(victim, ird=100, ord_=100, room=4096)
        depth = link.reply.word["ird"]
        # Reads whose Responses TCP holds are answered, so the number of outstanding ones is known.
        asked = held = 0
        end = time.monotonic() + 20 * FACTOR
        still = time.monotonic() + 1
        while time.monotonic() < still:
            assert time.monotonic() < end, f"TCP takes the answers of {asked} Reads that nobody reads"
            now = waiting_in_tcp(link.stream)
            if now != held:
                held, still = now, time.monotonic() + 1
            more = held // (size + 200) + depth - asked
            if more > 0:
                numbers = range(asked + 1, asked + 1 + more)
                made = link.made
                link.stream.send(
                    *(rdmap.read_request(n, 0xCAFE, n << 16, size, made.rw, made.at(RW)) for n in numbers)
                )
                asked += more
            time.sleep(0.02)
        assert victim.ask("dereg") == "ok"
        number, got = 1, 0
        segment = link.recv_segment()
        while not segment.is_terminate():
            assert (segment.op, segment.stag, segment.to) == (rdmap.READ_RESPONSE, 0xCAFE, (number << 16) + got)
            got += len(segment.data)
            if segment.last:
                assert got == size, f"{got} octets of Read {number}"
                number, got = number + 1, 0
            segment = link.recv_segment()
        assert number <= asked, "all Reads were answered"
        left = rdmap.read_request(
            number, 0xCAFE, (number << 16) + got, size - got, link.made.rw, link.made.at(RW, got)
        )
        check_terminate(segment, "0/1/00", left)
        victim.close()
        if got:
            return
    raise AssertionError("every time between two Reads")
