# SPDX-License-Identifier: GPL-2.0
"""The targets of rsiw, as ratios of medians."""

from dataclasses import dataclass, field

LO = "lo1500"
SHARED = "shared"
APART = "apart"
JUMBO = "lo65536"
SIZES = ((65536, "64 KiB"), (1 << 20, "1 MiB"))


@dataclass(frozen=True)
class Target:
    """One line: each ratio of `pairs` is to be at least, or at most, `bound`."""

    what: str
    bound: float
    pairs: list = field(default_factory=list)
    at_most: bool = False

    def holds(self, ratio):
        """Whether a ratio meets the target."""
        return ratio <= self.bound if self.at_most else ratio >= self.bound

    def says(self):
        """The target in words."""
        return f"at {'most' if self.at_most else 'least'} {self.bound:g}x"


def against(other, operations, path=LO, ours="rsiw"):
    """Bandwidth against another candidate; TCP has one row for all operations and sizes."""
    pairs = []
    for operation in operations:
        for size, text in SIZES:
            measure = f"{operation}_bw_{size}"
            below = (path, "stream", "tcp") if other == "tcp" else (path, measure, other)
            pairs.append((f"{operation} {text}:", (path, measure, ours), below))
    return pairs


def asleep(operation):
    """As `against` TCP, where rsiw's programs sleep too."""
    measure = f"asleep_{operation}_65536"
    return [(f"{operation} 64 KiB, nobody polls:", (LO, measure, "rsiw"), (LO, "stream", "tcp"))]


def one_processor(operation):
    """As `asleep`, where TCP's receiver has no processor of its own."""
    return [("", (SHARED, f"asleep_{operation}_65536", "rsiw"), (SHARED, "stream", "tcp"))]


def one(measure, other, path=LO, ours="rsiw", label=""):
    """One ratio of the same measure."""
    return [(label, (path, measure, ours), (path, measure, other))]


TARGETS = [
    Target("write and send bandwidth, 64 KiB and 1 MiB, against TCP", 1.2,
           against("tcp", ("write", "send")) + asleep("write")),
    Target("write and send bandwidth, 64 KiB and 1 MiB, against siw", 25,
           against("siw", ("write", "send"))),
    Target("read bandwidth, 64 KiB and 1 MiB, against siw", 40, against("siw", ("read",))),
    Target("read bandwidth, 64 KiB and 1 MiB, against TCP", 1.1,
           against("tcp", ("read",)) + asleep("read")),
    Target("write bandwidth, 64 KiB, nobody polls, both ends on one processor, against TCP", 1.2,
           one_processor("write")),
    Target("read bandwidth, 64 KiB, nobody polls, both ends on one processor, against TCP", 1.1,
           one_processor("read")),
    Target("write and send bandwidth, a processor for each end, against TCP", 1.2,
           against("tcp", ("write", "send"), APART)),
    Target("read bandwidth, a processor for each end, against TCP", 1.1,
           against("tcp", ("read",), APART)),
    Target("write bandwidth with CRC on, by instruction, against TCP", 0.9,
           against("tcp", ("write",), ours="rsiw-crc")),
    Target("write bandwidth with CRC on, a processor for each end, against TCP", 0.9,
           against("tcp", ("write",), APART, "rsiw-crc")),
    Target("write bandwidth with CRC on, against what two CRCs by table alone allow", 0.9,
           [("64 KiB:", (LO, "write_bw_65536", "rsiw-table"), (LO, "crc_twice", "rsiw-table"))]),
    Target("write and send bandwidth at MTU 65536 against siw", 1.5,
           against("siw", ("write", "send"), JUMBO)),
    Target("read bandwidth at MTU 65536 against siw", 3, against("siw", ("read",), JUMBO)),
    Target("4 KiB write bandwidth against siw", 15, one("write_bw_4096", "siw")),
    Target("64 B messages per second against siw", 10,
           one("write_bw_64", "siw", label="write:") + one("send_bw_64", "siw", label="send:")),
    Target("64 B write latency against siw", 0.65, one("write_lat_64", "siw"), True),
    Target("64 B read latency against siw", 0.6, one("read_lat_64", "siw"), True),
    Target("64 B write latency against half of a TCP round trip", 1.1,
           [("", (LO, "write_lat_64", "rsiw"), (LO, "round_trip_64", "tcp"))], True),
    Target("NFS sequential write and read against NFS over TCP", 1.1,
           one("nfs_write", "tcp", label="write:") + one("nfs_read", "tcp", label="read:")),
    Target("nvme-rdma against nvme-tcp, 128 KiB sequential and 4 KiB random", 1.1,
           [(f"{m.replace('_', ' ')}:", (LO, "nvme_" + m, "rsiw"), (LO, "nvme_" + m, "tcp"))
            for m in ("write_128k", "read_128k", "randwrite_4k", "randread_4k")]),
    Target("connections per second against siw", 3, one("connections", "siw")),
    Target("64 queue pairs against 1, bandwidth in total", 1,
           [("", (LO, "write_qps_64", "rsiw"), (LO, "write_qps_1", "rsiw"))]),
    Target("bandwidth with 0.1 % loss, and with 1 ms delay, against TCP", 0.95,
           [(f"{p}:", (p, "write_bw_65536", "rsiw"), (p, "stream", "tcp"))
            for p in ("loss", "delay")]),
    Target("CPU seconds per GB, 64 KiB, against siw", 0.05,
           one("work_65536", "siw"), True),
    Target("CPU seconds per GB, 64 KiB, against TCP", 0.9,
           one("work_65536", "tcp"), True),
    Target("memory of an idle connection against siw", 1, one("idle_memory", "siw"), True),
]
