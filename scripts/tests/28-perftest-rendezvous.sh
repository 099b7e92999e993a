#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: 7.2/4
# perftest without rdma_cm, by rendezvous: bandwidth and latency of Sends, Writes and
# Reads; several queue pairs at once, both directions, all sizes.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"
PERFTEST_CM=

pair() {
	local label=$1
	shift
	perftest_pair "$label" 127.0.0.1 "" "" "$@" -d r0 -x 1
}

single_bed
for tool in ib_send_bw ib_write_bw ib_read_bw; do
	! all_rounds || pair "$tool" "$tool" -s 65536 -n "$(rounds 200)"
	pair "$tool 4 queue pairs" "$tool" -s 4096 -n "$(rounds 200)" -q 4
done
pair "ib_send_lat" ib_send_lat -s 64 -n "$(rounds 500)"
! all_rounds || for tool in ib_write_lat ib_read_lat; do
	pair "$tool" "$tool" -s 64 -n "$(rounds 500)"
done
! all_rounds || pair "ib_send_bw both ways" ib_send_bw -s 4096 -n "$(rounds 200)" -b
pair "ib_write_bw both ways" ib_write_bw -s 4096 -n "$(rounds 200)" -b -q 2
pair "ib_read_bw 16 queue pairs" ib_read_bw -s 1024 -n "$(rounds 50)" -q 16
# After connection set-up the sizes run the same code as in 06-perftest.
! all_rounds || for tool in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat; do
	every_size pair "$tool"
done
