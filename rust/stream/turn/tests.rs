// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of turns: one at a time, and nothing is left behind.

mod spend;

use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::atomic::Relaxed,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::*;
use crate::sys::{
    testing::eventually,
    work as queues, //
};

/// Threads that post and send at once.
const POSTERS: u32 = 2;

/// What each of them posts, the next one when all of the one before has been sent.
const ROUNDS: u32 = 5_000;

/// Nanoseconds that a thread waits without sleeping. Two that sleep for each other may stay on one
/// CPU, where they never meet; of two that both want to run, one is soon moved to another CPU.
const AWAKE_NS: i64 = 5_000_000;

/// How long it takes to send, in turns of a loop: long enough that another thread posts meanwhile.
const SENDING: u32 = 200;

/// Once in so many rounds it takes until the other thread has posted: where the two have one CPU of
/// the host, they would hardly ever meet.
const MEETING: u32 = 16;

/// A queue and those who send from it.
#[pin_data]
struct Posters {
    turn: Turn,
    posted: Atomic<u32>,
    sent: Atomic<u32>,
    sending: Atomic<u32>,
    crowds: Atomic<u32>,
    words: Atomic<u32>,
    left: Atomic<u32>,
    #[pin]
    first: Work<Self, 0>,
    #[pin]
    second: Work<Self, 1>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Posters { self.first }
    impl HasWork<Self, 1> for Posters { self.second }
}

impl Posters {
    /// Posts one after the other, and sends after each what there is, if it may. Nobody posts more
    /// before that has been sent: it would be sent along, although word of it was lost.
    fn post_and_send(&self) {
        for round in 1..=ROUNDS {
            self.posted.add(1, Relaxed);
            self.send(round);
            if !self.is_sent(round) {
                self.left.add(1, Relaxed);
                return;
            }
        }
    }

    /// Sends what there is, if it may.
    fn send(&self, round: u32) {
        let _preempt = PreemptGuard::new();
        if !self.turn.take() {
            self.words.add(1, Relaxed);
            return;
        }
        if self.sending.xchg(1, Full) != 0 {
            self.crowds.add(1, Relaxed);
        }
        loop {
            self.sent.store(self.posted.load(Relaxed), Relaxed);
            if round % MEETING == 0 {
                awake_until(|| self.posted.load(Relaxed) >= POSTERS * round);
            }
            for _ in 0..SENDING {
                cpu_relax();
            }
            // The last thing in a turn: another one may begin before `end` returns.
            self.sending.store(0, Relaxed);
            if self.turn.end() {
                break;
            }
            self.sending.store(1, Relaxed);
        }
    }

    /// Whether all that is posted in a round is sent in time.
    fn is_sent(&self, round: u32) -> bool {
        let done = || self.sent.load(Relaxed) >= POSTERS * round;
        awake_until(done) || eventually(done)
    }
}

/// Waits without sleeping, for a while; whether `condition` has become true.
fn awake_until(condition: impl Fn() -> bool) -> bool {
    let begun = now_ns();
    while now_ns().wrapping_sub(begun) < AWAKE_NS {
        if condition() {
            return true;
        }
        cpu_relax();
    }
    false
}

impl WorkItem<0> for Posters {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.post_and_send();
    }
}

impl WorkItem<1> for Posters {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.post_and_send();
    }
}

#[kunit_tests(rsiw_stream_turn)]
mod suite {
    use super::*;

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

    /// Whatever is posted is sent by whoever has the turn then, and nobody sends beside another.
    #[test]
    fn nothing_is_left_behind() -> Result {
        let posters = Arc::pin_init(
            pin_init!(Posters {
                turn: Turn::new(),
                posted: Atomic::new(0),
                sent: Atomic::new(0),
                sending: Atomic::new(0),
                crowds: Atomic::new(0),
                words: Atomic::new(0),
                left: Atomic::new(0),
                first <- new_work!("rsiw_test::first"),
                second <- new_work!("rsiw_test::second"),
            }),
            GFP_KERNEL,
        )?;
        let queue = queues::process();
        assert!(queue.enqueue::<_, 0>(posters.clone()));
        assert!(queue.enqueue::<_, 1>(posters.clone()));
        queue.flush();
        // Else they never met, and nothing has been shown. User-mode Linux has one processor.
        assert!(cfg!(CONFIG_UML) || posters.words.load(Relaxed) != 0);
        assert_eq!(posters.left.load(Relaxed), 0);
        assert_eq!(posters.sent.load(Relaxed), POSTERS * ROUNDS);
        assert_eq!(posters.crowds.load(Relaxed), 0);
        assert!(!posters.turn.is_taken());
        Ok(())
    }
}
