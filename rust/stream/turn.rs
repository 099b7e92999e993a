// SPDX-License-Identifier: GPL-2.0

//! One at a time sends for a stream.
//!
//! What two processors send in turns waits in two queues for a receiver on this host: both work on
//! it, wait for each other's locks, and TCP sees another order than that in which it was sent. So
//! who begins to send takes the turn and keeps it between the few runs after which it lets go of
//! the socket. Who finds it taken leaves word and goes its way: the other looks again before it
//! gives the turn back. A send queue is worked off in order, so nothing is sent later for that.
//!
//! Nothing is left to a thread that does not run: who has the turn is not preempted, and gives it
//! back before other threads get the CPU.

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use kernel::sync::{
    atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    Arc, //
};

use super::{
    session::Progress,
    Stream,
    RUNS_PER_HOLD, //
};
use crate::sys::{
    context::{
        is_due_elsewhere,
        PreemptGuard, //
    },
    socket::LockedBh,
    timer::now_ns, //
};

/// Nobody sends.
const FREE: u32 = 0;

/// Somebody does.
const TAKEN: u32 = 1;

/// Somebody does, and there may be more than was looked at.
const ASKED: u32 = 2;

/// Nanoseconds after which others do not wait any more for one who is away: most of what a stream
/// sends is received in less, and softirqs of others may last four times as long.
const AWAY_NS: i64 = 500_000;

/// Whose turn it is to send. Any context.
///
/// Where a thread can be preempted while it keeps others from sending (`CONFIG_PREEMPT_RT`, on
/// which bottom halves are threads, too), everybody's.
pub(super) struct Turn {
    /// Whether it is taken, and whether word was left.
    state: Atomic<u32>,
    /// When the one who has it let go of the socket, with more to send, in nanoseconds; 0: they
    /// did not. A guess: nobody relies on it.
    away: Atomic<i64>,
}

impl Turn {
    /// Nobody's.
    pub(super) const fn new() -> Self {
        Self {
            state: Atomic::new(FREE),
            away: Atomic::new(0),
        }
    }

    /// Takes the turn; `false` if somebody else has it, who has been left word. What the caller
    /// posted before is seen by whoever looks then.
    #[inline]
    fn take(&self) -> bool {
        if cfg!(CONFIG_PREEMPT_RT) || self.state.cmpxchg(FREE, TAKEN, Full).is_ok() {
            return true;
        }
        if self.state.xchg(ASKED, Full) != FREE {
            return false;
        }
        // It was given back just now. What others asked for since then is about to be looked at.
        self.state.xchg(TAKEN, Full);
        true
    }

    /// Whether somebody has it, and others had better not send.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.state.load(Relaxed) != FREE && !self.is_stuck()
    }

    /// Leaves word for the one who has the turn; `false` if nobody has it, or not to any use.
    #[inline]
    pub(super) fn ask(&self) -> bool {
        if cfg!(CONFIG_PREEMPT_RT) || self.is_stuck() {
            return false;
        }
        match self.state.cmpxchg(TAKEN, ASKED, Full) {
            Ok(_) => true,
            Err(now) => now == ASKED,
        }
    }

    /// Whether the one who has it has been away for too long.
    #[inline]
    fn is_stuck(&self) -> bool {
        let away = self.away.load(Relaxed);
        away != 0 && now_ns().wrapping_sub(away) > AWAY_NS
    }

    /// Keeps the turn over softirqs, which begin when the caller lets go of the socket.
    #[inline]
    fn go_away(&self, now: i64) {
        self.away.store(now, Relaxed);
    }

    /// That is over.
    #[inline]
    fn come_back(&self) {
        self.away.store(0, Relaxed);
    }

    /// Gives the turn back, unless word was left: then there may be more to do.
    #[inline]
    fn end(&self) -> bool {
        if cfg!(CONFIG_PREEMPT_RT) || self.state.cmpxchg(TAKEN, FREE, Full).is_ok() {
            return true;
        }
        self.state.xchg(TAKEN, Full);
        false
    }

    /// Gives the turn back to somebody who will look at everything.
    #[inline]
    fn hand_over(&self) {
        self.state.xchg(FREE, Full);
    }

    /// Sends up to `runs` runs if it is the caller's turn, or the one who has it is away for long.
    ///
    /// Between a few of them the lock is free and softirqs run, if they may: what TCP handed to a
    /// loopback or received meanwhile is worked on while it is hot in the cache. Then other threads
    /// may have the CPU, but not keep the turn with it.
    fn spend<S: Sender>(&self, sender: &S, runs: u32) -> Progress {
        let mut stay = sender.stay();
        let mut mine = self.take();
        let mut left = runs;
        let mut only_softirqs = false;
        while mine || self.is_stuck() {
            let Some(mut hold) = sender.hold() else {
                self.hand_over_if(mine);
                sender.leave_to_process();
                return Progress::Wait;
            };
            if only_softirqs {
                sender.look_where_it_goes(&mut hold);
            }
            if self.spend_some(sender, &mut hold, mine, &mut left) == Progress::Wait {
                return Progress::Wait;
            }
            if left == 0 {
                self.hand_over_if(mine);
                return Progress::More;
            }
            if mine {
                self.go_away(now_ns());
            }
            drop(hold);
            if mine {
                self.come_back();
            }
            only_softirqs = mine;
            if sender.is_due_elsewhere() {
                if mine && !self.end() {
                    // What others have left to this thread is not to wait until they are done.
                    self.hand_over();
                    return Progress::More;
                }
                only_softirqs = false;
                drop(stay);
                stay = sender.stay();
                mine = self.take();
            }
        }
        Progress::Wait
    }

    /// Sends as much as the socket is to be held for, and takes it off what is `left`. When there
    /// is nothing more to send the turn is given back before softirqs run, which may last.
    fn spend_some<S: Sender>(
        &self,
        sender: &S,
        hold: &mut S::Hold<'_>,
        mine: bool,
        left: &mut u32,
    ) -> Progress {
        let mut some = (*left).min(RUNS_PER_HOLD);
        loop {
            *left = left.saturating_sub(some);
            if sender.send_runs(hold, some) == Progress::More {
                return Progress::More;
            }
            if !mine || self.end() {
                return Progress::Wait;
            }
            if *left == 0 {
                return Progress::More;
            }
            some = 1;
        }
    }

    /// Gives the turn to whoever is about to go on, if the caller has it.
    fn hand_over_if(&self, mine: bool) {
        if mine {
            self.hand_over();
        }
    }
}

/// What a turn is spent on: a stream, or what stands for one in a test.
trait Sender {
    /// Keeps other threads from this CPU while it lives, but not softirqs.
    type Stay;

    /// The socket, held; softirqs run when it is dropped, if they may.
    type Hold<'a>
    where
        Self: 'a;

    /// Keeps this thread running: others leave their work to it.
    fn stay(&self) -> Self::Stay;

    /// Holds the socket, unless a thread owns it.
    fn hold(&self) -> Option<Self::Hold<'_>>;

    /// Sends up to `runs` runs.
    fn send_runs(&self, hold: &mut Self::Hold<'_>, runs: u32) -> Progress;

    /// Notices where the receiver works: softirqs ran since runs were sent, and nothing else.
    fn look_where_it_goes(&self, hold: &mut Self::Hold<'_>);

    /// Whether another thread gets this CPU as soon as it may.
    fn is_due_elsewhere(&self) -> bool;

    /// Has a work item wait for the socket, and then send.
    fn leave_to_process(&self);
}

impl Sender for Arc<Stream> {
    type Stay = PreemptGuard;
    type Hold<'a> = LockedBh<'a>;

    #[inline]
    fn stay(&self) -> PreemptGuard {
        PreemptGuard::new()
    }

    #[inline]
    fn hold(&self) -> Option<LockedBh<'_>> {
        self.state.sock().try_lock_bh().ok()
    }

    #[inline]
    fn send_runs(&self, hold: &mut LockedBh<'_>, runs: u32) -> Progress {
        self.as_arc_borrow().work(hold, false, runs)
    }

    #[inline]
    fn look_where_it_goes(&self, hold: &mut LockedBh<'_>) {
        if let Ok(mut opened) = self.state.open(hold) {
            let (state, locked) = opened.split();
            if let Some(mut session) = state.session() {
                session.look_where_it_goes(locked);
            }
        }
    }

    #[inline]
    fn is_due_elsewhere(&self) -> bool {
        is_due_elsewhere()
    }

    fn leave_to_process(&self) {
        self.as_arc_borrow().go_on_in_process();
    }
}

impl Stream {
    /// Sends up to `runs` runs, or has somebody else do so if the socket has an owner, or another
    /// one sends. Any context with interrupts on.
    pub(super) fn send(self: &Arc<Self>, runs: u32) -> Progress {
        self.turn.spend(self, runs)
    }
}
