#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: uml
# Rendezvous through pyverbs: all transitions, valid and invalid, with queries at each
# step; every order of arrival, numbers, time limits, and peers that die at each step.
# 200 pairs connect at once. No object is left behind.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

RSIW_PARAMS="rendezvous_timeout_ms=1500 $RSIW_PARAMS"
sockets() { awk '$1 == "TCP:" { print $3 + $9 }' /proc/net/sockstat; }
sockets_back() { [ "$(sockets)" -le "$1" ]; }

source_of() { echo "$(dirname "$0")/src/$1.py"; }

first_number() {
	local label="the first queue pair"
	unload_type "$RSIW_TYPE" >&2
	rsiw_load >&2
	make_link r0 rd0 >&2
	run 20 "$label" python3 -B "$(source_of qpns)" >&2
	cat "$(log_of "$(label_of "$label")")"
}

# The first number differs from one load of the module to the next.
starts_anywhere() {
	local one other distance
	one=$(first_number)
	other=$(first_number)
	distance=$((other > one ? other - one : one - other))
	[ "$distance" -gt 16 ] || die "the numbers began at $one, and after loading again at $other"
	ok "the first number: $one, and after loading again $other"
}

single_bed
# A second device: numbers are unique on the host.
make_dummy rd1 10.97.0.1/24
make_link r1 rd1
before=$(sockets)
status=0
timeout -k 5 $((320 * FACTOR)) python3 -B "$(source_of states)" "$@" 2>&1 || status=$?
[ "$status" = 0 ] || die "states.py: status $status"
wait_for 10 "no queue pair is left" no_qps
wait_for 20 "as few TCP sockets as before ($before)" sockets_back "$before"
starts_anywhere
