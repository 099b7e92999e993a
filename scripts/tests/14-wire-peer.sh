#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# A peer of our own that is not made of our code talks MPA, DDP and RDMAP to the
# live module, right and wrong (scripts/peer): start-up frames, stalls, segments
# cut anywhere, markers, CRC errors, bad keys, bounds, versions, opcodes and
# queue numbers, too many Reads, resets at every state, silence when we want to leave. Each
# answer must be the Terminate of the book. Three passes: defaults, CRC off, markers on.
# Arguments pick cases by name or requirement.
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"

FAILED=0

# pass NAME CRC MARKERS [CASE...]
pass() {
	local name=$1
	export RSIW_ADDRESS=$RDMA_V4 RSIW_CRC=$2 RSIW_MARKERS=$3 RSIW_TESTBIN RSIW_REQUEST_MS=2000 RSIW_REPLY_MS=3000
	shift 3
	say "-- $name"
	timeout -k 5 $((240 * FACTOR)) python3 "$PEER_DIR/wire_peer.py" "$@" || FAILED=1
}

RSIW_PARAMS="mpa_request_timeout_ms=2000 mpa_reply_timeout_ms=3000"
single_bed
pass "defaults" 1 0 "$@"

next_bed() {
	rdma link del r0
	unload_type rsiw
	RSIW_PARAMS="mpa_request_timeout_ms=2000 mpa_reply_timeout_ms=3000 $1"
	rsiw_load
	make_link r0 rd0
}

next_bed crc=0
pass "CRC off" 0 0 crc default_reply the_request what_we_send writes_are_there read_is_answered "$@"
next_bed markers=1
pass "markers on" 1 1 markers default_reply the_request writes_are_there one_octet what_we_send read_is_answered "$@"
[ "$FAILED" = 0 ] || die "cases above failed"
