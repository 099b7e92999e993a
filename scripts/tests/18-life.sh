#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 500
# runs on: 7.2/4
# Life cycles: processes are killed in the middle of transfers, TCP connections are
# reset, and device and module are removed under load. Memory does not grow over 1,000
# connections. The memory of a device is freed in process context.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"

both_gone() { gone "$1" && gone "$2"; }
# flows PORT: much more than the set-up has been acknowledged. An established TCP connection does not show
# traffic: iw_cm reports no connection that ends before its MPA Request, and an rping server then waits
# for its first peer.
flows() { ss -Htin "dport = :$1" | shows 'bytes_acked:[0-9]\{6,\}'; }

# traffic: an rping that never ends by itself; SERVER and CLIENT are its processes.
traffic() {
	spawn server rping -s -a "$RDMA_V4" -p 7174 -S 16384
	SERVER=$SPAWNED
	wait_listening 7174
	spawn client rping -c -a "$RDMA_V4" -p 7174 -S 16384 -C 100000000
	CLIENT=$SPAWNED
	wait_for 20 "data is flowing" flows 7174
}

bulk() { perftest_traffic 18998 "$RDMA_V4" "" ib_write_bw -D 60 -s 65536; }

still_works() {
	spawn check-server rping -s -a "$RDMA_V4" -p 7179 -S 4096 -C 20 -V
	local server=$SPAWNED
	wait_listening 7179
	run 20 "rping afterwards" rping -c -a "$RDMA_V4" -p 7179 -S 4096 -C 20 -V
	finish "$server" 10 check-server
}

killed_in_mid_transfer() {
	local load who
	for load in traffic bulk; do
		for who in client server; do
			$load
			if [ "$who" = client ]; then stop "$CLIENT"; else stop "$SERVER"; fi
			if [ "$load" = traffic ]; then
				wait_for 15 "the other rping ends after its peer was killed" both_gone "$CLIENT" "$SERVER"
			fi
			stop "$CLIENT"
			stop "$SERVER"
			wait_for 15 "no queue pair is left" no_qps
			ok "$load: $who killed with -9"
		done
	done
	still_works
}

reset_below_us() {
	traffic
	ss -K "dport = :7174" >/dev/null 2>&1 || true
	wait_for 15 "both rpings end after a reset" both_gone "$CLIENT" "$SERVER"
	wait_for 15 "no queue pair is left" no_qps
	still_works
	ok "the TCP connection reset under traffic"
}

sockets() { awk '$1 == "TCP:" { print $3 + $5 + $9 }' /proc/net/sockstat; }
unreclaimable() { awk '$1 == "SUnreclaim:" || $1 == "VmallocUsed:" || $1 == "Percpu:" { n += $2 } END { print n }' /proc/meminfo; }
# KiB in slab caches, vmalloc and per-CPU memory once everything deferred is done.
settled() {
	drop_slab
	unreclaimable
}
drop_slab() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1 # grace periods
}
no_more_than() { [ "$(settled)" -lt "$1" ]; }
sockets_back() { [ "$(sockets)" -le "$1" ]; }

many_connections() {
	local sockets_before memory_before one two
	local half each
	half=$(rounds 500)
	each=$((2 * half))
	run 60 "warming up" "$RSIW_TESTBIN/churn" -n 100 "$RDMA_V4"
	wait_for 10 "no queue pair is left" no_qps
	memory_before=$(settled)
	sockets_before=$(sockets)
	spawn churn-one "$RSIW_TESTBIN/churn" -n "$half" "$RDMA_V4"
	one=$SPAWNED
	spawn churn-two "$RSIW_TESTBIN/churn" -n "$half" "$RDMA_V4"
	two=$SPAWNED
	finish "$one" 150 churn-one
	finish "$two" 150 churn-two
	wait_for 10 "no queue pair is left" no_qps
	wait_for 20 "as few TCP sockets as before ($sockets_before)" sockets_back "$sockets_before"
	# A leaked queue pair is more than 8 KiB. Deferred work is late on a busy machine.
	(wait_for 20 "the memory comes back" no_more_than $((memory_before + 1500 + each * 3 / 2))) ||
		die "$each connections left $(($(settled) - memory_before)) KiB more in use"
	ok "$each connections: $(($(settled) - memory_before)) KiB, sockets as before"
}

refused_connections() {
	local sockets_before i
	sockets_before=$(sockets)
	for i in $(seq "$(rounds 20)"); do
		# The status of rping is 255.
		# shellcheck disable=SC2016 # expanded by the inner shell
		refuse "a connection to nobody ($i)" 'RDMA_CM_EVENT_[A-Z_]*, error -111' \
			sh -c 'rping -c -a "$0" -p 7999 -C 1 || exit 1' "$RDMA_V4"
	done
	wait_for 20 "as few TCP sockets as before" sockets_back "$sockets_before"
	ok "$(rounds 20) refused connections"
}

# freed: prints how many devices ib_core has freed since the probe was set.
freed() { grep -c device_freed: "$TRACING/trace"; }
freed_as_often() { [ "$(freed)" -ge "$1" ]; }

probe_freeing() {
	trace_begin
	echo 'p:rsiw_test/device_freed ib_device_release' >"$TRACING/kprobe_events"
	echo 1 >"$TRACING/events/rsiw_test/enable"
}

# ib_core takes a plain spin lock when it frees a device, so a softirq (an RCU callback) may not free one. The third
# flag of a line of the trace, behind the number of the processor, shows the context.
freed_in_process_context() {
	local wrong
	wait_for 20 "$1 devices are freed" freed_as_often "$1"
	wrong=$(grep device_freed: "$TRACING/trace" | grep -v '\[[0-9]*\] ..\.' || true)
	echo 0 >"$TRACING/events/rsiw_test/enable"
	echo >"$TRACING/kprobe_events"
	[ -z "$wrong" ] || die "a device was freed in a softirq: $wrong"
	ok "$1 devices were freed in process context"
}

device_taken_away() {
	local load
	probe_freeing
	for load in traffic bulk; do
		$load
		within 10 rdma link del r0 || die "rdma link del under load does not finish (or fails: $?)"
		not has_link r0 || die "the device is still there"
		make_link r0 rd0
		still_works
		stop "$CLIENT"
		stop "$SERVER"
		ok "link del and add again under $load"
	done
	freed_in_process_context 2
}

module_taken_away() {
	traffic
	if within 20 rmmod "$RSIW_TYPE" 2>"$WORK/rmmod.log"; then
		say "the module went although processes held its device"
	else
		grep -qi 'in use' "$WORK/rmmod.log" || die "rmmod: $(cat "$WORK/rmmod.log")"
		alive "$CLIENT" || die "a refused rmmod stopped the traffic"
		rdma link del r0
		run 20 "rmmod with processes that hold a dead device" rmmod "$RSIW_TYPE"
	fi
	loaded "$RSIW_TYPE" && die "the module is still there"
	stop "$CLIENT"
	stop "$SERVER"
	rsiw_load
	make_link r0 rd0
	still_works
	ok "module unloaded under load and loaded again"
}

address_goes() {
	ip addr del "$RDMA_V4/24" dev rd0
	rmmod rsiw_kverbs_test
	ip addr add "$RDMA_V4/24" dev rd0
}

answers() { sed -n 's/.*kverbs_test: asked to connect, answer //p' "$WORK/kernel-log.log"; }
asked() { [ "$(answers | wc -l)" -ge "$1" ]; }

# A kernel client that connects where the device or the address has just been removed gets ENETDOWN. NFS
# takes ENETDOWN for a fault of the network, and waits. NFS would pass ENODEV or EADDRNOTAVAIL on to the
# program that writes.
asked_too_late() {
	local how log n=0 answer
	# The kernel's log buffer may no longer hold the answer after the KUnit suites.
	spawn kernel-log dmesg -w
	log=$SPAWNED
	for how in address_goes interface_goes module_goes; do
		n=$((n + 1))
		run 20 "a client that will ask" modprobe rsiw_kverbs_test addr="$RDMA_V4" leave=1
		"$how"
		loaded rsiw_kverbs_test && rmmod rsiw_kverbs_test
		wait_for 20 "$how: the client has asked" asked "$n"
		answer=$(answers | tail -n 1)
		[ "$answer" = -100 ] || die "$how: rdma_connect() answered '$answer', not -100 (ENETDOWN)"
		ok "$how: a connection is refused as by a network that is down"
	done
	stop "$log"
	still_works
}

single_bed
killed_in_mid_transfer
reset_below_us
refused_connections
device_taken_away
module_taken_away
asked_too_late
many_connections
