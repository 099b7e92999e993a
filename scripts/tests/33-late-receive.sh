#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: uml
# Sends that find no receive posted (src/rnr.c): held until one is, for as long as the queue pair's
# attributes say, with the window closed; ended by the Terminate, by error and by destruction; and
# nothing of it is felt by other connections. Arguments pick cases.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# Less than what the peer is kept waiting for. (The old name of rendezvous_timeout_ms.)
RSIW_PARAMS="direct_timeout_ms=1500 $RSIW_PARAMS"
single_bed
timeout -k 5 $((200 * FACTOR)) "$RSIW_TESTBIN/rnr" "$RDMA_V4" r0 1 "$@" 2>&1 || die "rnr: status $?"
