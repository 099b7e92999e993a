# SPDX-License-Identifier: GPL-2.0
"""Failing allocations, where the kernel has fault injection (Documentation/fault-injection)."""

import contextlib
import os

DIRECTORY = "/sys/kernel/debug/fail_page_alloc"


def write(name, value):
    with open(os.path.join(DIRECTORY, name), "w", encoding="ascii") as file:
        file.write(f"{value}\n")


@contextlib.contextmanager
def no_large_blocks():
    """Inside the block atomic allocations get single pages only, as on a host with fragmented memory."""
    if not os.path.isdir(DIRECTORY):
        yield
        return
    for name, value in (("min-order", 1), ("ignore-gfp-wait", "Y"), ("verbose", 0), ("times", -1)):
        write(name, value)
    write("probability", 100)
    try:
        yield
    finally:
        write("probability", 0)
