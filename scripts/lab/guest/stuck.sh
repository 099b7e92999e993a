# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shows the state of a guest after a failed test. To be sourced, in the guest.

# show_stuck: programs, connections, counters of devices, the trace, outstanding requests of NFS, and tasks that wait
# in the kernel.
show_stuck() {
	local tasks
	echo "---- programs"
	ps --ppid 2 -p 2 -N -o pid,stat,wchan:30,args
	echo "---- RDMA resources and TCP sockets"
	timeout 5 rdma res show cm_id
	timeout 5 rdma res show qp
	ss -Htani
	timeout 5 rdma statistic show | grep -v ' 0 $'
	if [ -e /sys/kernel/tracing/trace ]; then
		echo "---- trace"
		grep -v '^#' /sys/kernel/tracing/trace | tail -n 60
	fi
	if [ -e /proc/fs/nfsfs/servers ]; then
		echo "---- NFS clients, transports, requests"
		cat /proc/fs/nfsfs/servers
		timeout 5 grep 'xprt:' /proc/self/mountstats
		mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
		for tasks in /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks; do
			timeout 5 cat "$tasks"
		done
	fi
	echo "---- blocked tasks"
	if [ -e /proc/sysrq-trigger ]; then
		echo w >/proc/sysrq-trigger
		dmesg | awk '/sysrq: Show Blocked State/ { text = "" } { text = text $0 "\n" } END { printf "%s", text }' |
			tail -n 200
	else
		# User-mode Linux has no SysRq.
		ps -e -o stat=,pid=,args= | while read -r state pid words; do
			[[ $state != D* ]] || { echo "$pid $words" && cat "/proc/$pid/stack"; }
		done
	fi
}
