#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: uml
# Sends without a posted receive (src/rnr.c). A Send is held, with TCP's window closed, until a receive is
# posted or the time of the queue pair's attributes is over. Terminate, error and destruction end the hold.
# Other connections are not delayed. Arguments pick cases.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# The time limit is less than the peer's wait. direct_timeout_ms is the old name of rendezvous_timeout_ms.
# rnr_timeout_ms differs from the waits of the cases.
RSIW_PARAMS="direct_timeout_ms=1500 rnr_timeout_ms=3000 $RSIW_PARAMS"
single_bed
timeout -k 5 $((200 * FACTOR)) "$RSIW_TESTBIN/rnr" "$RDMA_V4" r0 1 "$@" 2>&1 || die "rnr: status $?"
