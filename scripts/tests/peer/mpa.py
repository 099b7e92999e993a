# SPDX-License-Identifier: GPL-2.0
"""MPA for a test peer (RFC 5044, RFC 6581): start-up frames, FPDUs, CRC-32C and
markers, valid or deliberately invalid. Independent of the module's own code."""

import socket
import struct
import time

REQUEST_KEY = b"MPA ID Req Frame"
REPLY_KEY = b"MPA ID Rep Frame"
MARKER_EVERY = 512


def _crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(octets):
    crc = 0xFFFFFFFF
    for octet in octets:
        crc = (crc >> 8) ^ _TABLE[(crc ^ octet) & 0xFF]
    return crc ^ 0xFFFFFFFF


def startup(key, rev=2, m=0, c=1, r=0, s=0, data=b"", reserved=0, length=None):
    """A Request or Reply frame. `length` overrides PD_Length."""
    flags = m << 7 | c << 6 | r << 5 | s << 4 | reserved
    return key + struct.pack(">BBH", flags, rev, len(data) if length is None else length) + data


def enhanced(ird, ord_, a=0, b=0, c=0, d=0):
    """The four octets RFC 6581 puts in front of the private data."""
    return struct.pack(">HH", a << 15 | b << 14 | ird, c << 15 | d << 14 | ord_)


class Startup:
    """A start-up frame as received."""

    def __init__(self, raw, data):
        self.key = raw[:16]
        self.flags, self.rev, length = struct.unpack(">BBH", raw[16:20])
        self.m, self.c = self.flags >> 7 & 1, self.flags >> 6 & 1
        self.r, self.s = self.flags >> 5 & 1, self.flags >> 4 & 1
        assert len(data) == length
        self.word = None
        if self.s and self.rev == 2 and length >= 4:
            first, second = struct.unpack(">HH", data[:4])
            self.word = {
                "a": first >> 15, "b": first >> 14 & 1, "ird": first & 0x3FFF,
                "c": second >> 15, "d": second >> 14 & 1, "ord": second & 0x3FFF,
            }
            data = data[4:]
        self.data = data


class Closed(Exception):
    """The other side closed or reset; `reset` distinguishes the two."""

    def __init__(self, reset):
        super().__init__("reset" if reset else "closed")
        self.reset = reset


class Stream:
    """One TCP connection seen as a stream of FPDUs."""

    def __init__(self, sock):
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.crc = True
        self.tx_markers = self.rx_markers = False
        self.tx_at = self.rx_at = 0
        self.pieces = None  # octets per TCP segment when sending, None = as they come
        self.last_crc_good = None

    # ---- octets

    def send_raw(self, octets):
        if self.pieces is None:
            self.sock.sendall(octets)
            return
        for at in range(0, len(octets), self.pieces):
            self.sock.sendall(octets[at:at + self.pieces])

    def recv_exactly(self, count, seconds=5.0):
        end = time.monotonic() + seconds
        got = b""
        while len(got) < count:
            self.sock.settimeout(max(0.001, end - time.monotonic()))
            try:
                more = self.sock.recv(count - len(got))
            except ConnectionResetError:
                raise Closed(True) from None
            if not more:
                raise Closed(False)
            got += more
        return got

    def expect_close(self, seconds=5.0):
        """The other side must close without another octet; returns the seconds it took."""
        begin = time.monotonic()
        try:
            octet = self.recv_exactly(1, seconds)
        except Closed:
            return time.monotonic() - begin
        except (TimeoutError, socket.timeout):
            raise AssertionError(f"still open after {seconds} s") from None
        raise AssertionError(f"octets instead of a close, first {octet.hex()}")

    def silent(self, seconds):
        """For so many seconds no octet and no close may arrive."""
        try:
            octet = self.recv_exactly(1, seconds)
        except (TimeoutError, socket.timeout):
            return
        raise AssertionError(f"octet {octet.hex()} where silence was due")

    def reset(self):
        """Closes with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # ---- start-up

    def recv_startup(self, seconds=5.0):
        raw = self.recv_exactly(20, seconds)
        length = struct.unpack(">H", raw[18:])[0]
        return Startup(raw, self.recv_exactly(length, seconds))

    # ---- FPDUs

    def fpdu(self, ulpdu, crc_xor=0, pad=0, pointer_add=0):
        """Encodes at the stream's present position and advances it."""
        body = struct.pack(">H", len(ulpdu)) + ulpdu
        body += bytes([pad]) * (-len(body) % 4)
        out, start = b"", None
        if self.tx_markers:
            # A marker may fall before any word, the CRC's included.
            for at in range(0, len(body) + 4, 4):
                if (self.tx_at + len(out)) % MARKER_EVERY == 0:
                    pointer = 0 if start is None else self.tx_at + len(out) - start + pointer_add
                    out += struct.pack(">HH", 0, pointer)
                if at < len(body):
                    start = self.tx_at + len(out) if start is None else start
                    out += body[at:at + 4]
        else:
            out = body
        # The least significant octet of the CRC goes first.
        out += struct.pack("<I", (crc32c(out) if self.crc else 0) ^ crc_xor)
        self.tx_at += len(out)
        return out

    def send(self, *ulpdus):
        self.send_raw(b"".join(self.fpdu(u) for u in ulpdus))

    def recv(self, seconds=5.0):
        """Receives one FPDU, checks CRC, padding and markers, returns the ULPDU."""
        covered, start = b"", None

        def word():
            nonlocal covered
            covered += self.recv_exactly(4, seconds)
            self.rx_at += 4
            return covered[-4:]

        def marker_due():
            return self.rx_markers and self.rx_at % MARKER_EVERY == 0

        def marker(origin):
            reserved, pointer = struct.unpack(">HH", word())
            want = 0 if origin is None else self.rx_at - 4 - origin
            assert (reserved, pointer) == (0, want), f"marker {reserved:x} {pointer:x}, wanted pointer {want:x}"

        body = b""
        length = None
        while length is None or len(body) < length:
            if marker_due():
                marker(start)
            if start is None:
                start = self.rx_at
            if self.rx_markers or length is None:
                body += word()
            else:
                rest = self.recv_exactly(length - len(body), seconds)
                covered += rest
                self.rx_at += len(rest)
                body += rest
            if length is None:
                ulpdu_length = struct.unpack(">H", body[:2])[0]
                length = (2 + ulpdu_length + 3) & ~3
        if marker_due():
            marker(start)
        crc = self.recv_exactly(4, seconds)
        self.rx_at += 4
        self.last_crc_good = struct.unpack("<I", crc)[0] == crc32c(covered) if self.crc else None
        assert self.last_crc_good in (True, None), "bad CRC"
        assert not any(body[2 + ulpdu_length:]), "padding is not zero"
        return body[2:2 + ulpdu_length]
