# SPDX-License-Identifier: GPL-2.0
"""The module as initiator, and a silent peer, which may have overlooked octets (trap 43)."""

import time

import rdmap
from cases_active import connected, segment_of
from harness import FACTOR, case


@case("DDP-23 (trap 43)")
def silence_brings_another_write(victim):
    stream, _, _ = connected(victim)
    # Without a request there is no time limit.
    stream.silent(1.2)
    assert victim.ask("send 1 64 -") == "ok"
    segment_of(stream)
    stream.silent(1.0)
    victim.close()

    def write_again(stream, begin, most):
        segment = segment_of(stream)
        took = time.monotonic() - begin
        assert (segment.op, segment.stag, segment.data) == (rdmap.WRITE, 0, b""), f"segment {segment.raw.hex()}"
        assert most / 2 < took < (most + 1) * 2 * FACTOR, f"after {took:.2f} s"
        return time.monotonic()

    stream, _, _ = connected(victim)
    begin = time.monotonic()
    assert victim.ask("send 1 64 -") == "ok"
    assert len(segment_of(stream).data) == 64
    write_again(stream, write_again(stream, begin, 0.5), 1.0)
    stream.send(rdmap.send(1, b"here"))
    stream.silent(3.0)
    got = [victim.poll(), victim.poll()]
    assert ("recv", 0, 0, 4) in got, f"{got}"
    assert victim.ask("send 2 64 -") == "ok"
    assert segment_of(stream).msn == 2, "a zero-length Write has counted as a message"
