#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: soak
# fabtests, libfabric's own tests, over its verbs provider (scripts/tests/fabtests). Messages of a connection and
# reliable datagrams (ofi_rxm), more Sends than posted receives, shared receive queues, several endpoints.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

PROGRAMS=$(dirname "$0")/../../build/fabtests
PORT=9228

[ -x "$PROGRAMS/fi_flood" ] || die "no programs in build/fabtests: scripts/tests/fabtests makes them"
# Both programs poll without a pause.
[ "$(nproc)" -gt 1 ] || exit 4

# both PROGRAM ARGUMENT...: a server and a client of PROGRAM.
both() {
	local label=$* server
	spawn server "$PROGRAMS/$1" "${@:2}" -s "$RDMA_V4"
	server=$SPAWNED
	wait_listening "$PORT"
	run 100 "$label" "$PROGRAMS/$1" "${@:2}" "$RDMA_V4"
	finish "$server" 20 server
	ok "$label"
}

# The servers register 200 MiB between a request and its reply.
RSIW_PARAMS="mpa_reply_timeout_ms=90000 $RSIW_PARAMS"
single_bed
for octets in 64 4096 65536 1048576; do
	both fi_msg_pingpong -p verbs -v -I 20 -S "$octets"
done
both fi_flood -p verbs -e msg
both fi_flood -p "verbs;ofi_rxm" -e rdm
# The provider has no shared contexts for transmission.
both fi_shared_ctx -p verbs -e msg --no-tx-shared-ctx
# The next programs exchange addresses first, on a port of their own.
PORT=3000
both fi_unexpected_msg -p "verbs;ofi_rxm" -e rdm
# On User-mode Linux the next program does not end over libfabric's tcp provider either.
[[ ${RSIW_KERNEL:-} == @(uml|bench) ]] || both fi_multi_ep -p verbs -e msg
