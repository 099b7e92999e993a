// SPDX-License-Identifier: GPL-2.0

//! What the running context allows.
//!
//! C headers: [`include/linux/preempt.h`](srctree/include/linux/preempt.h),
//! [`include/linux/bottom_half.h`](srctree/include/linux/bottom_half.h)

use kernel::types::NotThreadSafe;

use crate::sys::bindings;

/// Whether interrupts are off, or this is a hardware interrupt. Such a caller may neither lock a
/// socket nor turn bottom halves off and on, so it leaves that to a work item.
#[inline]
pub(crate) fn irqs_off() -> bool {
    // SAFETY: Reads the state of this CPU; allowed anywhere.
    unsafe { bindings::rsiw_irqs_off() }
}

/// Whether this is softirq work in a kernel thread that shares this CPU with other threads, as
/// `ksoftirqd` does. Each of them runs for as long as a scheduler's slice.
#[inline]
pub(crate) fn in_shared_thread() -> bool {
    // SAFETY: Reads the state of this CPU; allowed anywhere.
    unsafe { bindings::rsiw_in_shared_thread() }
}

/// Whether others want this CPU: a thread for softirqs would have to take turns with them.
#[inline]
pub(crate) fn processor_is_wanted() -> bool {
    // SAFETY: Reads the state of this CPU; allowed anywhere.
    unsafe { bindings::rsiw_processor_is_wanted() }
}

/// Whether the scheduler takes this CPU from the caller as soon as it may be preempted. Always
/// `false` in softirqs, and on a kernel that does not preempt.
#[inline]
pub(crate) fn need_resched() -> bool {
    // SAFETY: Reads the state of this CPU and of the current task; allowed anywhere.
    unsafe { bindings::rsiw_need_resched() }
}

/// Has `allocate` not wait for a disk or a file system, whatever its flags say. Process context.
pub(crate) fn without_io<R>(allocate: impl FnOnce() -> R) -> R {
    // SAFETY: Sets a flag of the current task, and tells what it was.
    let old = unsafe { bindings::rsiw_noio_save() };
    let result = allocate();
    // SAFETY: The counterpart, in the same task.
    unsafe { bindings::rsiw_noio_restore(old) };
    result
}

/// The calling process, in process context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The process.
    process: i32,
    /// When it began, in ns since boot: another one may have its number later.
    started: u64,
    /// On whose behalf it works: its effective user.
    user: u32,
}

impl Caller {
    /// The current process. Process context.
    pub(crate) fn now() -> Self {
        // SAFETY: All read of the current task and its group what only the group itself changes.
        unsafe {
            Self {
                process: bindings::rsiw_caller_process(),
                started: bindings::rsiw_caller_started(),
                user: bindings::rsiw_caller_user(),
            }
        }
    }

    /// Whether it is a kernel thread, or may administer the system. Process context.
    pub(crate) fn is_trusted() -> bool {
        // SAFETY: As in `now`.
        unsafe { bindings::rsiw_caller_is_trusted() }
    }

    /// Whether it is in the network namespace of that number ([`NetNs::id`](crate::sys::net::NetNs::id)).
    /// Threads of the kernel are in all. Process context.
    pub(crate) fn is_in_net(net: usize) -> bool {
        // SAFETY: The namespace is only compared with that of the current task.
        unsafe { bindings::rsiw_caller_is_in_net(net as *const bindings::net) }
    }

    /// Whether the process or the user is the same.
    pub(crate) fn is_one_with(self, other: Self) -> bool {
        (self.process, self.started) == (other.process, other.started) || self.user == other.user
    }
}

/// Keeps bottom halves of this CPU off while it lives. Nests; not with interrupts off.
pub(crate) struct BhGuard(NotThreadSafe);

impl BhGuard {
    /// Turns bottom halves off.
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: Balanced by `drop`, which runs in the same task: the type is not `Send`.
        unsafe { bindings::rsiw_local_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for BhGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has turned bottom halves off in this task.
        unsafe { bindings::rsiw_local_bh_enable() };
    }
}

/// Keeps this CPU's other threads from running while it lives, but for softirqs. Nests. On a kernel
/// whose bottom halves are threads (`CONFIG_PREEMPT_RT`) it does nothing.
pub(crate) struct PreemptGuard(NotThreadSafe);

impl PreemptGuard {
    /// Turns preemption off.
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: Balanced by `drop`, which runs in the same task: the type is not `Send`.
        unsafe { bindings::rsiw_preempt_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for PreemptGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has turned preemption off in this task.
        unsafe { bindings::rsiw_preempt_enable() };
    }
}
