#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 400
# runs on: soak
# The page about containers: device nodes, and a network namespace with a device of its own.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
# shellcheck source=howto.sh
. "$(dirname "$0")/howto.sh"

modprobe -q macvlan || exit 4
run_page docs/howto/containers.md
