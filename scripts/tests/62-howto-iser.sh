#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: soak
# The page about iSER: LIO and open-iscsi. Target and initiator of the kernel use RDMA in the first network namespace only.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
HOWTO_ONE_NETWORK=1
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

mountpoint -q /sys/kernel/config || die "no configfs"
# udev loads sd_mod on a host.
modprobe -q sd_mod || exit 4
run_page docs/howto/iser.md
