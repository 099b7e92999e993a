#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: uml
# Sends without a posted receive (src/rnr.c). A Send is held, with TCP's window closed, until a receive is
# posted or the time of the queue pair's attributes is over. Terminate, error and destruction end the hold.
# Other connections are not delayed, also beside 200 peers that are held (src/held_peers.py). Arguments pick cases.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# The time limit is less than the peer's wait. direct_timeout_ms is the old name of rendezvous_timeout_ms.
# rnr_timeout_ms differs from the waits of the cases.
RSIW_PARAMS="direct_timeout_ms=1500 rnr_timeout_ms=3000 $RSIW_PARAMS"
single_bed
timeout -k 5 $((200 * FACTOR)) "$RSIW_TESTBIN/rnr" "$RDMA_V4" r0 1 "$@" 2>&1 || die "rnr: status $?"
[ $# = 0 ] || exit 0
# A busy machine needs some seconds for 200 Sends, and as many for the messages beside them.
HELD_MS=10000
RSIW_PARAMS=${RSIW_PARAMS/rnr_timeout_ms=3000/rnr_timeout_ms=$HELD_MS}
unload_type "$RSIW_TYPE"
rsiw_load
make_link r0 rd0
PYTHONPATH="$PEER_DIR" RSIW_TESTBIN="$RSIW_TESTBIN" timeout -k 5 $((60 * FACTOR)) \
	python3 -B "$(dirname "$0")/src/held_peers.py" "$RDMA_V4" 7410 200 r0 1 "$HELD_MS" 2>&1 || die "held_peers.py: status $?"
