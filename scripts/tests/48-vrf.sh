#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# An interface in a VRF has the addresses and routes of the VRF. Connections over its device stay in the VRF,
# from either end, over rdma_cm and by rendezvous. TCP sockets are tried first, also those outside of the VRF
# with both values of tcp_l3mdev_accept. A process of `ip vrf exec` names its source address, with siw as well:
# rdma_resolve_addr() of the kernel makes no socket that could be bound to the VRF.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=pingpong.sh
. "$(dirname "$0")/pingpong.sh"
# shellcheck source=rping.sh
. "$(dirname "$0")/rping.sh"

rsiw_load
modprobe vrf || exit 4
veth_bed
ip link add vrf0 type vrf table 100
NETDEVS+=(vrf0)
ip link set vrf0 up
ip link set rv0 master vrf0
# The kernel removes IPv6 addresses when the interface changes its master.
ip addr add fd98::1/64 dev rv0 nodad 2>/dev/null || true
make_link r0 rv0
make_peer_link r1 "$RSIW_TYPE"

# The programs exchange their queue pair numbers over an ordinary TCP connection.
IN_VRF="ip vrf exec vrf0"

# The path works for ICMP.
run 20 "a packet in the VRF" ping -c 1 -W 5 -I vrf0 "$VETH_FAR"

# plain LABEL SERVER-PREFIX CLIENT-PREFIX ADDRESS: TCP sockets that are bound to the VRF.
plain() {
	local label="TCP $1" server
	# shellcheck disable=SC2086 # a list of words
	spawn tcp $2 python3 -c 'import socket, sys
print(socket.create_server((sys.argv[1], 7175)).accept()[0].makefile().read(), end="")' "$4"
	server=$SPAWNED
	wait_listening 7175 "$2"
	# shellcheck disable=SC2016,SC2086 # expanded by the inner shell; a list of words
	run 20 "$label" $3 bash -c 'echo plain >"/dev/tcp/$0/7175"' "$4"
	finish "$server" 20 tcp
	shows -x plain "$(log_of tcp)" || die "$label: nothing arrived"
	ok "$label"
}
plain "into the VRF" "$IN_VRF" "$IN_PEER" "$VETH_NEAR"
plain "out of the VRF" "$IN_PEER" "$IN_VRF" "$VETH_FAR"
plain "within the VRF" "$IN_VRF" "$IN_VRF" "$VETH_NEAR"
# shellcheck disable=SC2016 # expanded by the inner shell
refuse "TCP out of the VRF by a socket outside" "Network is unreachable" \
	bash -c 'echo plain >"/dev/tcp/$0/7175"' "$VETH_FAR"
refuse "a TCP socket outside, on an address of the VRF" "Cannot assign requested address" \
	python3 -c 'import socket, sys; socket.create_server((sys.argv[1], 7175))' "$VETH_NEAR"

# A TCP listener outside of the VRF on all addresses gets a connection from inside with tcp_l3mdev_accept=1 alone.
# One that is bound to the interface or to the VRF gets it with both values. A listener of rdma_cm on all addresses
# is one for each device, and bound to the interface of the device.
run 60 "TCP listeners on all addresses" \
	python3 -B "$(dirname "$0")/src/l3mdev.py" "$VETH_NEAR" rv0 vrf0 peer
ok "TCP listeners on all addresses"

# across LABEL SERVER-PREFIX CLIENT-PREFIX ADDRESS [LISTEN-ON [SOURCE]]
across() {
	local label=$1 server
	# shellcheck disable=SC2086 # a list of words
	spawn server $2 rping -s -a "${5:-$4}" -p 7174
	server=$SPAWNED
	wait_listening 7174 "$2"
	# shellcheck disable=SC2086
	run 20 "$label" $3 rping -c -a "$4" -p 7174 -C 3 ${6:+-I "$6"}
	finish "$server" 20 server
	ok "$label"
}
across "rping into the VRF" "" "$IN_PEER" "$VETH_NEAR"
# As TCP's listener of the interface, whatever the setting.
for accept in 1 0; do
	sysctl -qw "net.ipv4.tcp_l3mdev_accept=$accept"
	across "rping into the VRF, to a listener on all addresses (tcp_l3mdev_accept=$accept)" \
		"" "$IN_PEER" "$VETH_NEAR" 0.0.0.0
done
across "rping out of the VRF" "$IN_PEER" "" "$VETH_FAR" "" "$VETH_NEAR"
across "rping within the VRF" "" "" "$VETH_NEAR" "" "$VETH_NEAR"

# from_inside DRIVER: rping of a process in the VRF, with a source address and without.
from_inside() {
	# shellcheck disable=SC2086 # a list of words
	if within 20 $IN_VRF rping -c -a "$VETH_FAR" -p 7174 -C 3 >"$WORK/inside.log" 2>&1; then
		die "rping in the VRF without a source, $1: connects"
	fi
	shows "rdma_resolve_addr: Network is unreachable" <"$WORK/inside.log" ||
		die "rping in the VRF without a source, $1: $(cat "$WORK/inside.log")"
	across "rping in the VRF with a source, $1" "$IN_PEER" "$IN_VRF" "$VETH_FAR" "" "$VETH_NEAR"
}
from_inside "$RSIW_TYPE"

PINGPONG_SERVER_DEVICE=r0 PINGPONG_CLIENT_DEVICE=r1 \
	pingpong_pair "rendezvous, server here" "$IN_VRF" "$IN_PEER" "$VETH_NEAR" ibv_rc_pingpong -g 1 -n 100
PINGPONG_SERVER_DEVICE=r1 PINGPONG_CLIENT_DEVICE=r0 \
	pingpong_pair "rendezvous, server there" "$IN_PEER" "$IN_VRF" "$VETH_FAR" ibv_rc_pingpong -g 1 -n 100

if [ "$RSIW_TYPE" = rsiw ]; then
	rdma link del r0
	load_type siw
	make_link s0 rv0 siw
	from_inside siw
	# siw's listener on all addresses is bound to the interface too. That on an address is not bound to the VRF.
	across "rping into the VRF, to a listener of siw on all addresses" "" "$IN_PEER" "$VETH_NEAR" 0.0.0.0
	# shellcheck disable=SC2016 # expanded by the inner shell
	refuse "rping -s on an address of the VRF, siw" "Cannot assign requested address" \
		bash -c 'rping -s -a "$0" -p 7174 || exit 1' "$VETH_NEAR"
fi
