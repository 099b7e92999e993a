# SPDX-License-Identifier: GPL-2.0
"""The GID table in libibverbs and sysfs, and IB_EVENT_GID_CHANGE in the kernel. ib_core reports this event to
processes for RoCE devices only, so a kprobe counts the events."""

import contextlib
import ipaddress
import subprocess

from rendezvous import *

FREE = range(40, 80)
TRACING = "/sys/kernel/tracing"
# enum ib_event_type in rdma/ib_verbs.h; the member "event" of struct ib_event is behind the device
# and the element, a pointer each.
GID_CHANGE = 18
PROBE = "p:rsiw_test/heard ib_dispatch_event kind=+16($arg1):u32"


def ip(*args):
    subprocess.run(("ip", *args), check=True, timeout=20)


def table(device):
    """All entries that are not empty: index to address."""
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
    """All interfaces show the same table."""
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
    """addresses are added and removed, and keep their indices"""
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


def to_tracing(file, text):
    with open(f"{TRACING}/{file}", "w", encoding="ascii") as f:
        f.write(text)


@contextlib.contextmanager
def listening():
    """A function that returns the number of events so far."""
    # Without names of programs (trace_begin of scripts/lab/guest/lib.sh).
    to_tracing("options/record-cmd", "0")
    to_tracing("trace", "")
    to_tracing("kprobe_events", PROBE)
    to_tracing("events/rsiw_test/enable", "1")

    def heard():
        with open(f"{TRACING}/trace", encoding="ascii") as f:
            return sum(line.endswith(f" kind={GID_CHANGE}\n") for line in f)

    try:
        yield heard
    finally:
        to_tracing("events/rsiw_test/enable", "0")
        to_tracing("kprobe_events", "")


def told(device):
    """the kernel gets one event for every change, and no other"""
    with listening() as heard:
        count = 0
        for step in (("add", "10.99.0.41/24", "rd0"), ("add", "fd99::41/64", "rd0"),
                     ("del", "fd99::41/64", "rd0"), ("del", "10.99.0.41/24", "rd0")):
            ip("addr", step[0], step[1], "dev", step[2])
            wait_for(10, f"the kernel hears of {step}", lambda: heard() > count)
            count = heard()
        ip("addr", "add", "10.97.0.1/32", "dev", "lo")
        ip("addr", "del", "10.97.0.1/32", "dev", "lo")
        check(heard() == count, "an address of another interface is announced")
    same(device)


if __name__ == "__main__":
    run((follows, first, full, told), 60)
