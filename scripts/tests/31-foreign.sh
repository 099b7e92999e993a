#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# rdma_cm takes the number of a queue pair, which is no secret, from every process (src/foreign.c). A process
# that does not own the queue pair can neither connect it nor delay its destruction.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

all_qps() { rdma resource show qp link r0 | sed -n 's/.* lqpn \([0-9]*\) .*/\1/p'; }
answer() { sed -n 's/.*kverbs_test: asked to connect, answer //p' "$(log_of kernel-log)"; }
answered() { [ -n "$(answer)" ]; }

# foreign SECONDS ARGUMENT...: not by run, since timeout would wait for good for a process that hangs in
# the kernel.
foreign() {
	local limit=$1
	shift
	spawn "foreign-$1" "$RSIW_TESTBIN/foreign" "$RDMA_V4" "$@"
	if ! (wait_for "$limit" "$1: it is through" gone "$SPAWNED"); then
		show_log "$(log_of "foreign-$1")"
		show_stuck
		kill -9 "$SPAWNED" || true
		# Every user of the device waits for good: the cleanup would hang.
		(wait_for 10 "$1: it can be killed" gone "$SPAWNED") || trap - EXIT
		exit 1
	fi
	finish "$SPAWNED" 1 "foreign-$1"
}

# A queue pair without a connection. Without the address its owner is refused.
kernel_user() {
	local qpn log
	spawn kernel-log dmesg -W
	log=$SPAWNED
	run 20 "a kernel user" modprobe rsiw_kverbs_test addr="$RDMA_V4" leave=1
	qpn=$(all_qps)
	[[ $qpn =~ ^[0-9]+$ ]] || die "one queue pair was to be there, of the kernel: '$qpn'"
	foreign 60 kernel "$qpn"
	ip addr del "$RDMA_V4/24" dev rd0
	run 20 "the kernel user goes" rmmod rsiw_kverbs_test
	ip addr add "$RDMA_V4/24" dev rd0
	wait_for 20 "the kernel user has tried to connect" answered
	stop "$log"
	# -100 is ENETDOWN. Another error means that the queue pair was in use, or not found.
	[ "$(answer)" = -100 ] || die "the kernel user's own queue pair: rdma_connect() answered $(answer), not -100"
	ok "a queue pair of the kernel"
}

single_bed
chmod 666 /dev/infiniband/rdma_cm "$(uverbs_path r0)"
foreign 120 users
wait_for 10 "no queue pair is left" no_qps
ok "$(grep -c taken "$(log_of foreign-users)") calls taken, $(grep -c Invalid "$(log_of foreign-users)") refused, as they should be"
foreign 200 destroy
wait_for 10 "no queue pair is left" no_qps
ok "under fire: $(tail -n 1 "$(log_of foreign-destroy)")"
kernel_user
run 20 "afterwards" "$RSIW_TESTBIN/abi" "$RDMA_V4" zero_length
