#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: uml
# A device is made while its interface goes, while addresses change, and while another device is made. The module
# refuses parameters that are out of range.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# An interface is removed while a device is made on it. The device is made or refused, and nothing of it remains.
vanishing() {
	local before added=0 i rounds
	rounds=$(rounds 20)
	before=$(links_now)
	for i in $(seq "$rounds"); do
		ip link add gone1 type dummy
		spawn add timeout $((20 * FACTOR * PATIENCE)) rdma link add g1 type "$RSIW_TYPE" netdev gone1
		# Two of five times both programs start at once.
		[ $((i % 5)) -lt 2 ] || sleep "0.0$((i % 5))"
		within 20 ip link del gone1 || die "ip link del hangs while a device is made on the interface"
		wait_for 20 "rdma link add ends" gone "$SPAWNED"
		if wait "$SPAWNED"; then
			added=$((added + 1))
		else
			grep -qiE 'no such|invalid|not found|cannot find' "$(log_of add)" || die "the answer is '$(cat "$(log_of add)")'"
		fi
		wait_for 10 "no device without its interface" not has_link g1
	done
	refuse "interface that has gone" 'no such|invalid|not found|cannot find' rdma link add g1 type "$RSIW_TYPE" netdev gone1
	[ "$(links_now)" = "$before" ] || die "something is left: $(links_now)"
	ok "interface vanishes while a device is made on it ($added of $rounds were made first)"
}

gid_of() { cat "/sys/class/infiniband/$1/ports/1/gids/"*; }
has_gid() { gid_of "$1" | shows "^$2\$"; }

# The GID table has the addresses that the interface gets while the device is made.
changing() {
	local i
	[ "$RSIW_TYPE" = rsiw ] || return 0
	for i in $(seq "$(rounds 20)"); do
		make_dummy "chg$i"
		spawn add timeout $((20 * FACTOR * PATIENCE)) rdma link add c1 type rsiw netdev "chg$i"
		sleep "0.0$((i % 4))"
		ip addr add 10.91.0.1/24 dev "chg$i"
		ip link set "chg$i" address 02:00:5e:00:53:02
		finish "$SPAWNED" 20 add
		wait_for 10 "the address is a GID" has_gid c1 0000:0000:0000:0000:0000:ffff:0a5b:0001
		wait_for 10 "the hardware address makes a GID" has_gid c1 fe80:0000:0000:0000:0000:5eff:fe00:5302
		rdma link del c1
		ip link del "chg$i"
	done
	ok "addresses change while a device is made"
}

# One of two processes that make a device on one interface succeeds. Devices made at once have different GUIDs.
at_once() {
	local i one two made
	[ "$RSIW_TYPE" = rsiw ] || return 0
	make_dummy once0
	ip link add link once0 name once0.5 type vlan id 5
	for i in $(seq "$(rounds 20)"); do
		spawn one timeout $((20 * FACTOR * PATIENCE)) rdma link add o1 type rsiw netdev once0
		one=$SPAWNED
		spawn two timeout $((20 * FACTOR * PATIENCE)) rdma link add o2 type rsiw netdev once0
		two=$SPAWNED
		made=0
		! wait "$one" || made=$((made + 1))
		! wait "$two" || made=$((made + 1))
		[ "$made" = 1 ] || die "$made devices on one interface, round $i"
		grep -qi 'file exists' "$(log_of one)" "$(log_of two)" || die "the other was not told: $(cat "$(log_of one)" "$(log_of two)")"
		! has_link o1 || rdma link del o1
		! has_link o2 || rdma link del o2
		spawn one timeout $((20 * FACTOR * PATIENCE)) rdma link add o1 type rsiw netdev once0
		one=$SPAWNED
		rdma link add o2 type rsiw netdev once0.5
		finish "$one" 20 one
		guids_differ
		rdma link del o1
		rdma link del o2
	done
	ip link del once0
	ok "devices made at once"
}

wrong_parameters() {
	local p
	[ "$RSIW_TYPE" = rsiw ] || return 0
	rdma link del r0
	unload_type rsiw
	for p in crc=2 mpa_rev=0 mpa_rev=3 markers=2 peer_to_peer=2 rev1_fallback=2 connect_timeout_ms=0 \
		mpa_request_timeout_ms=4294967295 mpa_reply_timeout_ms=3600001 rendezvous_port=65536 \
		rendezvous_timeout_ms=0 doorbell_coalesce_usecs=1001 direct_port=65536 direct_timeout_ms=0 gather_us=1001; do
		RSIW_PARAMS=$p
		if (rsiw_load) 2>"$WORK/insert"; then
			die "the module loads with $p"
		fi
		! loaded rsiw || die "the module is there with $p"
		# An old name sets the same parameter.
		p=$(echo "$p" | sed 's/^direct_/rendezvous_/; s/^gather_us/doorbell_coalesce_usecs/')
		dmesg | tail -n 3 | shows "rsiw: parameter $p is out of range" || die "the log does not name $p: $(dmesg | tail -n 3)"
	done
	RSIW_PARAMS=
	rsiw_load
	make_link r0 rd0
	ok "parameters out of range are refused"
}

single_bed
vanishing
changing
at_once
wrong_parameters
