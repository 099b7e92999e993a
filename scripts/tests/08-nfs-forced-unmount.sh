#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 120
# After a forced unmount without a server, with a reader that waits for it, the
# device goes at once.
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"
# shellcheck source=nfs.sh
. "$(dirname "$0")/nfs.sh"

single_bed
nfs_prepare
nfs_start
nfs_mount 4.2 "$RDMA_V4"
head -c 20000000 /dev/urandom >"$NFS_EXPORT/blocks"
spawn reader sh -c "cat '$NFS_MOUNT/blocks' >/dev/null; sleep 600"
nfs_threads_stop
run 60 "forced unmount without a server" umount -f -l "$NFS_MOUNT"
nothing_left_at_server
run 30 "device goes" rdma link del r0
ok "forced unmount without a server"
