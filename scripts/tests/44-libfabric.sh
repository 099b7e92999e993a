#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: soak
# libfabric over verbs: fi_pingpong, which checks its data, with reliable datagrams (ofi_rxm) and with messages of a
# connection, of 64 octets to 1 MiB.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# pingpong ENDPOINT PROVIDER OCTETS
pingpong() {
	local server label="fi_pingpong $1 $3"
	spawn server fi_pingpong -e "$1" -p "$2" -s "$RDMA_V4" -c -S "$3" -I 20
	server=$SPAWNED
	wait_listening 47592
	run 40 "$label" fi_pingpong -e "$1" -p "$2" -c -S "$3" -I 20 "$RDMA_V4"
	finish "$server" 20 server
	tail -n 1 "$(log_of "$(label_of "$label")")"
	ok "$label"
}

single_bed
run 20 "fi_info" fi_info -p "verbs;ofi_rxm" -t FI_EP_RDM
for octets in 64 1024 16384 65536 1048576; do
	pingpong rdm "verbs;ofi_rxm" "$octets"
	pingpong msg verbs "$octets"
done
