#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# runs on: uml
# rdma_disconnect() with 512 MiB of Writes, Sends or Reads posted, at one end or at both. Posted requests are
# flushed, and data of a successful request has arrived. Both ends get their event within a second, also where
# the peer has no receives for the Sends.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

single_bed
run 60 "disconnect" "$RSIW_TESTBIN/disconnect" "$RDMA_V4" "$FACTOR"
cat "$(log_of disconnect)"
