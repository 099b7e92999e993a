// SPDX-License-Identifier: GPL-2.0

//! One at a time sends for a stream.
//!
//! What two processors send in turns waits in two queues for a receiver on this host: both work on
//! it, wait for each other's locks, and TCP sees another order than that in which it was sent. So
//! who begins to send takes the turn and keeps it between the few runs after which it lets go of
//! the socket. Who finds it taken leaves word and goes its way: the other looks again before it
//! gives the turn back. A send queue is worked off in order, so nothing is sent later for that.

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
    context::PreemptGuard,
    socket::Locked,
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

    /// Keeps the turn over softirqs, which begin when the caller lets go of the socket, and over
    /// other threads that may come first then.
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
}

impl Stream {
    /// Sends up to `runs` runs, or has somebody else do so if the socket has an owner, or another
    /// one sends. Any context with interrupts on.
    ///
    /// Between a few of them the lock is free and softirqs run, if they may: what TCP handed to a
    /// loopback or received meanwhile is worked on while it is hot in the cache.
    pub(super) fn send(self: &Arc<Self>, runs: u32) -> Progress {
        // Others leave their work to this thread, so it has to be running, or be known to be away.
        let mut here = PreemptGuard::new();
        let mine = self.turn.take();
        if !mine && !self.turn.is_stuck() {
            return Progress::Wait;
        }
        let this = self.as_arc_borrow();
        let mut left = runs;
        loop {
            let Ok(mut locked) = self.state.sock().try_lock_bh() else {
                self.hand_over(mine);
                this.go_on_in_process();
                return Progress::Wait;
            };
            if self.hold(&mut locked, mine, &mut left) == Progress::Wait {
                return Progress::Wait;
            }
            if left == 0 {
                self.hand_over(mine);
                return Progress::More;
            }
            if mine {
                self.turn.go_away(now_ns());
            }
            drop(here);
            drop(locked);
            here = PreemptGuard::new();
            if mine {
                self.turn.come_back();
            }
        }
    }

    /// Sends as much as the socket is to be held for, and takes it off what is `left`. When there
    /// is nothing more to send the turn is given back before softirqs run, which may last.
    fn hold(self: &Arc<Self>, locked: &mut Locked, mine: bool, left: &mut u32) -> Progress {
        let mut some = (*left).min(RUNS_PER_HOLD);
        loop {
            *left = left.saturating_sub(some);
            if self.as_arc_borrow().work(locked, false, some) == Progress::More {
                return Progress::More;
            }
            if !mine || self.turn.end() {
                return Progress::Wait;
            }
            if *left == 0 {
                return Progress::More;
            }
            some = 1;
        }
    }

    /// Gives the turn to whoever is about to go on, if the caller has it.
    fn hand_over(&self, mine: bool) {
        if mine {
            self.turn.hand_over();
        }
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_turn)]
mod tests {
    use kernel::{
        prelude::*,
        sync::atomic::Relaxed,
        workqueue::{
            impl_has_work,
            new_work,
            Work,
            WorkItem, //
        }, //
    };

    use super::*;
    use crate::sys::work as queues;

    #[test]
    fn one_at_a_time() {
        let turn = Turn::new();
        assert!(!turn.is_taken());
        assert!(turn.take());
        assert!(turn.is_taken());
        assert!(turn.end());
        assert!(!turn.is_taken());
        assert!(turn.take());
        turn.hand_over();
        assert!(turn.take());
    }

    #[test]
    fn word_is_left_for_who_has_it() {
        let turn = Turn::new();
        assert!(!turn.ask());
        assert!(turn.take());
        // However many there were, one look is enough, and it is still the same one's turn.
        assert!(!turn.take());
        assert!(!turn.take());
        assert!(turn.ask());
        assert!(!turn.end());
        assert!(turn.is_taken());
        assert!(turn.ask());
        assert!(!turn.end());
        assert!(turn.end());
        assert!(!turn.ask());
    }

    #[test]
    fn nobody_waits_for_long_for_one_who_is_away() {
        let turn = Turn::new();
        assert!(turn.take());
        // Some time ahead: the test itself may be kept away.
        turn.go_away(now_ns().wrapping_add(1_000_000_000));
        assert!(turn.is_taken());
        assert!(turn.ask());
        turn.come_back();
        assert!(!turn.end());
        turn.go_away(now_ns().wrapping_sub(AWAY_NS + 1));
        assert!(!turn.is_taken());
        assert!(!turn.ask());
        turn.come_back();
        assert!(turn.is_taken());
        assert!(turn.end());
    }

    #[test]
    fn who_is_handed_everything_needs_no_word() {
        let turn = Turn::new();
        assert!(turn.take());
        assert!(turn.ask());
        turn.hand_over();
        assert!(turn.take());
        assert!(turn.end());
    }

    /// Posts and sends, many at a time.
    const POSTERS: u32 = 4;

    /// What each of them posts.
    const POSTS: u32 = 20_000;

    /// A queue and those who send from it.
    #[pin_data]
    struct Posters {
        turn: Turn,
        posted: Atomic<u32>,
        sent: Atomic<u32>,
        sending: Atomic<u32>,
        crowds: Atomic<u32>,
        #[pin]
        first: Work<Self, 0>,
        #[pin]
        second: Work<Self, 1>,
        #[pin]
        third: Work<Self, 2>,
        #[pin]
        fourth: Work<Self, 3>,
    }

    impl_has_work! {
        impl HasWork<Self, 0> for Posters { self.first }
        impl HasWork<Self, 1> for Posters { self.second }
        impl HasWork<Self, 2> for Posters { self.third }
        impl HasWork<Self, 3> for Posters { self.fourth }
    }

    impl Posters {
        /// Posts one after the other, and sends after each what there is, if it may.
        fn post_and_send(&self) {
            for _ in 0..POSTS {
                self.posted.add(1, Relaxed);
                let _preempt = PreemptGuard::new();
                if !self.turn.take() {
                    continue;
                }
                if self.sending.xchg(1, Full) != 0 {
                    self.crowds.add(1, Relaxed);
                }
                loop {
                    self.sent.store(self.posted.load(Relaxed), Relaxed);
                    // The last thing in a turn: another one may begin before `end` returns.
                    self.sending.store(0, Relaxed);
                    if self.turn.end() {
                        break;
                    }
                    self.sending.store(1, Relaxed);
                }
            }
        }
    }

    macro_rules! post {
        ($($id:literal)*) => {
            $(impl WorkItem<$id> for Posters {
                type Pointer = Arc<Self>;

                fn run(this: Arc<Self>) {
                    this.post_and_send();
                }
            })*
        };
    }

    post!(0 1 2 3);

    /// Whatever was posted is sent by whoever had the turn then, and nobody sends beside another.
    #[test]
    fn nothing_is_left_behind() -> Result {
        let posters = Arc::pin_init(
            pin_init!(Posters {
                turn: Turn::new(),
                posted: Atomic::new(0),
                sent: Atomic::new(0),
                sending: Atomic::new(0),
                crowds: Atomic::new(0),
                first <- new_work!("rsiw_test::first"),
                second <- new_work!("rsiw_test::second"),
                third <- new_work!("rsiw_test::third"),
                fourth <- new_work!("rsiw_test::fourth"),
            }),
            GFP_KERNEL,
        )?;
        let queue = queues::process();
        assert!(queue.enqueue::<_, 0>(posters.clone()));
        assert!(queue.enqueue::<_, 1>(posters.clone()));
        assert!(queue.enqueue::<_, 2>(posters.clone()));
        assert!(queue.enqueue::<_, 3>(posters.clone()));
        queue.flush();
        assert_eq!(posters.posted.load(Relaxed), POSTERS * POSTS);
        assert_eq!(posters.sent.load(Relaxed), POSTERS * POSTS);
        assert_eq!(posters.crowds.load(Relaxed), 0);
        assert!(!posters.turn.is_taken());
        Ok(())
    }
}
