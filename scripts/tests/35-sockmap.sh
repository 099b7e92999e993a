#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 180
# runs on: 7.2 7.3
# A BPF program adds each TCP connection of this host to a sockmap when it is established (src/sockmap.c).
# At that time a listener's child is not accepted yet. The sockmap would replace the driver's handler, take early
# octets, and never release the socket. The driver's sockets refuse the sockmap. Connections over rdma_cm, by
# rendezvous and of unknown peers work as without the program.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=cgroup.sh
. "$(dirname "$0")/cgroup.sh"
# shellcheck source=pingpong.sh
. "$(dirname "$0")/pingpong.sh"
# shellcheck source=rping.sh
. "$(dirname "$0")/rping.sh"

attached_or_over() { gone "$SOCKMAP" || grep -qx attached "$(log_of sockmap)"; }

attach() {
	local status=0
	spawn sockmap "$RSIW_TESTBIN/sockmap" "$CGROUP"
	SOCKMAP=$SPAWNED
	wait_for 20 "the program is attached" attached_or_over
	gone "$SOCKMAP" || return 0
	wait "$SOCKMAP" || status=$?
	if [ "$status" = 4 ]; then
		say "this kernel has no BPF"
		exit 4
	fi
	show_log "$(log_of sockmap)"
	die "sockmap: status $status"
}

# unknown_peer PORT: a connection whose octets arrive before it is accepted, and that ends.
unknown_peer() {
	run 20 "an unknown peer on port $1" python3 -c 'import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as s:
    s.sendall(b"GET / HTTP/1.1\r\n\r\n")' "$RDMA_V4" "$1"
}

counted() { sed -n "s/^$1 //p" "$(log_of sockmap)"; }
no_connection() { [ -z "$(ss -Htan state connected exclude time-wait exclude fin-wait-2 "sport = :$1")" ]; }

cgroup_root
single_bed
attach
responder r0
rping_rounds 4096 20 "$RDMA_V4"
run 30 "abi" "$RSIW_TESTBIN/abi" "$RDMA_V4" zero_length
ok "connections through rdma_cm"
pingpong_pair "ibv_rc_pingpong" "" "" 127.0.0.1 ibv_rc_pingpong -g 1 -n 100
spawn server rping -s -a "$RDMA_V4" -p 7174 -P
server=$SPAWNED
wait_listening 7174
for port in 4791 7174; do
	unknown_peer "$port"
	wait_for 20 "the connection to port $port is closed" no_connection "$port"
done
rping_client "rping after an unknown peer" 64 5 "$RDMA_V4"
pingpong_pair "ibv_rc_pingpong after an unknown peer" "" "" 127.0.0.1 ibv_rc_pingpong -g 1 -n 100
stop "$server"

kill -TERM "$SOCKMAP"
finish "$SOCKMAP" 20 sockmap
# Refused are two ends each of rping (twice), abi and ibv_rc_pingpong (twice), and two of unknown peers.
# The sockmap has the program's own two sockets, the unknown peers' ends, and the pingpongs' TCP connections.
refused=$(counted refused)
taken=$(counted taken)
if [ "$refused" -lt 12 ] || [ "$taken" -gt 8 ]; then
	die "the program was refused $refused sockets, and $taken were taken"
fi
run 20 "rdma link del" rdma link del r0
unload_type "$RSIW_TYPE"
ok "no socket of ours is in the map ($refused refused, $taken of others taken)"
