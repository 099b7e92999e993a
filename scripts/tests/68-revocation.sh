#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# runs on: 7.2
# ib_dereg_mr() waits for a copy to the region that another CPU has begun (src/kverbs/revoke.c). Nothing changes the
# memory after the return. The test needs two CPUs; uml has one.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
[ "$(nproc)" -ge 2 ] || exit 4

single_bed
set_mtu 65536
ROUNDS=$(rounds 40)
spawn kverbs modprobe rsiw_kverbs_test addr="$RDMA_V4" revoke="$ROUNDS"
if ! (wait_for 20 "the regions are deregistered" gone "$SPAWNED") || ! wait "$SPAWNED"; then
	dmesg | grep rsiw_kverbs_test | tail -n 5
	die "a region deregistered during a copy"
fi
rmmod rsiw_kverbs_test
ok "$ROUNDS regions deregistered during a copy on another CPU"
