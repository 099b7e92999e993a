# SPDX-License-Identifier: GPL-2.0
"""The GID table as libibverbs and sysfs show it. (Of IB_EVENT_GID_CHANGE only the kernel hears: its
core keeps it from processes unless the device is a RoCE one.)"""

import ipaddress
import subprocess

from direct import *

FREE = range(40, 80)


def ip(*args):
    subprocess.run(("ip", *args), check=True, timeout=20)


def table(device):
    """All entries that are not empty, as addresses, by their places."""
    return {g.gid_index: ipaddress.IPv6Address(g.gid_str())
            for g in device.context.query_gid_table(64)}


def in_sysfs():
    found = {}
    for i in range(32):
        with open(f"/sys/class/infiniband/r0/ports/1/gids/{i}", encoding="ascii") as f:
            address = ipaddress.IPv6Address(f.read().strip())
        if int(address):
            found[i] = address
    return found


def mapped(address):
    return ipaddress.IPv6Address("::ffff:" + address)


def same(device):
    """Every way of looking shows the same."""
    wait_for(10, "sysfs and libibverbs agree", lambda: table(device) == in_sysfs())
    for index, address in table(device).items():
        check(ipaddress.IPv6Address(str(device.gid(index))) == address, f"query_gid {index}")
    return table(device)


def first(device):
    """entry 0 is the link-local name of the interface, also when its address changes"""
    for mac in ("02:11:22:33:44:55", "06:aa:bb:cc:dd:ee"):
        ip("link", "set", "rd0", "address", mac)
        octets = bytes.fromhex(mac.replace(":", ""))
        name = bytes((0xfe, 0x80)) + bytes(6) + bytes((octets[0] ^ 2, *octets[1:3], 0xff, 0xfe, *octets[3:]))
        wait_for(10, f"entry 0 belongs to {mac}",
                 lambda: table(device).get(0) == ipaddress.IPv6Address(name))
        same(device)


def follows(device):
    """addresses come and go, and keep their places"""
    check(table(device).get(1) == mapped("10.99.0.1"), "entry 1 is not the IPv4 address")
    ip("addr", "add", "10.99.0.40/24", "dev", "rd0")
    ip("addr", "add", "fd99::40/64", "dev", "rd0", "nodad")
    wait_for(10, "both are there", lambda: {mapped("10.99.0.40"), ipaddress.IPv6Address("fd99::40")}
             <= set(table(device).values()))
    place = [i for i, a in same(device).items() if a == ipaddress.IPv6Address("fd99::40")]
    ip("addr", "del", "10.99.0.40/24", "dev", "rd0")
    wait_for(10, "it has gone", lambda: mapped("10.99.0.40") not in table(device).values())
    check(same(device)[place[0]] == ipaddress.IPv6Address("fd99::40"), "another one has moved")
    ip("addr", "del", "fd99::40/64", "dev", "rd0")
    wait_for(10, "it has gone", lambda: place[0] not in table(device))
    same(device)


def full(device):
    """a table that is full stays at 32, and fills again"""
    for n in FREE:
        ip("addr", "add", f"10.99.1.{n}/32", "dev", "rd0")
    wait_for(10, "the table is full", lambda: len(table(device)) == 32)
    check(max(same(device)) == 31, "there are places behind the last")
    check(device.context.query_port(1).gid_tbl_len == 32, "the size has changed")
    for n in FREE:
        ip("addr", "del", f"10.99.1.{n}/32", "dev", "rd0")
    wait_for(10, "the table is empty again", lambda: len(table(device)) < 6)
    check(table(device).get(1) == mapped("10.99.0.1"), "entry 1 is not the IPv4 address")


if __name__ == "__main__":
    run((follows, first, full), 60)
