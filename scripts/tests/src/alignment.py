# SPDX-License-Identifier: GPL-2.0
"""How many TCP segments begin with an FPDU (RFC 5044 section 5.1).

usage: alignment.py FILE KIND SIZE COUNT [LEAST]

FILE is a capture (pcap) of a bulk transfer over Ethernet and IPv4, made at the receiver without
any offload. KIND (write, send, read) is the message kind, and so the sending end, of COUNT messages
of SIZE octets. Each stream is followed from its MPA start-up frame (section 7.1) over the length
field of every FPDU, so a boundary is known, not guessed. Prints the share of data segments that
begin with an FPDU, and fails if it is below LEAST percent (99). A capture with holes, with segments
longer than the wire allows, with too few segments, or with anything but FPDUs fails too.
"""

import bisect
import collections
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../peer"))
import mpa  # noqa: E402

LEAST_SEGMENTS = 1000
MTU = 1500
# The CRC of every FPDU would take minutes in Python.
CRC_EVERY = 64
# RDMAP opcodes of the messages with the data (RFC 5040 section 4.3), and the end that sends them.
KINDS = {
    "write": ({0}, "initiator"),
    "send": ({3, 4, 5, 6}, "initiator"),
    "read": ({2}, "responder"),
}
TAGGED_HEADER, UNTAGGED_HEADER = 14, 18

Segment = collections.namedtuple("Segment", "at octets")
# `begins`: where FPDUs begin, with their octets; `payload`: octets of the messages of the kind.
Walk = collections.namedtuple("Walk", "begins payload first")


# Exit status when TCP was disturbed: the transfer is to be made again.
DISTURBED = 3
# TCP's header with time stamps and nothing else.
HEADER = 32


class Failure(Exception):
    """The capture fails a condition of the test."""


class Disturbed(Failure):
    """Segments were lost or came twice. TCP reports that in its data segments (SACK), which get
    shorter, and the octets queued then (up to 1 MiB) are shifted by the difference."""


def check(condition, what):
    if not condition:
        raise Failure(what)


def frames(path):
    """The frames of a pcap file."""
    with open(path, "rb") as file:
        data = file.read()
    check(data[:4] == bytes.fromhex("d4c3b2a1"), f"{path}: no little-endian pcap file")
    check(struct.unpack_from("<I", data, 20)[0] == 1, f"{path}: no Ethernet")
    at = 24
    while at < len(data):
        check(at + 16 <= len(data), f"{path}: ends within a record")
        size, wire = struct.unpack_from("<II", data, at + 8)
        check(size == wire, f"{path}: a frame of {wire} octets, {size} of them captured")
        check(at + 16 + size <= len(data), f"{path}: ends within a frame")
        yield data[at + 16:at + 16 + size]
        at += 16 + size


class Half:
    """One direction of a TCP connection."""

    def __init__(self):
        self.initial = None
        self.segments = []
        self.disturbed = 0

    def take(self, seq, flags, octets, header):
        if flags & 0x02:
            self.initial = (seq + 1) & 0xFFFFFFFF
        elif octets:
            check(self.initial is not None, "a connection whose beginning is not in the capture")
            at = (seq - self.initial) & 0xFFFFFFFF
            self.disturbed += header > HEADER
            # Otherwise a keep-alive: the octet before.
            if at < 1 << 31:
                self.segments.append(Segment(at, octets))

    def assemble(self):
        """The stream, where its segments begin, and how many were repeated."""
        stream, covered, begins = bytearray(), Covered(), []
        for at, octets in self.segments:
            if covered.add(at, at + len(octets)):
                begins.append(at)
        for at, octets in sorted(self.segments, key=lambda segment: segment.at):
            check(at <= len(stream), f"octets {len(stream)} to {at} are not in the capture")
            stream += octets[len(stream) - at:]
        return bytes(stream), sorted(begins), len(self.segments) - len(begins)


class Covered:
    """The octets of a stream that have arrived: disjoint ranges in order."""

    def __init__(self):
        self.starts, self.ends = [], []

    def add(self, start, end):
        """Adds a range; returns whether its first octet is new."""
        first = bisect.bisect_left(self.ends, start)
        last = bisect.bisect_right(self.starts, end)
        # Ranges in between touch the new range, and are joined with it.
        new = not any(self.starts[i] <= start < self.ends[i] for i in range(first, last))
        self.starts[first:last] = [min([start] + self.starts[first:last])]
        self.ends[first:last] = [max([end] + self.ends[first:last])]
        return new


def halves(path):
    """The directions of all TCP connections: (source, destination) to Half."""
    found = collections.defaultdict(Half)
    for frame in frames(path):
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        header = (frame[14] & 15) * 4
        total, _, fragment = struct.unpack_from(">HHH", frame, 16)
        check(not fragment & 0x3FFF, "an IP fragment")
        check(total <= MTU, f"a packet of {total} octets: something is offloaded")
        tcp = frame[14 + header:14 + total]
        source, target, seq, _, offset, flags = struct.unpack_from(">HHIIBB", tcp)
        ends = (frame[26:30], source), (frame[30:34], target)
        header = (offset >> 4) * 4
        found[ends].take(seq, flags, tcp[header:], header)
    return found


def startup_len(stream, key):
    """Octets of the start-up frame in front of the first FPDU."""
    check(stream[:16] == key and len(stream) >= 20, "no MPA start-up frame")
    flags, _, private = struct.unpack_from(">BBH", stream, 16)
    check(flags & 0xC0 == 0x40, f"start-up flags {flags:#04x}: CRC without markers was wanted")
    return 20 + private


def walk(stream, key, opcodes):
    """Follows the FPDUs to the end of the stream."""
    at = first = startup_len(stream, key)
    begins, payload = {}, 0
    while at < len(stream):
        check(at + 4 <= len(stream), f"the stream ends within the FPDU at {at}")
        length, ddp, rdmap = struct.unpack_from(">HBB", stream, at)
        framed = (length + 2 + 3) // 4 * 4 + 4
        check(at + framed <= len(stream), f"the stream ends within the FPDU at {at}")
        tagged, opcode = ddp >> 7, rdmap & 15
        header = TAGGED_HEADER if tagged else UNTAGGED_HEADER
        sane = ddp & 3 == 1 and rdmap >> 6 == 1 and length >= header and tagged == (opcode in (0, 2))
        check(sane, f"octets {stream[at:at + 4].hex()} at {at} do not begin an FPDU")
        if len(begins) % CRC_EVERY == 0 or at + framed == len(stream):
            crc, = struct.unpack_from("<I", stream, at + framed - 4)
            check(mpa.crc32c(stream[at:at + framed - 4]) == crc, f"the CRC of the FPDU at {at} is bad")
        if opcode in opcodes:
            payload += length - header
        begins[at] = framed
        at += framed
    return Walk(begins, payload, first)


def explain(begins, fpdus):
    """Where alignment was lost, for how many segments: the worst first."""
    losses, starts, lost = [], sorted(fpdus), False
    for before, at, after in zip([None] + begins, begins, begins[1:] + [None]):
        if at in fpdus:
            lost = False
        elif lost:
            losses[-1][0] += 1
        else:
            lost = True
            losses.append([1, before, at, after])
    lines = [f"  alignment was lost {len(losses)} times"]
    for count, before, at, after in sorted(losses, key=lambda loss: -loss[0])[:10]:
        before, after = before or at, after or at
        inside = [f"{start - before:+}:{fpdus[start]}" for start in starts
                  if before - MTU <= start < after]
        lines.append(f"  for {count} segments: one at {at} of {after - at} octets behind one of "
                     f"{at - before}; FPDUs counted from that: {' '.join(inside)}")
    return "\n".join(lines)


def measure(path, kind, size, count):
    """Counts of the bulk direction: data segments, those that begin with an FPDU, FPDUs, repeated
    segments, the explanation, and segments with a report of loss."""
    opcodes, sender = KINDS[kind]
    segments = aligned = fpdus = again = payload = disturbed = 0
    reasons = []
    found = halves(path)
    for ends, half in found.items():
        stream, begins, twice = half.assemble()
        if stream[:16] != mpa.REQUEST_KEY:
            continue
        key = mpa.REQUEST_KEY
        if sender == "responder":
            key = mpa.REPLY_KEY
            half = found[ends[::-1]]
            stream, begins, twice = half.assemble()
        walked = walk(stream, key, opcodes)
        begins = [at for at in begins if at >= walked.first]
        segments += len(begins)
        aligned += sum(at in walked.begins for at in begins)
        fpdus += len(walked.begins)
        payload += walked.payload
        again += twice
        disturbed += half.disturbed
        reasons.append(explain(begins, walked.begins))
    check(segments >= LEAST_SEGMENTS, f"only {segments} data segments: too few to tell")
    check(payload >= size * count, f"{payload} octets of payload, not {count} times {size}")
    return segments, aligned, fpdus, again, "\n".join(reasons), disturbed


def judge(path, kind, size, count, least=99.0):
    """The result, in a line; a Failure if the share is too small."""
    segments, aligned, fpdus, again, reasons, disturbed = measure(path, kind, size, count)
    share = 100 * aligned / segments
    line = (f"{kind} {size}: {share:.2f} % of {segments} segments begin with an FPDU, "
            f"{fpdus} FPDUs, {again} segments came again")
    low = f"{line}: less than {least} %\n{reasons}"
    if share < least and (disturbed or again):
        raise Disturbed(f"{disturbed} data segments report losses, {again} came again; {low}")
    check(share >= least, low)
    return line


def main(path, kind, size, count, least="99"):
    try:
        print("ok:", judge(path, kind, int(size), int(count), float(least)))
    except Disturbed as failure:
        print(f"disturbed: {failure}")
        sys.exit(DISTURBED)
    except Failure as failure:
        sys.exit(f"FAIL: {kind} {size}: {failure}")


if __name__ == "__main__":
    main(*sys.argv[1:])
