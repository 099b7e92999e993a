#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# librdmacm's smallest examples: rdma_server and rdma_client, and the pair that
# uses a shared receive queue, rdma_xserver and rdma_xclient.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# pair SERVER CLIENT ADDRESS [SERVER_ARGUMENT...]
pair() {
	local server name=$1 client=$2 address=$3
	shift 3
	spawn "$name" "$name" -p 7176 "$@"
	server=$SPAWNED
	wait_listening 7176
	run 20 "$client $address" "$client" -s "$address" -p 7176
	finish "$server" 20 "$name"
	grep -q 'end 0$' "$(log_of "$(label_of "$client $address")")" || die "$client does not report success"
	grep -q 'end 0$' "$(log_of "$name")" || die "$name does not report success"
	ok "$name and $client, $address"
}

single_bed
pair rdma_server rdma_client "$RDMA_V4"
pair rdma_server rdma_client "$RDMA_V4" -s "$RDMA_V4"
pair rdma_server rdma_client "$RDMA_V6" -s "$RDMA_V6"
pair rdma_xserver rdma_xclient "$RDMA_V4"
