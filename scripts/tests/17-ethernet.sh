#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 200
# runs on: 7.2/4
# Two Ethernet cards on one cable, each with its driver, its rings and its device, one of them in a
# network namespace. rping, perftest and ibv_rc_pingpong run across, also with jumbo frames. The driver
# of a card is unbound under traffic.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"
# shellcheck source=rping.sh
. "$(dirname "$0")/rping.sh"
# shellcheck source=pingpong.sh
. "$(dirname "$0")/pingpong.sh"

DRIVER=/sys/bus/virtio/drivers/virtio_net
NEAR=10.95.0.1
FAR=10.95.0.2
IN_PEER="ip netns exec peer"

card() { basename "$(echo "$DRIVER/$1/net/"*)"; }

frames_received() { cat "/sys/class/net/$near/statistics/rx_packets"; }

# both_ways LABEL TOOL ARGUMENT...: a pair with the client in this namespace, and one with the client in the other.
both_ways() {
	local label=$1
	shift
	perftest_pair "$label, out" "$FAR" "$IN_PEER" "" "$@"
	perftest_pair "$label, in" "$NEAR" "" "$IN_PEER" "$@"
}

# Unbinds the driver, which is what hot unplug does, without the slot.
driver_lets_go() {
	perftest_traffic 18999 "$FAR" "$IN_PEER" ib_write_bw -s 65536 -n 10000000
	timeout $((20 * FACTOR)) sh -c "echo $1 >$DRIVER/unbind" || die "the driver cannot let go of its card"
	wait_for 20 "the device went with its card" not has_link r0
	wait_for 60 "the client notices" gone "$CLIENT"
	stop "$SERVER"
	ok "a card that goes under traffic"
}

modprobe virtio_net
# virtio_net frees sent frames when it sends again (not with napi_tx=0), and a frame holds its namespace. On a
# cable without a far end the frames would stay for ever. A driver that is built into the kernel is bound to
# its cards again, for the next test.
let_go() {
	local card
	for card in "${cards[@]}"; do
		[ ! -e "$DRIVER/$card" ] || echo "$card" >"$DRIVER/unbind"
	done
	if grep -q "^virtio_net " /proc/modules; then
		modprobe -r virtio_net
	else
		for card in "${cards[@]}"; do echo "$card" >"$DRIVER/bind"; done
	fi
}
cards=()
DONE_HOOK=let_go
mapfile -t cards < <(cd "$DRIVER" && echo virtio*/net | tr ' ' '\n' | sed 's,/net,,')
[ "${#cards[@]}" = 2 ] || die "not two cards: ${cards[*]}"
near=$(card "${cards[0]}")
far=$(card "${cards[1]}")
rsiw_load
make_netns peer
address_up "$near" "$NEAR/24"
ip link set "$far" netns peer
ip -n peer link set "$far" up
ip -n peer addr add "$FAR/24" dev "$far"
make_link r0 "$near"
# shellcheck disable=SC2086
$IN_PEER rdma link add r1 type "$RSIW_TYPE" netdev "$far"
wait_for 10 "r1 has a uverbs node" verbs_node r1
wait_for 10 "the device node of r1" test -e "$(uverbs_path r1)"

before=$(frames_received)
rping_rounds 64 "$(rounds 200)" "$FAR" "$IN_PEER"
rping_rounds 65000 "$(rounds 200)" "$FAR" "$IN_PEER"
[ $(($(frames_received) - before)) -gt "$(rounds 10000)" ] || die "the card has not received what rping sent"
for tool in ib_send_bw ib_write_bw ib_read_bw; do
	both_ways "$tool" "$tool" -s 65536 -n "$(rounds 200)"
done
perftest_pair "ib_write_lat" "$FAR" "$IN_PEER" "" ib_write_lat -s 64 -n "$(rounds 200)"
PINGPONG_SERVER_DEVICE=r1 PINGPONG_CLIENT_DEVICE=r0 \
	pingpong_pair "ibv_rc_pingpong" "$IN_PEER" "" "$FAR" ibv_rc_pingpong -g 1 -c -n "$(rounds 200)"
ip link set "$near" mtu 9000
ip -n peer link set "$far" mtu 9000
both_ways "ib_write_bw, jumbo frames" ib_write_bw -s 65536 -n "$(rounds 200)"
rping_rounds 65000 "$(rounds 200)" "$FAR" "$IN_PEER"
driver_lets_go "${cards[0]}"
