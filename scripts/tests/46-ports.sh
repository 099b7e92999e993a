#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# Ports in use. A second connection from a source port in use gets EADDRINUSE, or another port where the
# port is one of TCP's ephemeral range. rdma_listen on the port of a TCP listener gets an error, and a trace
# event names the port.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

EADDRINUSE=98

# twice PORT SECOND: two connections from PORT; the second one gets SECOND from rdma_connect().
twice() {
	run 30 "from port $1" "$RSIW_TESTBIN/source" "$RDMA_V4" "$1" "$RDMA_V4" 7200
	printf '0\n%s\n' "$2" | diff - "$(log_of "$(label_of "from port $1")")" ||
		die "port $1: not the expected answers to rdma_connect"
	ok "two connections from port $1: 0, then $2"
}

single_bed
spawn server rping -s -P -a "$RDMA_V4" -p 7200
wait_listening 7200
read -r low high </proc/sys/net/ipv4/ip_local_port_range
[ "$low" -gt 7300 ] || die "port 7300 is one of those that TCP draws"
twice 7300 "$EADDRINUSE"
middle=$(((low + high) / 2))
twice "$middle" 0
# The one port that TCP may draw is connected to that peer.
only=$((middle + 1))
echo "$only $only" >/proc/sys/net/ipv4/ip_local_port_range
twice "$only" "$EADDRINUSE"
echo "$low $high" >/proc/sys/net/ipv4/ip_local_port_range

trace_begin
echo 1 >"$TRACING/events/rsiw/rsiw_listen_failed/enable"
spawn tcp python3 -c 'import socket, sys, signal
s = socket.create_server((sys.argv[1], 7201))
signal.pause()' "$RDMA_V4"
wait_listening 7201
if timeout 20 rping -s -a "$RDMA_V4" -p 7201 >"$WORK/beside.log" 2>&1; then
	die "rping listens beside a TCP listener"
fi
grep -qE "Address already in use|error $EADDRINUSE" "$WORK/beside.log" ||
	die "rping does not say why: $(cat "$WORK/beside.log")"
echo 0 >"$TRACING/events/rsiw/rsiw_listen_failed/enable"
grep -q "rsiw_listen_failed: .*port=7201 error=-$EADDRINUSE (a TCP socket has the port)" "$TRACING/trace" ||
	die "the trace does not say so: $(tail "$TRACING/trace")"
ok "rdma_listen beside a TCP listener"
