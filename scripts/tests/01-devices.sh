#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 800
# runs on: 7.2/4
# Making, showing and removing devices, on every kind of interface and with wrong
# arguments. Devices are removed while processes hold them, with their interface
# and with its namespace. siw has devices beside them. 66-device-races has what happens at once.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# ping_at ADDRESS: traffic over a device.
ping_at() {
	local server
	spawn server rping -s -a "$1" -p 7174 -C 10 -V
	server=$SPAWNED
	wait_listening 7174
	run 20 "rping $1" rping -c -a "$1" -p 7174 -C 10 -V
	finish "$server" 10 server
}

shown() {
	local out
	ibv_devices | shows -w r0 || die "ibv_devices does not list r0"
	ibv_devinfo -v -d r0 >"$WORK/devinfo"
	grep -q 'transport:.*iWARP' "$WORK/devinfo" || die "ibv_devinfo: not iWARP"
	grep -q 'PORT_ACTIVE' "$WORK/devinfo" || die "ibv_devinfo: port not active"
	for attribute in max_qp: max_cq: max_mr: max_pd: max_srq: max_qp_wr: max_cqe:; do
		out=$(awk -v a="$attribute" '$1 == a { print $2 }' "$WORK/devinfo")
		[ "${out:-0}" -gt 0 ] || die "ibv_devinfo: $attribute '$out'"
	done
	rdma link show r0/1 | shows 'state ACTIVE.*netdev rd0' || die "rdma link: $(rdma link show r0/1)"
	rdma dev show r0 | shows 'node_type rnic' || die "rdma dev: $(rdma dev show r0)"
	[ "$RSIW_TYPE" != rsiw ] || version_shown
	spawn server rping -s -a "$RDMA_V4" -p 7174
	local server=$SPAWNED client
	wait_listening 7174
	spawn client rping -c -a "$RDMA_V4" -p 7174 -C 1000000
	client=$SPAWNED
	wait_for 10 "two connected queue pairs in rdma resource" two_rts
	for kind in pd cq mr cm_id; do
		rdma resource show "$kind" link r0 2>/dev/null | shows "rping" ||
			rdma resource show "$kind" dev r0 2>/dev/null | shows "rping" || die "rdma resource show $kind has no rping"
	done
	rdma statistic show link r0/1 >"$WORK/statistic" || die "rdma statistic"
	stop "$client"
	stop "$server"
	ok "ibv_devices, ibv_devinfo, rdma link, dev, resource, statistic"
}

# The version has one place, dkms.conf. Readers of it are the module and the device.
version_shown() {
	local version
	version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$(dirname "$0")/../../dkms.conf")
	[ -n "$version" ] || die "dkms.conf has no version"
	[ "$(cat /sys/module/rsiw/version)" = "$version" ] || die "module version: $(cat /sys/module/rsiw/version), not $version"
	[ "$(cat /sys/class/infiniband/r0/fw_ver)" = "$version" ] || die "fw_ver: $(cat /sys/class/infiniband/r0/fw_ver)"
	[ "$(awk '$1 == "fw_ver:" { print $2 }' "$WORK/devinfo")" = "$version" ] ||
		die "ibv_devinfo: $(grep fw_ver "$WORK/devinfo")"
	rdma dev show r0 | shows "fw $version" || die "rdma dev: $(rdma dev show r0)"
	ok "version $version of the module and the device"
}
two_rts() { [ "$(rdma resource show qp link r0 | grep -c 'state RTS')" -ge 2 ]; }

wrong_uses() {
	local before
	before=$(links_now)
	refuse "no such interface" 'no such device' rdma link add r1 type "$RSIW_TYPE" netdev nosuch
	refuse "name taken" 'file exists' rdma link add r0 type "$RSIW_TYPE" netdev wrong0
	refuse "interface has a device" 'file exists' rdma link add r1 type "$RSIW_TYPE" netdev rd0
	refuse "unknown type" 'invalid|not supp|unknown|no such' rdma link add r1 type nonsense netdev rd0
	[ ! -e /sys/class/net/can0 ] ||
		refuse "interface of another kind" "$([ "$RSIW_TYPE" = rsiw ] && echo 'not supported' || echo 'not supp|invalid')" rdma link add r1 type "$RSIW_TYPE" netdev can0
	refuse "removing what is not there" 'no such|not found|invalid|wrong' rdma link del r9
	[ "$(links_now)" = "$before" ] || die "a refused command changed something: $(links_now)"
	ok "wrong uses are refused and change nothing"
}

# kind NAME ADDRESS COMMAND...: a device on a new interface.
kind() {
	local name=$1 at=$2
	shift 2
	"$@"
	[ "$name" = lo ] || NETDEVS+=("$name")
	ip link set "$name" up
	ip addr add "$at/32" dev "$name"
	rdma link add k0 type "$RSIW_TYPE" netdev "$name"
	wait_for 10 "the device on $name is there" has_link k0
	wait_for 10 "the device on $name has a node" verbs_node k0
	ping_at "$at"
	guids_differ
	rdma link del k0
	ip addr del "$at/32" dev "$name"
	[ "$name" = lo ] || ip link del "$name"
	ok "device on $name"
}

held_while_removed() {
	local holder out
	mkfifo "$WORK/hold"
	spawn holder sh -c "exec '$RSIW_TESTBIN/hold' r0 '$RDMA_V4' <>'$WORK/hold'"
	holder=$SPAWNED
	wait_for 10 "the holder is ready" grep -q ready "$(log_of holder)"
	out=$( { time -p timeout 20 rdma link del r0; } 2>&1 | awk '$1 == "real" { print int($2) }')
	[ "$out" -le $((3 * FACTOR)) ] || die "rdma link del took $out s while a process held the device"
	! has_link r0 || die "r0 is still there"
	wait_for 10 "the holder is told" grep -q fatal "$(log_of holder)"
	alive "$holder" || die "the holder died"
	make_link r0 rd0
	ping_at "$RDMA_V4"
	stop "$holder"
	ping_at "$RDMA_V4"
	ok "link del while a process holds the device"
}

interface_changes() {
	ip link set rd0 address 02:00:5e:00:53:01
	wait_for 10 "still active after the address changed" link_active r0
	ping_at "$RDMA_V4"
	ip link set rd0 down
	ip link set rd0 up
	ip addr replace "$RDMA_V6/64" dev rd0 nodad
	wait_for 10 "active after down and up" link_active r0
	ping_at "$RDMA_V4"
	ok "address change, down and up"
}

interface_goes() {
	local holder
	make_dummy gone0 10.96.0.1/24
	make_link g0 gone0
	spawn holder2 sh -c "exec '$RSIW_TESTBIN/hold' g0 10.96.0.1 <>'$WORK/hold'"
	holder=$SPAWNED
	wait_for 10 "the holder is ready" grep -q ready "$(log_of holder2)"
	within 20 ip link del gone0 || die "ip link del hangs"
	wait_for 15 "the device went with its interface" not has_link g0
	stop "$holder"
	ok "interface removed while its device is held"
}

namespace_goes() {
	veth_bed
	make_peer_link n0 "$RSIW_TYPE"
	within 20 ip netns del peer
	NETNS=()
	wait_for 20 "the device went with its namespace" not has_link n0
	ok "namespace removed"
}

autoload() {
	[ "$RSIW_TYPE" = rsiw ] || return 0
	modinfo -F alias rsiw >"$WORK/alias" 2>/dev/null || modinfo -F alias "${RSIW_KO:-rsiw}" >"$WORK/alias"
	for a in rdma-link-rsiw rdma-link-siw siw; do
		grep -qx "$a" "$WORK/alias" || die "no alias $a"
	done
	if [ -z "${RSIW_KO:-}" ]; then
		rdma link del r0
		unload_type rsiw
		make_link r0 rd0
		ok "rdma link add loads the module"
	fi
	if ! loaded siw; then
		make_dummy as0 10.95.0.1/24
		make_link s0 as0 siw
		! loaded siw || die "siw.ko came although rsiw serves its type"
		ping_at 10.95.0.1
		rdma link del s0
		ok "type siw without siw.ko"
	fi
}

reloading() {
	local i
	for i in $(seq "$(rounds 5)"); do
		rdma link del r0
		unload_type "$RSIW_TYPE"
		rsiw_load
		make_link r0 rd0
	done
	# A module whose devices have no users is unloaded at once, with the devices.
	unload_type "$RSIW_TYPE"
	! has_link r0 || die "the device outlived its module"
	rsiw_load
	make_link r0 rd0
	ping_at "$RDMA_V4"
	ok "unloaded and loaded again"
}

# siw loses a wake-up now and then, also without rsiw: one of three tries has to succeed.
siw_works() {
	local _
	for _ in 1 2 3; do
		(ping_at "$1") && return
		pkill -KILL -x rping || true
		wait_for 10 "nobody listens" not listening 7174
	done
	die "siw does not work at $1"
}

beside_siw() {
	[ "$RSIW_TYPE" = rsiw ] || return 0
	[ "${RSIW_KERNEL:-}" != debug ] || return 0 # see needs_stock
	if [ -z "${SIW_KO:-}" ] && ! modinfo -n siw 2>/dev/null | shows '/siw\.ko'; then
		die "siw.ko is not in the guest"
	fi
	rdma link del r0
	unload_type rsiw
	load_type siw
	rsiw_load
	make_link r0 rd0
	make_dummy sw0 10.94.0.1/24
	make_link s0 sw0 siw
	ping_at "$RDMA_V4"
	siw_works 10.94.0.1
	unload_type rsiw
	has_link s0 || die "unloading rsiw removed siw's device"
	siw_works 10.94.0.1
	rsiw_load
	make_link r0 rd0
	unload_type siw
	# siw's exit removes every device of its driver id, rsiw's too. The rsiw device can then be made again.
	has_link r0 || make_link r0 rd0
	ping_at "$RDMA_V4"
	ok "beside the kernel's siw"
}

single_bed
modprobe tun
if [ "${RSIW_KERNEL:-}" != debug ]; then # the debug kernel has no CAN
	modprobe vcan
	ip link add can0 type vcan
	NETDEVS+=(can0)
fi
make_dummy wrong0
shown
wrong_uses
kind veth0 10.90.0.1 ip link add veth0 type veth peer name veth1
kind br0 10.90.0.2 ip link add br0 type bridge
kind tun0 10.90.0.3 ip tuntap add tun0 mode tun
kind rd0.7 10.90.0.4 ip link add link rd0 name rd0.7 type vlan id 7
kind lo 10.90.0.5 true
held_while_removed
interface_changes
interface_goes
namespace_goes
autoload
reloading
beside_siw
