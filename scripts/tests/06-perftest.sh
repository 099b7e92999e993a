#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 800
# runs on: 7.2/4
# perftest over rdma_cm: bandwidth and latency of Sends, Writes and Reads, at every
# power of two (1 octet to 8 MiB; in the gate every_size() leaves some out). Three MTUs make different FPDU
# sizes: Ethernet's, jumbo frames, and the loopback's (FPDUs of up to 64768 octets).
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"

single_bed
for tool in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat; do
	# Tools of latency send 64 octets below.
	[[ $tool != *_lat ]] || all_rounds || continue
	pair "$tool 1 octet" "$tool" -s 1 -n 100
	every_size pair "$tool"
done

for mtu in 1500 9000 65536; do
	set_mtu "$mtu"
	# The pairs above have an MTU of 1500.
	if all_rounds || [ "$mtu" != 1500 ]; then
		for tool in ib_send_bw ib_write_bw ib_read_bw; do
			pair "mtu $mtu $tool 64 KiB" "$tool" -s 65536 -n "$(rounds 200)"
			! all_rounds || pair "mtu $mtu $tool 1 MiB" "$tool" -s 1048576 -n "$(rounds 20)"
		done
	fi
	if all_rounds || [ "$mtu" = 1500 ]; then
		for tool in ib_send_lat ib_write_lat ib_read_lat; do
			pair "mtu $mtu $tool 64" "$tool" -s 64 -n "$(rounds 500)"
		done
	fi
done
