// SPDX-License-Identifier: GPL-2.0

//! Properties of the running context, and guards that change them.
//!
//! C headers: [`include/linux/preempt.h`](srctree/include/linux/preempt.h),
//! [`include/linux/bottom_half.h`](srctree/include/linux/bottom_half.h)

use kernel::types::NotThreadSafe;

use crate::sys::bindings;

/// Whether interrupts are off, or this is a hardware interrupt. Such a caller may neither lock a
/// socket nor disable bottom halves, so it queues a work item.
#[inline]
pub(crate) fn irqs_off() -> bool {
    // SAFETY: The helper reads the state of this CPU, in any context.
    unsafe { bindings::rsiw_irqs_off() }
}

/// Whether this is a softirq in a kernel thread that shares this CPU with other threads, as
/// `ksoftirqd` does. Each of those threads runs for a time slice of the scheduler.
#[inline]
pub(crate) fn in_shared_thread() -> bool {
    // SAFETY: The helper reads the state of this CPU, in any context.
    unsafe { bindings::rsiw_in_shared_thread() }
}

/// Whether a thread is runnable on this CPU, including the one that the softirq interrupted. A
/// softirq thread would share the CPU with that thread.
#[inline]
pub(crate) fn processor_is_wanted() -> bool {
    // SAFETY: The helper reads the state of this CPU, in any context.
    unsafe { bindings::rsiw_processor_is_wanted() }
}

/// Whether a reschedule is pending for the caller. Always `false` in softirqs, and on a kernel
/// without preemption.
#[inline]
pub(crate) fn need_resched() -> bool {
    // SAFETY: The helper reads the state of this CPU and of the current task, in any context.
    unsafe { bindings::rsiw_need_resched() }
}

/// Calls `allocate` in a `memalloc_noio_save()` section: allocations do not wait for I/O. Process
/// context.
pub(crate) fn without_io<R>(allocate: impl FnOnce() -> R) -> R {
    // SAFETY: The helper sets a flag of the current task, and returns the old value.
    let old = unsafe { bindings::rsiw_noio_save() };
    let result = allocate();
    // SAFETY: Restores the flag in the same task.
    unsafe { bindings::rsiw_noio_restore(old) };
    result
}

/// The identity of the calling process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The process ID.
    process: i32,
    /// The start time in ns since boot: a later process may have the same ID.
    started: u64,
    /// The effective user ID.
    user: u32,
}

impl Caller {
    /// The current process. Process context.
    pub(crate) fn now() -> Self {
        // SAFETY: The helpers read fields of the current task and its thread group, which exist
        // during the call.
        unsafe {
            Self {
                process: bindings::rsiw_caller_process(),
                started: bindings::rsiw_caller_started(),
                user: bindings::rsiw_caller_user(),
            }
        }
    }

    /// Whether the caller is a kernel thread, root or has `CAP_SYS_ADMIN`. Process context.
    pub(crate) fn is_trusted() -> bool {
        // SAFETY: As in `now`.
        unsafe { bindings::rsiw_caller_is_trusted() }
    }

    /// Whether the caller is in the network namespace of identity `net`
    /// ([`NetNs::id`](crate::sys::net::NetNs::id)). Always `true` for kernel threads. Process
    /// context.
    pub(crate) fn is_in_net(net: usize) -> bool {
        // SAFETY: The namespace is only compared with that of the current task.
        unsafe { bindings::rsiw_caller_is_in_net(net as *const bindings::net) }
    }

    /// Whether both callers are the same process, or have the same effective user ID.
    pub(crate) fn is_one_with(self, other: Self) -> bool {
        (self.process, self.started) == (other.process, other.started) || self.user == other.user
    }
}

/// A section with bottom halves disabled on this CPU. Nests; not with interrupts off.
pub(crate) struct BhGuard(NotThreadSafe);

impl BhGuard {
    /// Disables bottom halves.
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: `drop` ends the section in the same task, since the type is not `Send`.
        unsafe { bindings::rsiw_local_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for BhGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has disabled bottom halves in this task.
        unsafe { bindings::rsiw_local_bh_enable() };
    }
}

/// A section with preemption disabled; softirqs still run. Nests. No effect with
/// `CONFIG_PREEMPT_RT`, where bottom halves are threads.
pub(crate) struct PreemptGuard(NotThreadSafe);

impl PreemptGuard {
    /// Disables preemption.
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: `drop` ends the section in the same task, since the type is not `Send`.
        unsafe { bindings::rsiw_preempt_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for PreemptGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has disabled preemption in this task.
        unsafe { bindings::rsiw_preempt_enable() };
    }
}
