#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# The page about programs that connect their queue pairs without rdma_cm, with two hosts.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

run_page docs/howto/roce-programs.md
