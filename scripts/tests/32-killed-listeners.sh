#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# runs on: 7.2/4
# "ss -K" ends the driver's listening sockets, that of rendezvous and one of rdma_cm, under a flood of TCP
# connections. No work item goes on trying to accept from them, and connections are possible afterwards.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# Clock ticks that all threads of work queues have used. A name may have spaces in it.
worked() { cat /proc/[0-9]*/stat 2>/dev/null | sed -n '/(kworker\//s/.*) //p' | awk '{ n += $12 + $13 } END { print n + 0 }' || true; }

# calm: in one second the threads of work queues use less than half of one processor. A work item that spins uses
# a whole processor.
calm() {
	local before
	before=$(worked)
	sleep 1
	BUSY=$(($(worked) - before))
	[ "$BUSY" -lt $(($(getconf CLK_TCK) / 2)) ]
}

# calms_down WHEN: not by wait_for, since the message has the number of ticks.
calms_down() {
	local end=$((SECONDS + 15 * FACTOR))
	# The ticks of a thread that ends are lost, so one second may count too few.
	until calm && calm; do
		[ "$SECONDS" -lt "$end" ] || die "$1: the threads of work queues still use $BUSY ticks in a second"
	done
}

# flood: connections as fast as possible, so that some wait to be accepted at any time.
flood() {
	spawn knock python3 -B "$(dirname "$0")/src/knock.py" 0 "$RDMA_V4" 4791 7174
	KNOCK=$SPAWNED
	if ! (wait_for 20 "TCP connections are accepted" grep -qx in "$(log_of knock)"); then
		show_log "$(log_of knock)"
		die "no TCP connection is accepted"
	fi
}

# kill_listener PORT
kill_listener() {
	local log=$WORK/killed.log
	within 20 ss -KHltn "sport = :$1" >"$log" 2>&1 || die "ss -K: status $?: $(cat "$log")"
	wait_for 10 "ss -K ends the listener on port $1 (it says '$(cat "$log")')" not listening "$1"
}

one_round() {
	local server
	spawn server rping -s -a "$RDMA_V4" -p 7174 -P
	server=$SPAWNED
	responder r0
	wait_listening 7174
	flood
	kill_listener 4791
	kill_listener 7174
	alive "$KNOCK" || die "knock.py has ended: $(cat "$(log_of knock)")"
	stop "$KNOCK"
	calms_down "after the end of both listeners"
	kill -9 "$server" "$RESPONDER"
	wait_for 20 "the process that listened can be killed" gone "$server"
	run 20 "rdma link del" rdma link del r0
}

single_bed
for round in $(seq "$(rounds 3)"); do
	one_round
	unload_type "$RSIW_TYPE"
	rsiw_load
	make_link r0 rd0
	run 20 "afterwards" "$RSIW_TESTBIN/abi" "$RDMA_V4" zero_length
	ok "listeners ended from outside, round $round: $BUSY ticks in a second"
done
