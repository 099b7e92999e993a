#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# After a forced unmount without a server the device is removed at once. In one case a reader
# has waited for the server and keeps its file open. In the other the unmount itself waits for
# the server.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=nfs.sh
. "$(dirname "$0")/nfs.sh"

reader_reads() { grep -q copied "$WORK/reader.log"; }
reader_waits() { ps -C dd -o stat= | shows D; }

# The reader reads until it fails. Its file stays open, so that umount does not drop the last reference:
# the process that drops it ends the NFS session, and waits for the server.
with_a_reader() {
	local file=$NFS_MOUNT/blocks
	spawn reader sh -c "exec 3<'$file'
		while dd if='$file' of=/dev/null bs=64k iflag=direct; do :; done
		exec sleep 600"
	wait_for 30 "the reader got going" reader_reads
	nfs_threads_stop
	wait_for 30 "the reader waits for the server" reader_waits
	run 60 "forced unmount without a server" umount -i -f -l "$NFS_MOUNT"
}

# Without the helper (-i), so that there is one process to end.
while_it_waits() {
	nfs_threads_stop
	spawn unmount umount -i -f -l "$NFS_MOUNT"
	wait_for 30 "the mount point is free" not nfs_mounted
	alive "$SPAWNED" || die "umount does not wait for the server: nothing is tested here"
}

device_goes() {
	nothing_left_at_server
	run 30 "device goes" rdma link del r0
}

single_bed
nfs_prepare
nfs_start
nfs_mount 4.2 "$RDMA_V4"
head -c 2000000 /dev/urandom >"$NFS_EXPORT/blocks"
with_a_reader
device_goes
ok "forced unmount without a server"

# The client's references end with the reader, once a server answers.
make_link r0 rd0
nfs_start
stop "$SPAWNED"
wait_for 90 "the NFS client is gone" not nfs_clients
ok "nothing left of the client"

nfs_mount 4.2 "$RDMA_V4"
while_it_waits
device_goes
stop "$SPAWNED"
wait_for 30 "the NFS client is gone" not nfs_clients
ok "forced unmount that waits for the server"
