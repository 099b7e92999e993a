#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 180
# runs on: 7.2/4
# rsockets: the socket calls over RDMA, by rstream with verification, blocking,
# non-blocking and with poll, over IPv4 and IPv6; riostream, whose data goes by
# RDMA Writes at offsets; and rcopy, which copies a file.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# stream LABEL ADDRESS ARGUMENT...
stream() {
	local server label=$1 address=$2
	shift 2
	spawn server rstream -b "$address" -p 7177 "$@"
	server=$SPAWNED
	wait_listening 7177
	run 40 "$label" rstream -s "$address" -p 7177 "$@"
	finish "$server" 20 server
	ok "$label: $(tail -n 1 "$(log_of "$(label_of "$label")")" | tr -s ' ')"
}

# polling LABEL ADDRESS ARGUMENT...: as stream, with poll. rstream's client takes the peer's end for an
# error if it finds it together with data that it has not read yet: its do_poll() looks at POLLHUP
# alone, and that (16) is then its exit status. Who reads more slowly than the peer closes loses, on
# any device, and on some machines every time. So that may happen, if the server has ended well: then
# all has arrived there, and been compared, and what the client has not compared is its last message.
polling() {
	local server label=$1 address=$2 status=0 log
	shift 2
	log=$(log_of "$(label_of "$label")")
	spawn server rstream -b "$address" -p 7177 "$@"
	server=$SPAWNED
	wait_listening 7177
	timeout -k 5 $((40 * FACTOR)) rstream -s "$address" -p 7177 "$@" >"$log" 2>&1 </dev/null || status=$?
	if [[ $status != @(0|16) ]] || grep -E 'fail|rrecv|rsend' "$log"; then
		show_log "$log"
		die "$label: status $status"
	fi
	finish "$server" 20 server
	case $status in
	0) ok "$label: $(tail -n 1 "$log" | tr -s ' ')" ;;
	16) ok "$label: the server had ended before the client had read its last message" ;;
	esac
}

single_bed
stream "rstream blocking" "$RDMA_V4" -T b -T v -S 65536 -I "$(rounds 20)" -C "$(rounds 20)"
stream "rstream non-blocking" "$RDMA_V4" -T n -T v -S 65536 -I "$(rounds 20)" -C "$(rounds 20)"
polling "rstream with poll" "$RDMA_V4" -T a -T v -S 16384 -I "$(rounds 20)" -C "$(rounds 20)"
stream "rstream all sizes" "$RDMA_V4" -S all -I "$(rounds 5)" -C "$(rounds 5)"
stream "rstream small" "$RDMA_V4" -T v -S 64 -I "$(rounds 50)" -C "$(rounds 10)"
stream "rstream IPv6" "$RDMA_V6" -f ipv6 -T v -S 65536 -I "$(rounds 10)" -C "$(rounds 10)"

spawn server riostream -b "$RDMA_V4" -p 7178 -T v -S 16384 -I "$(rounds 10)" -C "$(rounds 10)"
server=$SPAWNED
wait_listening 7178
run 40 "riostream" riostream -s "$RDMA_V4" -p 7178 -T v -S 16384 -I "$(rounds 10)" -C "$(rounds 10)"
finish "$server" 20 server
ok "riostream"

head -c "$(rounds 5000000)" /dev/urandom >"$WORK/file"
spawn rcopy rcopy -p 7179
wait_listening 7179
run 40 "rcopy" rcopy "$WORK/file" "$RDMA_V4:$WORK/copy" -p 7179
cmp "$WORK/file" "$WORK/copy" || die "rcopy: the copy differs"
ok "rcopy: $(stat -c %s "$WORK/copy") octets"
