#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 180
# Rings and the tables of pinned pages are charged to the memory cgroup of the process that asks for them.
# The charge is seen, an allocation above the limit fails, and all is uncharged when the process ends.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=cgroup.sh
. "$(dirname "$0")/cgroup.sh"

# Octets of the rings that src/rings.c asks for one by one.
RING=32000000
LIMIT=$((64 << 20))
# More octets than the program needs besides its rings.
SLACK=$((8 << 20))

used() { cat "$GROUP/memory.current"; }
no_more_than() { [ "$(used)" -le "$1" ]; }
made() { grep -c '^made' "$(log_of "$1")" || true; }
over() { gone "$SPAWNED" || grep -qx "done" "$(log_of "$1")"; }

# rings NAME COUNT: a process in the cgroup that asks for rings until one is refused, or there are COUNT.
rings() {
	# shellcheck disable=SC2016 # expanded by the inner shell
	spawn "$1" sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" r0 "$3"' sh "$GROUP" "$RSIW_TESTBIN/rings" "$2"
	(wait_for 60 "$1: all rings are made, or no more are to be had" over "$1") && return
	show_log "$(log_of "$1")"
	die "$1: hangs after $(made "$1") rings"
}

# given_back NAME
given_back() {
	stop "$SPAWNED"
	(wait_for 20 "$1: the memory comes back" no_more_than "$SLACK") || die "$1: $(used) octets are left"
}

remove_group() { rmdir "$GROUP"; }

cgroup_root
if ! grep -qw memory "$CGROUP/cgroup.controllers"; then
	say "this kernel has no memory cgroups: nobody could pay for rings"
	exit 4
fi
GROUP=$CGROUP/rsiw-test
echo +memory >"$CGROUP/cgroup.subtree_control"
mkdir "$GROUP"
DONE_HOOK=remove_group
single_bed

rings counted 3
[ "$(made counted)" = 3 ] || {
	show_log "$(log_of counted)"
	die "$(made counted) of 3 rings were made, without a limit"
}
used=$(used)
[ "$used" -ge $((3 * RING)) ] || die "three rings of $RING octets, of which the cgroup pays for $used"
given_back counted
ok "three rings: $used octets, and $(used) afterwards"

echo "$LIMIT" >"$GROUP/memory.max"
rings limited 16
case $(made limited) in
1 | 2) ;;
*)
	show_log "$(log_of limited)"
	die "$(made limited) rings of $RING octets were made with $LIMIT"
	;;
esac
if gone "$SPAWNED"; then how=killed; else how=$(grep '^refused' "$(log_of limited)"); fi
given_back limited
ok "with $LIMIT octets: $(made limited) rings, then $how"
run 20 "afterwards" "$RSIW_TESTBIN/abi" "$RDMA_V4" zero_length

# Last, as the files of Python stay in the cgroup.
echo max >"$GROUP/memory.max"
# shellcheck disable=SC2016 # expanded by the inner shell
run 60 pinned sh -c 'echo $$ >"$1/cgroup.procs" && exec python3 -B "$2" r0 "$1"' sh "$GROUP" "$(dirname "$0")/src/pinned.py"
ok "a region: $(cat "$(log_of pinned)")"
