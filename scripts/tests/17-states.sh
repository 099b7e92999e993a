#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# Queue pairs that connect themselves, through pyverbs: all transitions, right and
# wrong, queries at each step, every order of arrival, peers that die at each step,
# 200 pairs at once. Nothing is left of any of it.
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"

RSIW_PARAMS="direct_timeout_ms=1500 $RSIW_PARAMS"
objects() { rdma resource show "$1" link r0 2>/dev/null | grep -c . || true; }
no_qps() { [ "$(objects qp)" = 0 ]; }
sockets() { awk '$1 == "TCP:" { print $3 + $9 }' /proc/net/sockstat; }
sockets_back() { [ "$(sockets)" -le "$1" ]; }

single_bed
before=$(sockets)
status=0
PYTHONPATH="$(dirname "$0")/src" timeout -k 5 $((270 * FACTOR)) python3 -B "$(dirname "$0")/src/states.py" "$@" 2>&1 || status=$?
[ "$status" = 0 ] || die "states.py: status $status"
wait_for 10 "no queue pair is left" no_qps
wait_for 20 "as few TCP sockets as before ($before)" sockets_back "$before"
