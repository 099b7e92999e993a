# SPDX-License-Identifier: GPL-2.0
"""A region of a gigabyte, all of it the same few pages: its table of pages is charged to the
memory cgroup of the process.

usage: pinned.py DEVICE CGROUP"""

import ctypes
import mmap
import os
import sys

from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
import pyverbs.enums as e

LENGTH, PIECE = 1 << 30, 4 << 20
# A pointer for each page.
TABLE = LENGTH // mmap.PAGESIZE * 8
# The cgroup pays for up to so much ahead (MEMCG_CHARGE_BATCH of include/linux/memcontrol.h). The processor takes its
# next allocations from that.
AHEAD = 64 * mmap.PAGESIZE
MAP_FIXED = 0x10

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


def mapped(at, length, flags, file):
    got = libc.mmap(at, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0)
    if got == ctypes.c_void_p(-1).value:
        sys.exit(f"FAIL: mmap: {os.strerror(ctypes.get_errno())}")
    return got


def used():
    with open(os.path.join(sys.argv[2], "memory.current"), encoding="ascii") as file:
        return int(file.read())


# One processor: each of them holds octets ahead.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
file = os.memfd_create("pages")
os.ftruncate(file, PIECE)
start = mapped(None, LENGTH, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
for at in range(start, start + LENGTH, PIECE):
    mapped(at, PIECE, mmap.MAP_SHARED | MAP_FIXED, file)
pd = PD(Context(name=sys.argv[1]))
# The first one fills the pages and the page tables.
MR(pd, LENGTH, e.IBV_ACCESS_LOCAL_WRITE, address=start).close()
before = used()
region = MR(pd, LENGTH, e.IBV_ACCESS_LOCAL_WRITE, address=start)
more = used() - before
region.close()
if not TABLE - AHEAD <= more:
    sys.exit(f"FAIL: the cgroup pays {more} octets for a table of {TABLE}")
print(f"{more} octets for a table of {TABLE}")
