#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# libsiw's view: each check of src/abi.c in a process of its own, then a process
# that writes garbage into all rings it shares with the module (src/hostile.c).
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"

SEED=${RSIW_SEED:-$(date +%s)}
FAILED=0

single_bed
for check in $("$RSIW_TESTBIN/abi"); do
	if timeout -k 5 $((30 * FACTOR)) "$RSIW_TESTBIN/abi" "$RDMA_V4" "$check"; then
		ok "$check"
	else
		say "not ok: $check, status $?"
		FAILED=1
	fi
done
[ "$FAILED" = 0 ] || die "checks above failed"

run 60 "hostile rings" "$RSIW_TESTBIN/hostile" -n 150 -s "$SEED" "$RDMA_V4"
ok "garbage in the rings, seed $SEED: $(tail -n 1 "$(log_of hostile_rings)")"
run 20 "afterwards" "$RSIW_TESTBIN/abi" "$RDMA_V4" zero_length
