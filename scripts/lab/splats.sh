# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
#
# Reports of a faulty kernel in its log. To be sourced, on the host and in the guest.

SPLATS='BUG:|kernel BUG at|WARNING:|Oops|Kernel panic|general protection fault|rust_kernel: panicked'
SPLATS="$SPLATS|KASAN|UBSAN|possible circular locking|possible recursive locking|inconsistent lock state"
SPLATS="$SPLATS|suspicious RCU usage|refcount_t:|scheduling while atomic|sleeping function called"
SPLATS="$SPLATS|list_(add|del) corruption|ODEBUG:|ref_tracker:|DEBUG_LOCKS_WARN_ON|Bad page state"
SPLATS="$SPLATS|INFO: task .* blocked|INFO: rcu|rcu: INFO|soft lockup|workqueue lockup"
SPLATS="$SPLATS|unregister_netdevice: waiting|kmemleak: [0-9]+ new|Restarting kernel"

# Lines with such words that are no report: the kernel's features, programs that crash ("traps:"), which
# their test learns from the status, and a tracker of references that a test refused memory.
HARMLESS='ref_tracker: memory allocation failure|kasan: KernelAddressSanitizer initialized|Lock dependency validator|mitigation|traps: .*general protection fault ip:'

# The first line of a report about other modules: that of 7.3 when iSCSI logs out, with any transport.
OF_OTHERS='workqueue: WQ_MEM_RECLAIM iscsi_ctrl_[^ ]* \[scsi_transport_iscsi\] is flushing !WQ_MEM_RECLAIM pm:pm_runtime_work'

# Reports before the first program do not count: a debug kernel may have some of its own there (KASAN, about
# an interrupt while it identifies the processor).
FIRST_PROGRAM=' as init process'

# splats FILE: shows each report with the lines behind it, and fails if there is one.
splats() {
	shown=$(grep -nF "$FIRST_PROGRAM" "$1" | head -n 1 | cut -d: -f1)
	shown=${shown:-0}
	found=$(grep -nE "$SPLATS" "$1" | grep -viE "$HARMLESS" |
		awk -F: -v first="$shown" '$1 > first { print $1 }')
	[ -n "$found" ] || return 0
	complained=
	for line in $found; do
		[ "$line" -gt "$shown" ] || continue
		! sed -n "$((line - 1))p" "$1" | grep -qE "$OF_OTHERS" || continue
		complained=1
		shown=$((line + 30))
		sed -n "${line},${shown}p" "$1" | sed 's/^/    /'
		[ "$shown" -lt 100000 ] || break
	done
	[ -z "$complained" ]
}

# stale_breakpoint CONSOLE ACCELERATOR: whether a kernel died by a fault of the emulator. The kernel patches its
# code behind a breakpoint (arch/x86/kernel/alternative.c, smp_text_poke_batch_finish()). QEMU's translator, with
# a thread for each processor, may keep the breakpoint after its removal. A processor then takes it in the
# kernel's code, where none is, and panics. A breakpoint in a module's code does not count: rsiw may have set it.
stale_breakpoint() {
	grep -q tcg "$2" 2>/dev/null || return 1
	! words=$(splats "$1") || return 1
	printf '%s\n' "$words" | sed -n 1p | grep -q 'Oops: int3: ' || return 1
	printf '%s\n' "$words" | awk '/RIP: / && !seen++' |
		grep -qE 'RIP: 0010:[A-Za-z0-9_.]+\+0x[0-9a-f]+/0x[0-9a-f]+[[:space:]]*$'
}
