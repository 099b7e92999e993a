#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 800
# BPF programs of a control group, Landlock and the network namespace confine a process's connections by
# rendezvous and over rdma_cm (src/contained.py). Its memory cgroup is charged for the memory of sockets. The
# port of rendezvous is open while a queue pair waits. Guesses and attempts are limited.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=cgroup.sh
. "$(dirname "$0")/cgroup.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"

RSIW_PARAMS="rendezvous_timeout_ms=3000 connect_timeout_ms=3000 $RSIW_PARAMS"

# in_group COMMAND...
# shellcheck disable=SC2016 # expanded by the inner shell
in_group() { exec sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$CGROUP/charged" "$@"; }

# send_queue: octets of memory that the largest send queue of a connection has.
send_queue() { ss -Htnm state established | sed -n 's/.*skmem:(.*,w\([0-9]*\),.*/\1/p' | sort -n | tail -n 1; }

# half_charged: the control group is charged for at least half of a send queue of at least 250000 octets.
# memory.stat may lack the last two seconds, so a caller asks again. FULL counts samples with such a queue.
half_charged() {
	local queued sock
	queued=$(send_queue)
	[ "${queued:-0}" -ge 250000 ] || return 1
	FULL=$((FULL + 1))
	sock=$(sed -n 's/^sock //p' "$CGROUP/charged/memory.stat")
	SAMPLE="$sock octets are charged to the sender, whose send queue has $queued"
	[ "$sock" -ge $((queued / 2)) ]
}

# charged LABEL TOOL ARGUMENT...: the tool's data is on a path of 20 ms. The control group of the sending process is
# charged for the send queue, which TCP keeps until the peer acknowledges it. The receiver is outside of the
# group. ib_read_bw's server sends, and ib_write_bw's client.
PORT=18700
charged() {
	local label=$1 tool=$2 server end
	local -a before_server=() before_client=()
	shift 2
	case $tool in
	ib_read_bw) before_server=(in_group) ;;
	*) before_client=(in_group) ;;
	esac
	PORT=$((PORT + 1)) FULL=0 SAMPLE='data was never on the path'
	spawn server "${before_server[@]}" "$tool" "$@" -d r0 -F -p "$PORT" -s 65536 -D 300
	server=$SPAWNED
	wait_listening "$PORT"
	late_listener 18600-18999
	spawn client "${before_client[@]}" "$tool" "$@" -d r0 -F -p "$PORT" -s 65536 -D 300 "$RDMA_V4"
	end=$(($(date +%s) + 20 * FACTOR * PATIENCE))
	until half_charged; do
		if gone "$SPAWNED" || gone "$server" || [ "$(date +%s)" -ge "$end" ]; then
			show_log "$WORK/client.log"
			show_log "$WORK/server.log"
			die "$label: after $FULL samples: $SAMPLE"
		fi
		sleep 0.05
	done
	stop "$SPAWNED"
	stop "$server"
	ok "$label: $SAMPLE"
}

# pays: whether this kernel charges memory to control groups.
pays() { grep -qw memory "$CGROUP/cgroup.controllers"; }

cgroup_root
export CGROUP
# A stock kernel does. On others the charge is not tested.
pays || [[ ${RSIW_KERNEL:-} != 7.* ]] || die "this kernel has no memory cgroups"
single_bed
# shellcheck disable=SC2016 # expanded by the inner shell
for port in 7200 7201; do
	spawn "rping-$port" rping -s -P -a "$RDMA_V4" -p "$port"
	wait_listening "$port"
done
export RSIW_TESTBIN
PYTHONPATH="$(dirname "$0")/src:$PEER_DIR" timeout -k 5 $((600 * FACTOR)) python3 -B "$(dirname "$0")/src/contained.py" 2>&1 ||
	die "contained.py: status $?"

if ! pays; then
	say "this kernel has no memory cgroups"
	exit 4
fi
echo +memory >"$CGROUP/cgroup.subtree_control"
mkdir "$CGROUP/charged"
remove_group() { rmdir "$CGROUP/charged"; }
DONE_HOOK=remove_group
tc qdisc add dev lo root netem delay 20ms limit 100000
no_delay() {
	tc qdisc del dev lo root
	remove_group
}
DONE_HOOK=no_delay
# One of the two connects by rendezvous, the other one accepts.
charged "rdma_cm, accepted" ib_read_bw -R
charged "rdma_cm, connected" ib_write_bw -R
charged "rendezvous, the server sends" ib_read_bw -x 1
charged "rendezvous, the client sends" ib_write_bw -x 1
