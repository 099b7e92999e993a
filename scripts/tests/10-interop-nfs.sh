#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: 7.2/4
# leaves a network namespace: the kernel's NFS server keeps it after NFS 4.1 or later over any RDMA device.
# The same happens with siw at both ends and rsiw not loaded. NFS 4.0 leaves none.
#
# NFS over RDMA between rsiw and the kernel's own siw, each as server and as
# client, over a pair of veth interfaces. The server is in a network namespace.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
needs_stock
# shellcheck source=nfs.sh
. "$(dirname "$0")/nfs.sh"

# The big file's size in MiB.
BIG=$(rounds 64)

# export_between CLIENT_TYPE SERVER_TYPE
export_between() {
	make_link near rv0 "$1"
	make_peer_link far "$2"
	nfs_start
	nfs_mount 4.2 "$VETH_FAR"
	cp -r "$WORK/big" "$WORK/tree" "$NFS_MOUNT/"
	nfs_umount
	drop_caches
	nfs_mount 4.2 "$VETH_FAR"
	cmp "$WORK/big" "$NFS_EXPORT/big" || die "client $1, server $2: copied in"
	cmp "$WORK/big" "$NFS_MOUNT/big" || die "client $1, server $2: copied out"
	same_tree "$WORK/tree.sums" "$NFS_MOUNT/tree" "client $1, server $2: tree"
	[ "$(rdma_counter reply_bytes)" -ge $((BIG * 1048576)) ] || die "the data did not come by RDMA Write"
	nfs_umount
	rm -rf "${NFS_EXPORT:?}"/*
	nfs_threads_stop
	rdma link del near
	rdma link del far
	ok "NFS v4.2, client $1, server $2"
}

load_type siw
rsiw_load
veth_bed
# shellcheck disable=SC2206 # a list of words
NFS_PREFIX=($IN_PEER)
NFS_V4_ONLY=1
nfs_prepare
make_tree "$WORK/all"
mkdir "$WORK/tree"
mv "$WORK/all/d0" "$WORK/all/d1" "$WORK/tree/"
sums "$WORK/tree" >"$WORK/tree.sums"
head -c $((BIG * 1048576)) /dev/urandom >"$WORK/big"

export_between "$RSIW_TYPE" siw
export_between siw "$RSIW_TYPE"
