#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: soak
# The README's table of rsiw, siw and rxe: the same programs run over each driver in one machine. Rows on
# speed are those of make bench. siw's Terminate codes and RTR frames are known from its source only.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=pingpong.sh
. "$(dirname "$0")/pingpong.sh"
needs_stock

SRC=$(dirname "$0")/src
DRIVERS="rsiw siw rxe"
declare -A ADDRESS=([rsiw]=10.99.0.1 [siw]=10.99.1.1 [rxe]=10.99.2.1)
FAILED=0

# row WHAT "DRIVER=yes|no ..." COMMAND...: whether the command, with the driver's name behind it,
# succeeds on each of the drivers.
row() {
	local what=$1 expected=$2 pair driver seen
	shift 2
	for pair in $expected; do
		driver=${pair%=*}
		if ("$@" "$driver") >"$WORK/row.log" 2>&1 </dev/null; then seen=yes; else seen=no; fi
		if [ "$seen" = "${pair#*=}" ]; then
			ok "$what: $driver: $seen"
		else
			say "not ok: $what: $driver: $seen, and the README says ${pair#*=}"
			show_log "$WORK/row.log"
			FAILED=1
		fi
	done
}

# check NAME DRIVER: one of src/abi.c.
check() { timeout -k 5 $((30 * FACTOR)) "$RSIW_TESTBIN/abi" "${ADDRESS[$2]}" "$1"; }

pingpong() {
	PINGPONG_SERVER_DEVICE=${1}0 PINGPONG_CLIENT_DEVICE=${1}0 \
		pingpong_pair "ibv_rc_pingpong on $1" "" "" "${ADDRESS[$1]}" ibv_rc_pingpong -g 1 -n 20
}

# listener DRIVER: an rping server, which accepts every connection.
listener() {
	spawn "rping-$1" rping -s -P -a "${ADDRESS[$1]}" -p 7174
	LISTENER=$SPAWNED
	wait_listening 7174
}

end_listener() {
	stop "$LISTENER"
	wait_for 10 "nobody listens" not listening 7174
}

# asks_for M C WANTED DRIVER: the Reply to a Request with these flags.
asks_for() {
	local answer
	listener "$4"
	answer=$(timeout -k 5 30 python3 "$SRC/start_up.py" "${ADDRESS[$4]}" 7174 reply "$1" "$2")
	end_listener
	say "the Reply to M=$1 C=$2: $answer"
	# shellcheck disable=SC2053 # a pattern
	[[ $answer = $3 ]]
}

# A peer stalls for a minute; meanwhile rping has to end within a quarter of that.
passes_stalled_peer() {
	local status=0 staller
	listener "$1"
	spawn stall python3 "$SRC/start_up.py" "${ADDRESS[$1]}" 7174 stall
	staller=$SPAWNED
	wait_for 10 "the peer stalls" grep -q stalls "$WORK/stall.log"
	timeout -k 5 $((15 * FACTOR)) rping -c -a "${ADDRESS[$1]}" -p 7174 -C 1 || status=$?
	stop "$staller"
	end_listener
	return "$status"
}

has_atomics() { ibv_devinfo -d "${1}0" -v | shows 'atomic_cap:.*ATOMIC_HCA'; }

# Debian's own modules are below kernel/; rsiw, which answers to siw's name too, is not.
stock() {
	local name=$1
	[ "$1" != rxe ] || name=rdma_rxe
	modinfo -F filename "$name" | shows /kernel/
}

# The last row, since rdma link del removes the device. A process that waits for the holder cannot be killed.
goes_while_held() {
	local holder deleter status=0 end
	mkfifo "$WORK/hold-$1"
	spawn "holder-$1" sh -c "exec '$RSIW_TESTBIN/hold' '${1}0' <>'$WORK/hold-$1'"
	holder=$SPAWNED
	wait_for 10 "the holder is ready" grep -q ready "$(log_of "holder-$1")"
	spawn "del-$1" rdma link del "${1}0"
	deleter=$SPAWNED
	end=$(($(date +%s) + 10))
	while alive "$deleter"; do
		if [ "$(date +%s)" -ge "$end" ]; then
			say "rdma link del ${1}0 waits for the program"
			status=1
			break
		fi
		sleep 0.1
	done
	stop "$holder"
	finish "$deleter" 20 "del-$1"
	return "$status"
}

ip link set lo up
set_mtu 1500
load_type rsiw
load_type siw
modprobe rdma_rxe
for driver in $DRIVERS; do
	make_dummy "d$driver" "${ADDRESS[$driver]}/24"
	make_link "${driver}0" "d$driver" "$driver"
done

row "in Debian's kernels" "rsiw=no siw=no rxe=yes" stock
row "CRC without being asked for" "rsiw=yes siw=no" asks_for 0 0 'M=? C=1'
row "markers on request" "rsiw=yes siw=no" asks_for 1 1 'M=? C=?'
row "Read of several SGEs" "rsiw=yes siw=no rxe=yes" check read_with_two_elements
row "ibv_reg_mr_iova" "rsiw=yes siw=no rxe=yes" check iova
row "solicited-only notification" "rsiw=yes siw=no rxe=yes" check solicited_only
row "more than 144 one-page objects" "rsiw=yes siw=no rxe=yes" check many_objects
row "a Send waits for its receive" "rsiw=yes siw=no rxe=yes" check late_receive
row "others connect beside a peer that stalls" "rsiw=yes siw=no" passes_stalled_peer
row "ibv_rc_pingpong" "rsiw=yes siw=no rxe=yes" pingpong
row "atomics" "rsiw=no siw=no rxe=yes" has_atomics
# rxe removes a device in use since 7.3.
rxe_goes=no
[ "${RSIW_KERNEL:-}" != 7.3 ] || rxe_goes=yes
row "link del while a program holds the device" "rsiw=yes siw=no rxe=$rxe_goes" goes_while_held

rmmod rdma_rxe
[ "$FAILED" = 0 ] || die "the README says otherwise, see above"
