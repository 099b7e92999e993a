#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: uml
# The wire peer (scripts/tests/peer) shares no code with the driver. It sends MPA, DDP and RDMAP to the loaded
# module, valid and invalid: start-up frames, stalls, segments cut anywhere, markers and CRC errors.
# Bad keys, bounds, versions, opcodes and queue numbers, too many Reads, and resets in every state follow. A peer
# does not answer a close. Each answer is the Terminate of the RFCs. Each parameter that peers can see has a pass:
# all cases with the defaults, else the cases about the parameter. Arguments pick cases by name or requirement.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

FAILED=0

# pass NAME [VARIABLE=VALUE...] -- [CASE...]: the variables tell the cases the module's parameters.
pass() {
	local name=$1 setting
	shift
	export RSIW_ADDRESS=$RDMA_V4 RSIW_TESTBIN RSIW_REQUEST_MS=2000 RSIW_REPLY_MS=3000 RSIW_RNR_MS=2000
	for setting in RSIW_CRC=1 RSIW_MARKERS=0 RSIW_PEER_TO_PEER=0 RSIW_REVISION=2 RSIW_FALLBACK=1; do
		export "${setting?}"
	done
	while [ "$1" != -- ]; do
		export "${1?}"
		shift
	done
	shift
	say "-- $name"
	timeout -k 5 $((240 * FACTOR)) python3 "$PEER_DIR/wire_peer.py" "$@" || FAILED=1
}

PARAMS="mpa_request_timeout_ms=2000 mpa_reply_timeout_ms=3000 rnr_timeout_ms=2000"
RSIW_PARAMS=$PARAMS
# Fast Open at both ends, for all listeners, without a cookie (Documentation/networking/ip-sysctl.rst).
FAST_OPEN=/proc/sys/net/ipv4/tcp_fastopen
kept=$(cat "$FAST_OPEN")
restore_fast_open() { echo "$kept" >"$FAST_OPEN"; }
# shellcheck disable=SC2034  # run by cleanup
DONE_HOOK=restore_fast_open
echo 0x607 >"$FAST_OPEN"
single_bed
pass "defaults" -- "$@"

next_bed() {
	rdma link del r0
	unload_type rsiw
	RSIW_PARAMS="$PARAMS $1"
	rsiw_load
	make_link r0 rd0
}

next_bed crc=0
pass "CRC off" RSIW_CRC=0 -- crc default_reply the_request what_we_send writes_are_there read_is_answered "$@"
next_bed markers=1
pass "markers on" RSIW_MARKERS=1 -- markers late default_reply the_request writes_are_there one_octet what_we_send \
	read_is_answered fpdu_right_behind reads_one_at_a_time forged "$@"
next_bed peer_to_peer=1
pass "peer to peer" RSIW_PEER_TO_PEER=1 -- the_request rtr depths_are_told what_we_send reads_one_at_a_time \
	old_responder reply_that_cannot "$@"
next_bed mpa_rev=1
pass "revision 1" RSIW_REVISION=1 -- the_request depths_are_told old_responder reply_of_another reply_that_cannot \
	rejected hang_up_instead what_we_send "$@"
next_bed rev1_fallback=0
pass "no fall-back" RSIW_FALLBACK=0 -- old_responder reply_of_another hang_up_instead "$@"
[ "$FAILED" = 0 ] || die "cases above failed"
