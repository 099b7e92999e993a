#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# qperf's tests of reliable connections over rdma_cm: Sends, Reads and Writes, bandwidth and latency.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

single_bed
spawn qperf qperf
SERVER=$SPAWNED
wait_listening 19765
# qperf 0.4.11 tells the client the port before it listens (rdma.c, cm_open_server(); changed after that release).
read -r low high </proc/sys/net/ipv4/ip_local_port_range
late_listener "$low-$high"
trace_begin
for event in connect accept reject terminate stream_end; do
	echo 1 >"$TRACING/events/rsiw/rsiw_$event/enable"
done
# Each test takes a second. At its end qperf has work requests for two more seconds posted, which are flushed. The
# connection may come a second late (late_listener), or more on a busy machine: the least of three counts.
for test in rc_lat rc_bw rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_poll_lat; do
	for size in 64 64k 1m; do
		case $test:$size in *lat:1m | *bw:64) continue ;; esac
		for try in 1 2 3; do
			begun=$(date +%s%N)
			run 20 "$test $size" qperf "$RDMA_V4" -t 1 -cm1 -m "$size" "$test"
			took=$((($(date +%s%N) - begun) / 1000000))
			grep -E 'bw|latency' "$(log_of "$(label_of "$test $size")")" || die "$test $size: no result"
			[ "$took" -gt $((2500 * FACTOR)) ] || break
			[ "$try" != 3 ] || die "$test $size: a second of measurement took $took ms"
		done
		ok "$test $size: $took ms"
	done
done
alive "$SERVER" || die "qperf's server has gone"
