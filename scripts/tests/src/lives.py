# SPDX-License-Identifier: GPL-2.0
"""Life cycles of queue pairs that connect by rendezvous: every order of arrival, work before and after
the connection, and peers that die at every step."""

import itertools
import os
import random
import signal
import time

from rendezvous import *


def smaller_then_larger(device):
    """Pairs, once with the end first that connects (the smaller one), once with the other."""
    for swap in (False, True):
        a, b = smaller_first(*pair(device))
        yield (b, a) if swap else (a, b)


def every_order(device):
    """either end first, in every order of the four steps, fast and slow"""
    steps = (0, 0, 1, 1)
    for pause in (0, 0.06):
        for order in sorted(set(itertools.permutations(steps))):
            for ends in smaller_then_larger(device):
                went = [False, False]
                for who in order:
                    if went[who]:
                        ends[who].to_rts()
                    else:
                        ends[who].to_rtr(ends[1 - who])
                        went[who] = True
                    # The driver acts on the steps so far during the pause.
                    time.sleep(pause)
                talk(*ends, 1)
                for end in ends:
                    end.close()


def early_work(device):
    """work requests that wait for the connection"""
    for a, b in smaller_then_larger(device):
        b.recv(8)
        a.connect(b)
        for _ in range(8):
            a.send(b"early")
        check(a.completions() == [], "completed without a peer")
        b.connect(a)
        a.expect(*[(SEND, GOOD)] * 8)
        b.expect(*[(RECV, GOOD)] * 8)
        a.close()
        b.close()


def one_way(device):
    """a peer that stays in RTR receives, and answers Reads"""
    for a, b in smaller_then_larger(device):
        b.to_rtr(a)
        a.connect(b)
        b.recv()
        a.send(b"to RTR")
        a.expect((SEND, GOOD))
        b.expect((RECV, GOOD))
        a.rdma(e.IBV_WR_RDMA_READ, b, local=1024)
        a.expect((RDMA, GOOD))
        check(a.mr.read(6, 1024) == b"to RTR", "the Read brought something else")
        check(b.state() == RTR, "the state has changed by itself")
        b.to_rts()
        talk(a, b, 1)
        a.close()
        b.close()


def addresses(device):
    """IPv6, the link-local address, and none"""
    gids = {}
    for index in range(32):
        try:
            gid = str(device.gid(index))
        except PyverbsError:
            continue
        if gid.startswith("fd99"):
            gids["IPv6"] = index
    for index in (0, gids["IPv6"], None):
        a, b = connected(device, 2, gid=index)
        a.close()
        b.close()


def itself(device):
    """a queue pair that is connected to itself"""
    for index in (1, 0, None):
        a = End(device, gid=index)
        a.to_init()
        a.connect(a)
        for i in range(3):
            a.recv()
            a.send(b"myself")
            a.expect((SEND, GOOD), (RECV, GOOD))
        a.mr.write(b"write", 5)
        a.rdma(e.IBV_WR_RDMA_WRITE, a, 5, 0, 1000)
        a.rdma(e.IBV_WR_RDMA_READ, a, 5, 2000, 1000)
        a.expect((RDMA, GOOD), (RDMA, GOOD))
        check(a.mr.read(5, 2000) == b"write", "the Read brought something else")
        a.recv(2)
        a.to(ERR)
        a.expect((RECV, FLUSHED), (RECV, FLUSHED))
        a.close()


def wrong_psn(device):
    """ends whose packet sequence numbers do not fit do not connect"""
    a, b = smaller_first(*pair(device))
    a.recv(2)
    a.connect(b)
    a.psn ^= 1
    b.connect(a)
    a.fails()
    a.expect((RECV, FLUSHED), (RECV, FLUSHED))
    device.fatal()
    check(b.state() == RTS, "the other end was disturbed")
    a.close()
    b.close()
    # Found out only when the second end gets to RTS.
    for a, b in smaller_then_larger(device):
        b.to_rtr(a)
        a.connect(b)
        b.recv()
        a.send()
        b.expect((RECV, GOOD))
        b.psn ^= 1
        b.recv()
        b.to_rts()
        b.fails()
        b.expect((RECV, FLUSHED))
        device.fatal()
        a.close()
        b.close()


def nobody(device):
    """without a peer the time limit ends the wait: ERR, flush and an event"""
    # Peers: a queue pair without the attributes of its peer, one with another peer, and a destroyed one.
    for kind in ("silent", "taken", "gone"):
        for a, b in smaller_then_larger(device):
            gone = Peer(b)
            if kind == "taken":
                b.connect(Peer(b))
            if kind == "gone":
                b.close()
            a.recv(2)
            a.connect(gone, timeout=HASTY)
            a.send()
            a.send()
            a.fails()
            a.expect((SEND, FLUSHED), (SEND, FLUSHED), (RECV, FLUSHED), (RECV, FLUSHED))
            device.fatal()
            # Without work there is no time limit.
            if kind == "taken":
                check(b.state() == RTS, "somebody else's queue pair was disturbed")
            a.close()
            if kind != "gone":
                b.close()


def retries(device):
    """more retries, a longer time limit: 4.096 us * 2^TIMEOUT * (RETRY_CNT + 1)"""
    # The peers exist, but do not get the attributes.
    pairs = [smaller_first(*pair(device)) for _ in range(2)]
    (six, _), (one, _) = pairs
    begun = time.monotonic()
    for (end, peer), count in zip(pairs, (5, 0)):
        end.connect(peer, timeout=18, retries=count)
        end.send()
    # 1.1 s, which the module's parameter makes 1.5 s of; and 6.4 s.
    one.fails()
    check(six.state() == RTS, "six tries are over as soon as one")
    six.fails()
    lasted = time.monotonic() - begun
    check(lasted > 6, f"six tries are over after {lasted:.1f} s")
    device.fatal()
    for end in itertools.chain(*pairs):
        end.close()


def for_ever(device):
    """a time-out of 0 is none, and a queue pair without work has no time limit"""
    a, b = smaller_first(*pair(device))
    a.connect(b, timeout=0)
    a.send()
    c, d = smaller_first(*pair(device))
    c.connect(d)
    # Longer than the time limit of the others.
    time.sleep(2.5 * FACTOR)
    check(a.state() == RTS and c.state() == RTS, "gave up")
    b.recv()
    b.connect(a)
    a.expect((SEND, GOOD))
    b.expect((RECV, GOOD))
    d.connect(c)
    talk(c, d, 1)
    for end in (a, b, c, d):
        end.close()


def again(device):
    """back to RESET, and a new connection, many times"""
    a, b = pair(device)
    for i in range(6):
        a.connect(b)
        b.connect(a)
        talk(a, b, 1)
        a.recv(i)
        # One end after the other, or both at once.
        a.to(RESET)
        check(a.state() == RESET, "is not in RESET")
        b.to(RESET)
        a.completions()
        b.completions()
        a.done, b.done = [], []
        a.to_init()
        b.to_init()
    a.close()
    b.close()


def graceful(device):
    """messages sent before the end arrive, and the other end gets an event"""
    for end in ("destroy", "ERR", "SQD"):
        a, b = pair(device)
        a.connect(b)
        b.connect(a)
        b.recv(10)
        for _ in range(8):
            a.send()
        a.expect(*[(SEND, GOOD)] * 8)
        if end == "destroy":
            a.close()
        else:
            a.to({"ERR": ERR, "SQD": SQD}[end])
        wait_for(15, "everything arrives", lambda: len(b.completions()) >= 8)
        # The other requests are flushed soon after.
        b.expect(*[(RECV, GOOD)] * 8, (RECV, FLUSHED), (RECV, FLUSHED))
        check(b.state() == ERR, f"is {name(b.state())} and not ERR")
        if end != "destroy":
            a.fails()
            a.close()
        b.close()


def noticed(device):
    """a Send to a peer that has left fails, but not at once"""
    a, b = connected(device)
    a.close()
    begun = time.monotonic()
    # TCP may take the first ones before the peer's end is known.
    while not [status for _, status in b.completions() if status == FLUSHED]:
        check(b.state() == RTS or time.monotonic() > begun + 2, f"is {name(b.state())} already")
        check(time.monotonic() < begun + 15 * FACTOR, "nothing is flushed")
        if b.state() == RTS and b.posted < 8:
            b.send()
    b.fails()
    b.close()


def peer_process(step, pipe_in, pipe_out, gid):
    """A peer that gets as far as `step`, and waits for its death."""
    device = Device()
    end = End(device)
    os.write(pipe_out, b"%d %d\n" % (end.number, end.psn))
    number, psn = map(int, os.read(pipe_in, 64).split())
    other = Peer(end, number, psn)
    if step >= 1:
        end.to_init()
        end.recv(16)
    if step >= 2:
        end.to_rtr(other)
    if step >= 3:
        end.to_rts()
    if step >= 4:
        for _ in range(8):
            end.send()
    os.write(pipe_out, b"ready\n")
    while True:
        time.sleep(1)


def deaths(device):
    """peers that are killed at every step"""
    # The port of an absent peer is closed, and an initiator tries again until its time limit.
    for step in range(5):
        for early in (False, True):
            down, up = os.pipe(), os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(60 * FACTOR)
                try:
                    peer_process(step, down[0], up[1], device.gid(1))
                finally:
                    os._exit(1)
            end = End(device)
            end.to_init()
            number, psn = map(int, os.read(up[0], 64).split())
            peer = Peer(end, number, psn)
            os.write(down[1], b"%d %d\n" % (end.number, end.psn))
            end.recv(16)
            if early:
                end.connect(peer, timeout=HASTY)
                end.send()
            check(os.read(up[0], 64) == b"ready\n", "the peer did not get ready")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if not early:
                end.connect(peer, timeout=HASTY)
            if end.state() != ERR:
                try:
                    end.send()
                except PyverbsError:
                    pass
            end.fails(20)
            wait_for(10, "everything is flushed", lambda: len(end.completions()) >= 16 + end.posted)
            check(len(end.done) == 16 + end.posted, f"{len(end.done)} completions")
            end.close()
            for fd in (*down, *up):
                os.close(fd)


def any_moment(device):
    """destroyed, or put into ERR or RESET, at any moment of the set-up"""
    for i in range(120):
        a, b = pair(device)
        a.recv(2)
        b.recv(2)
        first, second = (a, b) if i & 1 else (b, a)
        first.connect(second)
        if i % 5:
            second.to_rtr(first)
        if i % 5 > 1:
            second.to_rts()
        if i % 3 == 0:
            first.send()
        time.sleep(random.choice((0, 0, 0.001, 0.003, 0.01, 0.03)))
        victim = random.choice((first, second))
        deed = i // 2 % 3
        if deed == 0:
            victim.close()
        else:
            victim.to(ERR if deed == 1 else RESET)
        for end in (a, b):
            if not (deed == 0 and end is victim):
                end.close()


def many(device):
    """200 pairs at once"""
    pairs = [pair(device, depth=2) for _ in range(200)]
    for a, b in pairs:
        a.recv()
        b.recv()
    # The first one waits for all the others, on the debug kernel longer than the usual 17 s.
    for a, b in pairs:
        a.connect(b, timeout=PATIENT + 2)
        a.send()
    for a, b in reversed(pairs):
        b.connect(a, timeout=PATIENT + 2)
        b.send()
    for a, b in pairs:
        a.expect((SEND, GOOD), (RECV, GOOD), seconds=60)
        b.expect((SEND, GOOD), (RECV, GOOD), seconds=60)
    for a, b in pairs:
        a.close()
        b.close()
