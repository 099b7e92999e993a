// SPDX-License-Identifier: GPL-2.0

//! Transmit ownership: one context at a time transmits for a stream.
//!
//! The protocol is that of `qdisc_run_begin()`. A context that finds another one transmitting
//! sets MISSED and returns. The owner checks MISSED when it has nothing more to send, before it
//! becomes IDLE. The send queue is served in order, so the delegation delays nothing.
//!
//! Without ownership two CPUs would interleave bursts. A receiver on this host then has two
//! backlog queues, contends for its own socket lock, and sees segments out of order.
//!
//! The owner is not preempted, and releases ownership before another thread gets the CPU: no work
//! is delegated to a thread that does not run. Softirqs between two holds of the socket lock may
//! take long. After [`SOFTIRQ_STALL_NS`] nanoseconds other contexts transmit beside the owner.

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

use crate::{
    stream::ctx::Progress,
    sys::sync::timer::now_ns, //
};

/// Bursts sent in a row in process context before the lock is released and softirqs run. A
/// loopback receiver then has several bursts to process at once, and they are still in the cache.
const BURSTS_PER_LOCK: u32 = 4;

// The states and their transitions:
//
// | state | event | next |
// | --- | --- | --- |
// | IDLE | `run_begin` | RUNNING; the caller transmits |
// | IDLE | `set_missed` | IDLE; the caller arranges for a work item |
// | RUNNING | `run_begin`, `set_missed` | MISSED; the caller returns |
// | RUNNING | `run_end` | IDLE |
// | RUNNING | `release` | IDLE; a work item continues |
// | MISSED | `run_begin`, `set_missed` | MISSED; the caller returns |
// | MISSED | `run_end` | RUNNING; the owner looks again |
// | MISSED | `release` | IDLE; a work item continues |

/// No context transmits.
const IDLE: u32 = 0;

/// One context transmits.
const RUNNING: u32 = 1;

/// One context transmits, and must check the queues again before it becomes idle.
const MISSED: u32 = 2;

/// Nanoseconds of softirqs after which other contexts transmit beside the owner. Most bursts are
/// received in less; softirqs of other sockets may last four times as long.
const SOFTIRQ_STALL_NS: i64 = 500_000;

/// The owner state of one stream. Any context; no lock.
///
/// With `CONFIG_PREEMPT_RT` bottom halves are threads, and an owner could be preempted: every
/// context is an owner there.
pub(in crate::stream) struct TxOwner {
    /// [`IDLE`], [`RUNNING`] or [`MISSED`].
    state: Atomic<u32>,
    /// The time since which the owner lets softirqs run, in nanoseconds; 0: it does not. A hint
    /// without ordering.
    softirqs_since: Atomic<i64>,
}

impl TxOwner {
    /// Makes an idle owner state.
    pub(in crate::stream) const fn new() -> Self {
        Self {
            state: Atomic::new(IDLE),
            softirqs_since: Atomic::new(0),
        }
    }

    /// Begins ownership; `false` if another context is the owner. That owner then checks the
    /// queues again, and sees all that the caller has posted.
    #[inline]
    fn run_begin(&self) -> bool {
        if cfg!(CONFIG_PREEMPT_RT) || self.state.cmpxchg(IDLE, RUNNING, Full).is_ok() {
            return true;
        }
        if self.state.xchg(MISSED, Full) != IDLE {
            return false;
        }
        // The owner has just become idle. The caller is about to check all queues.
        self.state.xchg(RUNNING, Full);
        true
    }

    /// Whether another context transmits, and the caller need not.
    #[inline]
    pub(in crate::stream) fn is_running(&self) -> bool {
        self.state.load(Relaxed) != IDLE && !self.is_stalled()
    }

    /// Makes the owner check the queues again. Returns `false` if there is no owner, or softirqs
    /// stall it.
    #[inline]
    pub(in crate::stream) fn set_missed(&self) -> bool {
        if cfg!(CONFIG_PREEMPT_RT) || self.is_stalled() {
            return false;
        }
        match self.state.cmpxchg(RUNNING, MISSED, Full) {
            Ok(_) => true,
            Err(now) => now == MISSED,
        }
    }

    /// Whether softirqs have kept the owner from the socket for too long.
    #[inline]
    fn is_stalled(&self) -> bool {
        let since = self.softirqs_since.load(Relaxed);
        since != 0 && now_ns().wrapping_sub(since) > SOFTIRQ_STALL_NS
    }

    /// Keeps ownership over softirqs, which begin when the caller releases the socket lock.
    #[inline]
    fn enter_softirqs(&self, now: i64) {
        self.softirqs_since.store(now, Relaxed);
    }

    /// The softirqs have ended.
    #[inline]
    fn leave_softirqs(&self) {
        self.softirqs_since.store(0, Relaxed);
    }

    /// Ends ownership; `false` if MISSED was set: the caller is still the owner, and checks the
    /// queues again.
    #[inline]
    fn run_end(&self) -> bool {
        if cfg!(CONFIG_PREEMPT_RT) || self.state.cmpxchg(RUNNING, IDLE, Full).is_ok() {
            return true;
        }
        self.state.xchg(RUNNING, Full);
        false
    }

    /// Ends ownership and clears MISSED; a work item of the caller checks all queues afterwards.
    #[inline]
    fn release(&self) {
        self.state.xchg(IDLE, Full);
    }

    /// Sends up to `bursts` bursts as the owner, or beside an owner that is stalled.
    ///
    /// After every [`BURSTS_PER_LOCK`] bursts the socket lock is released, and softirqs run if
    /// they may. A loopback receiver processes the bursts while they are in the cache. Then other
    /// threads may get the CPU, and ownership ends before that.
    pub(in crate::stream) fn transmit<S: Sender>(&self, sender: &S, bursts: u32) -> Progress {
        let mut no_preempt = sender.no_preempt();
        let mut owned = self.run_begin();
        let mut left = bursts;
        let mut softirqs_ran = false;
        while owned || self.is_stalled() {
            let Some(mut locked) = sender.try_lock() else {
                self.release_if(owned);
                sender.defer_to_process();
                return Progress::Wait;
            };
            if softirqs_ran {
                sender.note_receiver_cpu(&mut locked);
            }
            if self.transmit_locked(sender, &mut locked, owned, &mut left) == Progress::Wait {
                return Progress::Wait;
            }
            if left == 0 {
                self.release_if(owned);
                return Progress::More;
            }
            if owned {
                self.enter_softirqs(now_ns());
            }
            drop(locked);
            if owned {
                self.leave_softirqs();
            }
            softirqs_ran = owned;
            if sender.need_resched() {
                if owned && !self.run_end() {
                    // Delegated work does not wait until other threads are done.
                    self.release();
                    return Progress::More;
                }
                softirqs_ran = false;
                drop(no_preempt);
                no_preempt = sender.no_preempt();
                owned = self.run_begin();
            }
        }
        Progress::Wait
    }

    /// Sends the bursts of one hold of the socket lock, and subtracts them from `left`. An owner
    /// with nothing more to send ends ownership before softirqs run.
    fn transmit_locked<S: Sender>(
        &self,
        sender: &S,
        locked: &mut S::Lock<'_>,
        owned: bool,
        left: &mut u32,
    ) -> Progress {
        let mut some = (*left).min(BURSTS_PER_LOCK);
        loop {
            *left = left.saturating_sub(some);
            if sender.send_bursts(locked, some) == Progress::More {
                return Progress::More;
            }
            if !owned || self.run_end() {
                return Progress::Wait;
            }
            if *left == 0 {
                return Progress::More;
            }
            some = 1;
        }
    }

    /// Releases ownership, if the caller has it.
    fn release_if(&self, owned: bool) {
        if owned {
            self.release();
        }
    }
}

/// The object that an owner transmits for: a stream, or a test's substitute.
pub(in crate::stream) trait Sender {
    /// A guard that keeps other threads, but not softirqs, from this CPU.
    type NoPreempt;

    /// The socket lock; softirqs run when it is dropped, if they may.
    type Lock<'a>
    where
        Self: 'a;

    /// Keeps this thread running: other contexts delegate their work to it.
    fn no_preempt(&self) -> Self::NoPreempt;

    /// Locks the socket, unless a thread owns it.
    fn try_lock(&self) -> Option<Self::Lock<'_>>;

    /// Sends up to `bursts` bursts.
    fn send_bursts(&self, locked: &mut Self::Lock<'_>, bursts: u32) -> Progress;

    /// Notes whether the receiver runs on this CPU. Only softirqs have run since bursts were
    /// sent.
    fn note_receiver_cpu(&self, locked: &mut Self::Lock<'_>);

    /// Whether another thread is due on this CPU.
    fn need_resched(&self) -> bool;

    /// Queues a work item that waits for the socket, and then sends.
    fn defer_to_process(&self);
}
