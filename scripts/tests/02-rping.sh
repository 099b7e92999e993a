#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# rping: 1,000 validated rounds at sizes from 64 octets to 64 KiB less one (the
# most rping takes), over IPv4 and IPv6. A round is a Send, an RDMA Read, a Send,
# an RDMA Write and a Send, so each size passes every message kind.
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"

# rounds SIZE COUNT ADDRESS
rounds() {
	local server
	spawn server rping -s -a "$3" -p 7174 -S "$1" -C "$2" -V
	server=$SPAWNED
	wait_listening 7174
	run 60 "rping client, $1 octets, $3" rping -c -a "$3" -p 7174 -S "$1" -C "$2" -V
	finish "$server" 20 server
	ok "rping $2 rounds of $1 octets to $3"
}

single_bed
for size in 64 1000 4096 65535; do
	rounds "$size" 1000 "$RDMA_V4"
done
for size in 64 65535; do
	rounds "$size" 1000 "$RDMA_V6"
done

# The wildcard listener, IPv6 with mapped IPv4 clients included where rdma_cm offers it.
spawn server rping -s -a 0.0.0.0 -p 7174 -P
wait_listening 7174
for _ in 1 2 3; do
	run 30 "rping to a wildcard listener" rping -c -a "$RDMA_V4" -p 7174 -C 20 -V
done
ok "three clients of a persistent wildcard server"

# Two connections at the same time.
rping -c -a "$RDMA_V4" -p 7174 -S 4096 -C 300 -V >"$WORK/one.log" 2>&1 &
one=$!
PIDS+=("$one")
run 60 "second concurrent rping" rping -c -a "$RDMA_V4" -p 7174 -S 64 -C 300 -V
finish "$one" 60 one
ok "two concurrent connections"
