# SPDX-License-Identifier: GPL-2.0
"""Failing allocations, where the kernel has fault injection (Documentation/fault-injection)."""

import contextlib
import functools
import os

DIRECTORY = "/sys/kernel/debug/fail_page_alloc"
SLAB = "/sys/kernel/debug/failslab"
# Stream::new() of the driver, and what copies the private data of an event in iw_cm.
STREAM_NEW, COPY_PRIVATE_DATA = "6Stream8allocate", "cm_event_handler"


def write(name, value, directory=DIRECTORY):
    with open(os.path.join(directory, name), "w", encoding="ascii") as file:
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


@functools.cache
def functions():
    """The functions of the kernel and its modules: address, symbol, and the module if it is one's."""
    with open("/proc/kallsyms", encoding="ascii") as file:
        rows = [line.split() for line in file]
    return sorted((int(row[0], 16), row[2], *row[3:]) for row in rows if row[1] in "tT")


def driver_range():
    """The addresses of the driver's functions."""
    found = [row[0] for row in functions() if row[2:] == ("[rsiw]",)]
    assert found and max(found), "the kernel does not tell the driver's addresses"
    return min(found), max(found) + 1


@contextlib.contextmanager
def refused_blocks(percent):
    """Inside the block PERCENT of the driver's requests for pages are refused. The value is a function that empties
    the driver's cache of burst buffers and returns how many requests were refused, or None without fault injection."""
    if not os.path.isdir(DIRECTORY):
        yield lambda: None
        return
    most = 1000000
    begin, end = driver_range()
    for name, value in (("min-order", 0), ("ignore-gfp-wait", "N"), ("verbose", 0), ("times", most), ("interval", 1),
                        ("task-filter", "N"), ("require-start", begin), ("require-end", end)):
        write(name, value)

    def refused():
        # The slab caches' shrinkers, the driver's among them (Documentation/admin-guide/sysctl/vm.rst).
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("2")
        with open(os.path.join(DIRECTORY, "times"), encoding="ascii") as file:
            return most - int(file.read())

    write("probability", percent)
    try:
        yield refused
    finally:
        for name, value in (("probability", 0), ("times", -1), ("require-start", 0), ("require-end", (1 << 64) - 1)):
            write(name, value)


def function_range(name):
    """The addresses of a function: of C by its name, of Rust by the end of its symbol."""
    code = functions()
    found = [(address, next(row[0] for row in code[at:] if row[0] > address))
             for at, (address, symbol, *_) in enumerate(code)
             if symbol == name or symbol.startswith("_R") and symbol.endswith(name)]
    assert len(found) == 1, f"{len(found)} functions with {name}"
    return found[0]


def has_refused_objects():
    """Whether refused_objects() works on this kernel."""
    return os.path.isdir(SLAB)


@contextlib.contextmanager
def refused_objects(name):
    """Inside the block kmalloc() fails in the function of function_range(), and in those that it calls."""
    begin, end = function_range(name)
    for setting, value in (("ignore-gfp-wait", "N"), ("cache-filter", "N"), ("verbose", 0), ("times", -1),
                           ("interval", 1), ("task-filter", "N"), ("require-start", begin), ("require-end", end)):
        write(setting, value, SLAB)
    write("probability", 100, SLAB)
    try:
        yield
    finally:
        for setting, value in (("probability", 0), ("require-start", 0), ("require-end", (1 << 64) - 1)):
            write(setting, value, SLAB)
