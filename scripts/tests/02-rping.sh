#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: 7.2/8 7.3/8
# rping: 1,000 validated rounds at sizes from 64 octets to 64 KiB less one (the
# most rping takes), over IPv4 and IPv6. A round is a Send, an RDMA Read, a Send,
# an RDMA Write and a Send, so each size passes every message kind.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=rping.sh
. "$(dirname "$0")/rping.sh"

single_bed
for size in 64 1000 4096 65535; do
	rping_rounds "$size" "$(rounds 1000)" "$RDMA_V4"
done
for size in 64 65535; do
	rping_rounds "$size" "$(rounds 1000)" "$RDMA_V6"
done

spawn server rping -s -a 0.0.0.0 -p 7174 -P -S 4096
server=$SPAWNED
wait_listening 7174
for _ in 1 2 3; do
	rping_client "rping to a wildcard listener" 4096 20 "$RDMA_V4"
done
ok "three clients of a persistent wildcard server"

(rping_client "first concurrent rping" 4096 "$(rounds 300)" "$RDMA_V4") &
one=$!
rping_client "second concurrent rping" 64 "$(rounds 300)" "$RDMA_V4"
wait "$one" || die "first concurrent rping failed"
ok "two concurrent connections"
stop "$server"

spawn server rping -s -a ::0 -p 7174 -P
wait_listening 7174
rping_client "rping to the IPv6 wildcard" 64 20 "$RDMA_V6"
rping_client "rping from IPv4 to the IPv6 wildcard" 64 20 "$RDMA_V4"
ok "a wildcard listener of both families"

# rdma_cm picks ports of TCP's range without regard to TCP's sockets: TCP programs have 48 of the 64.
restore_ports() { echo "$range" >/proc/sys/net/ipv4/ip_local_port_range; }
port_taken() {
	local port
	range=$(cat /proc/sys/net/ipv4/ip_local_port_range)
	DONE_HOOK=restore_ports
	echo "40000 40063" >/proc/sys/net/ipv4/ip_local_port_range
	spawn holder python3 -c 'import signal, socket, sys
held = [socket.create_server((sys.argv[1], port)) for port in range(40000, 40064) if port % 4]
signal.pause()' "$RDMA_V4"
	wait_listening 40063
	for port in $(seq 7180 7187); do
		spawn "server-$port" rping -s -a "$RDMA_V4" -p "$port"
		server=$SPAWNED
		wait_listening "$port"
		run 30 "rping although ports are taken" rping -c -a "$RDMA_V4" -p "$port" -C 3 -V
		stop "$server"
	done
	DONE_HOOK=:
	restore_ports
	ok "eight clients with three of four ports taken"
}
port_taken
