#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 420
# runs on: uml
# rdma-core's own test-suite, which Debian ships with rdma-core's documentation. Each test
# passes, or the suite skips it by the device's capabilities. No program of it crashes, and
# no object is left. src/rdma_core_tests.py names the tests that cannot pass, with reasons.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"

SUITE=/usr/share/doc/rdma-core/tests

ls "$SUITE"/__init__.py* >/dev/null || die "rdma-core's tests are not in $SUITE"
# Documentation is compressed where it is large.
mkdir "$WORK/suite"
cp -r "$SUITE" "$WORK/suite/"
gunzip "$WORK"/suite/tests/*.gz

# The suite does not check the status of all its programs: a crash shows here.
echo 1 >/proc/sys/kernel/print-fatal-signals
single_bed
echo "rsiw-test: the suite begins" >/dev/kmsg

status=0
timeout -k 5 $((330 * FACTOR)) python3 -X faulthandler -B "$(dirname "$0")/src/rdma_core_tests.py" \
	"$WORK/suite" r0 1 "$@" 2>"$WORK/suite.log" </dev/null || status=$?
if [ "$status" != 0 ]; then
	show_log "$WORK/suite.log"
	die "rdma-core's tests: status $status"
fi

crashes=$(dmesg | sed -n '/rsiw-test: the suite begins/,$p' |
	grep -E 'potentially unexpected fatal signal|segfault|general protection|trap ' || true)
[ -z "$crashes" ] || die "a program of the suite crashed: $crashes"
for kind in qp cm_id mr srq; do
	wait_for 20 "no $kind is left" none_left "$kind"
done
