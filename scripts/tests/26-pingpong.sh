#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: 7.2/4
# Rendezvous by libibverbs' own examples, unmodified, on one device: with events, at
# sizes from 1 octet to 1 MiB, many rounds, every octet compared. GIDs are those of IPv4,
# IPv6 and link-local addresses, or none is given.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=pingpong.sh
. "$(dirname "$0")/pingpong.sh"

pair() {
	local label=$1
	shift
	# Both ends poll.
	pingpong_pair "$label" "taskset -c 0" "taskset -c 1" 127.0.0.1 "$@"
}

# The index of an address in the GID table.
index_of() { grep -l "$1" /sys/class/infiniband/r0/ports/1/gids/* | sed 's,.*/,,'; }

single_bed
[ "$(index_of 0000:0000:0000:0000:0000:ffff:0a63:0001)" = 1 ] || die "the IPv4 address is not GID 1"
v6=$(index_of fd99:0000:0000:0000:0000:0000:0000:0001)
[ -n "$v6" ] || die "the IPv6 address has no GID"

pair "ibv_rc_pingpong -g 1" ibv_rc_pingpong -g 1
pair "ibv_rc_pingpong -g 1 -e" ibv_rc_pingpong -g 1 -e
for size in 1 63 4096 65536 1048576; do
	pair "ibv_rc_pingpong $size octets" ibv_rc_pingpong -g 1 -s "$size" -n "$(rounds 50)" -c
done
# Completion events: two programs that poll leave little of two busy CPUs.
PINGPONG_LIMIT=120 pair "ibv_rc_pingpong -n 10000" ibv_rc_pingpong -g 1 -n "$(rounds 10000)" -s 256 -e
pair "ibv_rc_pingpong -m" ibv_rc_pingpong -g 1 -m 4096 -n 100
pair "ibv_rc_pingpong IPv6" ibv_rc_pingpong -g "$v6" -n 200 -c
pair "ibv_rc_pingpong link-local" ibv_rc_pingpong -g 0 -n 200 -c
pair "ibv_rc_pingpong without a GID" ibv_rc_pingpong -n 200 -c
pair "ibv_srq_pingpong" ibv_srq_pingpong -g 1 -q 16
pair "ibv_srq_pingpong -e" ibv_srq_pingpong -g 1 -q 4 -e
pair "ibv_srq_pingpong IPv6" ibv_srq_pingpong -g "$v6" -q 4 -c

# The link-local GID of an interface without that address is valid within one host.
ip -6 addr flush dev rd0 scope link
pair "ibv_rc_pingpong by name only" ibv_rc_pingpong -g 0 -n 100

# No queue pair of this host has this number, and no address was given.
spawn nobody ibv_rc_pingpong -d r0 -p 18690
nobody=$SPAWNED
wait_listening 18690
exec 3<>/dev/tcp/127.0.0.1/18690
printf '0000:000003:000001:00000000000000000000000000000000\0' >&3
wait_for 20 "the server gives up" gone "$nobody"
exec 3>&-
grep -q "Failed to modify QP to RTR" "$WORK/nobody.log" ||
	die "a peer that is not here is not refused at once: $(cat "$WORK/nobody.log")"
ok "without a GID a peer elsewhere is refused at once"

# The device is removed under traffic.
talking() { ss -Htin state established "sport = :4791" | shows 'bytes_acked:[0-9]\{5,\}'; }
spawn endless-server ibv_rc_pingpong -d r0 -p 18691 -g 1 -e -n 100000000
server=$SPAWNED
wait_listening 18691
spawn endless-client ibv_rc_pingpong -d r0 -p 18691 -g 1 -e -n 100000000 127.0.0.1
client=$SPAWNED
wait_for 20 "data flows" talking
within 10 rdma link del r0 || die "rdma link del in the middle does not finish (or fails: $?)"
stop "$client"
stop "$server"
make_link r0 rd0
pair "ibv_rc_pingpong after the device was gone" ibv_rc_pingpong -g 1 -n 100
