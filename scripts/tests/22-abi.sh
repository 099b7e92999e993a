#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# The ABI that libsiw uses: each check of src/abi.c in a process of its own, then a process
# that writes garbage into all rings it shares with the module (src/hostile.c). The reset of a queue pair
# waits for its own work items, not for all work of the module.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

SEED=${RSIW_SEED:-$(date +%s)}
FAILED=0

# Calls that flush work queues, with their stack traces.
probe_flushes() {
	trace_begin
	echo 'p:rsiw_test/flushed __flush_workqueue' >"$TRACING/kprobe_events"
	echo stacktrace >"$TRACING/events/rsiw_test/flushed/trigger"
	echo 1 >"$TRACING/events/rsiw_test/enable"
}

nobody_flushed() {
	cat "$TRACING/trace" >"$WORK/flushes"
	echo 0 >"$TRACING/events/rsiw_test/enable"
	echo '!stacktrace' >"$TRACING/events/rsiw_test/flushed/trigger"
	echo >"$TRACING/kprobe_events"
	! grep -B 8 -A 8 rsiw_main "$WORK/flushes" || die "a verb waits for a whole work queue"
	ok "no verb waits for a whole work queue"
}

single_bed
probe_flushes
for check in $("$RSIW_TESTBIN/abi"); do
	if timeout -k 5 $((30 * FACTOR)) "$RSIW_TESTBIN/abi" "$RDMA_V4" "$check"; then
		ok "$check"
	else
		say "not ok: $check, status $?"
		FAILED=1
	fi
done
[ "$FAILED" = 0 ] || die "checks above failed"
nobody_flushed

run 60 "hostile rings" "$RSIW_TESTBIN/hostile" -n 150 -s "$SEED" "$RDMA_V4"
ok "garbage in the rings, seed $SEED: $(tail -n 1 "$(log_of hostile_rings)")"
run 20 "afterwards" "$RSIW_TESTBIN/abi" "$RDMA_V4" zero_length
