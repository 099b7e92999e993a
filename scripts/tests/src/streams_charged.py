# SPDX-License-Identifier: GPL-2.0
"""The memory of streams is charged to the memory cgroup of the process, which makes none of them: work items of
the device do. Connections with long send queues differ from those with short ones by a queue in each stream.

usage: streams_charged.py DEVICE CGROUP"""

import os
import sys

from rendezvous import GOOD, RECV, SEND, Device, check, pair

PAIRS = 128
SHORT, LONG = 16, 512
# The octets of an entry (SentWr of rust/stream/inflight.rs).
ENTRY = 32
DIFFERENCE = 2 * PAIRS * (LONG - SHORT) * ENTRY
# One end of each pair alone would pay for half of it. The statistics are late by up to 64 pages of each processor
# (MEMCG_CHARGE_BATCH of include/linux/memcontrol.h).
LEAST = DIFFERENCE * 3 // 4


def slab():
    with open(os.path.join(sys.argv[2], "memory.stat"), encoding="ascii") as file:
        return int(dict(line.split() for line in file)["slab_unreclaimable"])


def charged(device, depth):
    """Octets that the cgroup pays for the connections of queue pairs that exist before."""
    pairs = [pair(device, depth=depth) for _ in range(PAIRS)]
    before = slab()
    for a, b in pairs:
        b.recv()
        b.connect(a)
        a.connect(b)
        a.send()
    for a, b in pairs:
        a.expect((SEND, GOOD))
        b.expect((RECV, GOOD))
    octets = slab() - before
    for end in (end for ends in pairs for end in ends):
        end.close()
    return octets


device = Device(sys.argv[1])
short, long = charged(device, SHORT), charged(device, LONG)
device.close()
check(long - short >= LEAST,
      f"{long} octets for {2 * PAIRS} streams with queues of {LONG} entries, {short} with {SHORT} entries: "
      f"a difference of less than {LEAST}")
print(f"{short} octets for {2 * PAIRS} streams, {long} with longer queues")
