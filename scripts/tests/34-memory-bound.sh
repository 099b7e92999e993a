#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: 7.2/2
# The memory that this machine holds for peers that read nothing (src/unread.py), on up to 240 connections at once:
# their Read Responses, and RDMA Writes of a local program. Their Sends find no receive, and are held. The path has
# a delay or none, messages are long, or few octets of many fragments, or both in turn. Memory after the end of the
# program is measured as well. At most 64 KiB a connection are outside of TCP's accounting, and so of its limits
# (docs/receive.md, "Memory beyond TCP's accounting"). Reclaim frees the buffers that CPUs keep.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

CONNECTIONS=128
# TCP's own numbers are exact to some MiB only: more connections tell 80 KiB from 64.
MANY=240
TCP_MEM=/proc/sys/net/ipv4/tcp_mem
SIZES=4200
# Octets for each connection.
LIMIT=65536
! all_rounds || SIZES=4200,20000

# unread PATH CONNECTIONS SIZES ROLE...
unread() {
	local path=$1 connections=$2 sizes=$3 role status=0
	shift 3
	for role in "$@"; do
		say "-- $path, $role"
		PYTHONPATH="$PEER_DIR" RSIW_TESTBIN="$RSIW_TESTBIN" timeout -k 5 $((100 * FACTOR)) \
			python3 -B "$(dirname "$0")/src/unread.py" "$VETH_NEAR" 7400 "$connections" "$LIMIT" "$role" "$sizes" peer rv0 2>&1 || status=$?
	done
	[ "$status" = 0 ] || die "$path: status $status"
}

# shrunk: how often reclaim has called the shrinker of the buffers that CPUs keep, this time.
shrunk() {
	echo >"$TRACING/trace"
	echo 2 >/proc/sys/vm/drop_caches
	grep -c 'mm_shrink_slab_start: rsiw_' "$TRACING/trace" || true
}

reclaimed() {
	if [ ! -d "$TRACING/events/vmscan" ]; then
		say "this kernel does not tell what its shrinkers do"
		return 0
	fi
	echo 1 >"$TRACING/events/vmscan/mm_shrink_slab_start/enable"
	[ "$(shrunk)" -gt 0 ] || die "reclaim finds no buffers behind all that traffic"
	[ "$(shrunk)" -eq 0 ] || die "reclaim finds buffers behind a reclaim"
	echo 0 >"$TRACING/events/vmscan/mm_shrink_slab_start/enable"
	ok "reclaim takes the buffers that CPUs keep"
}

restore_tcp_mem() { echo "$tcp_mem" >"$TCP_MEM"; }

# Sends are held for as long as the memory is measured.
RSIW_PARAMS="rnr_timeout_ms=600000 $RSIW_PARAMS"
rsiw_load
veth_bed
make_link r0 rv0
unread near "$CONNECTIONS" "$SIZES" read write
unread near "$MANY" 4200 mixed
# Two blocks and two page fragments: receivers on this host pin both with octets that they do not read.
LIMIT=131072 unread near "$CONNECTIONS" 4200 near
# A block of 64 KiB for each message of 57,000 octets would have an unused end of almost 8 KiB.
unread near "$CONNECTIONS" 57000 left
unread near 40 57000 queued
unread near 64 64 shared
# The longest FPDU, almost 64 KiB.
unread near "$CONNECTIONS" 65000 held
# With 2 MiB unregulated a charge is refused as soon as all sockets have a half: TCP gets copies.
tcp_mem=$(cat "$TCP_MEM")
DONE_HOOK=restore_tcp_mem
echo "$((2097152 / $(getconf PAGESIZE))) ${tcp_mem#*[[:space:]]}" >"$TCP_MEM"
unread refused "$CONNECTIONS" 20000 write
restore_tcp_mem
tc qdisc add dev rv0 root netem delay 10ms limit 20000
unread far "$CONNECTIONS" "$SIZES" read write
reclaimed
