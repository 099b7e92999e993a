#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 320
# runs on: 7.2 7.3
# Random operations of random lengths at random offsets, from both ends at once,
# every octet and the guard zones compared: from user space (src/integrity.c) at
# three MTUs and over IPv6, and with fast-registered kernel memory (src/kverbs), whose queue pairs
# are posted to by several threads at once, in error, with interrupts on and off, and from inside
# completion handlers (handler.c). A drain with a shared receive queue is short (srq.c), what is
# invalid already may be invalidated (invalid.c), and a user that closes a connection hears of no new
# one meanwhile (held.c).
# shellcheck source=../guest/lib.sh
. "$(dirname "$0")/../guest/lib.sh"

SEED=${RSIW_SEED:-$(date +%s)}
say "seed $SEED (set RSIW_SEED to repeat)"

# generator LABEL BATCHES ADDRESS
generator() {
	local plain=
	[ "$RSIW_TYPE" != siw ] || plain=-p
	# shellcheck disable=SC2086 # empty or one word
	run 60 "$1" "$RSIW_TESTBIN/integrity" $plain -n "$2" -s "$SEED" "$3"
	ok "$1: $(tail -n 1 "$(log_of "$(label_of "$1")")")"
	SEED=$((SEED + 1))
}

kernel_memory() {
	local before plain=0
	[ "$RSIW_TYPE" != siw ] || plain=1
	before=$(dmesg | wc -l)
	# Not by timeout, which would wait for one that hangs in the kernel before anything is said.
	spawn kverbs modprobe rsiw_kverbs_test addr="$RDMA_V4" seed="$SEED" rounds="$1" plain="$plain"
	if ! (wait_for 120 "the module's tests end" gone "$SPAWNED") || ! wait "$SPAWNED"; then
		dmesg | tail -n +"$((before + 1))" | tail -n 30
		die "fast-registered memory, seed $SEED"
	fi
	rmmod rsiw_kverbs_test
	ok "$(dmesg | sed -n 's/.*rsiw_kverbs_test: \(passed.*\)/fast-registered memory \1/p' | tail -n 1)"
}

single_bed
for mtu in 1500 9000 65536; do
	set_mtu "$mtu"
	generator "user memory, MTU $mtu" 60 "$RDMA_V4"
done
set_mtu 1500
generator "user memory, IPv6" 30 "$RDMA_V6"
kernel_memory 150
