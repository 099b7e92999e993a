#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: 7.2/4
# Unknown peers on the port of rendezvous (src/unknown_peers.py): silence, garbage, half a frame, wrong
# numbers, 10,000 connections. The peers learn nothing, delay no connection, and hold no memory.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

RSIW_PARAMS="mpa_request_timeout_ms=2000 $RSIW_PARAMS"
sockets() { awk '$1 == "TCP:" { print $3 + $9 }' /proc/net/sockstat; }
sockets_back() { [ "$(sockets)" -le "$1" ]; }
# KiB in slab caches after all deferred work.
slab() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '$1 == "SUnreclaim:" { print $2 }' /proc/meminfo
}
slab_back() { [ "$(slab)" -le "$(($1 + 4000))" ]; }

unknown_peers() {
	local status=0
	PYTHONPATH="$(dirname "$0")/src" timeout -k 5 $((200 * FACTOR)) env CROWD="$(rounds 10000)" python3 -B "$(dirname "$0")/src/unknown_peers.py" "$@" 2>&1 || status=$?
	[ "$status" = 0 ] || die "unknown_peers.py: status $status"
}

single_bed
# A peer that is known, and errors of its set-up.
ip address add 10.99.0.77/32 dev lo
PYTHONPATH="$(dirname "$0")/src:$PEER_DIR" run 200 "errors of the set-up" \
	python3 -B "$(dirname "$0")/src/set_up_errors.py"
ok "errors of the set-up: $(grep -c '^ok: ' "$(log_of errors_of_the_set-up)") cases"
before=$(sockets)
unknown_peers nonsense impostor own_impostor waiting
# The first crowd fills the kernel's own caches. Leaked connections would be tens of megabytes.
unknown_peers crowd
wait_for 30 "as few TCP sockets as before ($before)" sockets_back "$before"
memory=$(slab)
unknown_peers crowd
wait_for 30 "as few TCP sockets as before ($before)" sockets_back "$before"
wait_for 20 "as little slab as before ($memory KiB and 4000)" slab_back "$memory"
ok "sockets as before, slab $memory KiB before and $(slab) KiB after"
