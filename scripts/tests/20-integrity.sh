#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: 7.2 7.3
# Random operations of random lengths at random offsets, from both ends at once; every octet and the
# guard zones are compared. User space (src/integrity.c) runs at three MTUs and over IPv6. A kernel module
# (src/kverbs) uses fast-registered memory.
#
# Several threads post to the module's queue pairs at once, also in the error state, with interrupts on and
# off, and from completion handlers (handler.c). A drain with a shared receive queue is short (srq.c). An
# invalid key may be invalidated again (invalid.c). A user that closes a connection gets no new one
# meanwhile (held.c). A key of one queue pair is invalid on every other one of its protection domain
# (scope.c). The trace event has the Terminate code of RFC 5040 and 5041.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

SEED=${RSIW_SEED:-$(date +%s)}
say "seed $SEED (set RSIW_SEED to repeat)"

# generator LABEL BATCHES ADDRESS
generator() {
	local plain=
	[ "$RSIW_TYPE" != siw ] || plain=-p
	# shellcheck disable=SC2086 # empty or one word
	run 60 "$1" "$RSIW_TESTBIN/integrity" $plain -n "$2" -s "$SEED" "$3"
	ok "$1: $(tail -n 1 "$(log_of "$(label_of "$1")")")"
	SEED=$((SEED + 1))
}

# User-mode Linux may have no trace events.
sees_terminates() { [[ ${RSIW_KERNEL:-} != @(uml|bench) ]]; }

# Terminates of requests that use another stream's key, as scope.c expects them.
terminates_are_right() {
	local line n=0
	while read -r line; do
		grep -qF "$line" "$WORK/terminates" || die "not seen: Terminate $line"
		n=$((n + 1))
	done < <(dmesg | sed -n 's/.*rsiw_kverbs_test: expected: //p')
	[ "$n" -eq 9 ] || die "$n Terminates were expected of scope.c, not 3 for each of 3 connections"
	ok "another stream's key: $n Terminates with the codes of the RFCs"
}

kernel_memory() {
	local before plain=0
	[ "$RSIW_TYPE" != siw ] || plain=1
	before=$(dmesg | wc -l)
	if [ "$plain" = 0 ] && sees_terminates; then
		trace_begin
		echo 1 >"$TRACING/events/rsiw/rsiw_terminate/enable"
	fi
	# Not by timeout, which would wait for a process that hangs in the kernel, before anything is printed.
	spawn kverbs modprobe rsiw_kverbs_test addr="$RDMA_V4" seed="$SEED" rounds="$1" plain="$plain" factor="$FACTOR"
	if ! (wait_for 120 "the module's tests end" gone "$SPAWNED") || ! wait "$SPAWNED"; then
		dmesg | tail -n +"$((before + 1))" | tail -n 30
		die "fast-registered memory, seed $SEED"
	fi
	rmmod rsiw_kverbs_test
	if [ "$plain" = 0 ] && sees_terminates; then
		cat "$TRACING/trace" >"$WORK/terminates"
		echo 0 >"$TRACING/events/rsiw/rsiw_terminate/enable"
		terminates_are_right
	fi
	ok "$(dmesg | sed -n 's/.*rsiw_kverbs_test: \(passed.*\)/fast-registered memory \1/p' | tail -n 1)"
}

single_bed
for mtu in 1500 9000 65536; do
	set_mtu "$mtu"
	generator "user memory, MTU $mtu" 60 "$RDMA_V4"
done
set_mtu 1500
generator "user memory, IPv6" 30 "$RDMA_V6"
kernel_memory 150
