// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of the transmit loop: bursts posted during a transmission are sent soon.

use core::cell::Cell;

use kernel::prelude::*;

use super::super::*;

/// A stream, and other threads that post during a transmission.
struct FakeStream {
    owner: TxOwner,
    /// Waiting bursts, and sent bursts.
    waiting: Cell<u32>,
    sent: Cell<u32>,
    /// Holds of the socket lock, and their number before a thread owns the socket.
    holds: Cell<u32>,
    holds_until_owned: u32,
    deferred_to_process: Cell<bool>,
    /// Checks whether the receiver runs on this CPU.
    looks: Cell<u32>,
    /// Bursts that another thread posts: after the last burst was sent, while softirqs run, and
    /// while that thread has this CPU.
    late: Cell<u32>,
    in_softirqs: Cell<u32>,
    while_descheduled: Cell<u32>,
    /// The thread that posted during softirqs, or while it had this CPU, became the owner.
    owner_in_softirqs: Cell<bool>,
    owner_while_descheduled: Cell<bool>,
    /// Another thread is due on this CPU after each hold.
    crowded: bool,
}

impl FakeStream {
    /// Makes a stream with so many bursts to send.
    const fn new(waiting: u32) -> Self {
        Self {
            owner: TxOwner::new(),
            waiting: Cell::new(waiting),
            sent: Cell::new(0),
            holds: Cell::new(0),
            holds_until_owned: u32::MAX,
            deferred_to_process: Cell::new(false),
            looks: Cell::new(0),
            late: Cell::new(0),
            in_softirqs: Cell::new(0),
            while_descheduled: Cell::new(0),
            owner_in_softirqs: Cell::new(false),
            owner_while_descheduled: Cell::new(false),
            crowded: false,
        }
    }

    /// Makes another thread post the bursts of `from`, and ring the doorbell. Returns whether
    /// that thread becomes the owner.
    fn others_post(&self, from: &Cell<u32>) -> bool {
        let bursts = from.take();
        self.waiting.set(self.waiting.get().saturating_add(bursts));
        bursts != 0 && self.owner.run_begin()
    }
}

/// The socket lock of a [`FakeStream`]. Softirqs run when it is dropped.
struct FakeLock<'a>(&'a FakeStream);

impl Drop for FakeLock<'_> {
    fn drop(&mut self) {
        if self.0.others_post(&self.0.in_softirqs) {
            self.0.owner_in_softirqs.set(true);
        }
    }
}

/// Keeps the CPU until it is dropped.
struct FakeNoPreempt<'a>(&'a FakeStream);

impl Drop for FakeNoPreempt<'_> {
    fn drop(&mut self) {
        if self.0.others_post(&self.0.while_descheduled) {
            self.0.owner_while_descheduled.set(true);
        }
    }
}

impl<'p> Sender for &'p FakeStream {
    type NoPreempt = FakeNoPreempt<'p>;
    type Lock<'a>
        = FakeLock<'a>
    where
        Self: 'a;

    fn no_preempt(&self) -> FakeNoPreempt<'p> {
        FakeNoPreempt(self)
    }

    fn try_lock(&self) -> Option<FakeLock<'_>> {
        if self.holds.get() == self.holds_until_owned {
            return None;
        }
        self.holds.set(self.holds.get() + 1);
        Some(FakeLock(self))
    }

    fn send_bursts(&self, _: &mut FakeLock<'_>, bursts: u32) -> Progress {
        let now = bursts.min(self.waiting.get());
        self.sent.set(self.sent.get() + now);
        self.waiting.set(self.waiting.get() - now);
        if self.waiting.get() != 0 {
            return Progress::More;
        }
        self.others_post(&self.late);
        // Like a stream: the last burst of a budget may have been the last one of all.
        match now == bursts {
            true => Progress::More,
            false => Progress::Wait,
        }
    }

    fn note_receiver_cpu(&self, _: &mut FakeLock<'_>) {
        self.looks.set(self.looks.get() + 1);
    }

    fn need_resched(&self) -> bool {
        self.crowded
    }

    fn defer_to_process(&self) {
        self.deferred_to_process.set(true);
    }
}

#[kunit_tests(rsiw_stream_transmit)]
mod suite {
    use super::*;

    /// All bursts are sent, a few at a time.
    #[test]
    fn sends_all_there_is() {
        let stream = FakeStream::new(10);
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert_eq!(stream.sent.get(), 10);
        assert_eq!(stream.holds.get(), 10_u32.div_ceil(BURSTS_PER_LOCK));
        assert!(!stream.owner.is_running());
    }

    /// The receiver's CPU is checked after bursts of the same thread, if no other thread had the
    /// CPU.
    #[test]
    fn notes_where_the_receiver_works() {
        let stream = FakeStream::new(10);
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert_eq!(stream.looks.get(), stream.holds.get() - 1);

        let mut stream = FakeStream::new(10);
        stream.crowded = true;
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert!(stream.holds.get() > 1);
        assert_eq!(stream.looks.get(), 0);

        let stream = FakeStream::new(10);
        assert!(stream.owner.run_begin());
        stream
            .owner
            .enter_softirqs(now_ns().wrapping_sub(SOFTIRQ_STALL_NS + 1));
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert!(stream.holds.get() > 1);
        assert_eq!(stream.looks.get(), 0);
    }

    /// A work item sends what exceeds the budget.
    #[test]
    fn keeps_to_the_budget() {
        let stream = FakeStream::new(20);
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::More);
        assert_eq!(stream.sent.get(), 16);
        assert!(!stream.owner.is_running());
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert_eq!(stream.sent.get(), 20);
        assert!(!stream.owner.is_running());
    }

    /// A context that finds an owner sends nothing, and sets MISSED.
    #[test]
    fn leaves_it_to_the_owner() {
        let stream = FakeStream::new(10);
        assert!(stream.owner.run_begin());
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert_eq!(stream.holds.get(), 0);
        assert!(!stream.owner.run_end());
    }

    /// A context sends beside a stalled owner, which keeps ownership and sees MISSED.
    #[test]
    fn sends_beside_a_stalled_owner() {
        let stream = FakeStream::new(10);
        assert!(stream.owner.run_begin());
        stream
            .owner
            .enter_softirqs(now_ns().wrapping_sub(SOFTIRQ_STALL_NS + 1));
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert_eq!(stream.sent.get(), 10);
        stream.owner.leave_softirqs();
        assert!(stream.owner.is_running());
        assert!(!stream.owner.run_end());
        assert!(stream.owner.run_end());
    }

    /// A work item waits for an owned socket, and finds no transmit owner.
    #[test]
    fn does_not_wait_for_an_owner() {
        for holds in [0, 1, 2] {
            let mut stream = FakeStream::new(20);
            stream.holds_until_owned = holds;
            assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
            assert!(stream.deferred_to_process.get());
            assert_eq!(stream.sent.get(), holds * BURSTS_PER_LOCK);
            assert!(!stream.owner.is_running());
        }
    }

    /// A context beside a stalled owner does not end the ownership when a thread owns the socket.
    #[test]
    fn releases_only_its_own() {
        let mut stream = FakeStream::new(20);
        stream.holds_until_owned = 1;
        assert!(stream.owner.run_begin());
        stream
            .owner
            .enter_softirqs(now_ns().wrapping_sub(SOFTIRQ_STALL_NS + 1));
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert!(stream.deferred_to_process.get());
        stream.owner.leave_softirqs();
        assert!(stream.owner.is_running());
    }

    /// Bursts that other threads post after the last check of the queue, or during softirqs, are
    /// sent.
    #[test]
    fn looks_again_before_ownership_ends() {
        let stream = FakeStream::new(5);
        stream.late.set(2);
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert_eq!(stream.sent.get(), 7);
        assert!(!stream.owner.is_running());

        let stream = FakeStream::new(5);
        stream.in_softirqs.set(3);
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert!(!stream.owner_in_softirqs.get());
        assert_eq!(stream.sent.get(), 8);
        assert!(!stream.owner.is_running());
    }

    /// At the end of the budget a work item sends the bursts that MISSED stands for.
    #[test]
    fn looks_again_within_the_budget() {
        let stream = FakeStream::new(7);
        stream.late.set(3);
        assert_eq!(stream.owner.transmit(&&stream, 8), Progress::More);
        assert_eq!(stream.sent.get(), 7);
        assert!(!stream.owner.is_running());
        assert_eq!(stream.owner.transmit(&&stream, 8), Progress::Wait);
        assert_eq!(stream.sent.get(), 10);
    }

    /// Delegated work does not stay with a thread that loses the CPU.
    #[test]
    fn hands_over_before_others_get_the_cpu() {
        let mut stream = FakeStream::new(12);
        stream.crowded = true;
        stream.in_softirqs.set(1);
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::More);
        assert_eq!(stream.holds.get(), 1);
        assert!(!stream.owner.is_running());
    }

    /// No context waits for a thread that does not run.
    #[test]
    fn is_no_owner_while_others_have_the_cpu() {
        let mut stream = FakeStream::new(12);
        stream.crowded = true;
        stream.while_descheduled.set(1);
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert!(stream.owner_while_descheduled.get());
        assert_eq!(stream.holds.get(), 1);
        // The other thread is the owner, and MISSED is set.
        assert!(!stream.owner.run_end());
    }

    /// Without other posts the thread continues.
    #[test]
    fn goes_on_with_the_cpu() {
        let mut stream = FakeStream::new(10);
        stream.crowded = true;
        assert_eq!(stream.owner.transmit(&&stream, 16), Progress::Wait);
        assert_eq!(stream.sent.get(), 10);
        assert_eq!(stream.holds.get(), 10_u32.div_ceil(BURSTS_PER_LOCK));
        assert!(!stream.owner.is_running());
    }
}
