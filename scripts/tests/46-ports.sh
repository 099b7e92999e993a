#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# Ports in use, over IPv4 and IPv6. A second connection from a source port in use gets EADDRINUSE, or another
# port where the port is one of TCP's ephemeral range. rdma_listen on the port of a TCP listener gets an error,
# and a trace event names the port.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

EADDRINUSE=98

# twice ADDRESS PORT SECOND: two connections from PORT; the second one gets SECOND from rdma_connect().
twice() {
	local label="$1, from port $2"
	run 30 "$label" "$RSIW_TESTBIN/source" "$1" "$2" "$1" 7200
	printf '0\n%s\n' "$3" | diff - "$(log_of "$(label_of "$label")")" ||
		die "$label: not the expected answers to rdma_connect"
	ok "two connections, $label: 0, then $3"
}

# beside ADDRESS PORT: rping does not listen beside a TCP listener, and its error and the trace say why.
beside() {
	spawn "tcp-$2" python3 -c 'import socket, sys, signal
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
signal.pause()' "$1" "$2"
	wait_listening "$2"
	if within 20 rping -s -a "$1" -p "$2" >"$WORK/beside.log" 2>&1; then
		die "rping listens beside a TCP listener, $1"
	fi
	grep -qE "Address already in use|error $EADDRINUSE" "$WORK/beside.log" ||
		die "rping does not say why: $(cat "$WORK/beside.log")"
	grep -q "rsiw_listen_failed: .*port=$2 error=-$EADDRINUSE (a TCP socket has the port)" "$TRACING/trace" ||
		die "the trace does not say so: $(tail "$TRACING/trace")"
	ok "rdma_listen beside a TCP listener, $1"
}

both_listen() { [ "$(ss -Hltn 'sport = :7200' | wc -l)" -eq 2 ]; }

single_bed
spawn server rping -s -P -a "$RDMA_V4" -p 7200
spawn server6 rping -s -P -a "$RDMA_V6" -p 7200
wait_for 20 "both servers listen" both_listen
read -r low high </proc/sys/net/ipv4/ip_local_port_range
[ "$low" -gt 7300 ] || die "port 7300 is one of those that TCP draws"
middle=$(((low + high) / 2))
only=$((middle + 1))
for address in "$RDMA_V4" "$RDMA_V6"; do
	twice "$address" 7300 "$EADDRINUSE"
	twice "$address" "$middle" 0
	# The one port that TCP may draw is connected to that peer.
	echo "$only $only" >/proc/sys/net/ipv4/ip_local_port_range
	twice "$address" "$only" "$EADDRINUSE"
	echo "$low $high" >/proc/sys/net/ipv4/ip_local_port_range
done

trace_begin
echo 1 >"$TRACING/events/rsiw/rsiw_listen_failed/enable"
beside "$RDMA_V4" 7201
beside "$RDMA_V6" 7202
echo 0 >"$TRACING/events/rsiw/rsiw_listen_failed/enable"
