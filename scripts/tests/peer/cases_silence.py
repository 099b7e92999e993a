# SPDX-License-Identifier: GPL-2.0
"""The module as initiator, and a peer that has nothing to say, or did not listen."""

import time

import rdmap
from cases_active import connected, segment_of
from harness import FACTOR, case


@case("DDP-23 (trap 43)")
def silence_is_nudged(victim):
    stream, _, _ = connected(victim)
    # Who has asked nothing waits for nothing.
    stream.silent(1.2)
    assert victim.ask("send 1 64 -") == "ok"
    segment_of(stream)
    stream.silent(1.0)
    victim.close()

    def nudge(stream, begin, most):
        segment = segment_of(stream)
        took = time.monotonic() - begin
        assert (segment.op, segment.stag, segment.data) == (rdmap.WRITE, 0, b""), f"segment {segment.raw.hex()}"
        assert most / 2 < took < (most + 1) * 2 * FACTOR, f"after {took:.2f} s"
        return time.monotonic()

    stream, _, _ = connected(victim)
    begin = time.monotonic()
    assert victim.ask("send 1 64 -") == "ok"
    assert len(segment_of(stream).data) == 64
    nudge(stream, nudge(stream, begin, 0.5), 1.0)
    stream.send(rdmap.send(1, b"here"))
    stream.silent(3.0)
    got = [victim.poll(), victim.poll()]
    assert ("recv", 0, 0, 4) in got, f"{got}"
    assert victim.ask("send 2 64 -") == "ok"
    assert segment_of(stream).msn == 2, "a nudge has counted as a message"
