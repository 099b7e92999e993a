#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: 7.2/4
# The other modes of perftest: completion events instead of polling,
# inline data, several queue pairs, shared receive queue, both directions at
# once, a completion for every request, IPv6.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"

single_bed

for tool in ib_send_bw ib_write_bw ib_read_bw; do
	# A Write's target sees no completion, so perftest has no events for it. Before its last message
	# a sender needs credit of its receiver. If the credit is late and no request is outstanding, the
	# sender waits for an event that cannot come. Long messages, each with a completion, avoid this wait.
	[ "$tool" = ib_write_bw ] || pair "$tool events" "$tool" -e -Q 1 -s 65536 -n "$(rounds 200)"
	pair "$tool 4 queue pairs" "$tool" -q 4 -s 16384 -n "$(rounds 100)"
	pair "$tool both directions" "$tool" -b -s 65536 -n "$(rounds 200)"
	# Requests of all kinds are posted, and completed, by the same code: soak has every pair of tool and mode.
	all_rounds || [ "$tool" = ib_send_bw ] || continue
	pair "$tool completion per request" "$tool" -Q 1 -s 8192 -n "$(rounds 300)"
	pair "$tool lists of requests" "$tool" -l 8 -s 2048 -n $(($(rounds 50) * 8))
done
pair "ib_send_lat events" ib_send_lat -e -s 64 -n "$(rounds 200)"
pair "ib_read_lat events" ib_read_lat -e -s 64 -n "$(rounds 200)"
for size in 1 64 80; do
	all_rounds || [ "$size" = 80 ] || continue
	pair "ib_send_bw inline $size" ib_send_bw -I 80 -s "$size" -n "$(rounds 300)"
	pair "ib_write_bw inline $size" ib_write_bw -I 80 -s "$size" -n "$(rounds 300)"
	pair "ib_send_lat inline $size" ib_send_lat -I 80 -s "$size" -n "$(rounds 200)"
	pair "ib_write_lat inline $size" ib_write_lat -I 80 -s "$size" -n "$(rounds 200)"
done
# With several queue pairs perftest loses its own credits (over siw it hangs too): the server counts by
# the order of the shared elements, and a client with more credits than it has used stops for good.
pair "ib_send_bw shared receive queue" ib_send_bw --use-srq -s 4096 -n "$(rounds 2000)"
pair "ib_send_lat shared receive queue" ib_send_lat --use-srq -s 256 -n "$(rounds 200)"
pair "ib_read_bw 16 reads outstanding" ib_read_bw -o 16 -s 65536 -n "$(rounds 200)"

perftest_pair "ib_write_bw IPv6" "$RDMA_V6" "" "" ib_write_bw --ipv6-addr -s 65536 -n "$(rounds 100)"
perftest_pair "ib_read_bw IPv6" "$RDMA_V6" "" "" ib_read_bw --ipv6-addr -s 65536 -n "$(rounds 100)"
