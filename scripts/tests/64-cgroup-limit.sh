#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# runs on: uml
# The memory cgroup that pays for the sockets of two ends has reached its limit in the middle of a stream
# (memory.max). The stream goes on, each octet is right (src/integrity.c), and the stream ends without an error.
# Programs of other control groups are not affected. The control group is empty when the stream has ended.
# A control group pays for the memory of streams, too (src/streams_charged.py).
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=cgroup.sh
. "$(dirname "$0")/cgroup.sh"
# shellcheck source=rping.sh
. "$(dirname "$0")/rping.sh"

# Octets that have to be sent with the limit reached.
MORE=4000000

sent() { cat /sys/class/infiniband/r0/ports/1/hw_counters/tx_octets; }
sent_more_than() { [ "$(sent)" -gt "$1" ]; }
over_or_sent() { gone "$LOAD" || sent_more_than "$1"; }
socket_memory() { sed -n 's/^sock //p' "$GROUP/memory.stat"; }
no_socket_memory() { [ "$(socket_memory)" = 0 ]; }
remove_group() { rmdir "$GROUP"; }

# goes_on OCTETS WHEN: the program sends more, or says why it does not.
goes_on() {
	(wait_for 30 "$2: $1 octets more are sent" over_or_sent $(($(sent) + $1))) && alive "$LOAD" && return
	show_log "$(log_of load)"
	die "$2: the stream does not go on"
}

cgroup_root
if ! grep -qw memory "$CGROUP/cgroup.controllers"; then
	say "this kernel has no memory cgroups"
	exit 4
fi
GROUP=$CGROUP/limited
echo +memory >"$CGROUP/cgroup.subtree_control"
mkdir "$GROUP"
DONE_HOOK=remove_group
single_bed

# shellcheck disable=SC2016 # expanded by the inner shell
spawn load sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" -n 1000000 -s 7 "$3"' sh "$GROUP" "$RSIW_TESTBIN/integrity" "$RDMA_V4"
LOAD=$SPAWNED
goes_on 1000000 "without a limit"
# From now on the program's pages are charged to another control group. The memory of its sockets is not.
echo "$LOAD" >"$CGROUP/cgroup.procs"
echo 0 >"$GROUP/memory.max"
goes_on "$MORE" "at the limit"
(wait_for 20 "sockets are charged beyond the limit" not no_socket_memory) || die "the control group pays for no socket"
rping_rounds 4096 5 "$RDMA_V4"
ok "with $(socket_memory) octets of sockets beyond a limit of 0"
echo max >"$GROUP/memory.max"
goes_on "$MORE" "without a limit again"
kill -TERM "$LOAD"
finish "$LOAD" 30 load
wait_for 20 "no memory of sockets is charged" no_socket_memory
ok "$(tail -n 1 "$(log_of load)")"

# shellcheck disable=SC2016 # expanded by the inner shell
run 60 streams sh -c 'echo $$ >"$1/cgroup.procs" && exec python3 -B "$2" r0 "$1"' sh "$GROUP" "$(dirname "$0")/src/streams_charged.py"
ok "$(cat "$(log_of streams)")"
