#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: soak
# leaves a network namespace: the kernel's NFS server keeps it after NFS 4.1 or later over any RDMA device
# The page about NFS over RDMA, with two hosts.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

run_page docs/howto/nfs.md
