#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: 7.2/4
# Strangers on the port of queue pairs that connect themselves: silence, garbage, half
# a frame, wrong numbers, 10,000 connections. They learn nothing, delay nobody, and
# hold no memory.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

RSIW_PARAMS="mpa_request_timeout_ms=2000 $RSIW_PARAMS"
sockets() { awk '$1 == "TCP:" { print $3 + $9 }' /proc/net/sockstat; }
sockets_back() { [ "$(sockets)" -le "$1" ]; }
# KiB in slab caches once everything deferred is done.
slab() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '$1 == "SUnreclaim:" { print $2 }' /proc/meminfo
}
slab_back() { [ "$(slab)" -le "$(($1 + 4000))" ]; }

strangers() {
	local status=0
	PYTHONPATH="$(dirname "$0")/src" timeout -k 5 $((200 * FACTOR)) env CROWD="$(rounds 10000)" python3 -B "$(dirname "$0")/src/strangers.py" "$@" 2>&1 || status=$?
	[ "$status" = 0 ] || die "strangers.py: status $status"
}

single_bed
before=$(sockets)
strangers nonsense impostor own_impostor waiting
# The first crowd is to fill the kernel's own caches. Leaked strangers would be tens of megabytes.
strangers crowd
wait_for 30 "as few TCP sockets as before ($before)" sockets_back "$before"
memory=$(slab)
strangers crowd
wait_for 30 "as few TCP sockets as before ($before)" sockets_back "$before"
wait_for 20 "as little slab as before ($memory KiB and 4000)" slab_back "$memory"
ok "sockets as before, slab $memory KiB before and $(slab) KiB after"
