#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: soak
# The page about CI: the script of a job, and the commands that blktests runs. NVMe uses the first network namespace only.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
HOWTO_ONE_NETWORK=1
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

mountpoint -q /sys/kernel/config || die "no configfs"
run_page docs/howto/ci.md
