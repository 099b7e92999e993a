#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""TCP listeners on all addresses beside a VRF, with both values of net.ipv4.tcp_l3mdev_accept.

usage: l3mdev.py ADDRESS INTERFACE VRF PEER-NETNS

ADDRESS is that of INTERFACE, which is in VRF. A listener of an unbound socket gets a connection to ADDRESS from
the peer with the value 1 alone. One that is bound to the interface or to the VRF gets it with both values, and
gets none to 127.0.0.1.
"""

import os
import socket
import sys

PORT = 7175
SETTING = "/proc/sys/net/ipv4/tcp_l3mdev_accept"


def listener(device):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if device:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    server.bind(("0.0.0.0", PORT))
    server.listen()
    return server


def connects(client, address):
    client.settimeout(60)
    with client:
        try:
            client.connect((address, PORT))
        except ConnectionRefusedError:
            return False
    return True


def main():
    address, interface, vrf, netns = sys.argv[1:]
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{netns}", os.O_RDONLY)
    for value in 1, 0:
        # /proc/sys shows the namespace of the process.
        with open(SETTING, "w") as setting:
            setting.write(str(value))
        for device, inside, outside in ("", bool(value), True), (interface, True, False), (vrf, True, False):
            with listener(device):
                os.setns(there, os.CLONE_NEWNET)
                client = socket.socket()
                os.setns(here, os.CLONE_NEWNET)
                got = connects(client, address), connects(socket.socket(), "127.0.0.1")
            if got != (inside, outside):
                sys.exit(f"tcp_l3mdev_accept={value}, bound to '{device}': inside, outside {got}")


main()
