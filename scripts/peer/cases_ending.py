# SPDX-License-Identifier: GPL-2.0
"""The module disconnects, and its peer keeps it waiting: for the answer of a Read, for room, for
the end of the other half. The end comes all the same, but not while something moves."""

import socket
import time

import mpa
import rdmap
from cases_active import connected, segment_of
from harness import FACTOR, RW, case, tcp_row

# The module looks every 8 s whether something moves, and the first time all that was before counts (rust/stream/end.rs):
# it gives up after 16 s, or after 5 where only the peer's FIN is missing. The rest is for a busy machine.
LIMIT_SECONDS = 20 * FACTOR
# Past its second look, at which only what has come since the first counts.
SLOW_SECONDS = 18
# Octets for which a peer has room that reads nothing, and those of one Write.
ROOM, SIZE = 4096, RW[1]
# Receives that are posted.
RECVS = 4
FIN_WAIT1 = "04"
# IBV_WC_WR_FLUSH_ERR.
FLUSHED = 5


def disconnect(victim):
    """Asks for a graceful end, and for the event that says it is over; the seconds it took."""
    begin = time.monotonic()
    assert victim.ask("disconnect") == "ok"
    event = victim.event(LIMIT_SECONDS * 1000)
    took = time.monotonic() - begin
    assert event, f"no DISCONNECTED within {LIMIT_SECONDS} s of rdma_disconnect(), state {victim.ask('state')}"
    assert event[0] == "RDMA_CM_EVENT_DISCONNECTED", f"event {event}"
    return took


def gives_up(victim):
    took = disconnect(victim)
    assert took > 3, f"the peer was given {took:.1f} s only"


def flushed(victim, sends):
    """These and all receives are complete, in order, and the last of each without success."""
    got = [victim.poll() for _ in range(len(sends) + RECVS)]
    assert None not in got and victim.poll(100) is None, f"completions {got}, wanted {len(sends) + RECVS} of them"
    for queue, ids in (("send", list(sends)), ("recv", list(range(RECVS)))):
        here = [g for g in got if g[0] == queue]
        assert [g[1] for g in here] == ids, f"{queue} completions {here}"
        assert here[-1][2] != 0, f"{queue} completions {here}: nothing is flushed"


def ends(stream):
    """Our own end of the connection hears of it too."""
    stream.sock.settimeout(LIMIT_SECONDS)
    try:
        while stream.sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except (TimeoutError, socket.timeout):
        raise AssertionError(f"the TCP connection is open {LIMIT_SECONDS} s after the event") from None


def until_fin(stream):
    """What still comes before FIN: octets of Writes."""
    octets = 0
    while True:
        try:
            segment = segment_of(stream, LIMIT_SECONDS)
        except mpa.Closed as closed:
            assert not closed.reset, f"reset instead of FIN, {octets} octets after the event"
            return octets
        except (TimeoutError, socket.timeout):
            raise AssertionError(f"neither data nor FIN for {LIMIT_SECONDS} s, {octets} octets after the event") from None
        assert segment.op == rdmap.WRITE, f"segment {segment.raw[:18].hex()}"
        octets += len(segment.data)


@case("MPA-90 DDP-72 (a Read without an answer)")
def disconnect_while_a_read_is_out(victim):
    stream, _, _ = connected(victim)
    assert victim.ask("read 1 1234 0 100") == "ok"
    assert segment_of(stream).op == rdmap.READ_REQUEST
    gives_up(victim)
    flushed(victim, [1])
    ends(stream)


def fill(victim):
    """Posts Writes until TCP takes no more of them: the ids of those that are left."""
    posted = done = 0
    while True:
        while posted - done < 48:
            assert victim.ask(f"write {posted} 77 0 {SIZE}") == "ok"
            posted += 1
        got = victim.poll(500 * FACTOR)
        if got is None:
            return range(done, posted)
        assert got[:3] == ("send", done, 0), f"completion {got}, wanted Write {done}"
        done += 1
        assert done < 5000, f"TCP takes {done} Writes that nobody reads"


@case("MPA-90 DDP-72 (more than the peer takes)")
def disconnect_with_more_than_fits(victim):
    stream, _, _ = connected(victim, room=ROOM)
    left = fill(victim)
    gives_up(victim)
    flushed(victim, left)
    ends(stream)


def three_writes(victim):
    """These TCP takes whole, which makes them complete."""
    for number in range(3):
        assert victim.ask(f"write {number} 77 0 {SIZE}") == "ok"
    for number in range(3):
        assert victim.poll() == ("send", number, 0, SIZE), f"Write {number} is not complete"


@case("MPA-90 DDP-72 (FIN behind a closed window)")
def disconnect_behind_a_closed_window(victim):
    # What is complete arrives, however late the peer reads it.
    stream, _, _ = connected(victim, room=ROOM)
    three_writes(victim)
    gives_up(victim)
    octets = until_fin(stream)
    assert octets == 3 * SIZE, f"{octets} octets of {3 * SIZE} before FIN"


@case("MPA-90 (half closed)")
def disconnect_from_a_peer_that_stays(victim):
    stream, _, _ = connected(victim)
    gives_up(victim)
    assert until_fin(stream) == 0, "data from somebody who has posted none"


@case("MPA-90 DDP-72 (a Read that is answered slowly)")
def disconnect_waits_for_a_slow_answer(victim):
    stream, _, _ = connected(victim)
    # Who has been told something does not nudge.
    stream.send(rdmap.send(1, b"here"))
    victim.expect_recv(0, 4)
    assert victim.ask("read 1 1234 0 100") == "ok"
    sink, sink_to = segment_of(stream).read()[:2]
    data = bytes(range(100))
    answer = stream.fpdu(rdmap.tagged(rdmap.READ_RESPONSE, sink, sink_to, data))
    assert victim.ask("disconnect") == "ok"
    for at in range(SLOW_SECONDS):
        try:
            stream.send_raw(answer[at:at + 1])
            # An octet a second, and until the next one nothing may come, nor the end.
            stream.silent(1.0)
        except (mpa.Closed, OSError) as error:
            raise AssertionError(f"cut {at + 1} s after rdma_disconnect(), an octet a second came: {error}") from None
    event = victim.event(0)
    assert event is None, f"event {event} before the Read is complete"
    stream.send_raw(answer[SLOW_SECONDS:])
    got = victim.poll()
    assert got == ("send", 1, 0, 100), f"completion {got}"
    assert victim.memory(RW[0], 100) == data, "the Read brought something else"
    assert until_fin(stream) == 0, "data from somebody who has posted none"
    stream.sock.close()
    victim.expect_event("DISCONNECTED")


def state_of(stream):
    """The state of TCP at the module's end."""
    row = tcp_row(stream)
    return row and row[3]


@case("MPA-90 DDP-72 (asked for something after FIN)")
def disconnect_and_a_late_question(victim):
    stream, made, _ = connected(victim, room=ROOM)
    three_writes(victim)
    assert victim.ask("disconnect") == "ok"
    end = time.monotonic() + 5 * FACTOR
    while state_of(stream) != FIN_WAIT1:
        assert time.monotonic() < end, f"no FIN, state {state_of(stream)}"
        time.sleep(0.01)
    # Who is asked after that answers nothing, and this breaks nothing: what TCP has is still to arrive.
    stream.send(rdmap.read_request(1, 1, 0, 100, made.rw, made.at(RW)))
    stream.send(rdmap.send(1, b"late"))
    victim.expect_recv(0, 4)
    octets = until_fin(stream)
    assert octets == 3 * SIZE, f"{octets} octets of {3 * SIZE} before FIN"
    stream.sock.close()
    event = victim.expect_event("DISCONNECTED")
    assert event[1] == 0, f"status {event[1]}"


@case("DDP-74 (a Read that cannot be answered any more)")
def peer_closes_in_front_of_a_read(victim):
    stream, _, _ = connected(victim, room=ROOM)
    left = fill(victim)
    read = left[-1] + 1
    assert victim.ask(f"read {read} 1234 0 100") == "ok"
    stream.sock.shutdown(socket.SHUT_WR)
    # The Writes in front of it still come, the Read Request does not.
    octets = until_fin(stream)
    assert octets >= (len(left) - 1) * SIZE, f"{octets} octets for {len(left)} Writes"
    flushed(victim, [*left, read])


@case("RDMAP-31 (about another message)")
def terminate_leaves_a_read_alone(victim):
    for error, quoted in (((1, 1, 0), rdmap.write(77, 0, b"x")), ((1, 2, 2), rdmap.send(1, b"x"))):
        stream, _, _ = connected(victim)
        assert victim.ask("read 1 1234 0 100") == "ok"
        assert segment_of(stream).op == rdmap.READ_REQUEST
        rest = len(quoted).to_bytes(2, "big") + quoted[:-1]
        stream.send(rdmap.terminate(*error, flags=6, rest=rest))
        stream.expect_close()
        got = [victim.poll() for _ in range(1 + RECVS)]
        assert ("send", 1, FLUSHED) in [g and g[:3] for g in got], f"Terminate {error}: completions {got}"
        victim.close()
