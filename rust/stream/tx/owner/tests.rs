// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of transmit ownership: one owner at a time, and nothing stays unsent.

mod transmit;

use kernel::{
    prelude::*,
    processor::cpu_relax,
    sync::Arc,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::*;
use crate::sys::{
    sync::{
        context::PreemptGuard,
        work as queues, //
    },
    testing::eventually, //
};

/// Threads that post and send at once.
const POSTERS: u32 = 2;

/// Posts of each thread; the next post follows after the transmission of all earlier ones.
const ROUNDS: u32 = 5_000;

/// Nanoseconds that a thread waits without sleeping. Two threads that sleep for each other may stay
/// on one CPU and never overlap. Of two runnable threads one is soon moved to another CPU.
const AWAKE_NS: i64 = 5_000_000;

/// Iterations that a send takes: long enough that another thread posts meanwhile.
const SENDING: u32 = 200;

/// One send of so many lasts until the other thread has posted. On a host with one CPU the two
/// threads would hardly ever overlap otherwise.
const MEETING: u32 = 16;

/// A queue and two threads that send from it.
#[pin_data]
struct Posters {
    owner: TxOwner,
    posted: Atomic<u32>,
    sent: Atomic<u32>,
    sending: Atomic<u32>,
    crowds: Atomic<u32>,
    missed: Atomic<u32>,
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
    /// Posts, and sends as the owner all that is posted. No thread posts more before that has
    /// been sent: a later send would hide a lost MISSED.
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

    /// Sends all that is posted, as the owner.
    fn send(&self, round: u32) {
        let _preempt = PreemptGuard::new();
        if !self.owner.run_begin() {
            self.missed.add(1, Relaxed);
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
            // The last access of the owner: another one may begin before `run_end` returns.
            self.sending.store(0, Relaxed);
            if self.owner.run_end() {
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

/// Waits up to [`AWAKE_NS`] without sleeping; returns whether `condition` has become true.
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

#[kunit_tests(rsiw_stream_tx_owner)]
mod suite {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let owner = TxOwner::new();
        assert!(!owner.is_running());
        assert!(owner.run_begin());
        assert!(owner.is_running());
        assert!(owner.run_end());
        assert!(!owner.is_running());
        assert!(owner.run_begin());
        owner.release();
        assert!(owner.run_begin());
    }

    #[test]
    fn missed_is_set_for_the_owner() {
        let owner = TxOwner::new();
        assert!(!owner.set_missed());
        assert!(owner.run_begin());
        // One check of MISSED serves any number of callers.
        assert!(!owner.run_begin());
        assert!(!owner.run_begin());
        assert!(owner.set_missed());
        assert!(!owner.run_end());
        assert!(owner.is_running());
        assert!(owner.set_missed());
        assert!(!owner.run_end());
        assert!(owner.run_end());
        assert!(!owner.set_missed());
    }

    #[test]
    fn a_stalled_owner_is_not_waited_for() {
        let owner = TxOwner::new();
        assert!(owner.run_begin());
        // A time in the future: the test itself may be preempted.
        owner.enter_softirqs(now_ns().wrapping_add(1_000_000_000));
        assert!(owner.is_running());
        assert!(owner.set_missed());
        owner.leave_softirqs();
        assert!(!owner.run_end());
        owner.enter_softirqs(now_ns().wrapping_sub(SOFTIRQ_STALL_NS + 1));
        assert!(!owner.is_running());
        assert!(!owner.set_missed());
        owner.leave_softirqs();
        assert!(owner.is_running());
        assert!(owner.run_end());
    }

    #[test]
    fn release_clears_missed() {
        let owner = TxOwner::new();
        assert!(owner.run_begin());
        assert!(owner.set_missed());
        owner.release();
        assert!(owner.run_begin());
        assert!(owner.run_end());
    }

    /// The owner sends what any thread posts, and there is one owner at a time.
    #[test]
    fn nothing_is_left_behind() -> Result {
        let posters = Arc::pin_init(
            pin_init!(Posters {
                owner: TxOwner::new(),
                posted: Atomic::new(0),
                sent: Atomic::new(0),
                sending: Atomic::new(0),
                crowds: Atomic::new(0),
                missed: Atomic::new(0),
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
        // Without overlap the test proves nothing. User-mode Linux has one CPU.
        assert!(cfg!(CONFIG_UML) || posters.missed.load(Relaxed) != 0);
        assert_eq!(posters.left.load(Relaxed), 0);
        assert_eq!(posters.sent.load(Relaxed), POSTERS * ROUNDS);
        assert_eq!(posters.crowds.load(Relaxed), 0);
        assert!(!posters.owner.is_running());
        Ok(())
    }
}
