# SPDX-License-Identifier: GPL-2.0
"""Single measurements between the two ends of a bed. Each returns a part of a record."""

import itertools
import json
import os
import re
import signal
import time

from machine import (Failed, cpu_seconds, finish, listening, on, read, run, start, wait_for, write)

PORT = itertools.count(18600)
SECONDS = os.environ.get("BENCH_SECONDS", "1")


def pair(bed, candidate, server, client, limit=60):
    """Runs a server, waits until it listens, and a client; the client's output."""
    port = str(next(PORT))
    net = bed.server_net
    behind = start(*net, *on(bed.server_cpu), *server(port))
    try:
        # rxe does not listen on TCP.
        if candidate == "rxe":
            time.sleep(0.7)
        else:
            wait_for(f"{behind.args} listens",
                     lambda: listening(port, net) or behind.poll() is not None, 15)
        if behind.poll() is not None:
            raise Failed(f"{behind.args}: {behind.stdout.read()[-400:]}")
        out = run(*on(bed.client_cpu), *client(port), limit=limit)
        finish(behind)
        return out
    except Failed as error:
        behind.kill()
        raise Failed(f"{error}; the server: {behind.stdout.read()[-400:]}") from error
    finally:
        behind.kill()


def again_without_listener(transfer):
    """The result of `transfer`, which runs perftest. With -R its server ends a first listener and
    opens a second one; a client that comes between them fails, whatever the device. Then
    `transfer` runs again, at most twice."""
    for left in (2, 1, 0):
        try:
            return transfer()
        except Failed as error:
            if not left or not re.search("error: -111|Connection refused", str(error)):
                raise


def perftest(bed, candidate, tool, *options):
    """One pair of perftest; the last row of the client's table."""
    common = lambda port: [tool, "-R", "-F", "-p", port, *options]
    out = again_without_listener(lambda: pair(
        bed, candidate,
        lambda port: common(port) + ["--bind_source_ip", bed.server(candidate)],
        lambda port: common(port) + ["--bind_source_ip", bed.client(candidate),
                                     bed.server(candidate)]))
    rows = re.findall(r"^ *(\d+ +\d+ .*)$", out, re.M)
    if not rows:
        raise Failed(f"{tool} says nothing: {out[-300:]}")
    return [float(field) for field in rows[-1].split()]


def stream(bed, candidate, *more):
    """iperf3 over TCP: one stream, or as the options `more` say."""
    received = iperf(bed, candidate, SECONDS, *more)
    return {"value": received["bits_per_second"] / 8e6, "unit": "MB/s"}


def iperf(bed, candidate, seconds, *more):
    """The result of iperf3's receiving end."""
    out = pair(bed, candidate,
               lambda port: ["iperf3", "-s", "-1", "-p", port],
               lambda port: ["iperf3", "-c", bed.server(candidate), "-p", port, "-t", seconds,
                             "-J", *more])
    return json.loads(out)["end"]["sum_received"]


def round_trip(bed, candidate, size):
    """Half of a request and response over TCP, both ends polling."""
    out = pair(bed, candidate,
               lambda port: ["/out/tcp_rr", "server", port],
               lambda port: ["/out/tcp_rr", "client", bed.server(candidate), port, str(size),
                             "4000"])
    typical, tail = (float(field) for field in out.split())
    return {"value": typical, "tail": tail, "unit": "us"}


def bandwidth(bed, candidate, operation, size, *more):
    """MB/s, messages a second."""
    row = perftest(bed, candidate, f"ib_{operation}_bw", "-s", str(size), "-D", SECONDS, "-f", "0",
                   "--report_gbits", *more)
    # The rate is computed here: perftest's own rates rest on a guess of the time stamps' clock.
    octets, seconds = row[0] * row[1], float(SECONDS)
    return {"value": octets / seconds / 1e6, "unit": "MB/s", "messages": row[1] / seconds}


def crc_twice(bed, _candidate):
    """MB/s of summing each octet twice, for the sender and the receiver, and nothing else."""
    return {"value": float(run(*on(bed.client_cpu), "/out/crc_twice")), "unit": "MB/s"}


def bulk(bed, candidate, operation, size, messages, *spread):
    """MB/s of a program that sleeps until completions; the other end has no program."""
    return float(run(*on(bed.client_cpu), "/out/bulk", bed.server(candidate), operation, str(size),
                     str(messages), *map(str, spread)))


def asleep(bed, candidate, operation, size, *spread):
    """As `bandwidth`, without polling, as iperf3. The messages use the same memory, or in turn `spread` octets."""
    octets = 50_000_000 if candidate == "siw" else 1_500_000_000
    return {"value": bulk(bed, candidate, operation, size, octets // size, *spread),
            "unit": "MB/s"}


def work(bed, candidate):
    """CPU seconds of the whole machine per GB, programs that sleep while there is nothing to do.

    The difference of two runs of different length leaves out the start and the end of programs.
    """
    size = 65536

    def transfer(parts):
        before = cpu_seconds()
        if candidate == "tcp":
            octets = iperf(bed, candidate, str(parts))["bytes"]
        else:
            # perftest's server polls to the end, with any option.
            messages = parts * (1000 if candidate == "siw" else 10000)
            bulk(bed, candidate, "read", size, messages)
            octets = size * messages
        return octets, cpu_seconds() - before

    short, long = transfer(1), transfer(3)
    if long[0] <= short[0]:
        raise Failed("the long transfer moved no more than the short one")
    return {"value": 1e9 * (long[1] - short[1]) / (long[0] - short[0]), "unit": "s/GB"}


def beside_bulk(bed, candidate, measure):
    """The result of `measure` beside a bulk transfer on the same path."""
    return again_without_listener(lambda: beside_one_bulk(bed, candidate, measure))


def beside_one_bulk(bed, candidate, measure):
    """As `beside_bulk`; fails when perftest finds no listener."""
    port, net = str(next(PORT)), bed.server_net
    to, seconds = bed.server(candidate), "6"
    if candidate == "tcp":
        server = ["iperf3", "-s", "-1", "-p", port]
        client = ["iperf3", "-c", to, "-p", port, "-t", seconds]
    else:
        server = ["ib_write_bw", "-R", "-F", "-p", port, "-s", "65536", "-D", seconds, "-f", "0",
                  "--bind_source_ip", to]
        client = server[:-1] + [bed.client(candidate), to]
    ends = [start(*net, *on(bed.server_cpu), *server)]
    try:
        wait_for("the bulk transfer's server listens", lambda: listening(port, net))
        ends.append(start(*on(bed.client_cpu), *client))
        begin = octets_received()
        wait_for("the bulk transfer flows or ends", lambda: ends[1].poll() is not None or
                 octets_received() > begin + 20_000_000)
        if ends[1].poll() is not None:
            raise Failed(f"the bulk transfer ended: {ends[1].stdout.read()[-400:]}")
        found = measure()
        if ends[1].poll() is not None:
            raise Failed("the bulk transfer ended before the measurement")
        return found
    finally:
        for end in ends:
            end.kill()
            end.wait()


def octets_received():
    """Octets received by all interfaces of this namespace, also lo."""
    lines = read("/proc/net/dev").splitlines()[2:]
    return sum(int(line.split(":")[1].split()[0]) for line in lines)


def echo(bed, candidate, cpu):
    """Round trips of ICMP echo beside a bulk transfer, in microseconds. A ping on the
    processor of the sending program waits for that processor, too."""
    def ping():
        out = run(*on(cpu), "ping", "-i", "0.01", "-c", "150", "-W", "1", bed.server(candidate))
        times = sorted(1000 * float(t) for t in re.findall(r"time=([0-9.]+) ms", out))
        if len(times) < 140:
            raise Failed(f"answers to {len(times)} of 150")
        return {"value": times[len(times) // 2], "tail": times[int(0.99 * len(times))],
                "unit": "us"}

    return beside_bulk(bed, candidate, ping)


def latency(bed, candidate, operation, size):
    """perftest's result in microseconds: a Read's round trip, else half of a round trip."""
    for _ in range(3):
        row = perftest(bed, candidate, f"ib_{operation}_lat", "-s", str(size), "-n", "2000")
        # perftest guesses the clock of its time stamps, and now and then finds none.
        if 0 < row[4] < 1e6:
            break
    return {"value": row[4], "tail": row[7], "unit": "us"}


def idle_memory(bed, candidate):
    """KiB by which free memory falls for each idle connection, both ends."""
    # With more connections in one program calls of libsiw fail.
    programs, many = 12, 16
    running = []

    def available(count):
        """Memory as soon as all programs have so many connections open."""
        for program in running:
            says = program.stdout.readline()
            if says != f"{count} open\n":
                raise Failed(f"churn says: {says}")
        write("/proc/sys/vm/drop_caches", 3)
        free = int(re.search(r"MemAvailable: *(\d+)", read("/proc/meminfo"))[1])
        # MemAvailable counts free pages on per-CPU lists as used.
        at_hand = re.findall(r"^ +count: +(\d+)", read("/proc/zoneinfo"), re.M)
        return free + sum(map(int, at_hand)) * os.sysconf("SC_PAGE_SIZE") // 1024

    try:
        for _ in range(programs):
            running.append(start("/out/churn", "-k", "-n", str(many), bed.server(candidate)))
        before = available(1)
        for program in running:
            program.send_signal(signal.SIGUSR1)
        return {"value": (before - available(many)) / (programs * (many - 1)), "unit": "KiB"}
    finally:
        for program in running:
            program.kill()
            program.wait()


def connections(bed, candidate):
    """Connections a second: each makes both ends, sends one Send, and destroys both ends."""
    count = 100
    begun = time.monotonic()
    run(*on(bed.client_cpu), "/out/churn", "-n", str(count), bed.server(candidate))
    return {"value": count / (time.monotonic() - begun), "unit": "1/s"}
