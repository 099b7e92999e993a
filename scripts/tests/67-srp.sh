#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: soak
# SRP over RDMA with the stock kernel's target and initiator. The target has one protection domain for all initiators.
# Two SCSI hosts log in, and fio writes and verifies through both at once. Data of small writes are in the command, or
# the target reads them.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

TARGET=/sys/kernel/config/target
PORT=5555

target_up() {
	local id
	# udev loads sd_mod on a host.
	modprobe -q -a sd_mod target_core_mod target_core_file ib_srpt || exit 4
	# Commands fail 2 s after their connection, and hosts do not connect again.
	modprobe -q ib_srp fast_io_fail_tmo=2 reconnect_delay=off || exit 4
	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
	mkdir -p "$WORK/disk"
	mount -t tmpfs -o size=100m rsiw-disk "$WORK/disk"
	MOUNTS+=("$WORK/disk")
	truncate -s 16M "$WORK/disk/image"
	# ib_srpt compares an initiator's address with the access lists of a port that has the name of its GUID.
	id=$(cut -d: -f5-8 /sys/class/infiniband/r0/ports/1/gids/0)
	TPG=$TARGET/srpt/$id/$id
	DONE_HOOK=target_down
	mkdir -p "$TARGET/core/fileio_0/disk" "$TARGET/srpt"
	echo "fd_dev_name=$WORK/disk/image,fd_dev_size=16777216" >"$TARGET/core/fileio_0/disk/control"
	echo 1 >"$TARGET/core/fileio_0/disk/enable"
	echo "$PORT" >"$TARGET/srpt/discovery_auth/rdma_cm_port"
	mkdir -p "$TPG/lun/lun_0" "$TPG/acls/$RDMA_V4/lun_0"
	ln -s "$TARGET/core/fileio_0/disk" "$TPG/lun/lun_0/disk"
	ln -s "$TPG/lun/lun_0" "$TPG/acls/$RDMA_V4/lun_0/disk"
	echo 1 >"$TPG/enable"
	wait_listening "$PORT"
}

# shellcheck disable=SC2317,SC2329 # called through DONE_HOOK
target_down() {
	log_out
	[ ! -e "$TPG/enable" ] || echo 0 >"$TPG/enable"
	echo 0 >"$TARGET/srpt/discovery_auth/rdma_cm_port"
	rm -f "$TPG/acls/$RDMA_V4/lun_0/disk" "$TPG/lun/lun_0/disk"
	rmdir "$TPG/acls/$RDMA_V4/lun_0" "$TPG/acls/$RDMA_V4" "$TPG/lun/lun_0" "$TPG" "${TPG%/*}" "$TARGET/srpt" \
		"$TARGET/core/fileio_0/disk" "$TARGET/core/fileio_0"
	# The debug kernel has these modules built in.
	[ ! -e /sys/module/ib_srpt/initstate ] || timeout 60 modprobe -r ib_srp ib_srpt
}

# log_in HOST: as a SCSI host with an identifier of its own. ib_srp refuses it while an earlier login of it is removed.
log_in() {
	local guid
	guid=$(sed s/0x// /sys/module/ib_srpt/parameters/srpt_service_guid)
	wait_for 20 "login of host $1" bash -c "echo 'id_ext=$guid,ioc_guid=$guid,initiator_ext=000000000000000$1,dest=$RDMA_V4:$PORT' \
		>/sys/class/infiniband_srp/srp-r0-1/add_target"
}

log_out() {
	local port
	for port in /sys/class/srp_remote_ports/*; do
		[ ! -e "$port/delete" ] || echo 1 >"$port/delete"
	done
}

# disks: the disks of the hosts that are logged in, one a line.
disks() {
	local disk
	for disk in /sys/block/sd*; do
		[ ! -e "$disk" ] || [ "$(tr -d ' ' <"$disk/device/vendor")" != LIO-ORG ] || basename "$disk"
	done
}
has_disks() { [ "$(disks | wc -l)" = "$1" ] && for d in $(disks); do [ -b "/dev/$d" ] || return 1; done; }

# fio_on NAME DISK OFFSET OPTION...: writes to one half of the disk, in the background; the process is in SPAWNED.
fio_on() {
	spawn "$1" fio --name="$1" --filename="/dev/$2" --offset="$3" --size=8m --iodepth=16 --ioengine=libaio --direct=1 \
		--rw=randwrite --verify=crc32c --verify_fatal=1 --minimal "${@:4}"
}

# both_in IMMEDIATE: two hosts log in; FIRST and SECOND are their disks.
both_in() {
	echo "$1" >/sys/module/ib_srp/parameters/use_imm_data
	log_in 1
	log_in 2
	wait_for 20 "the disks of two hosts" has_disks 2
	{ read -r FIRST && read -r SECOND; } < <(disks)
}

# verified BLOCK IMMEDIATE: both hosts write and verify at once, each in its half of the disk. Each host then reads
# all of it, and the data are those of the target's file.
verified() {
	local name=blocks-$1-immediate-$2 disk first
	both_in "$2"
	fio_on "first-$name" "$FIRST" 0 --bs="$1" --do_verify=1
	first=$SPAWNED
	fio_on "second-$name" "$SECOND" 8m --bs="$1" --do_verify=1
	finish "$SPAWNED" 60 "second-$name"
	finish "$first" 60 "first-$name"
	for disk in "$FIRST" "$SECOND"; do
		run 60 "$disk of $name" bash -o pipefail -c \
			"dd if=/dev/$disk iflag=direct bs=256k status=none | cmp - '$WORK/disk/image'"
	done
	log_out
	wait_for 20 "the disks go with their hosts" has_disks 0
	ok "blocks of $1, immediate data $2: two hosts verified"
}

# device_goes: removes the device under the traffic of two hosts. The data are in the commands, which need no memory
# registration. With registrations ib_srp of 7.2.12 called NULL in ib_process_cq_direct(), once. By its source, the
# cause is that scsi_remove_host() frees requests before ib_srp polls their registrations' completions.
device_goes() {
	local first second
	both_in Y
	fio_on first-endless "$FIRST" 0 --bs=4k --do_verify=0 --time_based --runtime=600
	first=$SPAWNED
	fio_on second-endless "$SECOND" 8m --bs=4k --do_verify=0 --time_based --runtime=600
	second=$SPAWNED
	wait_for 20 "data is flowing" flows "$FIRST" "$SECOND"
	ip link del rd0
	wait_for 60 "the device goes with its interface" not has_link r0
	wait_for 20 "the disks go with the device" has_disks 0
	wait_for 20 "fio of the first host ends" gone "$first"
	wait_for 20 "fio of the second host ends" gone "$second"
	ok "the device went under the traffic of two hosts"
}
# flows DISK...: a megabyte was written to each.
flows() {
	local disk
	for disk; do
		[ "$(awk '{ print $7 }' "/sys/block/$disk/stat")" -gt 2048 ] || return 1
	done
}

# target_closes: ib_srpt keeps an iWARP connection that the host has ended, until its port is disabled: rdma_cm reports
# the end once, and ib_srpt waits for a second event.
target_closes() {
	echo 0 >"$TPG/enable"
	wait_for 20 "no queue pair is left" no_qps
	echo 1 >"$TPG/enable"
	ok "the target's port closes its connections"
}

single_bed
target_up
for immediate in Y N; do
	for block in 4k 256k; do
		verified "$block" "$immediate"
	done
done
target_closes
device_goes
