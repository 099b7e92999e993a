#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# runs on: uml
# A process stalls the verb that makes a queue pair, and meanwhile connects by the number that the queue
# pair will have (src/early.c). The call is refused, and the queue pair can be destroyed. If a reference of
# iw_cm were lost, the destruction would wait for good, and no signal would end it.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# The destruction of a connecting queue pair does not wait for a peer's Reply: this time limit is beyond every other one.
RSIW_PARAMS="mpa_reply_timeout_ms=3600000 $RSIW_PARAMS"

# through CASE PID: the process ends.
through() {
	(wait_for 8 "$1: the process is through with its queue pair" gone "$2") && return
	show_log "$(log_of "early-$1")"
	show_stuck
	kill -9 "$2" || true
	if ! (wait_for 5 "$1: it can be killed; it hangs in the kernel" gone "$2"); then
		# Every user of the device waits for good: the cleanup would hang.
		trap - EXIT
		exit 1
	fi
	die "$1: the process hung, but could be killed"
}

# early CASE DESCRIPTION
early() {
	local status=0
	spawn "early-$1" "$RSIW_TESTBIN/early" "$RDMA_V4" "$1"
	through "$1" "$SPAWNED"
	wait "$SPAWNED" || status=$?
	if [ "$status" = 4 ]; then
		say "this kernel has no userfaultfd: nothing can be stalled"
		exit 4
	fi
	if [ "$status" != 0 ]; then
		show_log "$(log_of "early-$1")"
		die "$1: status $status"
	fi
	wait_for 10 "no queue pair is left" no_qps
	ok "$2"
}

single_bed
early made "connected before it is made, and destroyed"
early failed "connected before it is made, and never made"
run 20 "afterwards" "$RSIW_TESTBIN/abi" "$RDMA_V4" zero_length
