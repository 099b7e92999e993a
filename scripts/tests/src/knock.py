# SPDX-License-Identifier: GPL-2.0
"""Strangers that come without end to TCP ports, and say nothing.

usage: knock.py SECONDS ADDRESS PORT...    a new connection to each every so many seconds; 0: a flood

Says "in" once each has let one in, and goes on whatever becomes of the others, until it is killed.
The last ones stay connected.
"""

import collections
import socket
import struct
import sys
import time

# Fewer than files a process may have open.
KEPT = 512


def main(pause, address, ports):
    kept = collections.deque()
    for port in ports:
        kept.append(socket.create_connection((address, port), 10))
    print("in", flush=True)
    while True:
        for port in ports:
            s = socket.socket(socket.AF_INET)
            s.setblocking(False)
            # Reset in the end: else no port would soon be left to come from.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.connect_ex((address, port))
            kept.append(s)
        while len(kept) > KEPT:
            kept.popleft().close()
        time.sleep(pause)


main(float(sys.argv[1]), sys.argv[2], [int(port) for port in sys.argv[3:]])
