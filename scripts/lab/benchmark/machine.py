# SPDX-License-Identifier: GPL-2.0
"""Shared by the measurements: programs with a time limit, modules, interfaces, devices."""

import os
import re
import subprocess
import time

# Where modprobe looks (User-mode Linux has its modules in the cache), and files of the modules
# that it does not know.
MODPROBE = ["modprobe", *os.environ.get("BENCH_MODPROBE", "").split()]
FILES = dict(word.split("=", 1) for word in os.environ.get("BENCH_MODULES", "").split())
# More parameters for the module under test.
PARAMETERS = os.environ.get("BENCH_PARAMETERS", "").split()
# A parameter of the benchmark's own kernel: 1 sums CRC-32C by table, not by instruction.
CRC_TABLE = "/sys/module/crc32/parameters/table"


class Failed(Exception):
    """A measurement failed, with the reason."""


def run(*command, limit=60, check=True):
    """Runs a program to its end; returns its output, both streams in one."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=limit, text=True, check=False)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"not finished after {limit} s: {' '.join(command)}") from late
    if check and done.returncode != 0:
        raise Failed(f"status {done.returncode}: {' '.join(command)}: {done.stdout[-400:]}")
    return done.stdout


def on(processor):
    """The command prefix of a program that stays on a processor.

    Both ends of a connection have one processor each, with every candidate. Results of programs that
    change their processor vary.
    """
    return ["taskset", "-c", str(processor % processors())]


def start(*command):
    """Starts a program in the background."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def finish(program, limit=20):
    """Waits for a program in the background, and ends it when its time is over."""
    try:
        out, _ = program.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        program.kill()
        out, _ = program.communicate()
        raise Failed(f"not finished after {limit} s: {' '.join(program.args)}: {out[-400:]}") from None
    if program.returncode != 0:
        raise Failed(f"status {program.returncode}: {' '.join(program.args)}: {out[-400:]}")
    return out


def wait_for(what, condition, limit=20):
    """Waits until condition() holds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"after {limit} s still not: {what}")
        time.sleep(0.02)


def read(path):
    """The content of a small file, without the line's end."""
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read().strip()


def write(path, text):
    """Stores into a file of proc, sysfs or configfs."""
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


def listening(port, net=()):
    """Whether a TCP socket, also one of the kernel, listens on a port."""
    return run(*net, "ss", "-Hltn", f"sport = :{port}") != ""


def load(module, *parameters):
    """Loads a module."""
    if module in FILES:
        run("insmod", FILES[module], *parameters)
    else:
        run(*MODPROBE, module, *parameters)


def unload(module):
    """Removes a module; waits for the end of its users."""
    wait_for(f"module {module} unloads", lambda: subprocess.call(
        ["rmmod", module], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0)


def make_link(name, kind, netdev, net=()):
    """Makes an RDMA device, and its device node, since the root has no udev."""
    run(*net, "rdma", "link", "add", name, "type", kind, "netdev", netdev)

    def node():
        for entry in os.listdir("/sys/class/infiniband_verbs"):
            path = f"/sys/class/infiniband_verbs/{entry}"
            if os.path.exists(path + "/ibdev") and read(path + "/ibdev") == name:
                return os.path.exists("/dev/infiniband/" + entry)
        return False

    wait_for(f"{name} is there", node)
    wait_for(f"{name} is active",
             lambda: "ACTIVE" in read(f"/sys/class/infiniband/{name}/ports/1/state"))


def cpu_seconds():
    """Seconds that the processors have worked: user, system and softirq time."""
    fields = [int(field) for field in read("/proc/stat").split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def processors():
    """The number of processors."""
    return len(re.findall(r"^cpu\d", read("/proc/stat"), re.M))
