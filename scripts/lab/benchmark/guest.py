#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Measures in the guest. One JSON object a line goes to /out/results.jsonl.

Usage: guest.py REPEATS PATTERN...: the measurements that match one of the patterns
PATH/MEASURE/CANDIDATE (fnmatch), REPEATS times, the candidates in turn.
"""

import fnmatch
import json
import os
import re
import shutil
import sys
import time

import measure
import storage
from beds import BEDS, kind_of, quiet_network
from machine import CRC_TABLE, Failed, processors, read, run

# For profiles of the User-mode Linux process, which are taken outside.
KALLSYMS = "BENCH_KALLSYMS" in os.environ
RDMA = ("rsiw", "rsiw-crc", "siw", "rxe")
SIZES = (64, 4096, 65536, 1 << 20)
OPERATIONS = ("write", "send", "read")


def plan():
    """(measure, candidates, function of bed and candidate), for paths of any kind."""
    yield "stream", ("tcp",), measure.stream
    for size in (65536, 1 << 20, 4096, 64):
        for operation in OPERATIONS:
            yield f"{operation}_bw_{size}", RDMA, (
                lambda bed, c, o=operation, s=size: measure.bandwidth(bed, c, o, s))
    for operation in ("write", "read"):
        yield f"asleep_{operation}_65536", ("rsiw", "siw"), (
            lambda bed, c, o=operation: measure.asleep(bed, c, o, 65536))
    yield "spread_write_65536", ("rsiw",), (
        lambda bed, c: measure.asleep(bed, c, "write", 65536, 64 * 65536))
    for size in (64, 4096):
        yield f"round_trip_{size}", ("tcp",), (
            lambda bed, c, s=size: measure.round_trip(bed, c, s))
        for operation in OPERATIONS:
            yield f"{operation}_lat_{size}", RDMA, (
                lambda bed, c, o=operation, s=size: measure.latency(bed, c, o, s))
    if os.path.exists(CRC_TABLE):
        yield "crc_twice", ("rsiw-table",), measure.crc_twice
        yield "write_bw_65536", ("rsiw-table",), (
            lambda bed, c: measure.bandwidth(bed, c, "write", 65536))
    for count in (1, 4, 16, 64):
        yield f"write_qps_{count}", ("rsiw", "siw"), (
            lambda bed, c, n=count: measure.bandwidth(bed, c, "write", 65536, "-q", str(n), "-t",
                                                      "16"))
    yield "streams_64", ("tcp",), lambda bed, c: measure.stream(bed, c, "-P", "64")
    yield "connections", ("rsiw", "siw"), measure.connections
    yield "idle_memory", ("rsiw", "siw"), measure.idle_memory
    yield "work_65536", ("tcp", "rsiw", "rsiw-crc", "siw"), measure.work
    yield "echo_beside_bulk", ("tcp", "rsiw", "siw"), (
        lambda bed, c: measure.echo(bed, c, bed.server_cpu))
    yield "echo_same_cpu", ("tcp", "rsiw", "siw"), (
        lambda bed, c: measure.echo(bed, c, bed.client_cpu))


class Run:
    """The chosen measurements, and the file of their results."""

    def __init__(self, repeats, patterns, results):
        self.repeats = repeats
        self.patterns = patterns
        self.results = results
        self.begun = time.monotonic()

    def wanted(self, path, name, candidate):
        """Whether a pattern matches the measurement."""
        full = f"{path}/{name}/{candidate}"
        return any(fnmatch.fnmatchcase(full, pattern) for pattern in self.patterns)

    def record(self, path, name, candidate, repeat, function):
        """Measures once; a failure is a result too."""
        record = {"path": path, "measure": name, "candidate": candidate, "repeat": repeat}
        begun = time.monotonic()
        try:
            record.update(function())
        except (Failed, OSError, ValueError, KeyError, IndexError) as error:
            record["error"] = str(error)
        now = time.monotonic()
        record["seconds"] = round(now - begun, 2)
        self.results.write(json.dumps(record) + "\n")
        self.results.flush()
        value = record.get("value")
        says = record["error"] if value is None else f"{value:.1f} {record['unit']}"
        print(f"bench: {now - self.begun:.0f} s: {path} {name} {candidate} #{repeat + 1}: {says}",
              flush=True)

    def traffic(self, path, bed, repeat):
        """Measurements by perftest and iperf3."""
        for name, candidates, function in plan():
            for candidate in candidates:
                if self.wanted(path, name, candidate):
                    bed.prepare(candidate)
                    if KALLSYMS:
                        shutil.copy("/proc/kallsyms", "/out/kallsyms")
                    self.record(path, name, candidate, repeat, lambda: function(bed, candidate))

    def disks(self, path, bed, repeat, make):
        """Measurements by fio. The server is stopped while other candidates are prepared."""
        for candidate in ("tcp", "rsiw", "siw"):
            if not any(self.wanted(path, name, candidate) for name in make.MEASURES):
                continue
            bed.prepare(candidate)
            over = "tcp" if candidate == "tcp" else "rdma"
            try:
                for name, function in make.use(bed.server(candidate), over):
                    if self.wanted(path, name, candidate):
                        self.record(path, name, candidate, repeat, function)
            except (Failed, OSError) as error:
                print(f"bench: {path} {candidate}: {error}", flush=True)

    def all(self):
        """Every path, every repeat."""
        for path, make in BEDS.items():
            names = [(name, c) for name, cs, _ in plan() for c in cs]
            names += [(name, c) for kind in (storage.Nfs, storage.Nvme) for name in kind.MEASURES
                      for c in ("tcp", "rsiw", "siw")]
            if not any(self.wanted(path, *name) for name in names):
                continue
            bed = make()
            for repeat in range(self.repeats):
                self.traffic(path, bed, repeat)
                if path == "lo1500":
                    for kind in (storage.Nfs, storage.Nvme):
                        self.disks(path, bed, repeat, kind)
            bed.close()


def describe_clock():
    """Writes the clock rate of the time stamps into the guest's /proc/cpuinfo, where perftest reads it.

    User-mode Linux shows no clock rate; its time stamps are the machine's. A guess of perftest is wrong by a factor.
    """
    text, told = read("/proc/cpuinfo"), re.search(r"rsiw\.mhz=(\S+)", read("/proc/cmdline"))
    if "cpu MHz" not in text and told:
        text = re.sub(r"^(bogomips.*)$", f"cpu MHz\t\t: {told[1]}\n\\1", text, flags=re.M)
        with open("/tmp/cpuinfo", "w", encoding="ascii") as file:
            file.write(text + "\n")
        run("mount", "--bind", "/tmp/cpuinfo", "/proc/cpuinfo")


def main():
    repeats, patterns = int(sys.argv[1]), sys.argv[2:]
    describe_clock()
    quiet_network()
    with open("/out/information.json", "w", encoding="utf-8") as file:
        json.dump({"kernel": read("/proc/sys/kernel/osrelease"), "processors": processors(),
                   "repeats": repeats}, file)
    try:
        with open("/out/results.jsonl", "w", encoding="ascii") as results:
            Run(repeats, patterns, results).all()
    finally:
        with open("/out/kernel.log", "w", encoding="utf-8", errors="replace") as log:
            log.write(run("dmesg"))


main()
