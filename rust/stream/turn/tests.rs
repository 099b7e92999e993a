// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of turns: one at a time, and nothing is left behind.

mod spend;

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
