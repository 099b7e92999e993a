# SPDX-License-Identifier: GPL-2.0
"""Ways to confine a process: BPF programs of a control group, and Landlock."""

import contextlib
import ctypes
import os
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
BPF, LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 321, 444, 445, 446
PROG_LOAD, PROG_ATTACH = 5, 8
# Type of the program and of its attachment.
EGRESS = (8, 1)
SOCK_CREATE = (9, 2)
CONNECT4 = (18, 10)
BIND4 = (18, 8)
POST_BIND4 = (9, 12)
KINDS = {EGRESS: "egress", SOCK_CREATE: "sock_create", CONNECT4: "connect4", BIND4: "bind4", POST_BIND4: "post_bind4"}
PR_SET_NO_NEW_PRIVS = 38
NET_PORT, CONNECT_TCP = 2, 2


def syscall(number, *args):
    result = LIBC.syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def bpf(command, attr):
    return syscall(BPF, command, ctypes.create_string_buffer(attr, len(attr)), len(attr))


def forbid(group, kind):
    """Attaches to a control group a program that returns 0, which means no, in each case."""
    prog_type, attach_type = kind
    code = struct.pack("<BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
    insns = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    prog = bpf(PROG_LOAD, struct.pack("<IIQQIIQII16sII", prog_type, 2, ctypes.addressof(insns),
                                      ctypes.addressof(licence), 0, 0, 0, 0, 0, b"deny", 0,
                                      attach_type))
    fd = os.open(group, os.O_RDONLY)
    bpf(PROG_ATTACH, struct.pack("<IIII", fd, prog, attach_type, 0))
    os.close(fd)
    os.close(prog)


def enter(group):
    with open(f"{group}/cgroup.procs", "w", encoding="ascii") as procs:
        procs.write(str(os.getpid()))


@contextlib.contextmanager
def inside(root, group):
    """A context manager: the process is in a control group inside the block."""
    enter(group)
    try:
        yield
    finally:
        enter(root)


def landlock(*ports):
    """Lets this process, for good, connect to these TCP ports only."""
    attr = struct.pack("<QQ", 0, CONNECT_TCP)
    ruleset = syscall(LANDLOCK_CREATE, attr, len(attr), 0)
    for port in ports:
        syscall(LANDLOCK_ADD, ruleset, NET_PORT, struct.pack("<QQ", CONNECT_TCP, port), 0)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    syscall(LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)
