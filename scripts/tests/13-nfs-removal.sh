#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# The device, its interface, and then the module are removed under an NFS mount that is being
# written to, and added again. Kernel users release the device at once, the mount waits, the
# writer finishes, and no data is lost.
#
# The kernel's NFS client connects again while the device is being removed. Once in some 25 times rdma_cm
# removes the device between two steps of the connection: rdma_resolve_route() returns EINVAL, which xprtrdma
# passes on to the program that writes. rdma_cm calls no driver between the two steps.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=nfs.sh
. "$(dirname "$0")/nfs.sh"

# under_a_writer WHAT: runs the function WHAT while a file is being written.
under_a_writer() {
	local writer file=blocks-$1
	spawn "$1" writer "$NFS_MOUNT/$file" 200 EINVAL
	writer=$SPAWNED
	wait_for 30 "the writer got going" bigger "$NFS_EXPORT/$file" $((20 * 65536))
	"$1"
	finish "$writer" 120 "$1"
	check_blocks "$NFS_EXPORT/$file" 200 || die "$1: data was lost"
}

device_goes() {
	within 20 rdma link del r0 || die "rdma link del under an NFS mount: status $?"
	! has_link r0 || die "the device is still there"
	make_link r0 rd0
}

single_bed
nfs_prepare
nfs_start
nfs_mount 4.2 "$RDMA_V4"
under_a_writer device_goes
ok "the device removed under an NFS mount"
under_a_writer interface_goes
ok "the interface removed under an NFS mount"
under_a_writer module_goes
ok "the module removed under an NFS mount"
nfs_umount
