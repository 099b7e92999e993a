# SPDX-License-Identifier: GPL-2.0
"""Unknown peers on the port of rendezvous (docs/rendezvous.md)."""

import os
import resource
import socket
import struct

from rendezvous import *

PORT = 4791
HERE = "10.99.0.1"
CROWD = int(os.environ.get("CROWD", "10000"))


def request(private, key=b"MPA ID Req Frame", flags=0x50, revision=2, length=None,
            ird=0x8004, ord=0x8004):
    """A start-up frame of MPA; by default revision 2, peer-to-peer, RTR by Write, CRC."""
    data = struct.pack("!HH", ird, ord) + private
    return key + struct.pack("!BBH", flags, revision, len(data) if length is None else length) + data


def hello(sender, to, psn, expects, magic=b"QPQP", version=1, flags=1, rest=0):
    return magic + struct.pack("!BBHIIII", version, flags, rest, sender, to, psn, expects)


def connect(address=HERE):
    """From the address of the device, as a peer would."""
    s = socket.socket(socket.AF_INET)
    s.settimeout(20 * FACTOR)
    s.bind((HERE if address == HERE else "127.0.0.1", 0))
    s.connect((address, PORT))
    return s


def answer(frame, address=HERE):
    """The octets received until the end of the connection."""
    got = b""
    with connect(address) as s:
        try:
            s.sendall(frame)
            while more := s.recv(4096):
                got += more
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError as error:
            raise Failure(f"{frame[:60]!r} is neither answered nor closed") from error
    return got


def silent(what, frame, address=HERE):
    got = answer(frame, address)
    check(got == b"", f"{what}: answered by {got!r}")


def refused(what, frame, address=HERE):
    got = answer(frame, address)
    check(got[:16] == b"MPA ID Rep Frame" and got[16] & 0x20, f"{what}: answered by {got!r}")
    check(len(got) == 24, f"{what}: the refusal tells more than it must: {got!r}")


def works(device):
    """A pair of queue pairs connects."""
    a, b = connected(device)
    a.close()
    b.close()


def waiter(device):
    """A pair with one end that waits: the port is open as long as an end waits."""
    a, b = smaller_first(*pair(device))
    b.to_rtr(a)
    return a, b


def nonsense(device):
    """what is no Request is closed without an answer, a Request of an unknown peer is refused"""
    a, b = smaller_first(*pair(device))
    b.connect(a)
    good = hello(a.number, b.number, a.psn, b.psn)
    silent("nothing but an end", b"")
    silent("HTTP", b"GET / HTTP/1.1\r\nHost: you\r\n\r\n")
    silent("noise", random.randbytes(4096))
    silent("a Reply", request(good, key=b"MPA ID Rep Frame"))
    silent("revision 0", request(good, revision=0))
    silent("revision 1", request(good, flags=0x40, revision=1))
    silent("too much private data", request(good, length=513) + bytes(600))
    silent("more than a Request", request(good) + b"x")
    silent("a Request without a hello", request(b""))
    silent("no peer-to-peer", request(good, ird=4))
    silent("no RTR by Write", request(good, ord=0x4004))
    for bad in (good[:-1], good + b"\0", hello(a.number, b.number, a.psn, b.psn, magic=b"QPQQ"),
                hello(a.number, b.number, a.psn, b.psn, version=2),
                hello(a.number, b.number, a.psn, b.psn, flags=5),
                hello(a.number, b.number, a.psn, b.psn, rest=1),
                hello(a.number, b.number, a.psn, b.psn, flags=0),
                hello(a.number, 1 << 24, a.psn, b.psn)):
        silent(f"the hello {bad!r}", request(bad))
    begun = time.monotonic()
    silent("silence", b"")
    silent("half a frame", request(good)[:30])
    check(time.monotonic() - begun < 12 * FACTOR, "silence is listened to for too long")
    for what, frame in (
        ("a queue pair that is not there", hello(a.number, 3, a.psn, b.psn)),
        ("another sender", hello(a.number ^ 1, b.number, a.psn, b.psn)),
        ("another PSN", hello(a.number, b.number, a.psn ^ 1, b.psn)),
        ("another PSN expected", hello(a.number, b.number, a.psn, b.psn ^ 1)),
        ("a local one", hello(a.number, b.number, a.psn, b.psn, flags=3)),
    ):
        refused(what, request(frame))
    refused("the wrong address", request(good), "127.0.0.1")
    # After all refusals the peer connects.
    a.connect(b)
    talk(a, b)
    refused("a second one", request(good))
    talk(a, b)
    refused("an initiator", request(hello(b.number, a.number, b.psn, a.psn)))
    a.close()
    b.close()


def impostor(device):
    """a connection with the right numbers that stops after its Request does not keep the peer out"""
    a, b = smaller_first(*pair(device))
    b.connect(a)
    with connect() as one:
        one.sendall(request(hello(a.number, b.number, a.psn, b.psn)))
        got = one.recv(4096)
        check(got[:16] == b"MPA ID Rep Frame" and not got[16] & 0x20, f"answered by {got!r}")
        check(len(got) == 48, "the Reply has no hello")
        a.connect(b)
        talk(a, b)
    a.close()
    b.close()


def own_impostor(device):
    """the number of a queue pair that is connected to itself is not enough to connect"""
    a = End(device)
    a.to_init()
    a.to_rtr(a)
    for _ in range(20):
        refused("an impostor", request(hello(a.number, a.number, 0, a.psn ^ 1, flags=0)))
    a.to_rts()
    a.recv()
    a.send(b"myself")
    a.expect((SEND, GOOD), (RECV, GOOD))
    a.close()


def waiting(device):
    """a Request for a queue pair in INIT waits, with a time limit"""
    others = waiter(device)
    a, b = smaller_first(*pair(device))
    begun = time.monotonic()
    silent("a queue pair in INIT", request(hello(a.number, b.number, a.psn, b.psn)))
    check(time.monotonic() - begun > 1, "did not wait")
    for end in (a, b, *others):
        end.close()


def crowd(device):
    """thousands of silent connections keep no peer out, and leave nothing behind"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (CROWD + 100, CROWD + 100))
    others = waiter(device)
    sockets = []
    for i in range(CROWD):
        s = socket.socket(socket.AF_INET)
        s.setblocking(False)
        s.connect_ex((HERE, PORT))
        sockets.append(s)
        if i % (CROWD // 4) == CROWD // 4 - 1:
            works(device)
    works(device)
    for s in sockets:
        s.close()
    works(device)
    for end in others:
        end.close()


if __name__ == "__main__":
    run((nonsense, impostor, own_impostor, waiting, crowd), 120)
