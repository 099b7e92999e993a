#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 600
# runs on: soak
# The page about debugging: each trace event is seen by its bpftrace line.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

run_page docs/howto/debug.md
