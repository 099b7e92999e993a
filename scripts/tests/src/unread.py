# SPDX-License-Identifier: GPL-2.0
"""Peers that read nothing: memory that the other end holds for them, against TCP's accounting.

usage: unread.py ADDRESS PORT PEERS OCTETS ROLE SIZE[,SIZE...] NAMESPACE INTERFACE

The peers are in the network namespace NAMESPACE, behind INTERFACE.

On each of PEERS connections the program `unread` sends messages of SIZE octets, which the peers do not read.
By ROLE:

  read    Read Responses that the peers ask for
  write   RDMA Writes
  shared  few and small Read Responses; between two of them another connection receives many
  queued  RDMA Writes that all arrive and wait in large receive buffers; the peers read a part
  held    the peers send instead: a Send each, in two parts, for which no receive is posted
  left    RDMA Writes, none of which arrives, in a send buffer that is not full; then the program disconnects, and
          its sockets are released
  mixed   RDMA Writes that fill a buffer of the sender and begin the next one, then short ones. The peers acknowledge
          and read all but the end of the first buffer; the rest does not arrive
  none    as left, but without a message
  near    as mixed, but the rest arrives, and the peers read none of it

Free memory must not fall by more than what TCP accounts (/proc/net/sockstat), or by more than the octets that are
queued. OCTETS for each connection come on top. What the machine itself takes meanwhile is measured by a first run
with FEW connections, and the limit holds for the further ones. Memory of programs and of the page cache counts as
free. TCP accounts the heads of socket buffers too. For the roles in BY_OCTETS the limit is the octets, so heads do not
count."""

import glob
import os
import socket
import subprocess
import sys
import time

import mpa
import rdmap

# Connections of the first run.
FEW = 8
# The most octets of an idle connection with both ends, in a run of many connections. Most are the rings that the
# program maps.
IDLE = 128 << 10
# Roles whose limit is the octets: what TCP accounts beyond them for long buffers would hide a doubled bound. And what
# four readings of free memory may miss.
BY_OCTETS = ("queued", "shared", "read", "write", "left", "none", "near")
MISSED = 4 * (256 << 10)
HEADS = ("skbuff_head_cache", "skbuff_fclone_cache", "skbuff_small_head")
# Lines of /proc/meminfo. Cached has the pages of tmpfs too.
AS_FREE = ("MemFree", "AnonPages", "Cached", "Buffers", "PageTables", "KernelStack")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Octets of messages for each connection. Those of a send buffer take longer to send, and show no more but where the
# sockets are released. A full send buffer (1 MiB with the heads of socket buffers) may end with a part of an FPDU: then
# no FIN can follow, and the connection is reset.
MESSAGES = {"read": 160 << 10, "write": 160 << 10, "shared": 20 * 64, "left": 800 << 10, "none": 0, "queued": 3 << 20}
# Octets of a buffer of the sender, and the short messages behind two of them: more than a page of fragments.
BUFFER, SHORT, SHORT_COUNT = 32 << 10, 64, 70
# Octets that the other connection is sent between two messages, a fragment of TCP's, and those of one of its messages.
BETWEEN, PIECE = 36 << 10, 4000
# Small at both ends, so that most octets are not acknowledged.
SMALL_BUFFER = 16 << 10
RECEIVE_BUFFER = {"queued": 4 << 20, "mixed": 4 * BUFFER, "near": 4 * BUFFER}
# Python has no name for this option (asm-generic/socket.h).
SO_RCVBUFFORCE = 33
# Queued octets that a peer reads: a part of a buffer of the sender.
PART = 30000
# Octets of the first part of a Send.
FIRST_PART = 1000
SECONDS = 30 * int(os.environ.get("RSIW_TIME_FACTOR", "1"))


def first_number(path):
    with open(path, encoding="ascii") as file:
        return int(file.read().split()[0])


def heads_of_buffers():
    """Octets of the slabs that hold socket buffers without their data. Two names may stand for the same slabs."""
    slabs = {os.path.realpath(f"/sys/kernel/slab/{name}") for name in HEADS}
    return sum(first_number(f"{slab}/slabs") * PAGE << first_number(f"{slab}/order") for slab in slabs)


def free_memory():
    """What counts as free, and the pages on per-CPU lists, which the kernel keeps for its next allocations."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        numbers = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
    with open("/proc/zoneinfo", encoding="ascii") as lines:
        kept = sum(int(line.split()[1]) for line in lines if line.strip().startswith("count:"))
    return sum(numbers[name] for name in AS_FREE) + kept * PAGE


def tcp_memory():
    with open("/proc/net/sockstat", encoding="ascii") as lines:
        words = next(line.split() for line in lines if line.startswith("TCP:"))
    return int(words[words.index("mem") + 1]) * PAGE


def settled():
    """Free memory and TCP's when caches are dropped and neither moves any more."""
    end, before, equal = time.monotonic() + SECONDS, None, 0
    while time.monotonic() < end:
        # The slab and the page cache are dropped too: they change with other work.
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
        now = free_memory(), tcp_memory()
        equal = equal + 1 if before and now[1] == before[1] and abs(now[0] - before[0]) < 256 << 10 else 0
        # Work items free memory late.
        if equal == 3:
            return now
        before = now
        time.sleep(0.2)
    sys.exit(f"FAIL: memory does not settle: {before}")


class Program:
    """The verbs end."""

    def __init__(self, address, port):
        path = os.path.join(os.environ["RSIW_TESTBIN"], "unread")
        self.process = subprocess.Popen(
            [path, address, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.answer()

    def tell(self, text):
        self.process.stdin.write(text + "\n")

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("FAIL: the program died")
        return line.split()

    def end(self):
        self.process.kill()
        self.process.wait()


def socket_in(namespace):
    """A TCP socket of another network namespace; the process stays in its own."""
    with open("/proc/self/ns/net", encoding="ascii") as home, open(f"/run/netns/{namespace}", encoding="ascii") as there:
        os.setns(there.fileno(), os.CLONE_NEWNET)
        try:
            return socket.socket()
        finally:
            os.setns(home.fileno(), os.CLONE_NEWNET)


def connected(address, port, namespace, buffer):
    """A connection whose Request is sent, with a receive buffer of so many octets."""
    sock = socket_in(namespace)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)
    return stream_to(address, port, sock)


def stream_to(address, port, sock=None):
    """A connection whose Request is sent."""
    sock = sock or socket.socket()
    sock.settimeout(SECONDS)
    sock.connect((address, int(port)))
    stream = mpa.Stream(sock)
    stream.send_raw(mpa.startup(mpa.REQUEST_KEY, c=0, s=1, data=mpa.enhanced(16, 16)))
    return stream


def opened(program, address, port, peers, namespace, buffer):
    """Connections in full operation, and where their peers may read."""
    program.tell(f"accept {peers}")
    streams = []
    for _ in range(peers):
        stream = connected(address, port, namespace, buffer)
        reply = stream.recv_startup(SECONDS)
        assert reply.key == mpa.REPLY_KEY and not reply.r, "no Reply"
        stream.crc = bool(reply.c)
        # A responder waits for the first FPDU (RFC 5044 section 7.1.2).
        stream.send(rdmap.write(0, 0))
        streams.append(stream)
    _, stag, at = program.answer()
    return streams, int(stag, 16), int(at, 16)


def connections(prefix, end, port):
    """The lines of ss about the connections whose `end` is `port`."""
    command = [*prefix, "ss", "-Htn", f"{end} = :{port}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def with_tcp(port, namespace):
    """The octets that TCP has of the connections of `port`: not acknowledged here, or unread by the peers."""
    total = 0
    for prefix, end, column in ([], "sport", 2), (["ip", "netns", "exec", namespace], "dport", 1):
        total += sum(int(line.split()[column]) for line in connections(prefix, end, port))
    return total


def uncertain():
    """By how much two readings of tcp_memory() may be wrong: each processor keeps up to so many pages to itself."""
    with open("/proc/sys/net/core/mem_pcpu_rsv", encoding="ascii") as file:
        return 2 * int(file.read()) * PAGE * os.cpu_count()


def orphans():
    """TCP's orphaned sockets."""
    with open("/proc/net/sockstat", encoding="ascii") as lines:
        words = next(line.split() for line in lines if line.startswith("TCP:"))
    return int(words[words.index("orphan") + 1])


def wait_for(what, done):
    end = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > end:
            sys.exit(f"FAIL: after {SECONDS} s still not: {what()}")
        time.sleep(0.1)


def skip(stream, size):
    """Receives the FPDUs of a Read Response or Write of `size` octets, unchecked: a CRC takes long here."""
    while size > 0:
        length = int.from_bytes(stream.recv_exactly(2, SECONDS), "big")
        stream.recv_exactly(length + -(2 + length) % 4 + 4, SECONDS)
        size -= length - 14


def shared(size, count, streams, stag, at):
    """Messages on all connections but the last one, which is sent much between any two of them."""
    *streams, other = streams
    # All answers come from the same processor.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    asked = 0
    for msn in range(1, count + 1):
        for stream in streams:
            stream.send(rdmap.read_request(msn, 1, 0, size, stag, at))
            for _ in range(BETWEEN // PIECE):
                asked += 1
                other.send(rdmap.read_request(asked, 2, 0, PIECE, stag, at))
                skip(other, PIECE)


def acknowledged(port):
    """Whether the peers of `port` have acknowledged all octets."""
    return all(int(line.split()[2]) == 0 for line in connections([], "sport", port))


def mixed(program, size, streams, port, interface):
    """Messages that fill a buffer and begin the next one, and short ones; returns the octets that are not read. They do
    not arrive if there is an interface."""
    first = BUFFER // size
    program.tell(f"write {size} {first}")
    program.answer()
    # Unread octets keep the buffer in use.
    wait_for(lambda: "the first messages are acknowledged", lambda: acknowledged(port))
    if interface:
        lossy(interface, "add")
    program.tell(f"write {size} 1")
    program.answer()
    for stream in streams:
        for _ in range(first):
            skip(stream, size)
    program.tell(f"write {SHORT} {SHORT_COUNT}")
    program.answer()
    return (size + SHORT * SHORT_COUNT) * len(streams)


def holds():
    """The Sends that any device has held for want of a receive."""
    total = 0
    for path in glob.glob("/sys/class/infiniband/*/ports/1/hw_counters/rnr_holds"):
        total += first_number(path)
    return total


def held(size, streams):
    """A Send of `size` octets on each connection, in two parts, so that its FPDU is in the reassembly buffer."""
    before = holds()
    # Without markers the FPDUs of all connections are the same. CRCs take long here.
    fpdu = streams[0].fpdu(rdmap.send(1, bytes(size)))
    for part in fpdu[:FIRST_PART], fpdu[FIRST_PART:]:
        for stream in streams:
            stream.send_raw(part)
        time.sleep(0.5)
    wait_for(lambda: f"{len(streams)} Sends are held: {holds() - before}", lambda: holds() == before + len(streams))


def unread(program, role, size, streams, stag, at):
    """Makes the program send messages of `size` octets on each connection; returns the octets in all."""
    if role == "held":
        held(size, streams)
        return size * len(streams)
    count = MESSAGES[role] // size
    if role == "queued":
        # Each message is a burst of its own.
        for _ in range(count):
            program.tell(f"write {size} 1")
            program.answer()
    elif role in ("write", "left", "none"):
        program.tell(f"write {size} {count}")
        program.answer()
    elif role == "shared":
        shared(size, count, streams, stag, at)
    else:
        for msn in range(1, count + 1):
            for stream in streams:
                stream.send(rdmap.read_request(msn, 1, 0, size, stag, at))
            # A pause, so that TCP sends each answer by itself.
            time.sleep(0.001)
    return count * size * len(streams)


def lossy(interface, command):
    """Makes an interface drop all packets that it sends, or ends that (tc's command add or del)."""
    subprocess.run(["tc", "qdisc", command, "dev", interface, "root", "netem", "loss", "100%"], check=True)


def leave(program, peers, port):
    """The program disconnects. After its sockets are released, TCP has the same octets, and accounts for them."""
    # A socket is orphaned for an instant while an earlier one is released.
    wait_for(lambda: f"no socket is orphaned: {orphans()}", lambda: orphans() == 0)
    accounted = tcp_memory()
    program.tell("leave")
    program.answer()

    def released():
        nonlocal accounted
        now = tcp_memory()
        if orphans() == 0:
            accounted = now
        return orphans() >= peers

    wait_for(
        lambda: f"{peers} sockets are released: {orphans()} of {connections([], 'sport', port)}", released
    )
    if tcp_memory() < accounted - uncertain():
        sys.exit(f"FAIL: TCP accounts {tcp_memory()} octets after the release, and {accounted} before it")


def measured(address, port, peers, role, size, namespace, interface):
    """Octets that the machine holds for so many connections beyond the limit of TCP's; prints them."""
    program = Program(address, port)
    buffer = RECEIVE_BUFFER.get(role, SMALL_BUFFER)
    unconnected, _ = settled()
    streams, stag, at = opened(program, address, port, peers, namespace, buffer)
    free, accounted = settled()
    heads = heads_of_buffers()
    if role in ("left", "none"):
        # A peer whose window is closed would have the connections reset at once.
        lossy(interface, "add")
    if role in ("mixed", "near"):
        sent = mixed(program, size, streams, port, interface if role == "mixed" else None)
    else:
        sent = unread(program, role, size, streams, stag, at)
    # TCP has all unread octets.
    if role not in ("shared", "held"):
        wait_for(
            lambda: f"TCP has {sent} octets: has {with_tcp(port, namespace)}, accounts {tcp_memory() - accounted}",
            lambda: with_tcp(port, namespace) >= sent,
        )
    if role in ("left", "none"):
        leave(program, peers, port)
    if role == "queued":
        for stream in streams:
            stream.recv_exactly(PART, SECONDS)
    now = settled()
    if role in ("queued", "read", "write", "left", "near"):
        # Headers and trailers of FPDUs count as well. By now no octet waits for its acknowledgment alone: none counts
        # twice.
        sent = with_tcp(port, namespace)
    gone, more = free - now[0], now[1] - accounted
    if role in BY_OCTETS:
        gone -= heads_of_buffers() - heads
    if more < sent - uncertain() and role not in ("shared", "held"):
        sys.exit(f"FAIL: {role} of {size}: {sent} octets were sent, but TCP accounts {more} more")
    idle = (unconnected - free) // peers
    if peers > FEW and idle > IDLE:
        sys.exit(f"FAIL: {idle} octets for each idle connection, at most {IDLE}")
    # TCP accounts more for short buffers than they have.
    beyond = gone - (sent if role in BY_OCTETS else more)
    print(f"{role} of {size} unread on {peers} connections: {gone >> 10} KiB gone, TCP accounts {more >> 10} KiB "
          f"for {sent >> 10}, beyond that {beyond >> 10} KiB; {idle} octets for each idle connection "
          "with both ends")
    if role in ("left", "none", "mixed"):
        lossy(interface, "del")
    for stream in streams:
        stream.reset()
    program.end()
    wait_for(lambda: "all connections end", lambda: not connections([], "sport", port))
    return beyond


def main():
    address, port, peers, octets, role, sizes, namespace, interface = sys.argv[1:]
    peers, failed = int(peers), 0

    def each_of(role, size):
        few, many = (measured(address, port, count, role, size, namespace, interface) for count in (FEW, peers))
        return (many - few) // (peers - FEW)

    for size in map(int, sizes.split(",")):
        each = each_of(role, size)
        if role == "left":
            # The end of the queue pairs frees their queues.
            each -= each_of("none", size)
        most = int(octets) + (MISSED if role in BY_OCTETS else uncertain()) // (peers - FEW)
        failed += each > most
        print(f"{'FAIL' if each > most else 'ok'}: {role} of {size}: {each} octets for each connection, at most {most}")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
