# SPDX-License-Identifier: GPL-2.0
"""A path is cut: how long an established connection waits for its peer."""

import socket
import struct
import subprocess
import types

from pyverbs.addr import GID

from rendezvous import *


class Cut:
    """Drops all packets, those between addresses of this host too."""

    @staticmethod
    def tc(*words):
        subprocess.run(("tc", "qdisc", *words), check=True, timeout=20 * FACTOR)

    def __enter__(self):
        self.tc("add", "dev", "lo", "root", "netem", "loss", "100%")

    def __exit__(self, *_):
        self.tc("del", "dev", "lo", "root")


def silence(device):
    """a silent peer: the time limit of the queue pair, with a time-out of 0 that of TCP"""
    a, b = connected(device, timeout=HASTY)
    c, d = connected(device, timeout=0)
    b.recv()
    d.recv()
    with Cut():
        begun = time.monotonic()
        a.recv()
        a.send(b"lost")
        c.send(b"late")
        a.fails()
        lasted = time.monotonic() - begun
        check(lasted > 1.4, f"gave up after {lasted:.1f} s")
        wait_for(5, "the receive is flushed", lambda: (RECV, FLUSHED) in a.completions())
        device.fatal()
        check(b.state() == RTS, "an end that waits for nothing gave up")
        check(c.state() == RTS, "a time-out of 0 was one")
    d.expect((RECV, GOOD))
    check(d.mr.read(4, 0) == b"late", "something else arrived")
    for end in (a, b, c, d):
        end.close()


def trying(address):
    """How many connections to port 4791 of an address are being tried."""
    remote = "%08X:%04X" % (struct.unpack("<I", socket.inet_aton(address))[0], 4791)
    with open("/proc/net/tcp", encoding="ascii") as table:
        return sum(words[2:4] == [remote, "02"] for words in map(str.split, table))


def ports(device):
    """connections to an absent peer leave local ports to others"""
    count, path, nobody = 16, "/proc/sys/net/ipv4/ip_local_port_range", "10.99.0.77"
    there = types.SimpleNamespace(number=77, psn=1, gid=GID("0000:0000:0000:0000:0000:ffff:0a63:004d"))
    with open(path, encoding="ascii") as file:
        before = file.read()
    ends = [End(device, depth=1) for _ in range(count)]
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(f"40000 {40000 + count - 1}")
        for end in ends:
            end.to_init()
            end.to_rtr(there)
        wait_for(10, f"{count} of them try", lambda: trying(nobody) == count)
        with socket.create_server(("127.0.0.1", 7199)) as server:
            try:
                socket.create_connection(server.getsockname(), timeout=5).close()
            except OSError as error:
                raise Failure(f"an ordinary connection: {error}") from None
    finally:
        with open(path, "w", encoding="ascii") as file:
            file.write(before)
    for end in ends:
        end.close()
