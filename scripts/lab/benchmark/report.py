#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Writes a run's measurements as results.md, results.svg and results.json.

Usage: report.py RESULTS-DIRECTORY OUTPUT-DIRECTORY [JOURNAL-DIRECTORY]

With a journal, the tables are also kept there as DATE-REVISION.md.
"""

import json
import os
import re
import statistics
import sys
import time

from plot import plot
from targets import TARGETS

LABELS = {"tcp": "TCP", "rsiw": "rsiw", "rsiw-crc": "rsiw, CRC on", "rsiw-table": "rsiw, CRC table",
          "siw": "siw", "rxe": "rxe"}
CANDIDATES = tuple(LABELS)
PATHS = {
    "lo1500": "loopback, MTU 1500",
    "shared": "loopback, MTU 1500, both ends on one processor",
    "lo9000": "loopback, MTU 9000",
    "lo65536": "loopback, MTU 65536",
    "veth": "veth between two namespaces, MTU 1500, TSO and GRO on",
    "apart": "veth, MTU 1500, a processor for each end",
    "delay": "veth, MTU 1500, 1 ms delay in one direction",
    "loss": "veth, MTU 1500, 0.1 % loss in one direction",
}
MEASURES = {
    "bw": "{} bandwidth, {}",
    "lat": "{} latency, {}",
}


NAMES = {
    "crc_twice": "two CRC-32C by table of each octet, no transfer",
    "asleep_write_65536": "write bandwidth, 64 KiB, programs sleeping",
    "asleep_read_65536": "read bandwidth, 64 KiB, programs sleeping",
    "spread_write_65536": "write bandwidth, 64 KiB, programs sleeping, 64 buffers in turn",
    "streams_64": "64 streams",
    "work_65536": "CPU time, programs sleeping, 64 KiB",
    "idle_memory": "memory of an idle connection, both ends",
    "echo_beside_bulk": "ICMP echo beside a bulk transfer",
    "echo_same_cpu": "ICMP echo beside a bulk transfer, same processor",
}


class Table:
    """All records by path, measure and candidate."""

    def __init__(self, records):
        self.records = records
        self.cells = {}
        for record in records:
            key = record["path"], record["measure"], record["candidate"]
            self.cells.setdefault(key, []).append(record)

    def values(self, path, measure, candidate, field="value"):
        """The values of the repeats without failures."""
        cell = self.cells.get((path, measure, candidate), ())
        return [record[field] for record in cell if field in record]

    def median(self, path, measure, candidate, field="value"):
        """The median, or None if every repeat failed."""
        values = self.values(path, measure, candidate, field)
        return statistics.median(values) if values else None

    def ratio(self, above, below):
        """The ratio of two medians; each is (path, measure, candidate[, field])."""
        top, bottom = self.median(*above), self.median(*below)
        return top / bottom if top is not None and bottom else None


def number(value):
    """A number with three significant digits."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values):
    """Half of the distance between the extremes, in percent of the median."""
    if len(values) < 2 or not statistics.median(values):
        return ""
    return f" ±{50 * (max(values) - min(values)) / statistics.median(values):.0f}"


def name_of(measure):
    """The label of a measure."""
    if measure in NAMES:
        return NAMES[measure]
    parts = measure.split("_")
    size = {"64": "64 B", "4096": "4 KiB", "16384": "16 KiB", "65536": "64 KiB",
            "1048576": "1 MiB"}.get(parts[-1])
    if len(parts) == 3 and parts[1] in MEASURES and size:
        return MEASURES[parts[1]].format(parts[0], size)
    return " ".join(parts)


def unit_of(table, path, measure):
    """The unit of a row."""
    for candidate in CANDIDATES:
        for record in table.cells.get((path, measure, candidate), ()):
            if "unit" in record:
                return record["unit"]
    return ""


def rows(table, path):
    """The measures of a path, in the order in which they were made."""
    seen = {}
    for record in table.records:
        if record["path"] == path:
            seen.setdefault(record["measure"])
    return list(seen)


def line(table, path, present, measure, name, unit, field="value"):
    """One row: each candidate's median and spread, and the ratio."""
    cells = []
    for candidate in present:
        values = table.values(path, measure, candidate, field)
        failed = table.cells.get((path, measure, candidate)) and not values
        middle = number(statistics.median(values)) if values else "failed" if failed else ""
        tail = table.median(path, measure, candidate, "tail")
        if tail is not None:
            middle += f" (99 %: {number(tail)})"
        cells.append(middle + spread(values))
    ratio = table.ratio((path, measure, "rsiw", field), (path, measure, "siw", field))
    cells.append(f"{ratio:.2f}" if ratio is not None else "")
    return f"| {name} | {unit} | " + " | ".join(cells) + " |"


def path_table(table, path):
    """One path's measurements in Markdown."""
    present = [c for c in CANDIDATES if any(key[0] == path and key[2] == c for key in table.cells)]
    lines = ["| measure | unit | " + " | ".join(LABELS[c] for c in present) + " | rsiw : siw |",
             "| --- | --- |" + " ---: |" * (len(present) + 1)]
    for measure in rows(table, path):
        name = name_of(measure)
        lines.append(line(table, path, present, measure, name, unit_of(table, path, measure)))
        if measure.endswith("_bw_64"):
            name = name.replace("bandwidth", "messages")
            lines.append(line(table, path, present, measure, name, "1/s", "messages"))
    return lines


def target_table(table):
    """The targets and their ratios."""
    lines = ["| measure | target | measured | |", "| --- | --- | --- | --- |"]
    for target in TARGETS:
        found = [(label, table.ratio(above, below)) for label, above, below in target.pairs]
        found = [(label, ratio) for label, ratio in found if ratio is not None]
        if not found:
            lines.append(f"| {target.what} | {target.says()} | not measured | |")
            continue
        ok = all(target.holds(ratio) for _, ratio in found)
        text = ", ".join(f"{label} {ratio:.2f}".strip() for label, ratio in found)
        lines.append(f"| {target.what} | {target.says()} | {text} | {'met' if ok else 'missed'} |")
    return lines


def page(table, information, heading):
    """The page under a heading."""
    lines = heading + ["",
             f"{information['date']}, Linux {information['kernel']}, {information['platform']}, "
             f"{information['processors']} processors ({information['model']}), "
             f"{information['repeats']} repeats, revision {information['commit']}.", "",
             "## Targets", "",
             "Each ratio is one of medians in this run. The path is the loopback at MTU 1500 with "
             "CRC off at both ends, unless the line names another.", ""]
    lines += target_table(table)
    lines += ["", "## Measurements", "",
              "Each cell is a median; ± is half of the distance between the extremes, in percent. "
              "Bandwidth is in 10^6 octets a second."]
    for path, title in PATHS.items():
        if any(key[0] == path for key in table.cells):
            lines += ["", f"### {title[0].upper()}{title[1:]}", ""] + path_table(table, path)
    errors = [r for r in table.records if "error" in r]
    if errors:
        lines += ["", "### What failed", ""]
        for record in errors:
            text = " ".join(record["error"].split())[:200]
            lines.append(f"- {record['path']}/{record['measure']}/{record['candidate']}: {text}")
    return "\n".join(lines) + "\n"


def host_facts():
    """Facts of the host, not of the guest."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        text = file.read()
    model = re.search(r"^model name\s*: (.*)$", text, re.M)
    virtual = re.search(r"^flags\s*:.*\bhypervisor\b", text, re.M)
    model = (model[1] if model else "unknown") + (", virtual machine" if virtual else "")
    return {"date": time.strftime("%Y-%m-%d"), "model": model,
            "platform": os.environ["BENCH_PLATFORM"], "commit": os.environ["BENCH_COMMIT"]}


def main():
    source, target, *journal = sys.argv[1:]
    with open(source + "/results.jsonl", encoding="ascii") as file:
        records = [json.loads(line) for line in file]
    with open(source + "/information.json", encoding="utf-8") as file:
        facts = json.load(file) | host_facts()
    table = Table(records)
    data = json.dumps({"information": facts, "records": records}, indent=1) + "\n"
    text = page(table, facts, ["# Results of `make bench`", "",
                               "`make bench` writes this page.", "",
                               "![The headline ratios](results.svg)"])
    files = {f"{target}/results.md": text, f"{target}/results.svg": plot(table, LABELS),
             f"{target}/results.json": data}
    for directory in journal:
        name = f"{facts['date']}-{facts['commit']}"
        files[f"{directory}/{name}.md"] = page(table, facts, [f"# Run {name}"])
    for name, text in files.items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
