# SPDX-License-Identifier: GPL-2.0
"""Confinement of a process holds for its connections over RDMA: control groups, Landlock, namespaces.

usage: contained.py [CASE...]       CGROUP: the root of the control groups
       contained.py landlocked      in a process of its own: it is confined for good
"""

import contextlib
import socket
import subprocess

from confine import BIND4, CONNECT4, EGRESS, KINDS, POST_BIND4, SOCK_CREATE, enter, forbid, inside, landlock
from cases_active import Listener, reply_for
from rendezvous import *
from harness import ADDRESS, Victim
from harness import PORT as REJECTING_PORT
from unknown_peers import HERE, PORT, answer, hello, request

CM_PORT = 7200
# A listener of a process in a control group.
CONFINED_PORT = 7202
# The port of a client, to which nobody connects.
CLIENT_PORT = 7203
# The address of a device that is made later.
LATER = "10.99.5.1"
# Seconds from the start of a refused client to its end. rping() stops a client after 20 s.
ANSWER = 10
# The limit of guesses (docs/rendezvous.md, section 4).
GUESSES = 32
# The limit of attempts (docs/rendezvous.md, section 3), and more queue pairs than that.
ATTEMPTS, MANY = 1024, 1100
LAST_QPN = 0xFFFFFF
# Seconds of the first and of the longest pause between attempts (docs/rendezvous.md, section 3).
FIRST_PAUSE, LAST_PAUSE = 0.01, 2
# Pauses in this test, and the seconds by which this process may be late.
PAUSES, JITTER = 10, 0.5
# Milliseconds for which no further request may come. A client falls back to MPA revision 1 at once.
QUIET_MS = 2000
# Writes to a peer that reads nothing, their octets, and the octets that the peer's buffer has.
WRITES, WRITE_SIZE, ROOM = 16, 5000, 8192


def rping(port=CM_PORT, address=HERE):
    """Whether a client of rdma_cm does its rounds with the server of the port."""
    command = ["timeout", "-k", "1", str(20 * FACTOR), "rping", "-c", "-a", address, "-p", str(port), "-C", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as client:
        for line in client.stdout:
            print(f"# {line}", end="")
            # After an error rping may wait for its thread for ever.
            if "error" in line or line.startswith("rdma_"):
                client.terminate()
    return client.returncode == 0


def listening(port=PORT):
    """Whether a TCP socket listens on the port, in this network namespace."""
    found = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, check=True)
    return bool(found.stdout.strip())


def parts(a, b):
    """Destroys both ends."""
    a.close()
    b.close()


def talks(device):
    """Without confinement both connect."""
    parts(*connected(device))


def stays_apart(what, sender, other):
    """Both ends have each other's attributes, and no connection is made."""
    sender.to_rts(HASTY, 0)
    other.to_rts(HASTY, 0)
    other.recv()
    sender.send()
    sender.fails(30)
    check((SEND, GOOD) not in sender.completions(), f"{what}: the peer was reached")
    check((RECV, GOOD) not in other.completions(), f"{what}: a message arrived")


def cgroup(device):
    """BPF programs of a control group hold for connections by rendezvous and over rdma_cm"""
    root = os.environ["CGROUP"]
    talks(device)
    check(rping(), "rping does not work anyway")
    for kind in (EGRESS, CONNECT4, SOCK_CREATE):
        group = f"{root}/{KINDS[kind]}"
        os.mkdir(group)
        forbid(group, kind)
        for confined in ("initiator", "responder"):
            what = f"{KINDS[kind]}, {confined}"
            a, b = smaller_first(*pair(device))
            one, other = (a, b) if confined == "initiator" else (b, a)
            with inside(root, group):
                if kind == SOCK_CREATE:
                    one.refuses(what, one.rtr_attr(other), TO_RTR, (errno.EPERM,))
                else:
                    one.to_rtr(other)
            if kind == SOCK_CREATE:
                parts(a, b)
                continue
            other.to_rtr(one)
            if (kind, confined) == (CONNECT4, "responder"):
                # `a` does not connect.
                a.to_rts()
                b.to_rts()
                talk(a, b, 1)
            else:
                stays_apart(what, one, other)
            parts(a, b)
            device.events()
            device.seen.clear()
        with inside(root, group):
            check(not rping(), f"{KINDS[kind]}: rdma_cm connects")
        os.rmdir(group)
    talks(device)
    check(rping(), "rping does not work any more")


@contextlib.contextmanager
def rping_server(address):
    """A server of rping, of the control group of this process."""
    command = ["rping", "-s", "-P", "-a", address, "-p", str(CONFINED_PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def later_device():
    """A second interface with a device."""
    for command in (f"ip link add rd5 type dummy; ip addr add {LATER}/24 dev rd5; ip link set rd5 up; "
                    "rdma link add r5 type rsiw netdev rd5").split("; "):
        subprocess.run(command.split(), check=True)
    try:
        yield
    finally:
        subprocess.run(["rdma", "link", "del", "r5"], check=True)
        subprocess.run(["ip", "link", "del", "rd5"], check=True)


def later(_device):
    """a listener's control group holds for connections that it accepts on a device that was made after it"""
    root = os.environ["CGROUP"]
    group = f"{root}/later"
    os.mkdir(group)
    for confined in (False, True):
        if confined:
            forbid(group, EGRESS)
        with inside(root, group), rping_server("0.0.0.0") as server:
            enter(root)
            wait_for(10, "the server listens", lambda: listening(CONFINED_PORT))
            check(rping(CONFINED_PORT) != confined, f"confined {confined}: the device that was there")
            # This process, which is in no control group, makes the listener on the new device.
            with later_device():
                check(rping(CONFINED_PORT, LATER) != confined, f"confined {confined}: the device that came later")
            check(server.poll() is None, "the server ended")
    wait_for(10, "the control group goes", lambda: removed(group))


def accept(_device):
    """a process whose control group refuses sockets accepts no connection, though it listens"""
    root = os.environ["CGROUP"]
    group = f"{root}/accept"
    os.mkdir(group)
    with inside(root, group), rping_server(HERE):
        enter(root)
        wait_for(10, "the server listens", lambda: listening(CONFINED_PORT))
        check(rping(CONFINED_PORT), "rping does not work anyway")
        forbid(group, SOCK_CREATE)
        begun = time.monotonic()
        check(not rping(CONFINED_PORT), "the connection is accepted")
        took = time.monotonic() - begun
        check(took < ANSWER * FACTOR, f"the refused client ended after {took:.1f} s")
    check(rping(), "rping does not work any more")
    wait_for(10, "the control group goes", lambda: removed(group))


def counter(name):
    """A counter of the device, which ib_core reads again after 10 ms."""
    time.sleep(0.02)
    with open(f"/sys/class/infiniband/r0/ports/1/hw_counters/{name}", encoding="ascii") as file:
        return int(file.read())


def reject(_device):
    """a process whose control group refuses sockets rejects a connection, once and for good"""
    root = os.environ["CGROUP"]
    group = f"{root}/reject"
    os.mkdir(group)
    with inside(root, group):
        server = Victim()
    client = Victim(CLIENT_PORT)
    names = ("rejects_sent", "connect_rejected", "connect_failures", "accept_failures")
    for refused in (False, True):
        if refused:
            forbid(group, SOCK_CREATE)
        before = {name: counter(name) for name in names}
        client.ask(f"connect {ADDRESS} {REJECTING_PORT} 4 4 4 4096 -")
        server.expect_event("CONNECT_REQUEST")
        told = server.ask("reject 6e6f")
        check(told == ("ok" if not refused else f"error {errno.EPERM}"), f"refused {refused}: reject answers {told}")
        event = client.expect_event("REJECTED", error=errno.ECONNREFUSED)
        check(event[4].rstrip(b"\0") == (b"" if refused else b"no"), f"refused {refused}: private data {event[4]}")
        event = server.event(QUIET_MS)
        check(event is None, f"refused {refused}: the server gets {event}")
        counted = [counter(name) - before[name] for name in names]
        check(counted == [1, 1, 2, 0], f"refused {refused}: {names} rise by {counted}")
        client.ask("close")
    server.kill()
    client.kill()
    wait_for(10, "the control group goes", lambda: removed(group))


def bind(_device):
    """BPF programs of a control group that refuse to bind hold for listeners of rdma_cm"""
    root = os.environ["CGROUP"]
    for kind in (None, BIND4, POST_BIND4):
        group = f"{root}/bind"
        os.mkdir(group)
        if kind:
            forbid(group, kind)
        with inside(root, group), rping_server(HERE) as server:
            enter(root)
            if kind:
                wait_for(10, f"{KINDS[kind]}: the server fails", lambda: server.poll() is not None)
                check(server.returncode > 0, f"{KINDS[kind]}: the server ends with {server.returncode}")
            else:
                wait_for(10, "the server listens", lambda: listening(CONFINED_PORT))
                check(rping(CONFINED_PORT), "rping does not work anyway")
            check(listening(CONFINED_PORT) == (kind is None), f"{kind}: the listener")
        wait_for(10, "the control group goes", lambda: removed(group))


def lsm(_device):
    """Landlock's right to connect holds for both"""
    subprocess.run([sys.executable, "-B", __file__, "landlocked"], check=True)


def landlocked():
    """Works in a process that may connect to one port."""
    device = Device()
    a, b = smaller_first(*pair(device))
    landlock(CM_PORT)
    a.refuses("connect to port 4791", a.rtr_attr(b), TO_RTR, (errno.EACCES,))
    # The accepting end opens no connection.
    b.to_rtr(a)
    check(rping(), "rping to the port that is allowed")
    check(not rping(CM_PORT + 1), "rping to another port connects")
    parts(a, b)
    landlock(CM_PORT, PORT)
    a, b = smaller_first(*pair(device))
    a.refuses("the first ruleset still holds", a.rtr_attr(b), TO_RTR, (errno.EACCES,))
    parts(a, b)
    device.close()


def namespace(device):
    """a process in another network namespace has no use of the interface's GIDs"""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    a, b = smaller_first(*pair(device))
    os.unshare(os.CLONE_NEWNET)
    for one, other in ((a, b), (b, a)):
        one.refuses("another namespace", one.rtr_attr(other), TO_RTR, (errno.EADDRNOTAVAIL,))
    os.setns(home, os.CLONE_NEWNET)
    a.connect(b)
    b.connect(a)
    talk(a, b)
    parts(a, b)
    os.close(home)


def port(device):
    """the port is open as long as a responder waits or is connected"""
    check(not listening(), "the port is open although nobody waits")
    a, b = smaller_first(*pair(device))
    a.to_rtr(b)
    check(not listening(), "the port is open for an initiator")
    b.to_rtr(a)
    check(listening(), "the port is closed to the initiator")
    a.to_rts()
    b.to_rts()
    talk(a, b, 1)
    check(listening(), "the port is closed although a responder is connected")
    b.close()
    wait_for(10, "the port is closed", lambda: not listening())
    a.close()


def guesses(device):
    """guesses of packet sequence numbers are limited, and the peer connects nevertheless"""
    a, b = smaller_first(*pair(device))
    b.connect(a)
    begun = time.monotonic()
    heard = 0
    for i in range(1, GUESSES + 20):
        got = answer(request(hello(a.number, b.number, a.psn ^ i, b.psn)))
        check(got == b"" or got[16] & 0x20, f"guess {i}: answered by {got!r}")
        heard += got != b""
    # The limit rises by one a second.
    most = GUESSES + 1 + time.monotonic() - begun
    check(GUESSES <= heard <= most, f"{heard} guesses were heard, {GUESSES} to {most:.0f} may be")
    a.connect(b)
    talk(a, b)
    parts(a, b)


def group_of(port):
    """The control group of the socket that is connected to a port."""
    found = subprocess.run(["ss", "-Htn", "--cgroup", "state", "established", f"dport = :{port}"],
                           capture_output=True, check=True, text=True).stdout
    check("cgroup:" in found, f"ss tells of no control group: {found!r}")
    return found.split("cgroup:")[1].split()[0]


def sock_memory(group):
    """Octets of sockets that are charged to a control group."""
    with open(f"{group}/memory.stat", encoding="ascii") as stat:
        return next(int(line.split()[1]) for line in stat if line.startswith("sock "))


def fallback(_device):
    """a connection that falls back to MPA revision 1 is charged to the control group of its process"""
    root = os.environ["CGROUP"]
    group = f"{root}/fallback"
    with open(f"{root}/cgroup.controllers", encoding="ascii") as controllers:
        pays = "memory" in controllers.read().split()
    # The shell script skips the rest of the test where no process is charged.
    if pays:
        with open(f"{root}/cgroup.subtree_control", "w", encoding="ascii") as control:
            control.write("+memory")
    os.mkdir(group)
    with inside(root, group):
        victim = Victim()
    listener = Listener(ROOM)
    listener.connect(victim)
    first = listener.accept(10)
    check(first.recv_startup().rev == 2, "the first Request is not of revision 2")
    check(group_of(listener.port) == "/fallback", f"the first socket is in {group_of(listener.port)}")
    first.sock.close()
    second = listener.accept(10)
    request = second.recv_startup()
    check(request.rev == 1, "the second Request is not of revision 1")
    check(group_of(listener.port) == "/fallback", f"the socket that falls back is in {group_of(listener.port)}")
    second.send_raw(reply_for(request))
    victim.expect_event("ESTABLISHED")
    for i in range(WRITES):
        check(victim.ask(f"write {i} 1 0 {WRITE_SIZE}") == "ok", "a Write is not taken")
    if pays:
        least = WRITES * WRITE_SIZE // 2
        wait_for(10, f"{least} octets are charged, there are {sock_memory(group)}",
                 lambda: sock_memory(group) >= least)
    victim.kill()
    second.reset()
    wait_for(10, "the control group goes", lambda: removed(group))


def removed(group):
    """Whether a control group could be removed: not while processes are in it."""
    try:
        os.rmdir(group)
    except OSError:
        return False
    return True


def established(port):
    """How many connections a listener has, accepted or not."""
    found = subprocess.run(["ss", "-Htn", "state", "established", f"sport = :{port}"], capture_output=True, check=True)
    return found.stdout.count(b"\n")


def attempts(device):
    """the attempts of a device that are under way are limited, and others follow"""
    silent = socket.create_server((HERE, PORT), backlog=2 * MANY)
    many = [End(device, depth=1) for _ in range(MANY)]
    for end in many:
        end.to_init()
    # All of them are initiators.
    for end in many:
        end.connect(Peer(end, number=LAST_QPN))
    most = 0

    def reached():
        nonlocal most
        most = max(most, established(PORT))
        return most >= ATTEMPTS

    wait_for(30, f"{ATTEMPTS} attempts under way", reached)
    # The other queue pairs try, too, in pauses of two seconds at most.
    end = time.monotonic() + 3
    while time.monotonic() < end:
        reached()
    check(most == ATTEMPTS, f"{most} attempts are under way at once, {ATTEMPTS} may be")
    silent.close()
    for end in many:
        end.close()
    talks(device)


def backoff(device):
    """pauses between the attempts of an initiator double, from 10 ms up to two seconds"""
    pauses = [min(FIRST_PAUSE * 2 ** i, LAST_PAUSE) for i in range(PAUSES)]
    begun = []
    with socket.create_server((HERE, PORT)) as closing:
        closing.settimeout(30 * FACTOR)
        end = End(device)
        end.to_init()
        # An initiator, whose peer closes each connection at once.
        end.connect(Peer(end, number=LAST_QPN))
        for _ in range(PAUSES + 1):
            closing.accept()[0].close()
            begun.append(time.monotonic())
    end.close()
    # An attempt begins between half of its pause and the whole of it after the end of the one before.
    for i in range(1, PAUSES + 1):
        least = sum(pauses[:i]) / 2 - JITTER
        check(begun[i] - begun[0] >= least, f"attempt {i} came after {begun[i] - begun[0]:.3f} s, at least {least:.3f}")
    gap, most = begun[-1] - begun[-2], LAST_PAUSE + JITTER * FACTOR
    check(LAST_PAUSE / 2 - JITTER <= gap <= most, f"the last pause has {gap:.3f} s, half of {LAST_PAUSE} to {most}")


if __name__ == "__main__":
    if sys.argv[1:] == ["landlocked"]:
        landlocked()
    else:
        run((cgroup, later, accept, reject, bind, lsm, namespace, port, guesses, attempts, backoff, fallback), 400)
