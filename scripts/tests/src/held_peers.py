# SPDX-License-Identifier: GPL-2.0
"""Many peers whose Sends find no receive, on one listener.

usage: held_peers.py ADDRESS PORT PEERS DEVICE GID_INDEX RNR_MS

Each of PEERS connections to the program `unread` has a held Send. Another connection's messages (`rnr`, case alone)
take no longer than rnr.c allows beside holds. Every hold ends after RNR_MS with a Terminate, and no socket is left."""

import os
import subprocess
import sys
import time

import mpa
import rdmap
from unread import Program, stream_to, wait_for

TEXT = bytes(1000)
NO_BUFFER = "1/2/02"
# As in rnr.c, beside().
FACTOR, SLACK_US = 3, 200
TRIES = 3


def counter(device, name):
    with open(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}", encoding="ascii") as file:
        return int(file.read())


def median(address, device, gid_index):
    """The median time of a message on a connection of its own, in microseconds."""
    path = os.path.join(os.environ["RSIW_TESTBIN"], "rnr")
    said = subprocess.run([path, address, device, gid_index, "alone"], capture_output=True, text=True, check=True).stdout
    return float(said.split("a message: ")[1].split()[0])


def sockets(port):
    """The module's sockets of this port but for its listener. TIME-WAIT is of no socket."""
    wanted, count = f":{int(port):04X}", 0
    with open("/proc/net/tcp", encoding="ascii") as table:
        for words in map(str.split, table):
            count += words[1].endswith(wanted) and words[3] not in ("06", "0A")
    return count


def main():
    address, port, peers, device, gid_index, rnr_ms = sys.argv[1:]
    peers, seconds = int(peers), int(rnr_ms) / 1000
    program = Program(address, port)
    before = min(median(address, device, gid_index) for _ in range(TRIES))
    program.tell(f"accept {peers}")
    streams = []
    for _ in range(peers):
        stream = stream_to(address, port)
        reply = stream.recv_startup()
        assert reply.key == mpa.REPLY_KEY and not reply.r, "no Reply"
        stream.crc = bool(reply.c)
        streams.append(stream)
    program.answer()
    assert sockets(port) == peers, f"{sockets(port)} sockets of {peers} connections"
    holds, timeouts = counter(device, "rnr_holds"), counter(device, "rnr_timeouts")
    # Without markers the FPDUs of all connections are the same.
    bad = rdmap.send(1, TEXT)
    fpdu = streams[0].fpdu(bad)
    for stream in streams:
        stream.send_raw(fpdu)
    begin = time.monotonic()
    wait_for(lambda: f"{peers} holds", lambda: counter(device, "rnr_holds") == holds + peers)
    during = median(address, device, gid_index)
    for _ in range(TRIES - 1):
        if during > FACTOR * before + SLACK_US:
            during = min(during, median(address, device, gid_index))
    assert counter(device, "rnr_timeouts") == timeouts, f"holds have ended after {time.monotonic() - begin:.1f} s"
    print(f"a message: {before:.0f} us, beside {peers} peers that are held {during:.0f} us")
    assert during <= FACTOR * before + SLACK_US, "others feel it"
    for stream in streams:
        segment = rdmap.Segment(stream.recv(2 * seconds + 10))
        assert segment.is_terminate() and segment.error() == NO_BUFFER, f"segment {segment.raw[:20].hex()}"
        stream.expect_close()
        stream.sock.close()
    took = time.monotonic() - begin
    assert took >= 0.95 * seconds, f"a hold of {took:.1f} s"
    assert counter(device, "rnr_timeouts") == timeouts + peers, "time-outs"
    wait_for(lambda: f"{sockets(port)} sockets are gone", lambda: sockets(port) == 0)
    print(f"ok: {peers} holds ended after {took:.1f} s")
    program.end()


main()
