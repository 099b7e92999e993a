#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# ucmatose: 50 connections at once over one pair of processes, ten messages each
# way, over IPv4 and IPv6.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# fifty ADDRESS SIZE
fifty() {
	local server
	spawn server ucmatose -b "$1" -f "${3:-ip}" -c 50 -C 10 -S "$2" -p 7175
	server=$SPAWNED
	wait_listening 7175
	run 40 "ucmatose $1 $2" ucmatose -s "$1" -f "${3:-ip}" -c 50 -C 10 -S "$2" -p 7175
	grep -q '^return status 0' "$(log_of "$(label_of "ucmatose $1 $2")")" || die "the client does not report success"
	finish "$server" 20 server
	grep -q '^return status 0' "$(log_of server)" || die "the server does not report success"
	ok "50 connections, 10 messages of $2 octets each way, $1"
}

single_bed
fifty "$RDMA_V4" 100
fifty "$RDMA_V4" 20000
fifty "$RDMA_V6" 1000 ipv6
