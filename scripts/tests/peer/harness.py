# SPDX-License-Identifier: GPL-2.0
"""Shared by the wire tests: the verbs end under test, connections to it, cases."""

import os
import select
import socket
import struct
import subprocess
import sys
import time
import traceback

import mpa
from rdmap import READ_REQUEST, Segment

ADDRESS = os.environ.get("RSIW_ADDRESS", "10.99.0.1")
PORT = 7180
# Module parameters in force, on which the expected values depend.
CRC = os.environ.get("RSIW_CRC", "1") == "1"
MARKERS = os.environ.get("RSIW_MARKERS", "0") == "1"
PEER_TO_PEER = os.environ.get("RSIW_PEER_TO_PEER", "0") == "1"
REVISION = int(os.environ.get("RSIW_REVISION", "2"))
FALLBACK = os.environ.get("RSIW_FALLBACK", "1") == "1"
REQUEST_SECONDS = int(os.environ.get("RSIW_REQUEST_MS", "5000")) / 1000
RNR_SECONDS = int(os.environ.get("RSIW_RNR_MS", "10000")) / 1000
REPLY_SECONDS = int(os.environ.get("RSIW_REPLY_MS", "10000")) / 1000
# Terminate codes about access to memory. They have one event, and all other codes another (DDP-65, DDP-85).
ACCESS = [f"0/1/{code}" for code in ("00", "01", "02", "03", "04", "09", "ff")] + [f"1/1/{code:02}" for code in range(4)]
VIOLATION, FATAL = "async local access violation work queue error", "async local work queue catastrophic error"
# Stretches time limits (debug kernel).
FACTOR = int(os.environ.get("RSIW_TIME_FACTOR", "1"))

# Regions of the victim's arena: offset and length (src/victim.c).
RW, WO, RO, LOCAL, FOREIGN = (4099, 5000), (16384, 4096), (20480, 4096), (24576, 4096), (28672, 4096)
RECV_SIZE = 4096
# Statuses of completions: IBV_WC_LOC_LEN_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_ACCESS_ERR (enum ibv_wc_status).
TOO_LONG, FLUSHED, REM_ACCESS = 1, 5, 10


class Victim:
    """The program on the verbs side; every question has a one-line answer."""

    def __init__(self, port=PORT):
        path = os.path.join(os.environ["RSIW_TESTBIN"], "victim")
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.buffer = b""
        assert self.ask(f"listen {ADDRESS} {port}") == "ok", "cannot listen"

    def ask(self, question, seconds=20.0):
        self.process.stdin.write(question.encode() + b"\n")
        self.process.stdin.flush()
        end = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"no answer to '{question}' within {seconds} s")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise AssertionError(f"the victim died at '{question}'")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def event(self, ms=5000):
        """The next connection event: (name, status, ird, ord, private data), or None."""
        words = self.ask(f"event {ms}", ms / 1000 + 10).split()
        if words[0] == "none":
            return None
        data = b"" if words[-1] == "-" else bytes.fromhex(words[-1])
        return words[1], int(words[2]), int(words[3]), int(words[4]), data

    def expect_event(self, name, ms=5000, error=0):
        """The next connection event has this name, and the status of this error of errno."""
        event = self.event(ms)
        assert event and event[:2] == ("RDMA_CM_EVENT_" + name, -error), f"event {event}, wanted {name} {-error}"
        return event

    def poll(self, ms=3000):
        """The next completion: (queue, id, status, length), or None."""
        words = self.ask(f"poll {ms}", ms / 1000 + 10).split()
        return None if words[0] == "none" else (words[1], int(words[2]), int(words[3]), int(words[4]))

    def expect_completions(self, sends=(), recvs=()):
        """Exactly these completions without success come: numbers and statuses, in the order of each queue."""
        wanted = {"send": list(sends), "recv": list(recvs)}
        got = [self.poll() for _ in wanted["send"] + wanted["recv"]]
        assert None not in got and self.poll(100) is None, f"completions {got}, wanted {wanted}"
        for queue, rows in wanted.items():
            here = [row[1:] for row in got if row[0] == queue]
            assert here == [(*row, 0) for row in rows], f"{queue} completions {here}, wanted {rows}"

    def expect_recv(self, number, length):
        got = self.poll()
        assert got == ("recv", number, 0, length), f"completion {got}, wanted receive {number} of {length}"

    def memory(self, offset, length):
        return bytes.fromhex(self.ask(f"mem {offset} {length}"))

    def untouched(self):
        return self.memory(0, 32768) == b"\xa5" * 32768

    def close(self):
        if self.process.poll() is None:
            self.ask("close")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Made:
    """The victim's objects, as it prints them."""

    def __init__(self, line):
        words = line.split()
        assert words[0] == "made", f"the victim says '{line}'"
        self.qpn, self.arena, self.rw, self.wo, self.ro, self.local, self.foreign = (int(w, 16) for w in words[1:])

    def at(self, region, offset=0):
        return self.arena + region[0] + offset


def tcp(port=PORT, room=None, mss=None, rides=False):
    """Connects. With `mss` the module's segments have at most so many octets, TCP's options included. With `rides` the
    first octets that are sent ride on the last ACK of the handshake."""
    sock = socket.socket()
    if room:
        # The buffer limits the window.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    if mss:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
    if rides:
        # TCP delays the ACK.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    sock.settimeout(5)
    sock.connect((ADDRESS, port))
    return mpa.Stream(sock)


def tcp_row(stream):
    """The words of /proc/net/tcp about the module's end of the connection; None if it is gone."""

    def written(address, port):
        return "%08X:%04X" % (struct.unpack("<I", socket.inet_aton(address))[0], port)

    ends = [written(*stream.sock.getpeername()), written(*stream.sock.getsockname())]
    with open("/proc/net/tcp", encoding="ascii") as table:
        for words in map(str.split, table):
            if words[1:3] == ends:
                return words
    return None


def request(rev=2, ird=16, ord_=16, data=b"", a=0, b=0, c=0, d=0, **more):
    """A valid Request frame, unless an argument makes it invalid."""
    if rev == 2 and more.get("s", 1):
        more["s"] = 1
        data = mpa.enhanced(ird, ord_, a, b, c, d) + data
    more.setdefault("c_flag", 1)
    crc = more.pop("c_flag")
    return mpa.startup(mpa.REQUEST_KEY, rev=rev, c=crc, data=data, **more)


def check_terminate(segment, error, bad=None):
    """Checks a Terminate with this code. Its flags follow from the code (RFC 5040 section 4.8, figure 10): M and D but
    for local and MPA errors, R for a Read Request that met a protection error. `bad` is the wrong segment, where the
    error is about one. The Terminate quotes its length and its whole headers, a Read Request's too."""
    assert segment.is_terminate(), f"segment {segment.raw[:20].hex()}"
    assert (segment.qn, segment.msn, segment.mo, segment.last) == (2, 1, 0, 1), "the Terminate's own header"
    assert segment.error() == error, f"Terminate {segment.error()}, wanted {error}"
    flags = segment.header_flags()
    length, ddp, read = segment.terminated()
    quotes = error[2] != "0" and error[0] != "2"
    assert bool(flags & 4) == quotes, f"M of the Terminate {error} is {flags >> 2}"
    assert bool(flags & 2) == quotes, f"D of the Terminate {error} is {flags >> 1 & 1}"
    if not quotes:
        assert not flags & 1, f"R of the Terminate {error} is set"
    else:
        assert bad is not None, f"the case of {error} does not say which segment is wrong"
        tagged = bad[0] & 0x80
        size = 14 if tagged else 18
        assert ddp == bad[:size], f"terminated header {ddp.hex()}, sent {bad[:size].hex()}"
        assert length == len(bad), f"terminated length {length}, sent {len(bad)}"
        with_read = error.startswith("0/1") and not tagged and bad[1] & 15 == READ_REQUEST
        assert bool(flags & 1) == with_read, f"R of the Terminate {error} is {flags & 1}"
        if with_read:
            assert read == bad[18:46], f"terminated Read Request {read.hex()}, sent {bad[18:46].hex()}"


class Link:
    """A connection from this peer, as initiator, to the victim, up to full operation."""

    def __init__(self, victim, recvs=8, ird=16, ord_=16, accept_data="-", recv_size=RECV_SIZE, room=None, mss=None,
                 request_ird=16, request_ord=16, **more):
        self.victim = victim
        self.stream = tcp(room=room, mss=mss)
        self.markers_wanted = more.get("m", 0)
        self.stream.send_raw(request(ird=request_ird, ord_=request_ord, **more))
        self.request_event = victim.expect_event("CONNECT_REQUEST")
        self.made = Made(victim.ask(f"accept {ird} {ord_} {recvs} {recv_size} {accept_data}"))
        self.reply = self.stream.recv_startup()
        assert self.reply.key == mpa.REPLY_KEY, "the Reply's key"
        assert not self.reply.r, "rejected"
        self.stream.crc = bool(self.reply.c or more.get("c_flag", 1))
        self.stream.tx_markers = bool(self.reply.m)
        self.stream.rx_markers = bool(self.markers_wanted)
        if not more.get("a"):
            victim.expect_event("ESTABLISHED")

    def recv_segment(self, seconds=5.0):
        return Segment(self.stream.recv(seconds))

    def expect_terminate(self, error, bad=None, told=False):
        """Skips Read Responses, expects a Terminate with this code, then the close. `bad` is the wrong segment. The
        victim's owner gets one report: an event, or none if a completion has `told` of the error."""
        segment = self.recv_segment()
        while not segment.is_terminate():
            assert segment.tagged, f"unexpected segment {segment.raw[:20].hex()}"
            segment = self.recv_segment()
        check_terminate(segment, error, bad)
        self.stream.expect_close()
        wanted = "none" if told else FATAL if segment.error() not in ACCESS else VIOLATION
        got = self.victim.ask(f"async {300 if told else 5000}")
        assert got == wanted, f"after the Terminate {segment.error()}: {got}, wanted {wanted}"
        assert self.victim.ask("async 0") == "none", "a second event"
        return segment


CASES = []


class NotApplicable(Exception):
    """The case is about another setting of the module than that in force."""


def needs(condition, setting):
    """Ends a case that is about another setting."""
    if not condition:
        raise NotApplicable(f"needs {setting}")


def case(ids):
    """Registers a test; `ids` names the requirements it checks."""

    def register(function):
        CASES.append((ids, function))
        return function

    return register


def run(only):
    """Runs all cases, or those that a pattern picks; returns the number that failed. A pattern that picks none has
    failed, and so has a run without an applicable case."""
    victim, failed, done, passed_over = None, 0, 0, 0
    for word in only:
        if not any(word in function.__name__ or word in ids for ids, function in CASES):
            failed += 1
            print(f"not ok: no case matches '{word}'", flush=True)
    for ids, function in CASES:
        name = function.__name__
        if only and not any(word in name or word in ids for word in only):
            continue
        done += 1
        begin = time.monotonic()
        try:
            if victim is None:
                victim = Victim()
            function(victim)
            victim.close()
            print(f"ok: {name} ({ids}), {time.monotonic() - begin:.1f} s", flush=True)
        except NotApplicable as setting:
            passed_over += 1
            print(f"not applicable: {name} ({ids}): {setting}", flush=True)
        except Exception as error:  # pylint: disable=broad-except # a case must not stop the others
            failed += 1
            where = traceback.extract_tb(sys.exc_info()[2])
            lines = ", ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in where[1:])
            print(f"not ok: {name} ({ids}): {type(error).__name__}: {error} [{lines}]", flush=True)
            if victim is not None:
                victim.kill()
            victim = None
    if victim is not None:
        victim.kill()
    print(f"{done} cases, {failed} failed, {passed_over} not applicable", flush=True)
    return failed if done > passed_over else 1
