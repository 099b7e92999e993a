# SPDX-License-Identifier: GPL-2.0
"""DDP and RDMAP segments for a test peer (RFC 5041, RFC 5040)."""

import struct

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE = range(8)


def untagged(op, msn, data=b"", qn=0, mo=0, last=1, inv=0, dv=1, rv=1, rsv=0, ddp_rsv=0):
    return struct.pack(">BBIIII", last << 6 | ddp_rsv << 2 | dv, rv << 6 | rsv << 4 | op, inv, qn, msn, mo) + data


def tagged(op, stag, to, data=b"", last=1, dv=1, rv=1, rsv=0):
    return struct.pack(">BBIQ", 0x80 | last << 6 | dv, rv << 6 | rsv << 4 | op, stag, to) + data


def send(msn, data=b"", **more):
    return untagged(more.pop("op", SEND), msn, data, **more)


def write(stag, to, data=b"", **more):
    return tagged(WRITE, stag, to, data, **more)


def read_request(msn, sink, sink_to, size, source, source_to, extra=b"", **more):
    more.setdefault("qn", 1)
    return untagged(READ_REQUEST, msn, struct.pack(">IQIIQ", sink, sink_to, size, source, source_to) + extra, **more)


def terminate(layer, etype, code, rest=b"", flags=0):
    return untagged(TERMINATE, 1, struct.pack(">BBH", layer << 4 | etype, code, flags << 13) + rest, qn=2)


class Segment:
    """A received DDP segment."""

    def __init__(self, ulpdu):
        control, rdmap = ulpdu[0], ulpdu[1]
        self.tagged, self.last, self.dv = control >> 7, control >> 6 & 1, control & 3
        self.reserved = control >> 2 & 15
        self.rv, self.op = rdmap >> 6, rdmap & 15
        self.raw = ulpdu
        if self.tagged:
            self.stag, self.to = struct.unpack(">IQ", ulpdu[2:14])
            self.data = ulpdu[14:]
        else:
            self.inv, self.qn, self.msn, self.mo = struct.unpack(">IIII", ulpdu[2:18])
            self.data = ulpdu[18:]
        assert (self.dv, self.rv, self.reserved) == (1, 1, 0), f"version or reserved bits: {ulpdu[:2].hex()}"

    def read(self):
        """The fields of a Read Request: sink, sink offset, size, source, source offset."""
        assert len(self.data) == 28, f"a Read Request of {len(self.data)} octets"
        return struct.unpack(">IQIIQ", self.data)

    def is_terminate(self):
        return not self.tagged and self.op == TERMINATE

    def error(self):
        """Layer, type and code of a Terminate, as in the tables: "1/2/05"."""
        return f"{self.data[0] >> 4:x}/{self.data[0] & 15:x}/{self.data[1]:02x}"

    def header_flags(self):
        return self.data[2] >> 5

    def terminated(self):
        """Segment length and headers a Terminate carries behind its first word. The length field exists with M or D,
        and is valid with M (RFC 5040 section 4.8)."""
        flags = self.header_flags()
        rest = self.data[4:]
        length = ddp = rdmap = None
        if flags & 6:
            length, rest = struct.unpack(">H", rest[:2])[0] if flags & 4 else None, rest[2:]
        if flags & 2:
            size = 14 if rest[0] & 0x80 else 18
            ddp, rest = rest[:size], rest[size:]
        if flags & 1:
            rdmap, rest = rest[:28], rest[28:]
        assert not rest, f"{len(rest)} octets too many in a Terminate"
        return length, ddp, rdmap
