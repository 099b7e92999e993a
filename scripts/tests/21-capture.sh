#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: uml
# Traffic of every kind is captured, and dissected by tshark's MPA, DDP and RDMAP
# dissectors, which are independent of rsiw. No frame is malformed, no CRC is bad,
# and every kind of message is there.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"
# shellcheck source=capture.sh
. "$(dirname "$0")/capture.sh"

# dissect FILE: every field of the three dissectors as text. The heuristics come before
# port numbers, and those that take any Send for RPC or SMB are off.
dissect() {
	HOME=$WORK timeout 100 tshark -n -r "$1" -o tcp.try_heuristic_first:TRUE \
		--disable-heuristic rpcrdma_iwarp --disable-heuristic smb_direct_iwarp \
		-O iwarp_mpa,iwarp_ddp_rdmap 2>"$WORK/tshark.err"
}

count() { grep -c -e "$1" "$2" || true; }

# spoil FILE COPY: one payload octet of the last large packet is flipped.
spoil() {
	python3 - "$1" "$2" <<-'PYTHON'
		import struct, sys
		data = bytearray(open(sys.argv[1], "rb").read())
		at, last = 24, None
		while at + 16 <= len(data):
		    size = struct.unpack_from("<I", data, at + 8)[0]
		    if size > 400:
		        last = at + 16 + size - 100
		    at += 16 + size
		data[last] ^= 1
		open(sys.argv[2], "wb").write(data)
	PYTHON
}

# judge LABEL
judge() {
	local text=$WORK/text good op
	dissect "$CAPTURE" >"$text" || die "$1: tshark: $(tail -n 3 "$WORK/tshark.err")"
	good=$(count '(Good CRC32)' "$text")
	[ "$good" -ge 100 ] || die "$1: tshark saw only $good FPDUs"
	[ "$(count 'Bad CRC32' "$text")" = 0 ] || die "$1: $(count 'Bad CRC32' "$text") bad CRCs"
	[ "$(count 'Malformed' "$text")" = 0 ] || die "$1: malformed: $(grep -m 3 -B 5 Malformed "$text")"
	[ "$(count 'Bad length' "$text")" = 0 ] || die "$1: bad lengths"
	for op in 'Write' 'Read Request' 'Read Response' 'Send'; do
		grep -q "OpCode: .*$op" "$text" || die "$1: no message of the kind $op"
	done
	# The check finds a wrong CRC.
	spoil "$CAPTURE" "$WORK/spoilt.pcap"
	dissect "$WORK/spoilt.pcap" >"$text" || true
	[ "$(count 'Bad CRC32' "$text")" -ge 1 ] || die "$1: tshark does not notice a flipped octet"
	ok "$1: $good FPDUs, none malformed, no bad CRC; a flipped octet is noticed"
}

single_bed
for mtu in 1500 65536; do
	set_mtu "$mtu"
	capture_start lo 16384
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
