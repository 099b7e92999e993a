# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Shared by the scripts that run inside the guest: modules, interfaces, RDMA devices,
# background programs, and waits with a time limit.
#
# Environment a caller may set:
#   RSIW_TYPE   link type under test: rsiw (default) or siw
#   RSIW_PARAMS module parameters for rsiw.ko, e.g. "crc=0"
#   RSIW_KO     path of rsiw.ko; without it modprobe finds the module
#   SIW_KO      path of siw.ko (the peer of the interoperation tests)
#   RSIW_TIME_FACTOR stretches the time limits inside tests, and divides the number of repeats (debug kernel)
#   RSIW_SHARE  divides the number of repeats (default 1)
#   RSIW_TESTBIN programs made of scripts/tests/src (default: build/tests of the checkout)
#
# On exit devices and interfaces of these functions are removed, in the reverse
# order, and the modules are unloaded. With a leaked reference a module cannot be
# unloaded, and the test fails.
set -eu -o pipefail

RSIW_TYPE=${RSIW_TYPE:-rsiw}
RSIW_PARAMS=${RSIW_PARAMS:-}
FACTOR=${RSIW_TIME_FACTOR:-1}
# Limits of wait_for, run and finish are for an idle host. Other lanes of make test may keep it busy.
PATIENCE=3
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

LIB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=stuck.sh
. "$LIB_DIR/stuck.sh"
# shellcheck disable=SC2034 # for the callers
PEER_DIR=$LIB_DIR/../../tests/peer
# shellcheck disable=SC2034 # for the callers
RSIW_TESTBIN=${RSIW_TESTBIN:-$LIB_DIR/../../../build/tests}
WORK=$(mktemp -d /tmp/rsiw-test.XXXXXX)
NETDEVS=()
NETNS=()
MOUNTS=()
PIDS=()
DONE_HOOK=:

say() { printf '%s\n' "$*"; }
# ok: prints a result with the time since boot, the time stamp of the kernel's messages.
ok() { printf 'ok: %s [%s]\n' "$*" "$(uptime_seconds)"; }
die() {
	printf 'FAIL: %s\n' "$*" >&2
	exit 1
}

# Seconds since boot, with two decimals.
uptime_seconds() { cut -d' ' -f1 /proc/uptime; }

# wait_for SECONDS DESCRIPTION COMMAND...: polls until the command succeeds.
wait_for() {
	local limit=$(($1 * FACTOR * PATIENCE)) what=$2 end
	shift 2
	end=$(($(date +%s) + limit))
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$end" ] || die "after $limit s still not: $what"
		sleep 0.1
	done
}

# shows PATTERN: as "grep -q", but reads to the end. Otherwise the program before it in a pipe ends by
# SIGPIPE, a failure under pipefail.
shows() { grep "$@" >/dev/null; }

# rounds COUNT: divided by the factor of a slow kernel, where the checkers need few rounds, and by the test's
# share on this kernel ("# runs on:").
rounds() { echo $(((($1 - 1) / FACTOR / ${RSIW_SHARE:-1}) + 1)); }

# all_rounds: whether no share reduces the rounds.
all_rounds() { [ "${RSIW_SHARE:-1}" = 1 ]; }

# not COMMAND...: for wait_for.
not() { ! "$@"; }

# within SECONDS COMMAND...: ends a command that hangs, with status 124.
within() { timeout -k 5 $(($1 * FACTOR * PATIENCE)) "${@:2}"; }

# run SECONDS LABEL COMMAND...: must succeed in time; its output is shown only if it does not.
run() {
	local limit=$(($1 * FACTOR * PATIENCE)) label=$2 status=0 log
	shift 2
	log=$(log_of "$(label_of "$label")")
	timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
	[ "$status" -eq 0 ] && return 0
	[ "$1/$status" != rping/255 ] || ! events_too_late "$log" || return 0
	show_log "$log"
	[ "$status" -ne 124 ] || die "$label: not finished after $limit s: $*"
	die "$label: status $status, $(last_line "$log") ($*)"
}

# last_line LOG: of a failed program; a machine that tells only the summary tells it, too.
last_line() { grep -v '^[[:space:]]*$' "$1" | tail -n 1 | tr -d '\r' | cut -c 1-300; }

# events_too_late LOG: a client of rping did all rounds and closed its event channel, and its other thread read
# from the channel again. rping then ends with 255. Any earlier failure is in the log.
events_too_late() {
	shows 'rdma_get_cm_event: Bad file descriptor' <"$1" &&
		! shows -av -e '^ping data: ' -e '^client DISCONNECT EVENT' -e '^rdma_get_cm_event: Bad file descriptor' <"$1"
}

# refuse LABEL PATTERN COMMAND...: must fail, and its output must match PATTERN.
refuse() {
	local label=$1 pattern=$2 out status=0
	shift 2
	out=$(within 20 "$@" 2>&1 </dev/null) || status=$?
	[ "$status" -ne 0 ] || die "$label: was accepted: $*"
	[ "$status" -lt 124 ] || die "$label: hangs or crashed (status $status): $*"
	printf '%s\n' "$out" | shows -iE -e "$pattern" || die "$label: the answer '$out' does not say '$pattern'"
}

show_log() {
	say "---- $1"
	tail -n 60 "$1" | sed 's/^/     | /'
}

# The name of run's log for a label.
label_of() { printf %s "$1" | tr -c 'A-Za-z0-9._-' _; }
log_of() { printf '%s/%s.log' "$WORK" "$1"; }

# spawn NAME COMMAND...: in the background, output in a log; the process id is in SPAWNED.
spawn() {
	local name=$1
	shift
	"$@" >"$WORK/$name.log" 2>&1 </dev/null &
	SPAWNED=$!
	PIDS+=("$SPAWNED")
}

alive() { kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
gone() { ! alive "$1"; }

# finish PID SECONDS NAME: a spawned program must end by itself, successfully.
finish() {
	local pid=$1 limit=$(($2 * FACTOR * PATIENCE)) name=$3 status=0
	local end=$(($(date +%s) + limit))
	while alive "$pid"; do
		if [ "$(date +%s)" -ge "$end" ]; then
			show_log "$WORK/$name.log"
			die "$name: not finished after $limit s"
		fi
		sleep 0.1
	done
	wait "$pid" || status=$?
	[ "$status" -eq 0 ] && return 0
	show_log "$WORK/$name.log"
	die "$name: status $status"
}

# stop PID: ends a spawned program by SIGKILL.
stop() {
	kill -9 "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

# listening PORT [PREFIX]: some TCP socket (a kernel one too) listens; PREFIX is a command such as
# "ip netns exec X".
# shellcheck disable=SC2086 # a list of words
listening() { [ -n "$(${2:-} ss -Hltn "sport = :$1" 2>/dev/null)" ]; }
# wait_listening PORT [PREFIX]
wait_listening() { wait_for 20 "a listener on TCP port $1" listening "$1" "${2:-}"; }

# late_listener PORTS [PREFIX]: for programs that tell the peer a port before they listen there. In that namespace a SYN
# to a closed TCP port of these (low-high) gets no answer, so TCP sends it again after 1 s. The answer is a RST with
# sequence number 0 (RFC 9293 section 3.10.7.1). Once in a test.
late_listener() {
	local done_before="$WORK/late-listener${2:+-${2// /-}}"
	[ ! -e "$done_before" ] || return 0
	: >"$done_before"
	modprobe -q nf_tables || return 0
	# shellcheck disable=SC2086 # a list of words
	${2:-} nft -f - <<-EOF
		table inet late_listener
		delete table inet late_listener
		table inet late_listener {
			chain refusals {
				type filter hook output priority 0
				tcp sport $1 tcp sequence 0 tcp flags & rst == rst drop
			}
		}
	EOF
}

# ---- tracing

TRACING=/sys/kernel/tracing

# trace_begin: an empty trace, without names of programs. For their recording the kernel patches its scheduler's
# code, which may kill an emulated processor (scripts/lab/splats.sh, stale_breakpoint).
trace_begin() {
	mountpoint -q "$TRACING" || mount -t tracefs none "$TRACING"
	echo 0 >"$TRACING/options/record-cmd"
	echo >"$TRACING/trace"
}

# ---- modules

loaded() { [ -d "/sys/module/$1" ]; }

insert() {
	local name=$1 file=$2 deps
	shift 2
	if [ -n "$file" ]; then
		deps=$(modinfo -F depends "$file" | tr , ' ')
		# shellcheck disable=SC2086 # a list of words
		[ -z "$deps" ] || modprobe -a $deps
		insmod "$file" "$@"
	else
		modprobe "$name" "$@"
	fi
	loaded "$name" || die "module $name did not come up"
}

# load_type TYPE: the module behind a link type, and what user space needs.
load_type() {
	modprobe -a ib_uverbs rdma_cm rdma_ucm
	loaded "$1" && return 0
	case $1 in
	siw) insert siw "${SIW_KO:-}" ;;
	*)
		# shellcheck disable=SC2086 # a list of words
		insert rsiw "${RSIW_KO:-}" $RSIW_PARAMS
		;;
	esac
}

# needs_stock: skips a test that needs another driver too. The x86 debug kernel has none, and siw cannot be
# built for it: the kernel has the CRC functions only where a driver of its own selects them.
needs_stock() { [ "${RSIW_KERNEL:-}" != debug ] || exit 4; }

# The module under test.
rsiw_load() { load_type "$RSIW_TYPE"; }

unload_type() {
	loaded "$1" || return 0
	wait_for 20 "module $1 unloads" rmmod "$1"
}

# ---- interfaces and devices

# make_dummy NAME ADDRESS/LEN...
make_dummy() {
	local name=$1
	shift
	modprobe dummy numdummies=0
	ip link add "$name" type dummy
	NETDEVS+=("$name")
	address_up "$name" "$@"
}

address_up() {
	local name=$1 a
	shift
	ip link set "$name" up
	for a in "$@"; do
		case $a in
		*:*) ip addr add "$a" dev "$name" nodad ;;
		*) ip addr add "$a" dev "$name" ;;
		esac
	done
}

make_netns() {
	ip netns add "$1"
	NETNS+=("$1")
	ip -n "$1" link set lo up
}

links_now() { rdma link show | sort; }
has_link() { [ -e "/sys/class/infiniband/$1" ]; }
link_active() { grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state"; }
verbs_node() { ls "/sys/class/infiniband_verbs/"*/ibdev >/dev/null 2>&1 && grep -lx "$1" /sys/class/infiniband_verbs/*/ibdev; }

# NVMe and iSER take two devices of one GUID for one; a VLAN has the address of the interface below.
guids_differ() {
	local twice
	[ "$RSIW_TYPE" = rsiw ] || return 0
	twice=$(cat /sys/class/infiniband/*/node_guid | sort | uniq -d)
	[ -z "$twice" ] || die "two devices have the GUID $twice"
}

# The /dev/infiniband/uverbsN of a device.
uverbs_path() {
	local f
	f=$(verbs_node "$1") || die "$1 has no uverbs node"
	printf '/dev/infiniband/%s' "$(basename "$(dirname "$f")")"
}

# make_link NAME NETDEV [TYPE]: rdma link add, then wait until programs can use it.
make_link() {
	rdma link add "$1" type "${3:-$RSIW_TYPE}" netdev "$2"
	wait_for 10 "$1 is active" link_active "$1"
	wait_for 10 "$1 has a uverbs node" verbs_node "$1"
	wait_for 10 "the device node of $1" test -e "$(uverbs_path "$1")"
}

# none_left KIND: r0 has no object of this kind, as "rdma resource show" names them.
none_left() {
	local objects by="dev"
	[[ $1 != @(qp|cm_id) ]] || by="link"
	objects=$(rdma resource show "$1" "$by" r0) && [ -z "$objects" ]
}
no_qps() { none_left qp; }

# The usual bed: one dummy interface with both address families and a device on it.
# Traffic to an own address goes through lo, whose MTU is what TCP sees.
# shellcheck disable=SC2034 # for the callers
single_bed() {
	RDMA_V4=10.99.0.1
	RDMA_V6=fd99::1
	rsiw_load
	ip link set lo up
	set_mtu 1500
	make_dummy rd0 "$RDMA_V4/24" "$RDMA_V6/64"
	make_link r0 rd0
}

# interface_goes, module_goes: remove the device of single_bed under its users, and make it again.
interface_goes() {
	ip link del rd0
	wait_for 20 "the device goes with its interface" not has_link r0
	make_dummy rd0 "$RDMA_V4/24" "$RDMA_V6/64"
	make_link r0 rd0
}

module_goes() {
	run 30 "rmmod under users of the kernel" rmmod "$RSIW_TYPE"
	rsiw_load
	make_link r0 rd0
}

# Two interfaces joined by a cable, the second in the network namespace "peer".
# siw confuses namespaces when both have the same interface index.
# shellcheck disable=SC2034 # for the callers
veth_bed() {
	VETH_NEAR=10.98.0.1
	VETH_FAR=10.98.0.2
	IN_PEER="ip netns exec peer"
	ip link set lo up
	make_netns peer
	ip link add rv0 index 40 type veth peer name rv1 index 41 netns peer
	NETDEVS+=(rv0)
	address_up rv0 "$VETH_NEAR/24" fd98::1/64
	ip -n peer addr add "$VETH_FAR/24" dev rv1
	ip -n peer addr add fd98::2/64 dev rv1 nodad
	ip -n peer link set rv1 up
}

# make_peer_link NAME TYPE: on the far end of the cable.
make_peer_link() {
	ip netns exec peer rdma link add "$1" type "$2" netdev rv1
	wait_for 10 "$1 has a uverbs node" verbs_node "$1"
	wait_for 10 "the device node of $1" test -e "$(uverbs_path "$1")"
}

set_mtu() { ip link set lo mtu "$1"; }

# responder DEVICE [PREFIX]: a queue pair waits for an initiator, so the port of rendezvous is open;
# the process is in RESPONDER.
# shellcheck disable=SC2034,SC2086 # for the callers; PREFIX is a list of words
responder() {
	PYTHONPATH=$LIB_DIR/../../tests/src spawn "responder-$1" ${2:-} python3 -B "$LIB_DIR/../../tests/src/responder.py" "$1"
	RESPONDER=$SPAWNED
	wait_for 20 "a responder waits on $1" grep -qx waits "$(log_of "responder-$1")"
}

# ---- the end

rdma_links() { ls /sys/class/infiniband 2>/dev/null || true; }

cleanup() {
	local status=$? i
	trap - EXIT
	set +e
	# Not for a skipped test (4). The runner has shown the state of a test that it has ended (143).
	[[ $status == @(0|4|143) ]] || show_stuck
	for i in "${PIDS[@]}"; do stop "$i"; done
	"$DONE_HOOK"
	for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do umount -f -l "${MOUNTS[i]}" 2>/dev/null; done
	for i in $(rdma_links); do timeout 20 rdma link del "$i"; done
	for i in "${NETNS[@]}"; do ip netns del "$i"; done
	for i in "${NETDEVS[@]}"; do ip link del "$i" 2>/dev/null; done
	ip link set lo mtu 65536
	[ ! -e "$WORK/late-listener" ] || nft delete table inet late_listener 2>/dev/null
	for i in rsiw siw; do
		loaded "$i" || continue
		if ! (wait_for 20 "module $i unloads at the end (refcnt $(cat "/sys/module/$i/refcnt"))" rmmod "$i"); then
			[ "$status" -ne 0 ] || status=1
		fi
	done
	rm -rf "$WORK"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 143' TERM INT HUP
