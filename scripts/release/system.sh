# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# A Debian system with a disk, in QEMU, which runs scripts/release/guest-boot at each start. To be sourced by
# check-boot, check-dkms and check-secure-boot, which set root, LOGS and WORK.
#
# The system's second disk, mounted at /opt/check, has guest-boot and its settings. The second serial port gets what
# guest-boot prints.

# shellcheck disable=SC2154  # root is the caller's
inside() { in_root "$root" env DEBIAN_FRONTEND=noninteractive "$@"; }

# Folders of modules that are not unpacked, and the modules of them that are: in emulation depmod takes long for all,
# and udev for those of the processor (arch).
# shellcheck disable=SC2034  # the callers use both
LEFT_OUT="arch drivers sound net"
# shellcheck disable=SC2034
KEPT="drivers/block/virtio_blk drivers/virtio/ drivers/net/virtio_net drivers/net/net_failover drivers/net/dummy
	drivers/char/hw_random/ drivers/infiniband/core/ net/core/ net/dns_resolver/ net/sunrpc/"

# disk_of DIRECTORY FILE SIZE
disk_of() {
	truncate -s "$3" "$2"
	quiet "$LOGS/disk.log" mke2fs -q -t ext4 -d "$1" "$2"
}

# programs_of DIRECTORY: guest-boot and what it sources.
programs_of() {
	install -m 755 "$SCRIPTS/release/guest-boot" "$1/guest-boot"
	install -m 644 "$LAB/guest/traffic.sh" "$1/traffic.sh"
}

# run_at_boot: the system in root has the unit of guest-boot, and 10.77.0.2 on eth0.
run_at_boot() {
	cat >"$root/etc/systemd/system/check.service" <<-'END'
	[Unit]
	After=network-online.target remote-fs.target nfs-server.service
	Wants=network-online.target
	RequiresMountsFor=/opt/check
	[Service]
	ExecStart=/opt/check/guest-boot
	StandardOutput=tty
	StandardError=tty
	TTYPath=/dev/ttyS1
	[Install]
	WantedBy=multi-user.target
	END
	cat >"$root/etc/systemd/network/eth0.network" <<-'END'
	[Match]
	Name=eth0
	[Network]
	Address=10.77.0.2/24
	END
	mkdir -p "$root/opt/check"
	printf '%s\n' '/dev/vda / ext4 defaults 0 1' '/dev/vdb /opt/check ext4 ro 0 2' >"$root/etc/fstab"
	echo check >"$root/etc/hostname"
	inside systemctl enable systemd-networkd check >/dev/null 2>&1
	# These units are not part of the check. In emulation each program that a boot starts takes a second or more.
	inside systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
		e2scrub_reap.service fstrim.timer getty.target systemd-timesyncd.service modprobe@configfs.service \
		modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service sys-fs-fuse-connections.mount \
		dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
		kmod-static-nodes.service systemd-random-seed.service systemd-logind.service \
		systemd-network-generator.service systemd-udev-load-credentials.service nfs-blkmap.service >/dev/null 2>&1 || :
	rm -f "$root/usr/sbin/policy-rc.d"
}

# machine STAGE OPTION...: one life of the machine with the disks WORK/disk and WORK/packages.disk; gives QEMU's
# status. Without -fsrm and -erms an emulated copy is not made octet by octet. One processor, since QEMU's emulation of
# two has faults of its own.
machine() {
	in_root "$("$LAB/toolbox")" timeout -k 5 "$LIMIT" qemu-system-x86_64 -nodefaults -display none \
		-no-reboot -m 1024 -smp 1 -accel tcg -cpu max,-fsrm,-erms "${@:2}" \
		-drive "file=$WORK/disk,format=raw,if=virtio,cache=unsafe" \
		-drive "file=$WORK/packages.disk,format=raw,if=virtio,readonly=on" \
		-netdev user,id=n,restrict=on -device virtio-net-pci,netdev=n,romfile= -device virtio-rng-pci \
		-serial "file:$LOGS/$1.console" -serial "file:$LOGS/$1.log"
}

# PARAMETERS of the kernel. no_timer_check: on a busy host the kernel does not see the ticks that it waits for.
# shellcheck disable=SC2034  # the callers use it
PARAMETERS="root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=-1 random.trust_cpu=on no_timer_check"

# The line of /etc/fstab for guest-boot's mount.
# shellcheck disable=SC2034  # the callers use it
NFS_MOUNT="10.77.0.2:/srv/nfs /mnt nfs proto=rdma,port=20049,_netdev,x-systemd.requires=rsiw-link@eth0.service,x-systemd.after=nfs-server.service 0 0"

# nfs_server ROOT: that system exports /srv/nfs by RDMA.
nfs_server() {
	mkdir -p "$1/srv/nfs" "$1/etc/exports.d" "$1/etc/nfs.conf.d"
	echo '/srv/nfs 10.77.0.0/24(rw,no_root_squash,insecure,fsid=1)' >"$1/etc/exports.d/check.exports"
	printf '[nfsd]\nrdma=y\nrdma-port=20049\ngrace-time=10\nlease-time=10\n' >"$1/etc/nfs.conf.d/rdma.conf"
}

# start STAGE KERNEL INITRD: one life of the machine, which has to pass the stage. A kernel that dies before its first
# program (now and then a fault of the emulator) has changed nothing, and is started again.
start() {
	local status
	for _ in 1 2 3; do
		status=0
		machine "$1" -kernel "$2" -initrd "$3" -append "$PARAMETERS" </dev/null || status=$?
		! grep -qF "$FIRST_PROGRAM" "$LOGS/$1.console" || break
		say "The kernel died before its first program"
	done
	passed "$1" "$status"
}

# passed STAGE STATUS: the results of guest-boot; exits if the stage did not pass. STATUS is that of machine.
passed() {
	sed 's/\r$//' "$LOGS/$1.log" | grep -E '^(ok|FAIL)' || :
	[ "$2" = 0 ] || die "$1: the machine was stopped after $LIMIT s, or died ($2): $(tail -n 5 "$LOGS/$1.console")"
	splats "$LOGS/$1.console" || die "$1: the kernel complained (above)"
	grep -q "^ok: $1" "$LOGS/$1.log" || die "$1: $(sed 's/\r$//' "$LOGS/$1.log" | tail -n 40)"
}
