#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 150
# An independent judge: traffic of every kind is captured and dissected by
# tshark's MPA, DDP and RDMAP dissectors. No frame may be malformed, no CRC bad,
# and every kind of message must be there.
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"

CAPTURE=$WORK/capture.pcap

capture_start() {
	spawn tcpdump tcpdump -i lo -s 0 -U -B 16384 -w "$CAPTURE" tcp
	TCPDUMP=$SPAWNED
	wait_for 20 "tcpdump listens" grep -q 'listening on' "$(log_of tcpdump)"
}

capture_stop() {
	# Everything sent so far has been written when the size stands still.
	local size=-1
	while [ "$size" != "$(stat -c %s "$CAPTURE")" ]; do
		size=$(stat -c %s "$CAPTURE")
		sleep 0.5
	done
	kill -INT "$TCPDUMP"
	finish "$TCPDUMP" 20 tcpdump
	grep -q '^0 packets dropped by kernel' "$(log_of tcpdump)" || die "tcpdump lost packets: $(cat "$(log_of tcpdump)")"
}

# dissect FILTER FIELD...
dissect() {
	local filter=$1 fields=() f
	shift
	for f in "$@"; do fields+=(-e "$f"); done
	# Outside NFS the RPC heuristic takes any Send for RPC-over-RDMA.
	HOME=$WORK timeout 100 tshark -n -r "$CAPTURE" --disable-heuristic rpcrdma_iwarp --disable-heuristic smb_direct_iwarp \
		-Y "$filter" -T fields "${fields[@]}" 2>"$WORK/tshark.err"
}

# judge LABEL
judge() {
	local rows=$WORK/rows malformed bad fpdus op
	dissect "iwarp_mpa" frame.number _ws.malformed iwarp_mpa.crc_check _ws.expert.message \
		iwarp_rdma.opcode iwarp_mpa.ulpdulength >"$rows"
	[ -s "$rows" ] || die "$1: tshark found no MPA: $(cat "$WORK/tshark.err")"
	malformed=$(dissect "_ws.malformed" frame.number | wc -l)
	[ "$malformed" = 0 ] || die "$1: $malformed malformed frames"
	bad=$(dissect "iwarp_mpa.bad_length or iwarp_mpa.crc_check == 0" frame.number 2>/dev/null | wc -l)
	[ "$bad" = 0 ] || die "$1: $bad frames with a bad CRC or length"
	fpdus=$(cut -f6 "$rows" | tr , '\n' | grep -c .)
	for op in 0x00 0x01 0x02 0x03; do
		cut -f5 "$rows" | tr , '\n' | grep -qx "$op" || die "$1: no message of opcode $op"
	done
	ok "$1: $fpdus FPDUs, none malformed, no bad CRC"
}

single_bed
for mtu in 1500 65536; do
	set_mtu "$mtu"
	capture_start
	spawn server rping -s -a "$RDMA_V4" -p 7174 -S 5000 -C 20 -V
	server=$SPAWNED
	wait_listening 7174
	run 30 "rping" rping -c -a "$RDMA_V4" -p 7174 -S 5000 -C 20 -V
	finish "$server" 20 server
	perftest_pair "ib_send_bw" "$RDMA_V4" "" "" ib_send_bw -s 10000 -n 20
	perftest_pair "ib_write_bw" "$RDMA_V4" "" "" ib_write_bw -s 70000 -n 10
	perftest_pair "ib_read_bw" "$RDMA_V4" "" "" ib_read_bw -s 70000 -n 10
	capture_stop
	judge "MTU $mtu"
done
