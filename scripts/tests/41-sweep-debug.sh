#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: uml
# One pass of ordinary use under the checkers: rping, perftest, ibv_rc_pingpong, an NFS mount, a killed
# process, fragmented memory and failing allocations. Everything is undone and the module unloaded; then
# kmemleak finds no leak. The runner checks the kernel's log for reports of KASAN, lockdep and others.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=perftest.sh
. "$(dirname "$0")/perftest.sh"
# shellcheck source=rping.sh
. "$(dirname "$0")/rping.sh"
# shellcheck source=pingpong.sh
. "$(dirname "$0")/pingpong.sh"
# shellcheck source=nfs.sh
. "$(dirname "$0")/nfs.sh"

LEAKS=/sys/kernel/debug/kmemleak

# No new report. kmemleak reports an object from its sixth second on (MSECS_MIN_AGE in mm/kmemleak.c), and
# one that a register referenced at the next scan. Hence two pauses: the age is the only condition.
no_leaks() {
	for _ in 1 2; do
		sleep 6
		echo scan >"$LEAKS"
	done
	cat "$LEAKS" >"$WORK/leaks"
	[ ! -s "$WORK/leaks" ] || {
		head -n 80 "$WORK/leaks"
		die "memory leaked: $(grep -c '^unreferenced' "$WORK/leaks") objects"
	}
}

perftest_pass() {
	for tool in ib_send_bw ib_write_bw ib_read_bw ib_send_lat; do
		perftest_pair "$tool 4 KiB" "$RDMA_V4" "" "" "$tool" -s 4096 -n 100
		perftest_pair "$tool 64 KiB" "$RDMA_V4" "" "" "$tool" -s 65536 -n 50
	done
}

rendezvous_pass() {
	pingpong_pair "ibv_rc_pingpong" "" "" "$RDMA_V4" ibv_rc_pingpong -g 1 -c -n 200 -s 4096
	pingpong_pair "ibv_srq_pingpong -e" "" "" "$RDMA_V4" ibv_srq_pingpong -g 1 -e -n 100 -s 1024
}

nfs_pass() {
	nfs_prepare
	nfs_start
	nfs_mount 4.2 "$RDMA_V4"
	head -c 16777216 /dev/urandom >"$WORK/data"
	cp "$WORK/data" "$NFS_MOUNT/data"
	nfs_umount
	drop_caches
	nfs_mount 4.2 "$RDMA_V4"
	cmp "$WORK/data" "$NFS_MOUNT/data" || die "the file came back different"
	nfs_umount
	nfs_stop >/dev/null 2>&1 || :
	DONE_HOOK=:
	ok "NFS 4.2: 16 MiB there and back"
}

# Halves of the longest FPDUs, while allocations of large blocks fail.
scarce_pass() {
	[ -d /sys/kernel/debug/fail_page_alloc ] || die "this kernel can not be told to refuse memory"
	export RSIW_ADDRESS=$RDMA_V4 RSIW_TESTBIN
	run 60 "long FPDUs" python3 -B "$PEER_DIR/wire_peer.py" long_fpdus_in_parts
	grep -q '^1 cases, 0 failed' "$(log_of long_FPDUs)" || die "not the one case: $(cat "$(log_of long_FPDUs)")"
	ok "long FPDUs in parts, without large blocks of memory"
}

# Start-up frames, while TCP's allocations fail unless they may wait.
begin_pass() {
	local faults=/sys/kernel/debug/failslab from to server client i
	read -r from to < <(sort /proc/kallsyms |
		awk 'from && $1 != from { print "0x" from, "0x" $1; exit } $3 == "rsiw_sock_send" { from = $1 }')
	[ -n "$to" ] || die "where is rsiw_sock_send?"
	set_faults() {
		local pair
		for pair in "$@"; do echo "${pair#*=}" >"$faults/${pair%%=*}"; done
	}
	set_faults task-filter=N cache-filter=N verbose=0 require-start="$from" require-end="$to"
	spawn begin-server rping -s -a "$RDMA_V4" -p 7190 -P
	server=$SPAWNED
	wait_listening 7190
	# The injection works: with all allocations failing no connection is made.
	set_faults ignore-gfp-wait=N times=1 probability=100
	spawn begin-refused rping -c -a "$RDMA_V4" -p 7190 -C 1
	client=$SPAWNED
	wait_for 20 "a frame is refused memory" grep -qx 0 "$faults/times"
	stop "$client"
	set_faults ignore-gfp-wait=Y times=-1
	for i in 1 2 3; do
		run 8 "rping $i while memory is short" rping -c -a "$RDMA_V4" -p 7190 -C 1
	done
	stop "$server"
	pingpong_pair "ibv_rc_pingpong while memory is short" "" "" "$RDMA_V4" ibv_rc_pingpong -g 1 -n 10
	set_faults probability=0 require-start=0 require-end=0xffffffffffffffff
	ok "connections begin where memory has to be waited for"
}

killed_in_transfer() {
	perftest_traffic 18999 "$RDMA_V4" "" ib_write_bw -s 65536 -n 100000
	stop "$CLIENT"
	wait_for 60 "the server notices that its peer is gone" gone "$SERVER"
	ok "a killed client"
}

[ -e "$LEAKS" ] || die "this kernel has no kmemleak"
single_bed
echo clear >"$LEAKS" 2>/dev/null || :
rping_rounds 64 100 "$RDMA_V4"
rping_rounds 65000 100 "$RDMA_V4"
perftest_pass
rendezvous_pass
nfs_pass
scarce_pass
begin_pass
killed_in_transfer
rdma link del r0
unload_type "$RSIW_TYPE"
no_leaks
ok "no leak after unload"
