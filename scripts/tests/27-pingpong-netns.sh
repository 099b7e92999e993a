#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: 7.2/4
# Rendezvous between two network namespaces and between two devices of one: either
# end first, IPv4, IPv6 and link-local, and with net.ipv6.bindv6only.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=pingpong.sh
. "$(dirname "$0")/pingpong.sh"

index_of() { grep -l "$2" "/sys/class/infiniband/$1/ports/1/gids/"* | sed 's,.*/,,'; }

rsiw_load
veth_bed
make_link r0 rv0
make_peer_link r1 "$RSIW_TYPE"

# there LABEL ARGUMENT...: a pair with the server in this namespace, and one with the server in the other.
there() {
	local label=$1
	shift
	PINGPONG_SERVER_DEVICE=r0 PINGPONG_CLIENT_DEVICE=r1 \
		pingpong_pair "$label, server here" "taskset -c 0" "$IN_PEER taskset -c 1" "$VETH_NEAR" "$@"
	PINGPONG_SERVER_DEVICE=r1 PINGPONG_CLIENT_DEVICE=r0 \
		pingpong_pair "$label, server there" "$IN_PEER taskset -c 1" "taskset -c 0" "$VETH_FAR" "$@"
}

there "ibv_rc_pingpong -g 1" ibv_rc_pingpong -g 1 -n "$(rounds 200)" -c
# 26-pingpong has these on one device.
if all_rounds; then
	there "ibv_rc_pingpong -g 1 -e, 64 KiB" ibv_rc_pingpong -g 1 -e -s 65536 -n 200
	for size in 1 1048576; do
		there "ibv_rc_pingpong -g 1, $size octets" ibv_rc_pingpong -g 1 -s "$size" -n 50 -c
	done
	there "ibv_rc_pingpong -g 1 -m" ibv_rc_pingpong -g 1 -m 4096 -n 100
	there "ibv_rc_pingpong -g 1 -n 10000" ibv_rc_pingpong -g 1 -n 10000 -s 256 -e
	there "ibv_srq_pingpong -g 1" ibv_srq_pingpong -g 1 -q 8
fi
v6=$(index_of r0 fd98:0000:0000:0000:0000:0000:0000:0001)
[ "$v6" = "$(index_of r1 fd98:0000:0000:0000:0000:0000:0000:0002)" ] ||
	die "the IPv6 address is not at the same place of both tables"
there "ibv_rc_pingpong IPv6" ibv_rc_pingpong -g "$v6" -n "$(rounds 200)" -c
there "ibv_srq_pingpong IPv6" ibv_srq_pingpong -g "$v6" -q 4
wait_for 10 "link-local addresses are there" bash -c "! ip -6 addr show tentative | grep -q . && ! $IN_PEER ip -6 addr show tentative | grep -q ."
there "ibv_rc_pingpong link-local" ibv_rc_pingpong -g 0 -n "$(rounds 200)" -c

# Without addresses each namespace is a host of its own.
spawn alone ibv_rc_pingpong -d r0 -p 18690
wait_listening 18690
# shellcheck disable=SC2086 # a list of words
if within 20 $IN_PEER ibv_rc_pingpong -d r1 -p 18690 "$VETH_NEAR" >"$WORK/far.log" 2>&1; then
	die "a peer in another namespace was found without an address"
fi
grep -q "Failed to modify QP to RTR" "$WORK/alone.log" || die "the server does not say why: $(cat "$WORK/alone.log")"
ok "without a GID nobody is found in another namespace"

# A second device in the same namespace.
make_dummy rd0 10.99.0.1/24 fd99::1/64
make_link r2 rd0
PINGPONG_SERVER_DEVICE=r0 PINGPONG_CLIENT_DEVICE=r2 \
	pingpong_pair "two devices" "" "" 127.0.0.1 ibv_rc_pingpong -g 1 -n "$(rounds 200)" -c
PINGPONG_SERVER_DEVICE=r2 PINGPONG_CLIENT_DEVICE=r0 \
	pingpong_pair "two devices, the other way" "" "" 127.0.0.1 ibv_rc_pingpong -g 1 -n "$(rounds 200)" -c
PINGPONG_SERVER_DEVICE=r2 PINGPONG_CLIENT_DEVICE=r0 \
	pingpong_pair "two devices without a GID" "" "" 127.0.0.1 ibv_rc_pingpong -n "$(rounds 200)" -c

# The port is closed with the last responder of a namespace.
responder r0
here=$RESPONDER
responder r1 "$IN_PEER"
there=$RESPONDER
listening 4791 || die "the port is closed although a responder waits"
rdma link del r2
rdma link del r0
wait_for 5 "the port is closed" not listening 4791
listening 4791 "$IN_PEER" || die "the port of the other namespace is closed"
stop "$here"
stop "$there"
wait_for 5 "the port of the other namespace is closed" not listening 4791 "$IN_PEER"
ok "the port is open as long as there are responders"

# The listener accepts both families, also with net.ipv6.bindv6only. The kernel reads that setting when a
# socket is made; the first responder makes the listener's.
V6ONLY=/proc/sys/net/ipv6/bindv6only
kept=$(cat "$V6ONLY")
restore_v6only() { echo "$kept" >"$V6ONLY"; }
DONE_HOOK=restore_v6only
rdma link del r1
echo 1 >"$V6ONLY"
$IN_PEER sh -c "echo 1 >$V6ONLY"
make_link r0 rv0
make_peer_link r1 "$RSIW_TYPE"
v4=$(index_of r0 ffff:0a62:0001)
v6=$(index_of r0 fd98:0000:0000:0000:0000:0000:0000:0001)
[ "$v4 $v6" = "$(index_of r1 ffff:0a62:0002) $(index_of r1 fd98:0000:0000:0000:0000:0000:0000:0002)" ] ||
	die "the addresses are not at the same places of both tables"
there "bindv6only, IPv4" ibv_rc_pingpong -g "$v4" -n "$(rounds 200)" -c
there "bindv6only, IPv6" ibv_rc_pingpong -g "$v6" -n "$(rounds 200)" -c
pingpong_pair "bindv6only, without a GID" "" "" 127.0.0.1 ibv_rc_pingpong -n "$(rounds 200)" -c
PINGPONG_SERVER_DEVICE=r1 PINGPONG_CLIENT_DEVICE=r1 \
	pingpong_pair "bindv6only, without a GID, there" "$IN_PEER" "$IN_PEER" 127.0.0.1 ibv_rc_pingpong -n "$(rounds 200)" -c
