#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: soak
# The page about encryption: ESP in transport mode and WireGuard under RDMA; a capture has nothing in clear.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

modprobe -a -q esp4 xfrm_user wireguard || exit 4
run_page docs/howto/ipsec.md
