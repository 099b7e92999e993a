#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: soak
# The page about tuning: CRC, MTU, processors, doorbells.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

run_page docs/howto/tuning.md
