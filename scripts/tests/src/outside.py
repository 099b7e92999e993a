# SPDX-License-Identifier: GPL-2.0
"""A process that uses objects of another network namespace than its own.

usage: outside.py queues DEVICE NETNS      two queue pairs on the device of NETNS, connected from inside NETNS
       outside.py listener DEVICE NETNS    a wildcard listener, made inside NETNS

Prints each step that is done, one word a line, and takes the next step at each line of its standard input.
"""

import os
import sys

from rendezvous import Device, Failure, check, e, pair, smaller_first, talk, wait_for
from pyverbs.cmid import CMID, AddrInfo
import pyverbs.cm_enums as ce
from pyverbs.qp import QPCap, QPInitAttr


def step(word):
    """Prints the word, and waits for a line."""
    print(word, flush=True)
    check(sys.stdin.readline(), "standard input ended")


def told(device):
    """The process gets the event of the device's end."""
    wait_for(20, "IBV_EVENT_DEVICE_FATAL", lambda: e.IBV_EVENT_DEVICE_FATAL in device.events())
    step("fatal")
    device.close()


def enter(netns):
    """Enters a namespace; returns the one before."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{netns}", os.O_RDONLY)
    os.setns(there, os.CLONE_NEWNET)
    os.close(there)
    return home


def queues(device, netns):
    device = Device(device)
    a, b = smaller_first(*pair(device))
    # The process is in the namespace of the interface when it names the peer.
    home = enter(netns)
    for one, other in ((a, b), (b, a)):
        one.to_rtr(other)
        one.to_rts()
    os.setns(home, os.CLONE_NEWNET)
    talk(a, b)
    step("connected")
    # Their sockets keep the namespace after its name is removed.
    talk(a, b)
    step("talked")
    a.close()
    b.close()
    told(device)


def listener(device, netns):
    device = Device(device)
    home = enter(netns)
    address = AddrInfo(src="0.0.0.0", src_service="7999", port_space=ce.RDMA_PS_TCP,
                       flags=ce.RAI_PASSIVE)
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    listening = CMID(creator=address, qp_init_attr=QPInitAttr(cap=cap))
    listening.listen(4)
    os.setns(home, os.CLONE_NEWNET)
    step("listening")
    listening.close()
    told(device)


try:
    {"queues": queues, "listener": listener}[sys.argv[1]](*sys.argv[2:])
except Failure as error:
    print(f"FAIL: {error}", flush=True)
    sys.exit(1)
