#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: soak
# Each allocation of loading the module, and of rdma link add, fails once. The command runs again and again; in its Nth
# run the kernel refuses the Nth allocation that the command's task makes there (/proc/PID/fail-nth). The
# command fails or succeeds, and the last run, with nothing refused, succeeds. No device is left. Then an
# interface changes while every allocation of the driver fails: addresses and speed of the device follow.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=rping.sh
. "$(dirname "$0")/rping.sh"

# The kinds of faults that count down together: slab, pages, copies from and to the program, and others.
FAULTS=(/sys/kernel/debug/fail*/)

set_faults() {
	local pair place
	for pair in "$@"; do
		for place in "${FAULTS[@]}"; do
			[ ! -e "$place${pair%%=*}" ] || echo "${pair#*=}" >"$place${pair%%=*}"
		done
	done
}

# function_range NAME: its addresses.
function_range() {
	sort /proc/kallsyms | awk -v name="$1" '
		from && !to && $1 != from { to = $1; print "0x" from, "0x" to }
		$3 == name && $4 == "" { from = $1 }'
}

only_below() {
	[ -n "${2:-}" ] || die "no addresses of the functions"
	set_faults require-start="$1" require-end="$2"
}

reject() {
	[ -n "${2:-}" ] || die "no addresses of the function"
	set_faults reject-start="$1" reject-end="$2"
}

refused_yet() {
	local place
	for place in "${FAULTS[@]}"; do
		[ "$(cat "${place}times")" = 1 ] || return 0
	done
	return 1
}

# refusing N SECONDS COMMAND...
# shellcheck disable=SC2016 # expanded by the inner shell
refusing() {
	local nth=$1 limit=$2
	shift 2
	timeout -k 5 "$limit" sh -c 'echo "$1" >/proc/self/fail-nth; shift; exec "$@"' sh "$nth" "$@"
}

# each_refused LABEL LEAST UNDO FUNCTION: runs FUNCTION N for N = 1, 2, ... until no allocation is left to refuse.
# At least LEAST allocations must be found. UNDO undoes the run before, and gets its status.
each_refused() {
	local label=$1 least=$2 undo=$3 function=$4 n failed=0 status=0
	for ((n = 1; n < 300; n++)); do
		"$undo" "$status"
		set_faults times=1
		status=0
		("$function" "$n") >"$WORK/refused.log" 2>&1 </dev/null || status=$?
		[ "$status" -lt 124 ] || {
			show_log "$WORK/refused.log"
			die "$label, allocation $n: status $status"
		}
		refused_yet || break
		[ $((n % 20)) != 0 ] || say "$label: $n allocations refused"
		[ "$status" = 0 ] || failed=$((failed + 1))
	done
	set_faults times=0
	[ "$n" -lt 300 ] || die "$label: more than $n allocations"
	[ "$status" = 0 ] || {
		show_log "$WORK/refused.log"
		die "$label: fails with status $status, although no allocation was refused"
	}
	[ "$n" -gt "$least" ] || die "$label: only $((n - 1)) allocations, expected $least at least"
	ok "$label: each of $((n - 1)) allocations was refused, $failed runs failed"
}

load() { refusing "$1" 60 insmod "$KO"; }
add() { refusing "$1" 60 rdma link add r0 type rsiw netdev rd0; }
unload() {
	loaded rsiw || return 0
	[ "$1" = 0 ] || die "a failed load leaves the module"
	rmmod rsiw
}
delete() {
	has_link r0 || return 0
	[ "$1" = 0 ] || die "a failed rdma link add leaves the device"
	rdma link del r0
}

[ -e /proc/self/fail-nth ] && [ -d "${FAULTS[0]}" ] || exit 4
[ "$RSIW_TYPE" = rsiw ] || exit 4
KO=${RSIW_KO:-$(modinfo -n rsiw)}
set_faults task-filter=N cache-filter=N ignore-gfp-wait=N ignore-gfp-highmem=N min-order=0 verbose=0 stacktrace-depth=32

# The module and its device.
single_bed
rdma link del r0
rmmod rsiw
# shellcheck disable=SC2046 # two words
only_below $(function_range do_one_initcall)
each_refused "loading the module" 5 unload load
rsiw_load
# shellcheck disable=SC2046
only_below $(PYTHONPATH=$PEER_DIR python3 -B -c 'import faults; print(*map(hex, faults.driver_range()))')
# ib_core makes some hundred objects in sysfs for a device. The undoing of a failure there is ib_core's, not the
# driver's.
# shellcheck disable=SC2046
reject $(function_range ib_register_device)
each_refused "rdma link add" 5 delete add
reject 0 0
delete 0
make_link r0 rd0

# The network stack reports a change of an interface once, so the driver may lose none. (ib_core's own event of a
# change of the GID table is not the driver's.)
changes() {
	local n
	ip tuntap add tap0 mode tap || die "no tap"
	NETDEVS+=(tap0)
	ethtool -s tap0 speed 25000 duplex full autoneg off
	ip link set tap0 up
	# The tap has no carrier, since no process has it open.
	rdma link add r1 type rsiw netdev tap0
	wait_for 10 "the port has 25 Gb/s" rate_is r1 25
	# shellcheck disable=SC2046
	reject $(function_range ib_dispatch_event)
	set_faults times=-1 interval=1 probability=100
	for n in 77 78; do ip addr add "10.99.0.$n/24" dev rd0; done
	ip addr del 10.99.0.78/24 dev rd0
	ethtool -s tap0 speed 100000 duplex full autoneg off
	ip link set tap0 down
	ip link set tap0 up
	(wait_for 10 "the port has 100 Gb/s" rate_is r1 100 && wait_for 10 "the new address is a GID" has_gid 0a63:004d &&
		wait_for 10 "the old one is none any more" not has_gid 0a63:004e) || n=
	set_faults probability=0 times=0
	reject 0 0
	[ -n "$n" ] || die "a change was lost, as memory was short"
	rdma link del r1
	ok "addresses and speed change while no memory is to be had"
}
rate_is() { [[ $(cat "/sys/class/infiniband/$1/ports/1/rate") == "$2 "* ]]; }
has_gid() { grep -l "0000:0000:0000:0000:0000:ffff:$1" /sys/class/infiniband/r0/ports/1/gids/*; }
changes
rping_rounds 64 20 "$RDMA_V4"
