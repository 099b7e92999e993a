# SPDX-License-Identifier: GPL-2.0
"""Errors of the set-up between both start-up frames and the first FPDU, with rendezvous (docs/rendezvous.md): the end
that gives up sends a Terminate of MPA before it closes (RFC 6581 sections 9.1 to 9.3)."""

import types

from pyverbs.addr import GID

import faults
import mpa
from harness import check_terminate
from rdmap import Segment
from rendezvous import *
from unknown_peers import HERE, PORT, connect, hello, request, socket

# An address of this host that no device has: its GID is greater than the device's, so the peer is the responder.
THERE = "10.99.0.77"
THERE_GID = "0000:0000:0000:0000:0000:ffff:0a63:004d"
# The module's time limits for a first FPDU and, at least, for posted work.
REQUEST_SECONDS, WORK_SECONDS = 2, 10


def terminated(stream, error):
    """The module's end sends this Terminate as its only FPDU, then FIN."""
    check_terminate(Segment(stream.recv(15.0 * FACTOR)), error)
    try:
        stream.recv_exactly(1, 15.0 * FACTOR)
    except mpa.Closed as closed:
        check(not closed.reset, f"{error}: a reset instead of FIN")
    else:
        raise Failure(f"{error}: an octet behind the Terminate")


def replied(device, word):
    """An initiator that has received a Reply with a valid hello, and with this enhanced word; and its stream."""
    peer = types.SimpleNamespace(number=77, psn=random.getrandbits(24), gid=GID(THERE_GID))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((THERE, PORT))
        listener.listen()
        listener.settimeout(20 * FACTOR)
        end = End(device)
        end.to_init()
        end.connect(peer)
        # The initiator begins anew if its PSN becomes known after its Request.
        while True:
            stream = mpa.Stream(listener.accept()[0])
            try:
                asked = stream.recv_startup(15.0 * FACTOR)
            except mpa.Closed:
                continue
            if asked.data[5] & 1:
                break
    check(asked.word["a"] == 1 and asked.word["ird"] == end.ird, f"the Request has {asked.word}")
    stream.tx_markers = bool(asked.m)
    private = hello(peer.number, end.number, peer.psn, end.psn)
    stream.send_raw(mpa.startup(mpa.REPLY_KEY, s=1, data=mpa.enhanced(**word) + private))
    return end, stream


def given_up(device, end):
    """The initiator does not try again."""
    end.fails()
    device.fatal()
    end.close()


def refused_reply(device):
    """a Reply with another RTR frame gives 2/0/07, one with an ORD above the IRD 2/0/06"""
    good = {"ird": 4, "ord_": 4, "a": 1, "c": 1}
    for error, bad in (("2/0/07", {"c": 0, "d": 1}), ("2/0/07", {"c": 0, "b": 1}), ("2/0/07", {"a": 0}),
                       ("2/0/06", {"ord_": 5})):
        end, stream = replied(device, {**good, **bad})
        terminated(stream, error)
        given_up(device, end)
    # The same Reply without an error is accepted: the first FPDU is a Write.
    end, stream = replied(device, good)
    check(Segment(stream.recv(15.0 * FACTOR)).tagged, "the first FPDU is no Write")
    stream.reset()
    given_up(device, end)


def answered(device):
    """A responder after its Reply: the two ends, and the stream of an initiator with the right numbers."""
    a, b = smaller_first(*pair(device))
    b.connect(a)
    stream = mpa.Stream(connect())
    stream.send_raw(request(hello(a.number, b.number, a.psn, b.psn)))
    reply = stream.recv_startup(15.0 * FACTOR)
    check(not reply.r and len(reply.data) == 24, "the Reply refuses")
    stream.tx_markers = bool(reply.m)
    return a, b, stream


def first_fpdu_that_never_comes(device):
    """without a first FPDU the responder sends 2/0/05, and waits for its peer as before"""
    a, b, stream = answered(device)
    begun = time.monotonic()
    terminated(stream, "2/0/05")
    took = time.monotonic() - begun
    check(took > REQUEST_SECONDS / 2, f"gave up after {took:.1f} s")
    a.connect(b)
    talk(a, b)
    a.close()
    b.close()


def time_limit_of_work(device):
    """an end whose posted work is out of time after its Reply sends 2/0/05"""
    for _ in range(3):
        a, b = smaller_first(*pair(device))
        b.connect(a, timeout=HASTY)
        b.send()
        posted = time.monotonic()
        # In time for the Reply, which the time limit of the first FPDU must not end.
        time.sleep(WORK_SECONDS - REQUEST_SECONDS + 0.5)
        try:
            stream = mpa.Stream(connect())
            stream.send_raw(request(hello(a.number, b.number, a.psn, b.psn)))
            reply = stream.recv_startup(15.0 * FACTOR)
        except (mpa.Closed, OSError) as error:
            check(time.monotonic() - posted > WORK_SECONDS, f"no Reply, though in time: {error!r}")
            reply = None
        else:
            stream.tx_markers = bool(reply.m)
            terminated(stream, "2/0/05")
        given_up(device, b)
        a.close()
        if reply:
            return
    raise Failure("the machine was too busy for a Request in time")


def stream_without_memory(device):
    """a stream that has no memory gives 2/0/05 at both ends"""
    if not faults.has_refused_objects():
        print("no fault injection: not tested", flush=True)
        return
    with faults.refused_objects(faults.STREAM_NEW):
        end, stream = replied(device, {"ird": 4, "ord_": 4, "a": 1, "c": 1})
        terminated(stream, "2/0/05")
        given_up(device, end)
        a, b, stream = answered(device)
        # An RDMA Write without payload.
        stream.send(bytes.fromhex("c140") + bytes(12))
        terminated(stream, "2/0/05")
        given_up(device, b)
        a.close()


if __name__ == "__main__":
    run((refused_reply, first_fpdu_that_never_comes, time_limit_of_work, stream_without_memory), 120)
