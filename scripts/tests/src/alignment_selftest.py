# SPDX-License-Identifier: GPL-2.0
"""Tests alignment.py with made-up captures, good and bad.

usage: alignment_selftest.py DIRECTORY (for the captures)
"""

import os
import random
import struct
import sys

import alignment
import mpa

MSS = 1448
COUNT, SIZE = 100, 16384
CLIENT, SERVER = (b"\x0a\x00\x00\x02", 40000), (b"\x0a\x00\x00\x01", 7000)
# Close to the wrap of the sequence numbers.
ISN = 0xFFFFF000


def frame(source, target, seq, flags, octets=b"", words=5):
    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], seq & 0xFFFFFFFF, 0, words << 4, flags, 0, 0, 0)
    tcp += b"\x01" * (words * 4 - len(tcp))
    total = 20 + len(tcp) + len(octets)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 0, 0x4000, 64, 6, 0, source[0], target[0])
    # Short frames are padded, and the padding is no data.
    return (bytes(12) + b"\x08\x00" + ip + tcp + octets).ljust(60, b"\xee")


def fpdu(payload, last):
    """A segment of a Write (RFC 5041 section 4.2, RFC 5040 section 4.3)."""
    ulpdu = struct.pack(">BBIQ", 0x81 | last << 6, 0x40, 1, 0) + payload
    body = struct.pack(">H", len(ulpdu)) + ulpdu
    body += bytes(-len(body) % 4)
    return body + struct.pack("<I", mpa.crc32c(body))


def messages():
    """The FPDUs of all messages; each is cut at the segment's size, and the tail is short."""
    whole = MSS - 20
    one = [fpdu(bytes(min(whole, SIZE - at)), at + whole >= SIZE) for at in range(0, SIZE, whole)]
    return one * COUNT


def stream_segments(start, octets):
    """Octets of the stream cut without regard to FPDUs: (at, octets)."""
    return [(start + at, octets[at:at + MSS]) for at in range(0, len(octets), MSS)]


def write(path, segments, snap=None, report=None):
    """A capture of start-up, the initiator's `segments`, and FIN; frames cut at `snap`, and segments
    of `report` octets with room for a SACK option."""
    request, reply = mpa.startup(mpa.REQUEST_KEY, data=b"12345"), mpa.startup(mpa.REPLY_KEY)
    there = [frame(CLIENT, SERVER, ISN + 1 + at, 0x18, octets, 11 if len(octets) == report else 5)
             for at, octets in segments]
    all_frames = [
        frame(CLIENT, SERVER, ISN, 0x02), frame(SERVER, CLIENT, 5000, 0x12),
        frame(CLIENT, SERVER, ISN + 1, 0x18, request), frame(SERVER, CLIENT, 5001, 0x18, reply),
        *there, frame(CLIENT, SERVER, ISN, 0x11),
    ]
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for octets in all_frames:
            kept = octets[:snap]
            file.write(struct.pack("<IIII", 0, 0, len(kept), len(octets)) + kept)


class Bed:
    """Makes captures, and compares the judgement of alignment.py with the expected one."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "made-up.pcap")

    def figures(self, label, segments):
        write(self.path, segments)
        found = alignment.measure(self.path, "write", SIZE, COUNT)
        print(f"ok: self-test: {label}: {found[0]} segments, {found[1]} of them aligned")
        return found[:4]

    def refused(self, label, word, segments, count=COUNT, least=99.0, snap=None, report=None):
        write(self.path, segments, snap, report)
        try:
            line = alignment.judge(self.path, "write", SIZE, count, least)
        except alignment.Failure as failure:
            if word not in str(failure):
                sys.exit(f"FAIL: self-test: {label}: '{failure}' does not say '{word}'")
            print(f"ok: self-test: {label}: refused")
            return
        sys.exit(f"FAIL: self-test: {label}: accepted: {line}")


def expect(found, wanted):
    if found != wanted:
        sys.exit(f"FAIL: self-test: found {found}, not {wanted}")


def main(directory):
    bed = Bed(directory)
    start = len(mpa.startup(mpa.REQUEST_KEY, data=b"12345"))
    fpdus = messages()
    octets = b"".join(fpdus)
    # Every FPDU in a segment of its own.
    aligned, at = [], start
    for one in fpdus:
        aligned.append((at, one))
        at += len(one)
    count = len(fpdus)
    expect(bed.figures("aligned", aligned), (count, count, count, 0))
    twice = random.Random(1).sample(aligned, count)
    # One segment unchanged, and one that the sender has cut differently.
    twice += [aligned[7], (aligned[9][0] + 400, aligned[9][1][400:] + aligned[10][1][:400])]
    expect(bed.figures("reordered and repeated", twice), (count, count, count, 2))

    # Cut at the segment's size only: the tail of each message shifts the rest.
    packed = stream_segments(start, octets)
    starts = {at for at, _ in aligned}
    right = sum(at in starts for at, _ in packed)
    expect(bed.figures("shifted by tails", packed), (len(packed), right, count, 0))
    bed.refused("shifted by tails", "less than 99", packed)
    late = [(start, octets[:100])] + stream_segments(start + 100, octets[100:])
    bed.refused("shifted by 100 octets", "less than 99", late)
    bed.refused("shifted by a loss", "report losses", late, report=100)
    bed.refused("more than all", "less than 100.5", aligned, least=100.5)
    bed.refused("a hole", "not in the capture", aligned[:600] + aligned[601:])
    bed.refused("incomplete", "octets of payload", aligned[:-1])
    bed.refused("too few", "too few", aligned[:900])
    bed.refused("cut off", "ends within the FPDU", aligned[:-1] + [(aligned[-1][0], b"\x05\x9e\x81\x40")])
    bed.refused("part of a frame", "of them captured", aligned, snap=200)
    bed.refused("offloaded", "offloaded", [(start, octets[:3000])] + stream_segments(start + 3000, octets[3000:]))
    # A wrong length, and a wrong octet where the CRC is looked at.
    wrong = bytearray(octets)
    wrong[1] ^= 4
    bed.refused("wrong length", "bad", stream_segments(start, bytes(wrong)))
    wrong = bytearray(octets)
    wrong[len(fpdus[0]) + 1] ^= 4
    bed.refused("wrong length, unnoticed by the CRC", "do not begin an FPDU", stream_segments(start, bytes(wrong)))


if __name__ == "__main__":
    main(*sys.argv[1:])
