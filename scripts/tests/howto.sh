# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Runs the commands of a page of docs/howto as they are on the page (scripts/tests/checks/howto has the marks of its blocks).
# Two hosts, "server" and "client", are two sets of namespaces (network, mounts). Each has a root file system,
# and a cable joins their interfaces eth0. scripts/tests/howto stands in for the rest of a host: the file "host",
# and the commands apt-get, scp and systemctl. On the pages both hosts have devices rsiw0 and rsiw1. The kernel has each
# name of an RDMA device once, so the client's devices are rsiw100 and rsiw101 (names_in, names_out).
#
# With HOWTO_ONE_NETWORK=1 both hosts have the guest's own network, and eth0 with both addresses. This setting is for
# kernel modules that use the first network namespace only.

HOWTO=$LIB_DIR/../../tests/checks/howto
STAND_INS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/howto
declare -A HOST=() HOST_ADDRESS=([server]=192.0.2.1 [client]=192.0.2.2)
WAITING=()

# enter HOST: sets ENTER to the words before a command that runs on HOST.
enter() {
	ENTER=(nsenter --target "${HOST[$1]}" --net --mount --root --wd -- env "PATH=$STAND_INS:$PATH" HOME=/root)
}

# on HOST COMMAND...
on() {
	enter "$1"
	"${ENTER[@]}" "${@:2}"
}

host_is() { gone "${HOST[$1]}" || grep -qx up "$(log_of "host-$1")"; }

# host_up NAME: its namespaces, which the process HOST[NAME] keeps.
host_up() {
	local -a new=(--mount --net)
	[ -z "${HOWTO_ONE_NETWORK:-}" ] || new=(--mount)
	unshare "${new[@]}" bash "$STAND_INS/host" "$1" >"$(log_of "host-$1")" 2>&1 </dev/null &
	HOST[$1]=$!
	wait_for 60 "the host $1 is up, or has ended" host_is "$1"
	grep -qx up "$(log_of "host-$1")" && return
	show_log "$(log_of "host-$1")"
	die "the host $1 does not come up"
}

cable_up() {
	local name
	if [ -n "${HOWTO_ONE_NETWORK:-}" ]; then
		make_dummy eth0 "${HOST_ADDRESS[server]}/24" "${HOST_ADDRESS[client]}/24"
		return
	fi
	ip link add cable0 type veth peer name cable1
	ip link set cable0 netns "${HOST[server]}" name eth0
	ip link set cable1 netns "${HOST[client]}" name eth0
	for name in server client; do
		on "$name" ip link set lo up
		on "$name" ip addr add "${HOST_ADDRESS[$name]}/24" dev eth0
		on "$name" ip link set eth0 up
	done
}

# Exclusive mode: each host has its own devices only. The kernel accepts the mode while no other namespace exists.
hosts_up() {
	rsiw_load
	[ "${#NETNS[@]}" = 0 ] || die "a namespace is there already"
	[ -n "${HOWTO_ONE_NETWORK:-}" ] || rdma system set netns exclusive
	# shellcheck disable=SC2034 # read by lib.sh
	DONE_HOOK=hosts_down
	rm -rf /tmp/hosts
	mkdir /tmp/hosts
	host_up server
	host_up client
	cable_up
}

# shellcheck disable=SC2317,SC2329 # called through DONE_HOOK
hosts_down() {
	local name
	for name in client server; do
		[ -n "${HOST[$name]:-}" ] || continue
		on "$name" bash "$STAND_INS/host" "$name" down >"$(log_of "down-$name")" 2>&1
		kill -9 "${HOST[$name]}"
	done
	[ -z "${HOWTO_ONE_NETWORK:-}" ] || return 0
	! grep -q '^# leaves a network namespace' "$0" || return 0
	local end=$((SECONDS + 20 * FACTOR))
	until rdma system set netns shared 2>/dev/null; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "a host's network namespace is still there; what took the hosts down said:"
			cat "$(log_of down-client)" "$(log_of down-server)"
			return
		fi
		sleep 0.1
	done
}

# tcp_listeners HOST: the number of listening sockets, in the network namespaces that a page made there, too.
tcp_listeners() { on "$1" sh -c 'ss -Hltn && ip -all netns exec ss -Hltn' | grep -c '^LISTEN' || :; }
# ready HOST PROCESS LOG COUNT: more sockets listen than COUNT, tcpdump or bpftrace has begun, or PROCESS has ended.
ready() {
	gone "$2" || [ "$(tcp_listeners "$1")" -gt "$4" ] || grep -q -e 'listening on' -e '^Attach' "$3"
}

# begin_waiting LABEL HOST TEXT MODE: in the background, until something listens.
begin_waiting() {
	local before
	before=$(tcp_listeners "$2")
	enter "$2"
	spawn "$1" setsid "${ENTER[@]}" bash -euo pipefail -c "$3"
	WAITING+=("$SPAWNED $4 $1")
	wait_for 30 "$1 listens" ready "$2" "$SPAWNED" "$(log_of "$1")" "$before"
}

# end_waiting: the waiting block ends by itself, or is stopped. Its output follows that of the next block.
end_waiting() {
	local entry pid mode label
	for entry in "${WAITING[@]}"; do
		read -r pid mode label <<<"$entry"
		if [ "$mode" = waits ]; then
			finish "$pid" 30 "$label"
		else
			kill -TERM -- "-$pid" || die "$label: ended before it was stopped"
			wait "$pid" || :
		fi
		sed 's/^/    /' "$(log_of "$label")"
		cat "$(log_of "$label")" >>"$WORK/output"
	done
	WAITING=()
}

# names_in HOST, names_out HOST: the devices' names from the page to the host's kernel, and back.
own_names() { [ "$1" = client ] && [ -z "${HOWTO_ONE_NETWORK:-}" ]; }
names_in() { if own_names "$1"; then sed 's/\brsiw\([01]\)\b/rsiw10\1/g'; else cat; fi; }
names_out() { if own_names "$1"; then sed 's/\brsiw10\([01]\)\b/rsiw\1/g'; else cat; fi; }

# block LABEL HOST MODE TEXT
block() {
	local status=0
	enter "$2"
	timeout -k 5 $((90 * FACTOR)) "${ENTER[@]}" bash -euo pipefail -c "$4" >"$WORK/block" 2>&1 </dev/null || status=$?
	sed 's/^/    /' "$WORK/block"
	[ "$status" != 255 ] || ! events_too_late "$WORK/block" || status=0
	names_out "$2" <"$WORK/block" >>"$WORK/output"
	[[ $status != @(124|13[0-9]) ]] || die "$1: hangs or crashed (status $status)"
	if [ "$3" = fails ]; then
		[ "$status" != 0 ] || die "$1: succeeds, but is to fail"
	elif [ "$status" != 0 ]; then
		[ "${#WAITING[@]}" = 0 ] || show_log "$(log_of "${WAITING[0]##* }")"
		die "$1: status $status"
	fi
	end_waiting
	ok "$1"
}

# run_page PAGE: all blocks, from top to bottom.
run_page() {
	local page=$LIB_DIR/../../../$1 dir=$WORK/blocks number kind host mode line label one text
	rm -rf "$dir"
	mkdir "$dir"
	"$HOWTO" blocks "$page" "$dir"
	while read -r number kind host mode line <&3; do
		if [ "$kind" = output ]; then
			"$HOWTO" expect "$dir/$number" "$WORK/output" || die "$(basename "$1"):$line: not the output of the page"
			continue
		fi
		[[ $mode = @(waits|stopped) ]] || : >"$WORK/output"
		[ "$host" != both ] || host="server client"
		for one in $host; do
			label="$(basename "$1"):$line, $one"
			say "-- $label ($mode)"
			sed 's/^/    $ /' "$dir/$number"
			text=$(names_in "$one" <"$dir/$number")
			if [[ $mode = @(waits|stopped) ]]; then
				begin_waiting "$(label_of "$label")" "$one" "$text" "$mode"
			else
				block "$label" "$one" "$mode" "$text"
			fi
		done
	done 3<"$dir/plan"
	[ "${#WAITING[@]}" = 0 ] || die "the page ends before its last command"
	[ -s "$dir/plan" ] || die "$1 has no commands"
}

hosts_up
run_page README.md
