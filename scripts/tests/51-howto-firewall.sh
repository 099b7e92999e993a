#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: soak
# The page about firewalls: nftables, closed and opened for RDMA.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

modprobe -q nf_tables || exit 4
run_page docs/howto/firewall.md
