# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The root of the control groups (version 2); sourced by the tests that use them.

# cgroup_root: mounts the root of the control groups at CGROUP. Skips the test where the kernel has none.
cgroup_root() {
	CGROUP=$WORK/cgroup
	mkdir "$CGROUP"
	if ! mount -t cgroup2 none "$CGROUP" 2>/dev/null; then
		say "this kernel has no control groups"
		exit 4
	fi
	MOUNTS+=("$CGROUP")
}
