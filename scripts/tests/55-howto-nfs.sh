#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# leaves a network namespace: the kernel's own server does, after NFS 4.1 or later over any RDMA
# The page about NFS over RDMA, with two hosts: the commands are those of the page.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

run_page docs/howto/nfs.md
