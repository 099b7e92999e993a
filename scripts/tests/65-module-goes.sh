#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 200
# runs on: soak
# The module is unloaded right after streams end. Each ends when the sender's owner has just asked for a wait
# without end (src/rnr.c, uneven). No work item of a stream is left that would run after the module's work queues.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

single_bed
many=$(rounds 25)
for _ in $(seq "$many"); do
	run 30 "streams that end at once" "$RSIW_TESTBIN/rnr" "$RDMA_V4" r0 1 uneven
	rdma link del r0
	rmmod "$RSIW_TYPE"
	# A work item that is left runs within half a second.
	sleep 0.3
	rsiw_load
	make_link r0 rd0
done
ok "$many times unloaded behind streams that end at once"
