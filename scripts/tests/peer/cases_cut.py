# SPDX-License-Identifier: GPL-2.0
"""A local disconnect while a message is sent: the message is finished, and FIN follows. No other message begins."""

import threading
import time

import mpa
import rdmap
from cases_active import connected
from harness import FACTOR, case

# The octets of a Write: several times those that the module hands to TCP in one call. The number of Writes is more
# than TCP takes at both ends.
SIZE, POSTED = 200000, 40
# The octets of the receive buffer, and the receives that are posted.
ROOM, RECVS = 65536, 4
# The module cuts the message after half a second, and resets the connection of a peer that does not read
# (docs/design.md). A try that took almost as long says nothing.
CUT_SECONDS, TRIES = 0.4, 5
# The time limit of waits, on a busy machine.
LIMIT_SECONDS = 20 * FACTOR


class Read(threading.Thread):
    """Reads a connection up to its end, and gives the octets like a socket. CRCs take long in Python."""

    def __init__(self, sock):
        super().__init__(daemon=True)
        self.sock, self.octets, self.at, self.error = sock, bytearray(), 0, None
        sock.settimeout(LIMIT_SECONDS)

    def run(self):
        try:
            while more := self.sock.recv(1 << 20):
                self.octets += more
        except OSError as error:
            self.error = error

    def settimeout(self, seconds):
        """Nothing is waited for."""

    def recv(self, count):
        """The next octets; none at FIN."""
        part = bytes(self.octets[self.at:self.at + count])
        self.at += len(part)
        return part


def messages(stream):
    """The octets of each Write, and the L bit of the last segment, up to FIN."""
    sizes, last = [0], 1
    while True:
        try:
            segment = rdmap.Segment(stream.recv())
        except mpa.Closed:
            return sizes[:-1] if last else sizes, last
        assert segment.op == rdmap.WRITE, f"segment {segment.raw[:18].hex()}"
        assert segment.to == sizes[-1], f"offset {segment.to} behind {sizes[-1]} octets"
        sizes[-1] += len(segment.data)
        last = segment.last
        if last:
            sizes.append(0)


def finished_in_time(victim):
    """Whether the disconnect took so short that the message in progress had to be finished. If so it was."""
    stream, _, _ = connected(victim, room=ROOM)
    # The initiator sends no further zero-length Write: the peer has sent a message.
    stream.send(rdmap.send(1, b"here"))
    victim.expect_recv(0, 4)
    for number in range(POSTED):
        assert victim.ask(f"write {number} 77 0 {SIZE}") == "ok"
    read = Read(stream.sock)
    begin = time.monotonic()
    read.start()
    assert victim.ask("disconnect") == "ok"
    event = victim.event(LIMIT_SECONDS * 1000)
    took = time.monotonic() - begin
    assert event and event[:2] == ("RDMA_CM_EVENT_DISCONNECTED", 0), f"event {event}"
    read.join(LIMIT_SECONDS)
    if took > CUT_SECONDS:
        return False
    assert not read.is_alive() and read.error is None, f"no FIN, {len(read.octets)} octets: {read.error}"
    got = [victim.poll() for _ in range(POSTED + RECVS - 1)]
    assert None not in got, f"{got.count(None)} completions are missing"
    done = [queue for queue, _, status, _ in got if status == 0].count("send")
    stream.sock, stream.crc = read, False
    sizes, last = messages(stream)
    assert 0 < len(sizes) < POSTED, f"{len(sizes)} of {POSTED} Writes arrived"
    assert sizes[:done] == [SIZE] * done and len(sizes) - done < 2, f"{done} Writes were complete, octets: {sizes}"
    assert last and len(sizes) == done, f"{sizes[-1]} of {SIZE} octets of the last Write before FIN"
    return True


def retransmits():
    with open("/sys/class/infiniband/r0/ports/1/hw_counters/tcp_retransmits", encoding="ascii") as file:
        return int(file.read())


def is_reset(sock):
    try:
        sock.getpeername()
    except OSError:
        return True
    return False


@case("DDP-65 (retransmitted segments)")
def reset_after_retransmissions(victim):
    """The module resets a connection with retransmitted segments, which its counter includes once."""
    before = retransmits()
    stream, _, _ = connected(victim, room=ROOM)
    for number in range(POSTED):
        assert victim.ask(f"write {number} 77 0 {SIZE}") == "ok"
    time.sleep(1.0)
    during = retransmits()
    assert before < during < before + 1000, f"{before} retransmitted segments, then {during}"
    assert victim.ask("disconnect") == "ok"
    victim.expect_event("DISCONNECTED", ms=LIMIT_SECONDS * 1000)
    end = time.monotonic() + LIMIT_SECONDS
    while not is_reset(stream.sock):
        assert time.monotonic() < end, "the connection is not reset"
        time.sleep(0.05)
    time.sleep(0.2)
    after = retransmits()
    assert during <= after < during + 1000, f"{during} retransmitted segments, then {after}"


@case("MPA-90 DDP-72 (a message in progress)")
def disconnect_in_a_message(victim):
    for _ in range(TRIES):
        if finished_in_time(victim):
            return
        victim.close()
    raise AssertionError(f"{TRIES} disconnects took {CUT_SECONDS} s")
