# SPDX-License-Identifier: GPL-2.0
"""How a listener takes an initiator's start-up frames (RFC 5044 section 7.1).

usage: start_up.py ADDRESS PORT reply M C    asks with these flags, in revision 1; prints those of the Reply
       start_up.py ADDRESS PORT stall        sends the Request's first octets in pieces and then nothing;
                                             prints "stalls", and stays until the peer or a signal ends it
"""

import os
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../peer"))
import mpa  # noqa: E402


def reply(stream, markers, crc):
    stream.send_raw(mpa.startup(mpa.REQUEST_KEY, rev=1, m=markers, c=crc))
    try:
        answer = stream.recv_startup(15)
    except mpa.Closed:
        print("closed")
        return
    print("rejected" if answer.r else f"M={answer.m} C={answer.c}")


def occupy(cpu):
    """Occupies a processor with real-time work; returns the process."""
    ready, spins = os.pipe()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        os.write(spins, b"x")
        while True:
            pass
    os.read(ready, 1)
    return child


def stall(stream):
    # All pieces arrive before the receiver's kernel threads run. A receiver that reads once for each
    # piece then finds nothing for all but one.
    first, *others = sorted(os.sched_getaffinity(0))
    busy = [occupy(cpu) for cpu in others]
    os.sched_setaffinity(0, {first})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
    stream.pieces = 1
    stream.send_raw(mpa.startup(mpa.REQUEST_KEY, rev=1)[:10])
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    for child in busy:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print("stalls", flush=True)
    stream.expect_close(60)


def main():
    address, port, what, *flags = sys.argv[1:]
    stream = mpa.Stream(socket.create_connection((address, int(port)), timeout=5))
    if what == "reply":
        reply(stream, *map(int, flags))
    else:
        stall(stream)


main()
