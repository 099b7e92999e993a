#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# time limit: 240
# runs on: soak
# Only on a kernel with PREEMPT_RT (make test T=58-realtime KERNEL=7.3-rt): a SCHED_FIFO thread deregisters a
# region under traffic on its own CPU (src/fifo.c). The throttling of real-time threads and the fair server are
# off. Only the wait in the deregistration gives the CPU to the thread that holds the pin.
# shellcheck source=../lab/guest/lib.sh
. "$(dirname "$0")/../lab/guest/lib.sh"
[[ $(uname -v) == *PREEMPT_RT* ]] || exit 4

single_bed
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
limit=$(cat /proc/sys/kernel/sched_rt_runtime_us)
servers=(/sys/kernel/debug/sched/fair_server/cpu*/runtime)
runtime=$(cat "${servers[0]}")
restore() {
	echo "$limit" >/proc/sys/kernel/sched_rt_runtime_us
	for f in "${servers[@]}"; do echo "$runtime" >"$f"; done
}
# shellcheck disable=SC2034  # run by cleanup
DONE_HOOK=restore
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
for f in "${servers[@]}"; do echo 0 >"$f"; done
for cpu in $(seq 0 $(($(nproc) - 1))); do
	timeout -k 5 100 "$RSIW_TESTBIN/fifo" "$RDMA_V4" "$cpu" "$(rounds 100)" 2>&1 || die "fifo on CPU $cpu: status $?"
done
