# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# An NFS server and mounts for the tests; sourced by them.
# The export is a tmpfs: an overlay, which the guest's root is, cannot be exported.

NFS_EXPORT=/srv/rsiw-export
NFS_MOUNT=/mnt/rsiw
NFS_PREFIX=() # command that enters the server's network namespace
NFS_V4_ONLY=0 # 1: no rpcbind and no v3

# nfs_prepare: file systems and modules the server and the client need.
nfs_prepare() {
	modprobe -a nfs nfsd rpcrdma
	mkdir -p "$NFS_EXPORT" "$NFS_MOUNT" /run/rpc_pipefs /var/lib/nfs/v4recovery /var/lib/nfs/nfsdcld
	mount -t tmpfs -o size=1200m rsiw-export "$NFS_EXPORT"
	MOUNTS+=("$NFS_EXPORT")
	# shellcheck disable=SC2034 # read by lib.sh
	DONE_HOOK=nfs_stop
}

# The server's commands in one shell, because "ip netns exec" gives each command a mount namespace of its own.
nfs_start() {
	# shellcheck disable=SC2016 # expanded by the inner shell
	run 60 "NFS server start" "${NFS_PREFIX[@]}" sh -euc '
		export=$1 flags=
		mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
		if ! pgrep -x nfsdcld >/dev/null; then
			mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
			nfsdcld
		fi
		if [ "$(cat /proc/fs/nfsd/threads)" = 0 ]; then
			echo 10 >/proc/fs/nfsd/nfsv4leasetime
			echo 10 >/proc/fs/nfsd/nfsv4gracetime
		fi
		exportfs -i -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$export"
		if [ "$2" = 1 ]; then
			flags="-N 3"
		elif ! rpcinfo -p >/dev/null 2>&1; then
			rpcbind
		fi
		pgrep -x rpc.mountd >/dev/null || rpc.mountd -p 20048 $flags
		rpc.nfsd --rdma=20049 --tcp $flags 8
		grep -q "^rdma 20049" /proc/fs/nfsd/portlist
	' sh "$NFS_EXPORT" "$NFS_V4_ONLY"
}

nfs_threads_stop() {
	# shellcheck disable=SC2016
	"${NFS_PREFIX[@]}" sh -c 'mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd; rpc.nfsd 0'
}

# Connections that the server has not closed. After the end of its listener they would stay for good, and
# the device could not be removed.
server_ids() { rdma res show cm_id | grep 'src-addr [^ ]*:20049 '; }
nothing_left_at_server() { wait_for 20 "the server's connections are gone" not server_ids; }

# nfs_mounted: reads a list of the kernel. mountpoint(1) would send a request to the server.
nfs_mounted() { grep -q " $NFS_MOUNT nfs" /proc/self/mounts; }

# nfs_clients: the kernel's NFS client has state of a server, with a mount or without.
nfs_clients() { shows '^v' </proc/fs/nfsfs/servers; }

# umount may wait for a server that does not answer. The waiting umount can be killed.
nfs_stop() {
	nfs_mounted && timeout -k 1 20 umount -i -f -l "$NFS_MOUNT"
	nfs_threads_stop 2>/dev/null
	exportfs -ua
	pkill -x rpc.mountd
	pkill -x nfsdcld
	pkill -x rpcbind
	umount /proc/fs/nfsd 2>/dev/null
	umount /run/rpc_pipefs 2>/dev/null
	:
}

# nfs_mount VERSION ADDRESS [PROTO]: mounts the export at NFS_MOUNT.
nfs_mount() {
	local options path proto=${3:-rdma} port=20049
	[ "$proto" = rdma ] || port=2049
	options=vers=$1,proto=$proto,port=$port
	# For version 4 the export is the root (fsid=0), as the guest's own root cannot be exported.
	if [ "$1" = 3 ]; then
		options=$options,nolock,mountproto=tcp,mountport=20048 path=$NFS_EXPORT
	else
		path=/
	fi
	run 60 "mount $1 $proto" mount -t nfs -o "$options" "$2:$path" "$NFS_MOUNT"
}

nfs_umount() { run 60 "umount" umount "$NFS_MOUNT"; }

drop_caches() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# rdma_counter FIELD: a counter of the one RDMA mount. The line "xprt: rdma" has ten general numbers, then the fields.
rdma_counter() {
	local column
	case $1 in
	connects) column=5 ;;
	sends) column=8 ;;
	read_chunks) column=13 ;;
	write_chunks) column=14 ;;
	reply_chunks) column=15 ;;
	reply_bytes) column=17 ;;
	failed_marshal) column=21 ;;
	bad_reply) column=22 ;;
	nomsg) column=23 ;;
	esac
	awk -v c="$column" '$1 == "xprt:" && $2 == "rdma" { n += $c; seen = 1 } END { if (!seen) exit 1; print n }' /proc/self/mountstats
}

# server_counter read|write: RDMA Reads and Writes svcrdma has posted.
server_counter() { cat "/proc/sys/sunrpc/svc_rdma/rdma_stat_$1"; }

# make_tree DIR: 2,000 files (fewer where rounds are fewer) of 0 to 40,000 octets in nested
# directories, half of them in a flat one.
make_tree() {
	python3 - "$1" "$(rounds 2000)" <<-'PYTHON'
		import os, random, sys
		top, files, rng = sys.argv[1], int(sys.argv[2]), random.Random(20049)
		pool = rng.randbytes(1 << 20)
		for n in range(files):
		    where = "flat" if n < files // 2 else f"d{n % 10}/e{n % 7}/f{n % 3}"
		    os.makedirs(f"{top}/{where}", exist_ok=True)
		    size, at = rng.choice((0, 1, 511, 4096, rng.randrange(40000))), rng.randrange(1 << 19)
		    with open(f"{top}/{where}/file-with-a-name-{n:04}", "wb") as f:
		        f.write(pool[at:at + size])
	PYTHON
}

# sums DIR: the checksums of all files, sorted by name.
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 md5sum); }

# same_tree REFERENCE DIR WHAT
same_tree() {
	sums "$2" >"$WORK/sums.now"
	cmp -s "$1" "$WORK/sums.now" && return 0
	diff "$1" "$WORK/sums.now" | head -n 20
	die "$3: content differs"
}

# nfs_fio NAME BLOCK SIZE: writes, then reads back and verifies, direct, 16 deep.
nfs_fio() {
	run 120 "fio $1 $2" fio --name="$1" --directory="$NFS_MOUNT" --size="$3" --bs="$2" --iodepth=16 \
		--ioengine=libaio --direct=1 --rw=randwrite --verify=crc32c --do_verify=1 --verify_fatal=1 \
		--end_fsync=1 --unlink=1 --minimal
	ok "fio verify $1: $2, $3"
}

# writer FILE COUNT [ERROR]: numbered blocks of 64 KiB, each flushed, so that the server shows progress.
# After ERROR, EINVAL for example, the block is written again.
writer() {
	python3 - "$@" <<-'PYTHON'
		import errno, os, sys
		path, count, excused = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
		excuses = 3
		fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

		def put(n):
		    os.pwrite(fd, n.to_bytes(4, "big") * 16384, n * 65536)
		    os.fsync(fd)

		n = 0
		while n < count:
		    try:
		        put(n)
		        n += 1
		    except OSError as e:
		        if errno.errorcode[e.errno] not in excused or not excuses:
		            raise
		        print(f"block {n}: {e}, once more")
		        excuses -= 1
		os.close(fd)
	PYTHON
}

# check_blocks FILE COUNT: the file has the blocks of a writer.
check_blocks() {
	python3 - "$1" "$2" <<-'PYTHON'
		import sys
		data = open(sys.argv[1], "rb").read()
		want = b"".join(n.to_bytes(4, "big") * 16384 for n in range(int(sys.argv[2])))
		sys.exit(0 if data == want else f"{len(data)} octets, expected {len(want)}, or they differ")
	PYTHON
}

bigger() { [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -gt "$2" ]; }
