# SPDX-License-Identifier: GPL-2.0
"""The paths that traffic takes: each candidate has an interface and an address of its own."""

import os

from machine import CRC_TABLE, PARAMETERS, load, make_link, run, unload, write

KINDS = ("rsiw", "siw", "rxe")
MODULES = {"rsiw": "rsiw", "siw": "siw", "rxe": "rdma_rxe"}
NET = {"tcp": 90, "rsiw": 91, "siw": 92, "rxe": 93}
PEER = ["ip", "netns", "exec", "peer"]


def kind_of(candidate):
    """The link type, or "tcp"."""
    return candidate.split("-", maxsplit=1)[0]


class Bed:
    """Common to all paths: links of all kinds, and the module under test with a candidate's parameters."""

    # The processors of the two ends' programs.
    server_cpu, client_cpu = 0, 1

    def __init__(self):
        self.crc = None
        run("modprobe", "-a", "ib_uverbs", "rdma_ucm", check=False)
        for kind in ("siw", "rxe"):
            load(MODULES[kind])
        run("ip", "link", "set", "lo", "up")
        for number, kind in enumerate(NET):
            self.make_interface(kind, number)
            if kind not in ("tcp", "rsiw"):
                self.make_links(kind)

    def prepare(self, candidate):
        """Loads the module under test with the candidate's parameter, unless it is loaded so."""
        if kind_of(candidate) != "rsiw":
            return
        if os.path.exists(CRC_TABLE):
            write(CRC_TABLE, str(int(candidate == "rsiw-table")))
        crc = int(candidate in ("rsiw-crc", "rsiw-table"))
        if crc != self.crc:
            if self.crc is not None:
                self.drop_links("rsiw")
                unload("rsiw")
                self.crc = None
            load("rsiw", f"crc={crc}", *PARAMETERS)
            self.make_links("rsiw")
            self.crc = crc

    def close(self):
        """Removes links, interfaces and modules."""
        for kind in KINDS:
            if kind != "rsiw" or self.crc is not None:
                self.drop_links(kind)
                unload(MODULES[kind])
        for kind in NET:
            run("ip", "link", "del", kind + "0")


class Loopback(Bed):
    """Dummy interfaces; traffic between own addresses goes through lo, whose MTU counts."""

    server_net = ()

    def __init__(self, mtu):
        super().__init__()
        run("ip", "link", "set", "lo", "mtu", str(mtu))

    def make_interface(self, kind, _number):
        run("ip", "link", "add", kind + "0", "type", "dummy")
        run("ip", "addr", "add", self.server(kind) + "/24", "dev", kind + "0")
        run("ip", "link", "set", kind + "0", "up")

    def make_links(self, kind):
        make_link("r" + kind, kind, kind + "0")

    def drop_links(self, kind):
        run("rdma", "link", "del", "r" + kind)

    def server(self, candidate):
        """The server's address."""
        return f"10.{NET[kind_of(candidate)]}.0.1"

    client = server


class Shared(Loopback):
    """Both ends have one processor together. On a loopback the softirqs of the receiver run where the sender is:
    candidates whose receiver is a program would use a second processor otherwise."""

    client_cpu = 0


class Cable(Bed):
    """Pairs of veth interfaces into a namespace, perhaps with a disturbance on the path there."""

    server_net = PEER

    def __init__(self, disturbance=()):
        self.disturbance = disturbance
        run("ip", "netns", "add", "peer")
        run("ip", "-n", "peer", "link", "set", "lo", "up")
        super().__init__()

    def make_interface(self, kind, number):
        near, far = kind + "0", kind + "1"
        # siw confuses namespaces where both have the same index.
        run("ip", "link", "add", near, "index", str(100 + number), "type", "veth", "peer", "name",
            far, "index", str(200 + number), "netns", "peer")
        run("ip", "addr", "add", self.client(kind) + "/24", "dev", near)
        run("ip", "-n", "peer", "addr", "add", self.server(kind) + "/24", "dev", far)
        run("ip", "link", "set", near, "up")
        run("ip", "-n", "peer", "link", "set", far, "up")
        run("ethtool", "-K", near, "gro", "on", "tso", "on")
        run(*PEER, "ethtool", "-K", far, "gro", "on", "tso", "on")
        if self.disturbance:
            run("tc", "qdisc", "add", "dev", near, "root", "netem", "limit", "10000",
                *self.disturbance)

    def make_links(self, kind):
        make_link("n" + kind, kind, kind + "0")
        make_link("f" + kind, kind, kind + "1", PEER)

    def drop_links(self, kind):
        run("rdma", "link", "del", "n" + kind)
        run("rdma", "link", "del", "f" + kind)

    def server(self, candidate):
        """The server's address, in the namespace."""
        return f"10.{NET[kind_of(candidate)]}.1.2"

    def client(self, candidate):
        """The client's address."""
        return f"10.{NET[kind_of(candidate)]}.1.1"

    def close(self):
        super().close()
        run("ip", "netns", "del", "peer")


class Apart(Cable):
    """A cable whose ends have a processor each: packets are received on the processor of the end's program.
    Otherwise the sender's processor runs the softirqs of the receiver, too."""

    def make_interface(self, kind, number):
        super().make_interface(kind, number)
        for net, interface, cpu in (((), kind + "0", self.client_cpu),
                                    (PEER, kind + "1", self.server_cpu)):
            run(*net, "sh", "-c",
                f"echo {1 << cpu:x} >/sys/class/net/{interface}/queues/rx-0/rps_cpus")


BEDS = {
    "lo1500": lambda: Loopback(1500),
    "shared": lambda: Shared(1500),
    "lo9000": lambda: Loopback(9000),
    "lo65536": lambda: Loopback(65536),
    "veth": Cable,
    "apart": Apart,
    "delay": lambda: Cable(("delay", "1ms")),
    "loss": lambda: Cable(("loss", "0.1%")),
}


def quiet_network():
    """Disables the saving of TCP metrics, which a bad run would pass on to the next one."""
    write("/proc/sys/net/ipv4/tcp_no_metrics_save", 1)
    os.makedirs("/run/netns", exist_ok=True)
