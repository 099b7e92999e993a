# SPDX-License-Identifier: GPL-2.0
"""A cable that is cut: how long a connection that is up waits for its peer."""

import subprocess

from direct import *


class Cut:
    """Nothing gets through, not between addresses of this host either."""

    @staticmethod
    def tc(*words):
        subprocess.run(("tc", "qdisc", *words), check=True, timeout=20 * FACTOR)

    def __enter__(self):
        self.tc("add", "dev", "lo", "root", "netem", "loss", "100%")

    def __exit__(self, *_):
        self.tc("del", "dev", "lo", "root")


def connected(device, **options):
    a, b = pair(device)
    a.connect(b, **options)
    b.connect(a, **options)
    talk(a, b, 1)
    return a, b


def silence(device):
    """a peer that is heard no more: as long as the patience, with a time-out of 0 as long as TCP"""
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
