#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: uml
# The NFS server restarts under a mount that is being written to, and a
# connection is reset: the client reconnects, and no data is lost (RPC-15).
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=nfs.sh
. "$(dirname "$0")/nfs.sh"

single_bed
nfs_prepare
nfs_start

for version in 3 4.2; do
	nfs_mount "$version" "$RDMA_V4"
	file=blocks-$version
	spawn "writer-$version" writer "$NFS_MOUNT/$file" 300
	writer=$SPAWNED
	wait_for 30 "the writer got going" bigger "$NFS_EXPORT/$file" $((20 * 65536))
	nfs_threads_stop
	wait_for 20 "the listener is gone" not listening 20049
	nothing_left_at_server
	nfs_start
	finish "$writer" 60 "writer-$version"
	check_blocks "$NFS_EXPORT/$file" 300 || die "v$version: server restart lost data"
	[ "$(rdma_counter connects)" -ge 2 ] || die "v$version: the client never reconnected"
	ok "v$version: server restart under a writer"

	spawn "writer-$version" writer "$NFS_MOUNT/$file.2" 300
	writer=$SPAWNED
	wait_for 30 "the writer got going" bigger "$NFS_EXPORT/$file.2" $((20 * 65536))
	before=$(rdma_counter connects)
	[ -n "$(ss -KHtn "dport = :20049")" ] || die "v$version: ss -K found no connection to reset"
	finish "$writer" 60 "writer-$version"
	check_blocks "$NFS_EXPORT/$file.2" 300 || die "v$version: a reset connection lost data"
	[ "$(rdma_counter connects)" -gt "$before" ] || die "v$version: the client did not connect anew"
	ok "v$version: connection reset under a writer"
	nfs_umount
done
