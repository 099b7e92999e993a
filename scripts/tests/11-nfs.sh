#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 1000
# runs on: 7.2/16
# NFS v3, v4.2 and, with all rounds, v4.0, with proto=rdma. A tree of 2,000 files and a file of
# 256 MiB (less of both where rounds are fewer) are copied in and out. Checksums are compared
# with cold caches; fio verifies direct I/O. The counters of client and server prove that the
# data moves by RDMA Read and Write, and not inside Sends (requirements RPC-20 to RPC-26).
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=nfs.sh
. "$(dirname "$0")/nfs.sh"

MIB=1048576
# The big file's size in MiB, which is what a chunk holds at most (wsize, rsize).
BIG=$(rounds 256)

# at_least WHAT HAVE WANT
at_least() { [ "$2" -ge "$3" ] || die "$1: $2, expected at least $3"; }

# Copies in, checks on the server's own file system, copies out, checks again.
copy_both_ways() {
	local version=$1 before_read before_reply before_sread before_swrite
	before_read=$(rdma_counter read_chunks)
	before_sread=$(server_counter read)
	cp -r "$WORK/tree" "$WORK/big" "$NFS_MOUNT/"
	sync -f "$NFS_MOUNT"
	same_tree "$WORK/tree.sums" "$NFS_EXPORT/tree" "$version: tree on the server"
	cmp "$WORK/big" "$NFS_EXPORT/big" || die "$version: the big file on the server"
	# Each read chunk is fetched by at least one RDMA Read.
	at_least "$version: read chunks" $(($(rdma_counter read_chunks) - before_read)) "$BIG"
	at_least "$version: the server's RDMA Reads" $(($(server_counter read) - before_sread)) "$BIG"
	ok "$version: copied in: $(rdma_counter read_chunks) read chunks"

	nfs_umount
	drop_caches
	nfs_mount "$version" "$RDMA_V4"
	before_reply=$(rdma_counter reply_bytes)
	before_swrite=$(server_counter write)
	mkdir "$WORK/back"
	cp -r "$NFS_MOUNT/tree" "$NFS_MOUNT/big" "$WORK/back/"
	same_tree "$WORK/tree.sums" "$WORK/back/tree" "$version: tree copied out"
	cmp "$WORK/big" "$WORK/back/big" || die "$version: the big file copied out"
	at_least "$version: octets that came by RDMA Write" $(($(rdma_counter reply_bytes) - before_reply)) $((BIG * MIB))
	at_least "$version: write chunks" "$(rdma_counter write_chunks)" "$BIG"
	at_least "$version: the server's RDMA Writes" $(($(server_counter write) - before_swrite)) "$BIG"
	at_least "$version: reply chunks (a directory of many names)" "$(rdma_counter reply_chunks)" 1
	[ "$(rdma_counter bad_reply)" = 0 ] || die "$version: bad replies"
	say "$version: failed_marshal $(rdma_counter failed_marshal)"
	ok "$version: copied out: $(rdma_counter reply_bytes) octets by RDMA Write"
	rm -rf "$WORK/back"
}

# Short calls and replies stay inside Sends, and the counters of chunks stand still (RPC-26).
small_stays_inline() {
	local reads writes
	printf '%0512d' 7 >"$NFS_EXPORT/small"
	drop_caches
	reads=$(rdma_counter read_chunks) writes=$(rdma_counter reply_bytes)
	[ "$(wc -c <"$NFS_MOUNT/small")" = 512 ] || die "small file's size"
	[ "$(rdma_counter read_chunks)" = "$reads" ] || die "$1: a small read made a read chunk"
	at_least "$1: inline" 4096 $(($(rdma_counter reply_bytes) - writes))
	ok "$1: a 512-octet file stays inline"
}

# A call too long for a Send travels as a position-zero read chunk (RPC-25).
long_call() {
	local before
	before=$(rdma_counter nomsg)
	python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.rsiw", bytes(range(250)) * 100)' "$NFS_MOUNT/small"
	python3 -c 'import os, sys; assert os.getxattr(sys.argv[1], "user.rsiw") == bytes(range(250)) * 100' "$NFS_EXPORT/small"
	at_least "long calls" $(($(rdma_counter nomsg) - before)) 1
	ok "a 25,000-octet extended attribute went as a long call"
}

# The negative control: over TCP the counters of chunks stand still (RPC-23).
tcp_moves_no_chunk() {
	local reads writes
	nfs_mount 4.2 "$RDMA_V4" tcp
	reads=$(server_counter read) writes=$(server_counter write)
	cp "$NFS_MOUNT/tree/flat/file-with-a-name-0007" "$NFS_MOUNT/over-tcp"
	sync -f "$NFS_MOUNT"
	[ "$(server_counter read)/$(server_counter write)" = "$reads/$writes" ] || die "NFS over TCP moved the RDMA counters"
	nfs_umount
	ok "over TCP the counters stand still"
}

# The most octets that are accounted to one of the mount's sockets and not in use.
most_kept() {
	ss -Htmn 'sport = :20049 or dport = :20049' | sed -n 's/.*skmem:.*,f\([0-9]*\),.*/\1/p' | sort -n | tail -n 1
}
keeps_at_least() { [ "$(most_kept)" -ge "$1" ]; }
keeps_less_than() { [ "$(most_kept)" -lt "$1" ]; }

# TCP keeps memory for a stream under bulk transfer. An idle stream gives it back, since all sockets share
# one limit (tcp_mem).
memory_goes_back() {
	local writer
	dd if=/dev/zero of="$NFS_MOUNT/zeros" bs=1M count=64 conv=fsync 2>"$WORK/dd.log" &
	writer=$!
	wait_for 60 "a stream that moves bulk has its memory kept" keeps_at_least 131072
	wait "$writer" || die "writing: $(cat "$WORK/dd.log")"
	wait_for 30 "an idle stream gives back its memory" keeps_less_than 16384
	rm "$NFS_MOUNT/zeros"
	ok "memory is kept while bulk moves, and given back: $(most_kept) octets are left"
}

single_bed
nfs_prepare
make_tree "$WORK/tree"
sums "$WORK/tree" >"$WORK/tree.sums"
head -c $((BIG * MIB)) /dev/urandom >"$WORK/big"
nfs_start

versions="3 4.2"
! all_rounds || versions="3 4.0 4.2"
for version in $versions; do
	nfs_mount "$version" "$RDMA_V4"
	grep -q 'xprt:.rdma' /proc/self/mountstats || die "the mount does not use RDMA"
	copy_both_ways "$version"
	small_stays_inline "$version"
	[ "$version" != 4.2 ] || long_call
	[ "$version" != 4.2 ] || memory_goes_back
	nfs_fio "$version" 4k 8m
	# Long requests are chunks of RPC-over-RDMA in each version.
	if all_rounds || [ "$version" = 4.2 ]; then nfs_fio "$version" 1m 64m; fi
	rm -rf "${NFS_EXPORT:?}"/big
	[ "$version" = 4.2 ] || rm -rf "${NFS_EXPORT:?}/tree"
	nfs_umount
done
tcp_moves_no_chunk
