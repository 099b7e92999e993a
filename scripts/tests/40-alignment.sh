#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 800
# runs on: 7.2/2
# TCP segments begin with an FPDU (docs/transmit.md; RFC 5044 section 5.1): at least 99 % of the segments
# with data do, at each message size. Bulk Writes, Sends and Reads pass over a cable with Ethernet's MTU,
# and are captured at the receiver with every offload off. src/alignment.py counts, after a self-test with
# segments that are not aligned.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"
# shellcheck source=capture.sh
. "$(dirname "$0")/capture.sh"

JUDGE="$(dirname "$0")/src/alignment.py"
LEAST=99
# Each transfer has this many octets.
TOTAL=$((16 << 20))
FAILED=0
# Each processor has a queue of its own for received packets. Packets of a program that moves to another
# processor are reordered, and TCP takes some for lost.
HERE="taskset -c 0"
THERE="taskset -c 1"

run 60 "self-test" python3 -B "$(dirname "$0")/src/alignment_selftest.py" "$WORK"
ok "the judge: $(grep -c '^ok: self-test' "$(log_of self-test)") made-up captures, good and bad, are told apart"

# without_offloads COMMAND-PREFIX INTERFACE: captured packets are those of a wire.
without_offloads() {
	local feature
	# shellcheck disable=SC2086 # a list of words
	$1 ethtool -K "$2" tso off gso off gro off lro off >"$WORK/ethtool.log" 2>&1 || true
	for feature in tcp-segmentation-offload generic-segmentation-offload generic-receive-offload large-receive-offload; do
		# shellcheck disable=SC2086
		$1 ethtool -k "$2" | shows "^$feature: off" || die "$2: $feature is not off: $(cat "$WORK/ethtool.log")"
	done
}

# cwnd_of COMMAND-PREFIX INTERFACE ADDRESS: connections from there have at most 20 segments under way.
cwnd_of() {
	$1 ip route change 10.98.0.0/24 dev "$2" proto kernel scope link src "$3" cwnd lock 20
	$1 ip route show dev "$2" | shows 'cwnd lock 20' || die "$2: the congestion window is not limited"
}

# judged KIND SIZE: a transfer in which TCP retransmits is made again. One with too few aligned segments is
# made twice more, and both have to have enough: a single cut misaligns the octets that TCP has queued
# then, about half a percent of such a transfer.
judged() {
	local status try need=1 short=0
	for try in $(seq 12); do
		status=0
		transfer "$@" || status=$?
		case $status in
		0)
			need=$((need - 1))
			[ "$need" -gt 0 ] || return 0
			;;
		3) say "$1 $2: try $try was disturbed" ;;
		*)
			short=$((short + 1)) need=2
			[ "$short" -lt 2 ] || break
			say "$1 $2: try $try was short; two more must not be"
			;;
		esac
	done
	FAILED=1
}

# transfer KIND SIZE [LEAST ARGUMENT...]: the data flows from the far end of the cable to the near one.
transfer() {
	local kind=$1 size=$2 least=${3:-$LEAST} count=$((TOTAL / $2)) status=0
	capture_start rv0 65536
	case $kind in
	read) perftest_pair "read $size" "$VETH_FAR" "$IN_PEER $HERE" "$THERE" ib_read_bw -s "$size" -n "$count" "${@:4}" ;;
	*) perftest_pair "$kind $size" "$VETH_NEAR" "$HERE" "$IN_PEER $THERE" "ib_${kind}_bw" -s "$size" -n "$count" "${@:4}" ;;
	esac
	capture_stop
	timeout -k 5 $((60 * FACTOR)) python3 -B "$JUDGE" "$CAPTURE" "$kind" "$size" "$count" "$least" || status=$?
	rm "$CAPTURE"
	return "$status"
}

rsiw_load
veth_bed
without_offloads "" rv0
without_offloads "$IN_PEER" rv1
# Without GRO the cable ends in this queue; a bulk transfer must not overrun it.
echo 20000 >/proc/sys/net/core/netdev_max_backlog
# TCP cuts a segment where the receiver's window ends, and the octets queued then (up to 1 MiB) follow
# with that shift. No sender above TCP can avoid the cut, so the window is larger here.
for inside in "" "$IN_PEER"; do
	$inside sysctl -q -w net.ipv4.tcp_rmem='4096 8388608 8388608'
done
make_link r0 rv0
make_peer_link r1 "$RSIW_TYPE"
# All rounds: every size with every kind. Otherwise: each size and each kind once.
cases="write 1048576  send 65536  read 16384"
! all_rounds || cases="$cases  write 65536  write 16384  send 1048576  send 16384  read 1048576  read 65536"
# shellcheck disable=SC2086 # pairs of words
while read -r kind size; do
	judged "$kind" "$size"
done < <(printf '%s %s\n' $cases)
# With a small congestion window and a long RTT TCP sends a buffer in parts: a full buffer has room again
# after the first part. Short queues make bursts that end within a segment.
cwnd_of "" rv0 "$VETH_NEAR"
cwnd_of "$IN_PEER" rv1 "$VETH_FAR"
tc qdisc add dev rv0 root netem delay 5ms limit 20000
# On the debug kernel even a message of 16 KiB is sent before the next one is posted.
short=$LEAST
[ "$FACTOR" -lt 4 ] || short=97
for kind in write send read; do
	if all_rounds || [ "$kind" = write ]; then judged "$kind" 16384 "$short"; fi
	if all_rounds || [ "$kind" = send ]; then judged "$kind" 6000 97 -t 4; fi
done
[ "$FAILED" = 0 ] || die "cases above failed"
