#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: uml
# Network namespaces that end while their devices are in use: by listeners and traffic
# inside, by processes outside, several devices at once, and in exclusive mode. A device stays with its
# interface. A user of a namespace keeps its devices; they are removed with the last user.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

# The far end of the cable is removed with its namespace, once no reference to the namespace is left.
cable_gone() { ! ip link show rv0; }
all_gone() { cable_gone && ! has_link n0; }
flows() { $IN_PEER ss -Htin "dport = :$1" | shows 'bytes_acked:[0-9]\{6,\}'; }
# TCP sockets of all namespaces.
sockets() { awk '$1 == "TCP:" { print $9 }' /proc/net/sockstat; }
sockets_back() { [ "$(sockets)" -le "$SOCKETS" ]; }

bed() {
	veth_bed
	make_peer_link n0 "$RSIW_TYPE"
}

# Removes the name of the namespace. The namespace ends with its last user.
remove_name() {
	within 20 ip netns del peer || die "ip netns del: status $?"
	NETNS=()
}

# everything_gone WHY
everything_gone() {
	wait_for 20 "namespace and device are gone: $1" all_gone
	NETDEVS=()
}

# inside NAME ARGUMENT...: rping in the namespace.
inside() {
	local name=$1
	shift
	# shellcheck disable=SC2086 # a list of words
	spawn "$name" $IN_PEER rping "$@"
}
connections_to_its_port() {
	bed
	responder n0 "$IN_PEER"
	spawn knock python3 -B "$(dirname "$0")/src/knock.py" 1 "$VETH_FAR" 4791
	local knock=$SPAWNED
	wait_for 20 "TCP connections are accepted" grep -qx in "$(log_of knock)"
	remove_name
	alive "$knock" || die "knock.py has ended: $(cat "$(log_of knock)")"
	kill -9 "$RESPONDER"
	everything_gone "it has no user, but TCP connections come to its port"
	stop "$knock"
	ok "TCP connections to the port of a namespace that ends"
}
listening_inside() { [ -n "$($IN_PEER ss -Hltn "sport = :$1")" ]; }

# flow_inside: an rping server and client in the namespace, without end; sets SERVER and CLIENT.
flow_inside() {
	inside server -s -a 0.0.0.0 -p 7174 -S 16384
	SERVER=$SPAWNED
	wait_for 20 "rping listens in the namespace" listening_inside 7174
	inside client -c -a "$VETH_FAR" -p 7174 -S 16384 -C 100000000
	CLIENT=$SPAWNED
	wait_for 20 "data is flowing" flows 7174
}

listener_inside() {
	bed
	inside server -s -a 0.0.0.0 -p 7174
	wait_for 20 "rping listens in the namespace" listening_inside 7174
	remove_name
	alive "$SPAWNED" || die "the listener ended with the name of its namespace"
	has_link n0 || die "the device went although a process is in its namespace"
	stop "$SPAWNED"
	everything_gone "a listener ended"
	ok "wildcard listener in a namespace that goes"
}

sent() { cat /sys/class/infiniband/n0/ports/1/hw_counters/tx_octets; }
sent_more_than() { [ "$(sent)" -gt "$1" ]; }

traffic_inside() {
	local near before
	bed
	make_link r0 rv0
	flow_inside
	inside far -s -a "$VETH_FAR" -p 7175 -S 4096
	local far=$SPAWNED
	wait_for 20 "rping listens in the namespace" listening_inside 7175
	spawn near rping -c -a "$VETH_FAR" -p 7175 -S 4096 -C 100000000
	near=$SPAWNED
	wait_for 20 "a connection across" near_connected
	remove_name
	before=$(sent)
	wait_for 20 "data flows on without the name" sent_more_than $((before + 1000000))
	kill -9 "$SERVER" "$CLIENT" "$far"
	everything_gone "its processes were killed in mid transfer"
	wait_for 20 "the device at this end went with its interface" not has_link r0
	wait_for 20 "the process at this end ends" gone "$near"
	ok "traffic within a namespace that goes, and across its border"
}
near_connected() { rdma resource show qp link r0 | shows 'state RTS'; }

killed_at_once() {
	local _ many
	many=$(rounds 4)
	for _ in $(seq "$many"); do
		bed
		flow_inside
		# A process whose peer is killed first may have ended.
		ip netns pids peer | xargs kill -9 2>/dev/null || true
		remove_name
		everything_gone "killed and removed at once"
	done
	ok "$many namespaces killed under load"
}

# outside ARGUMENT...: outside.py; go has outside.py take its next step.
outside() {
	rm -f "$WORK/steps"
	mkfifo "$WORK/steps"
	exec 7<>"$WORK/steps"
	PYTHONPATH=$(dirname "$0")/src python3 -B "$(dirname "$0")/src/outside.py" "$@" \
		<&7 >"$(log_of outside)" 2>&1 &
	OUTSIDE=$!
	PIDS+=("$OUTSIDE")
}
go() { echo >&7; }
says() {
	wait_for 30 "the process outside says $1, or ends" says_or_ends "$1"
	grep -qx "$1" "$(log_of outside)" && return
	show_log "$(log_of outside)"
	die "the process outside ended instead of: $1"
}
says_or_ends() { gone "$OUTSIDE" || grep -qx "$1" "$(log_of outside)"; }

holder_outside() {
	bed
	spawn holder sh -c "exec '$RSIW_TESTBIN/hold' n0 <>'$WORK/steps'"
	wait_for 20 "the holder is ready" grep -q ready "$(log_of holder)"
	remove_name
	everything_gone "a process outside that has no connection holds its device"
	wait_for 20 "the holder is told" grep -q fatal "$(log_of holder)"
	alive "$SPAWNED" || die "the holder died"
	stop "$SPAWNED"
	ok "device held from outside while its namespace goes"
}

queues_outside() {
	bed
	outside queues n0 peer
	says connected
	remove_name
	go
	says talked
	has_link n0 || die "the device went although connections use its namespace"
	go
	everything_gone "connections of a process outside ended"
	says fatal
	go
	finish "$OUTSIDE" 20 outside
	ok "connections of a process outside"
}

listener_outside() {
	bed
	outside listener n0 peer
	says listening
	wait_for 20 "somebody listens in the namespace" listening_inside 7999
	remove_name
	has_link n0 || die "the device went although a listener is in its namespace"
	go
	everything_gone "a listener of a process outside ended"
	says fatal
	go
	finish "$OUTSIDE" 20 outside
	ok "listener of a process that left the namespace"
}

several_devices() {
	bed
	ip -n peer link add nd1 type dummy
	ip -n peer link set nd1 up
	$IN_PEER rdma link add n1 type "$RSIW_TYPE" netdev nd1
	$IN_PEER rdma link add n2 type "$RSIW_TYPE" netdev lo
	has_link n1 || die "no device on a dummy in the namespace"
	has_link n2 || die "no device on lo in the namespace"
	remove_name
	everything_gone "unused, three devices"
	wait_for 20 "all devices are gone" none_of
	ok "three devices in one namespace that goes"
}
none_of() { ! has_link n1 && ! has_link n2; }

interface_moves() {
	local holder
	bed
	make_dummy mv0 10.96.0.1/24
	make_link m0 mv0
	spawn holder sh -c "exec '$RSIW_TESTBIN/hold' m0 10.96.0.1 <>'$WORK/steps'"
	holder=$SPAWNED
	wait_for 20 "the holder is ready" grep -q ready "$(log_of holder)"
	within 20 ip link set mv0 netns peer || die "moving the interface: status $?"
	wait_for 20 "the device went as its interface left" not has_link m0
	$IN_PEER rdma link add m0 type "$RSIW_TYPE" netdev mv0
	stop "$holder"
	remove_name
	everything_gone "an interface moved into it"
	wait_for 20 "the device went with its namespace" not has_link m0
	ok "interface moved to another namespace under its device"
}

# In exclusive mode a namespace has its own devices only: those of a namespace that ends do not appear here.
exclusive() {
	# Refused while another namespace exists, also one that is still being cleaned up.
	wait_for 30 "the stack takes up its exclusive mode" rdma system set netns exclusive
	veth_bed
	$IN_PEER rdma link add n0 type "$RSIW_TYPE" netdev rv1
	$IN_PEER rdma link show n0/1 | shows 'netdev rv1' || die "the device is not in its namespace"
	! rdma link show | shows n0 || die "the device is in another namespace too"
	flow_inside
	kill -9 "$SERVER" "$CLIENT"
	remove_name
	everything_gone "exclusive mode"
	! rdma dev show | shows n0 || die "the device came back: $(rdma dev show)"
	wait_for 30 "the stack takes up its shared mode" rdma system set netns shared
	ok "exclusive mode"
}

# speaks: rping between two programs of this namespace, on r0.
speaks() {
	spawn "rping-$1" rping -s -a 10.96.0.1 -p 7176 -C 5 -V
	local server=$SPAWNED
	wait_listening 7176
	run 20 "rping $1" rping -c -a 10.96.0.1 -p 7176 -C 5 -V
	finish "$server" 20 "rping-$1"
}
node_of() { test -e "$(uverbs_path r0)"; }
clients_of() { verbs_node r0 || $IN_PEER grep -lx r0 /sys/class/infiniband_verbs/*/ibdev; }
in_peer() { $IN_PEER rdma dev show | shows r0; }
refused_move() {
	refuse "moving a device away from its interface" 'not supported' rdma dev set r0 netns peer
	not clients_of || die "the core's clients have a device that is not with its interface"
}

# In the exclusive mode of ib_core "rdma dev set NAME netns NS" moves a device away from its interface.
device_moves() {
	local holder
	wait_for 30 "the stack takes up its exclusive mode" rdma system set netns exclusive
	make_netns peer
	ip netns attach here $$
	NETNS+=(here)
	make_dummy mv0 10.96.0.1/24
	make_link r0 mv0
	spawn holder sh -c "exec '$RSIW_TESTBIN/hold' r0 10.96.0.1 <>'$WORK/steps'"
	holder=$SPAWNED
	wait_for 20 "the holder is ready" grep -q ready "$(log_of holder)"
	refused_move
	wait_for 20 "the holder is told" grep -q fatal "$(log_of holder)"
	stop "$holder"
	$IN_PEER rdma dev set r0 netns here
	wait_for 10 "r0 has a uverbs node" verbs_node r0
	wait_for 10 "the device node of r0" node_of
	speaks "after the way back"
	refused_move
	remove_name
	wait_for 20 "the device is back, as its other namespace is gone" verbs_node r0
	wait_for 10 "the device node of r0" node_of
	speaks "after the end of the namespace"
	make_netns peer
	refused_move
	$IN_PEER rdma link del r0
	wait_for 20 "the device is gone" not in_peer
	make_link r0 mv0
	speaks "on a device made anew"
	refused_move
	ip link del mv0
	wait_for 20 "the device goes with its interface" not in_peer
	remove_name
	ip netns del here
	wait_for 30 "the stack takes up its shared mode" rdma system set netns shared
	ok "device moved away from its interface"
}

rsiw_load
mkfifo "$WORK/steps"
listener_inside
SOCKETS=$(sockets)
traffic_inside
killed_at_once
holder_outside
queues_outside
listener_outside
several_devices
interface_moves
connections_to_its_port
exclusive
device_moves
wait_for 30 "as few TCP sockets as at first ($SOCKETS)" sockets_back
