# SPDX-License-Identifier: GPL-2.0
"""NFS 4.2 and NVMe over RDMA and over TCP, driven by fio. Disks are memory, or null_blk without memory."""

import glob
import json
import os
import subprocess

from machine import MODPROBE, Failed, listening, on, read, run, wait_for, write

EXPORT, MOUNT = "/srv/bench", "/mnt/bench"
NVMET = "/sys/kernel/config/nvmet"
NQN = "rsiw-bench"
SECONDS = "2"


def fio(target, mode, block, depth, size):
    """MB/s of one fio job with direct I/O."""
    out = run(*on(1), "fio", "--name=bench", f"--filename={target}", f"--rw={mode}", f"--bs={block}",
              f"--iodepth={depth}", f"--size={size}", "--ioengine=libaio", "--direct=1",
              f"--runtime={SECONDS}", "--time_based", "--output-format=json", limit=60)
    job = json.loads(out[out.index("{"):])["jobs"][0]
    side = job["read" if "read" in mode else "write"]
    if not side["total_ios"]:
        raise Failed("fio did nothing")
    return {"value": side["bw_bytes"] / 1e6, "unit": "MB/s", "operations": side["iops"]}


class Storage:
    """A server that is made once and used over one transport at a time."""

    made = None

    @classmethod
    def use(cls, address, over):
        """The measures over "rdma" or "tcp", each with its function."""
        if cls.made is None:
            cls.made = cls()
        yield from cls.made.measure(address, over)


class Nfs(Storage):
    """A server of a tmpfs, and one mount of it at a time."""

    MEASURES = {
        "nfs_write": ("write", "1m", 4, "200m"),
        "nfs_read": ("read", "1m", 4, "200m"),
        "nfs_randwrite_4k": ("randwrite", "4k", 16, "200m"),
        "nfs_randread_4k": ("randread", "4k", 16, "200m"),
    }

    def __init__(self):
        run(*MODPROBE, "-a", "nfs", "nfsd", "rpcrdma", check=False)
        for directory in (EXPORT, MOUNT, "/run/rpc_pipefs", "/var/lib/nfs/v4recovery",
                          "/var/lib/nfs/nfsdcld"):
            os.makedirs(directory, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "size=400m", "bench", EXPORT)
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        run("mount", "-t", "rpc_pipefs", "rpc_pipefs", "/run/rpc_pipefs")
        self.helper = subprocess.Popen(["nfsdcld", "-F"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def serve(self):
        """Starts the server on all present devices."""
        write("/proc/fs/nfsd/nfsv4leasetime", 10)
        write("/proc/fs/nfsd/nfsv4gracetime", 10)
        run("exportfs", "-i", "-o", "rw,no_root_squash,insecure,no_subtree_check,fsid=0",
            "*:" + EXPORT)
        if not run("pgrep", "-x", "rpc.mountd", check=False):
            run("rpc.mountd", "-N", "3")
        run("rpc.nfsd", "--rdma=20049", "--tcp", "-N", "3", "4")

    def stop(self):
        """Ends the server, so that devices can be removed."""
        run("rpc.nfsd", "0")
        wait_for("the NFS server ends", lambda: not listening(2049))

    def measure(self, address, over):
        """All measures of a mount; the file is written before it is read."""
        port = 20049 if over == "rdma" else 2049
        self.serve()
        try:
            run("mount", "-t", "nfs", "-o", f"vers=4.2,proto={over},port={port}", f"{address}:/",
                MOUNT)
            try:
                for name, job in self.MEASURES.items():
                    yield name, lambda job=job: fio(MOUNT + "/file", *job)
            finally:
                run("umount", MOUNT)
        finally:
            self.stop()


class Nvme(Storage):
    """A target whose disk forgets everything, so that only the transport counts."""

    MEASURES = {
        "nvme_write_128k": ("write", "128k", 8, "1g"),
        "nvme_read_128k": ("read", "128k", 8, "1g"),
        "nvme_randwrite_4k": ("randwrite", "4k", 16, "1g"),
        "nvme_randread_4k": ("randread", "4k", 16, "1g"),
    }

    def __init__(self):
        run(*MODPROBE, "-a", "null_blk", "nvmet-rdma", "nvmet-tcp", "nvme-rdma", "nvme-tcp", check=False)
        self.subsystem = f"{NVMET}/subsystems/{NQN}"
        os.makedirs(self.subsystem + "/namespaces/1")
        write(self.subsystem + "/attr_allow_any_host", 1)
        write(self.subsystem + "/namespaces/1/device_path", "/dev/nullb0")
        write(self.subsystem + "/namespaces/1/enable", 1)

    def disk(self):
        """The path of the connected disk, or None."""
        for path in glob.glob("/sys/block/nvme*"):
            # A disk's device is its controller, or with multipath its subsystem.
            known = path + "/device/subsysnqn"
            node = "/dev/" + os.path.basename(path)
            if os.path.exists(known) and read(known) == NQN and os.path.exists(node):
                return node
        return None

    def measure(self, address, over):
        """All measures of a connection over "rdma" or "tcp"."""
        port = f"{NVMET}/ports/1"
        os.makedirs(port)
        for name, value in (("trtype", over), ("adrfam", "ipv4"), ("traddr", address),
                            ("trsvcid", 4420)):
            write(f"{port}/addr_{name}", value)
        os.symlink(self.subsystem, f"{port}/subsystems/{NQN}")
        try:
            run("nvme", "connect", "-t", over, "-a", address, "-s", "4420", "-n", NQN)
            wait_for("the NVMe disk", self.disk)
            for name, job in self.MEASURES.items():
                yield name, lambda job=job: fio(self.disk(), *job)
        finally:
            run("nvme", "disconnect", "-n", NQN, check=False)
            os.unlink(f"{port}/subsystems/{NQN}")
            os.rmdir(port)
