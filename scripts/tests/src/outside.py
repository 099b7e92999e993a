# SPDX-License-Identifier: GPL-2.0
"""A process that uses objects of a network namespace it is not in.

usage: outside.py queues DEVICE NETNS      two queue pairs on its device, connected from in there
       outside.py listener DEVICE NETNS    a wildcard listener, made in there

Says what it has done, one word a line, and goes on with each line of its standard input.
"""

import os
import sys

from rendezvous import Device, Failure, check, e, pair, smaller_first, talk, wait_for
from pyverbs.cmid import CMID, AddrInfo
import pyverbs.cm_enums as ce
from pyverbs.qp import QPCap, QPInitAttr


def step(word):
    """Tells, and waits for leave to go on."""
    print(word, flush=True)
    check(sys.stdin.readline(), "standard input ended")


def told(device):
    """The device's own process hears of its end."""
    wait_for(20, "IBV_EVENT_DEVICE_FATAL", lambda: e.IBV_EVENT_DEVICE_FATAL in device.events())
    step("fatal")
    device.close()


def enter(netns):
    """Goes into a namespace; gives the one before."""
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
