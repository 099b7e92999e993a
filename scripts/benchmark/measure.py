# SPDX-License-Identifier: GPL-2.0
"""Single measurements between the two ends of a bed. Each returns a part of a record."""

import itertools
import json
import os
import re
import time

from machine import Failed, cpu_seconds, finish, listening, run, start, wait_for

PORT = itertools.count(18600)
SECONDS = os.environ.get("BENCH_SECONDS", "1")


def pair(bed, candidate, server, client, limit=60):
    """Runs a server, waits until it listens, and a client; the client's output."""
    port = str(next(PORT))
    net = bed.server_net
    behind = start(*net, *server(port))
    try:
        # rxe does not listen on TCP.
        if candidate == "rxe":
            time.sleep(0.7)
        else:
            wait_for(f"{behind.args} listens", lambda: listening(port, net), 15)
        out = run(*client(port), limit=limit)
        finish(behind)
        return out
    finally:
        behind.kill()


def perftest(bed, candidate, tool, *options):
    """One pair of perftest; the last row of the client's table."""
    common = lambda port: [tool, "-R", "-F", "-p", port, *options]
    out = pair(bed, candidate,
               lambda port: common(port) + ["--bind_source_ip", bed.server(candidate)],
               lambda port: common(port) + ["--bind_source_ip", bed.client(candidate),
                                            bed.server(candidate)])
    rows = re.findall(r"^ *(\d+ +\d+ .*)$", out, re.M)
    if not rows:
        raise Failed(f"{tool} says nothing: {out[-300:]}")
    return [float(field) for field in rows[-1].split()]


def stream(bed, candidate):
    """One stream of iperf3 over TCP."""
    before = cpu_seconds()
    out = pair(bed, candidate,
               lambda port: ["iperf3", "-s", "-1", "-p", port],
               lambda port: ["iperf3", "-c", bed.server(candidate), "-p", port, "-t", SECONDS,
                             "-J"])
    received = json.loads(out)["end"]["sum_received"]
    return {"value": received["bits_per_second"] / 8e6, "unit": "MB/s",
            "cpu": (cpu_seconds() - before) / (received["bytes"] / 1e9)}


def round_trip(bed, candidate, size):
    """Half of a request and response over TCP, both ends polling."""
    out = pair(bed, candidate,
               lambda port: ["/out/tcp_rr", "server", port],
               lambda port: ["/out/tcp_rr", "client", bed.server(candidate), port, str(size),
                             "4000"])
    typical, tail = (float(field) for field in out.split())
    return {"value": typical, "tail": tail, "unit": "us"}


def bandwidth(bed, candidate, operation, size, *more):
    """MB/s, messages a second, CPU seconds per GB."""
    before = cpu_seconds()
    row = perftest(bed, candidate, f"ib_{operation}_bw", "-s", str(size), "-D", SECONDS, "-f", "0",
                   "--report_gbits", *more)
    # Counted here: perftest's own rates rest on a guess of the time stamps' clock.
    octets, seconds = row[0] * row[1], float(SECONDS)
    return {"value": octets / seconds / 1e6, "unit": "MB/s", "messages": row[1] / seconds,
            "cpu": (cpu_seconds() - before) / max(octets / 1e9, 1e-9)}


def latency(bed, candidate, operation, size):
    """Microseconds, as perftest tells them: a Read's round trip, half of one else."""
    for _ in range(3):
        row = perftest(bed, candidate, f"ib_{operation}_lat", "-s", str(size), "-n", "2000")
        # perftest guesses the clock of its time stamps, and now and then finds none.
        if 0 < row[4] < 1e6:
            break
    return {"value": row[4], "tail": row[7], "unit": "us"}


def connections(bed, candidate):
    """Connections a second, each from making to unmaking of both ends, with one Send over it."""
    count = 100
    begun = time.monotonic()
    run("/out/churn", "-n", str(count), bed.server(candidate))
    return {"value": count / (time.monotonic() - begun), "unit": "1/s"}
