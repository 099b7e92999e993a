#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 300
# runs on: 7.2/4 7.3/4
# NVMe over RDMA with the stock kernel's target and host: a loop device is
# exported and connected ten times; each time fio writes and verifies.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

NQN=rsiw-test
CONFIG=/sys/kernel/config/nvmet
SUBSYSTEM=$CONFIG/subsystems/$NQN
PORT=$CONFIG/ports/1

target_up() {
	modprobe -a loop nvmet nvmet-rdma nvme-rdma
	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
	mkdir -p "$WORK/disk"
	mount -t tmpfs -o size=100m rsiw-disk "$WORK/disk"
	MOUNTS+=("$WORK/disk")
	truncate -s 64M "$WORK/disk/image"
	LOOP=$(losetup -f --show "$WORK/disk/image")
	DONE_HOOK=target_down
	mkdir "$SUBSYSTEM"
	echo 1 >"$SUBSYSTEM/attr_allow_any_host"
	mkdir "$SUBSYSTEM/namespaces/1"
	echo "$LOOP" >"$SUBSYSTEM/namespaces/1/device_path"
	echo 1 >"$SUBSYSTEM/namespaces/1/enable"
	mkdir "$PORT"
	echo rdma >"$PORT/addr_trtype"
	echo ipv4 >"$PORT/addr_adrfam"
	echo "$RDMA_V4" >"$PORT/addr_traddr"
	echo 4420 >"$PORT/addr_trsvcid"
	ln -s "$SUBSYSTEM" "$PORT/subsystems/$NQN"
}

# shellcheck disable=SC2317,SC2329 # called through DONE_HOOK
target_down() {
	# Modules in which a process hangs stay loaded.
	[ -z "${STUCK:-}" ] || return 0
	within 20 nvme disconnect -n "$NQN"
	rm -f "$PORT/subsystems/$NQN"
	echo 0 >"$SUBSYSTEM/namespaces/1/enable"
	rmdir "$PORT" "$SUBSYSTEM/namespaces/1" "$SUBSYSTEM"
	losetup -d "$LOOP"
	# The debug kernel has the NVMe modules built in.
	[ ! -e /sys/module/nvmet/initstate ] || modprobe -r nvme-rdma nvmet-rdma nvmet
}

# look: stack traces of the waiting tasks, if the host does not disconnect from the target.
look() {
	echo w >/proc/sysrq-trigger
	dmesg | tail -n 200
	ss -tinoem
	rdma resource show qp
	rdma resource show cm_id
	rdma statistic show
}

disconnect() {
	(run 30 "disconnect $1" nvme disconnect -n "$NQN") && return
	look
	STUCK=1
	die "round $1: the host did not disconnect"
}

# The block device of the connected subsystem: the subsystem's own in a kernel with NVMe multipath, its
# controller's otherwise.
disk() {
	local d disk
	for d in /sys/class/nvme-subsystem/*; do
		[ "$(cat "$d/subsysnqn" 2>/dev/null)" = "$NQN" ] || continue
		for disk in "$d"/nvme[0-9]n1 "$d"/nvme[0-9]/nvme[0-9]n1; do
			[ ! -e "$disk" ] || basename "$disk"
		done | head -n 1
		return 0
	done
	return 1
}
disk_there() { [ -b "/dev/$(disk)" ]; }

single_bed
target_up
wait_listening 4420
for round in $(seq "$(rounds 10)"); do
	run 30 "connect $round" nvme connect -t rdma -a "$RDMA_V4" -s 4420 -n "$NQN"
	wait_for 20 "the NVMe disk" disk_there
	run 60 "fio $round" fio --name=nvme --filename="/dev/$(disk)" --size=8m --bs="$((round % 2 ? 4096 : 262144))" \
		--iodepth=16 --ioengine=libaio --direct=1 --rw=randwrite --verify=crc32c --do_verify=1 \
		--verify_fatal=1 --minimal
	disconnect "$round"
	wait_for 20 "the NVMe disk is gone" not disk_there
	ok "round $round: connected, verified, disconnected"
done
