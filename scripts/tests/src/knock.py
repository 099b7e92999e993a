# SPDX-License-Identifier: GPL-2.0
"""Opens TCP connections to ports without end, and sends nothing.

usage: knock.py SECONDS ADDRESS PORT...    a new connection to each every so many seconds; 0: a flood

Prints "in" once each port has accepted one, and continues until it is killed, also where later ones fail.
The last connections stay open.
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
            # RST ends the connection: TIME-WAIT would soon take all local ports.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.connect_ex((address, port))
            kept.append(s)
        while len(kept) > KEPT:
            kept.popleft().close()
        time.sleep(pause)


main(float(sys.argv[1]), sys.argv[2], [int(port) for port in sys.argv[3:]])
