// SPDX-License-Identifier: GPL-2.0

//! Whether a doorbell is answered at once or after a moment.
//!
//! A process rings the doorbell only when it finds its last work request fetched. Answered at
//! once, each small message costs a system call, a call into TCP and a segment. When doorbells
//! come in quick succession the next one is left unanswered for some microseconds: what is
//! posted meanwhile needs no doorbell, and goes out together.
//!
//! That would cost a program time which waits for one request before it posts the next, or for
//! the peer's answer. So no message of the peer may have come between the doorbells, unless very
//! much was gathered lately, and a moment in which nothing else was posted is paid for: the more of
//! them, the more doorbells in quick succession it takes until the next one. Nor does it help very
//! large messages, which are worth a call each.

mod moment;

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use self::moment::Moment;

/// Nanoseconds between the answer to a doorbell and the next one, at most, in a quick succession.
const QUICK_NS: i64 = 60_000;

/// As [`QUICK_NS`], after moments that were of use: a program that is given its completions all at
/// once may have other things to do before it posts again, such as to look after other queues.
const PAUSE_NS: i64 = 100_000_000;

/// The first moment lasts as long as this many doorbells take the process, calls included.
const MOMENT_GAPS: u32 = 4;

/// Doorbells in quick succession before one is left for a moment.
const ROW: u32 = 8;

/// The most of them that a moment without use costs.
const HIGHEST_COST: u32 = 8192;

/// Work requests that make a moment worth while.
const USEFUL: u32 = 4;

/// Work requests gathered lately that let a doorbell wait although something came before it.
const TRUSTED: u32 = 16;

/// The most that useful moments count against later ones that are not, in work requests. A program
/// that has posted as many as its queue takes has to wait now and then, and posts little before.
const WORTH: u32 = 64;

/// Octets of a message, on average, from which on a moment costs more than it gains.
const LARGE: u64 = 256 << 10;

/// What is known of a queue's doorbells. Any context; unlocked, since a wrong guess only costs
/// time.
pub(super) struct Rush {
    /// Doorbells in quick succession so far; more than [`ROW`] make one wait, if nothing is owed.
    row: Atomic<u32>,
    /// Quick doorbells owed for moments without use. Something slow in between, as it happens to
    /// any program, ends a row but not what was paid.
    owed: Atomic<u32>,
    /// What the last moment without use cost.
    cost: Atomic<u32>,
    /// Work requests gathered lately, less those that moments without use should have gathered.
    worth: Atomic<u32>,
    /// When the last one had been answered, in nanoseconds.
    answered: Atomic<i64>,
    /// A message has come since then that the process may answer.
    talked: Atomic<bool>,
    /// Work requests fetched, wrapping.
    fetched: Atomic<u32>,
    /// Octets sent, wrapping.
    sent: Atomic<u64>,
    /// `fetched` at the last answer.
    fetched_before: Atomic<u32>,
    /// `sent` at the last answer.
    sent_before: Atomic<u64>,
    /// Nanoseconds from the answer to a doorbell to the next one, on average over those in quick
    /// succession.
    gap_ns: Atomic<u32>,
    /// How long moments last; if there are none, every doorbell is answered at once.
    moment: Moment,
}

/// What to do about a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Answer it.
    Now,
    /// Leave it for a moment.
    InAMoment,
}

impl Rush {
    /// No doorbell yet; a moment lasts `longest_us` microseconds at most, or there are none.
    pub(super) const fn new(longest_us: u32) -> Self {
        Self {
            row: Atomic::new(0),
            owed: Atomic::new(0),
            cost: Atomic::new(ROW),
            worth: Atomic::new(0),
            answered: Atomic::new(0),
            talked: Atomic::new(false),
            fetched: Atomic::new(0),
            sent: Atomic::new(0),
            fetched_before: Atomic::new(0),
            sent_before: Atomic::new(0),
            gap_ns: Atomic::new(0),
            moment: Moment::new(longest_us),
        }
    }

    /// A message has come that the process may answer.
    #[inline]
    pub(super) fn talked(&self) {
        self.talked.store(true, Relaxed);
    }

    /// Notes how many work requests have been fetched, and how many octets sent, both wrapping.
    #[inline]
    pub(super) fn progress(&self, fetched: u32, sent: u64) {
        self.fetched.store(fetched, Relaxed);
        self.sent.store(sent, Relaxed);
    }

    /// How long a moment lasts, in nanoseconds.
    #[inline]
    pub(super) fn moment_ns(&self) -> u32 {
        self.moment.length(self.guess_ns())
    }

    /// How long one lasts before anything is known of them.
    fn guess_ns(&self) -> u32 {
        self.gap_ns.load(Relaxed).saturating_mul(MOMENT_GAPS)
    }

    /// A moment is over; so many work requests wait.
    #[inline]
    pub(super) fn gathered(&self, waiting: u32) {
        self.moment.over(waiting, self.guess_ns());
    }

    /// A doorbell at the time `now`.
    #[inline]
    pub(super) fn rung(&self, now: i64) -> Answer {
        let gap = now.wrapping_sub(self.answered.load(Relaxed));
        let talked = self.talked.load(Relaxed);
        self.talked.store(false, Relaxed);
        if talked || gap > QUICK_NS {
            let worth = self.worth.load(Relaxed);
            if worth < TRUSTED || gap > PAUSE_NS {
                self.row.store(0, Relaxed);
                return Answer::Now;
            }
            // What may be an answer is not held up, unless it hardly is one: a peer that returns
            // credits talks once for all that was gathered.
            return match talked && worth < WORTH {
                true => Answer::Now,
                false => Answer::InAMoment,
            };
        }
        let before = self.gap_ns.load(Relaxed);
        let gap = u32::try_from(gap).unwrap_or(0);
        let average = before.saturating_sub(before / 8).saturating_add(gap / 8);
        self.gap_ns.store(average, Relaxed);
        let row = self.row.load(Relaxed).saturating_add(1);
        self.row.store(row, Relaxed);
        let owed = self.owed.load(Relaxed);
        if let Some(rest) = owed.checked_sub(1) {
            self.owed.store(rest, Relaxed);
        }
        match row > ROW && owed == 0 && self.moment.exists() {
            true => Answer::InAMoment,
            false => Answer::Now,
        }
    }

    /// A doorbell has been answered at the time `now`.
    #[inline]
    pub(super) fn answered(&self, now: i64) {
        self.finish(now);
    }

    /// A moment was over, and what had been posted has been looked after at the time `now`; `more`:
    /// as far as one run goes.
    #[inline]
    pub(super) fn over(&self, now: i64, more: bool) {
        let count = self.finish(now);
        let worth = self.worth.load(Relaxed);
        if count >= USEFUL || more {
            let worth = worth.saturating_add(count.max(USEFUL)).min(WORTH);
            self.worth.store(worth, Relaxed);
            self.cost.store(ROW, Relaxed);
            return;
        }
        if let Some(worth) = worth.checked_sub(2 * USEFUL) {
            self.worth.store(worth, Relaxed);
            return;
        }
        let cost = self.cost.load(Relaxed).saturating_mul(4).min(HIGHEST_COST);
        self.cost.store(cost, Relaxed);
        self.owed.store(cost, Relaxed);
        self.row.store(0, Relaxed);
    }

    /// Looks at what went out with the last answer; how many work requests it was.
    #[inline]
    fn finish(&self, now: i64) -> u32 {
        let (fetched, sent) = (self.fetched.load(Relaxed), self.sent.load(Relaxed));
        let count = fetched.wrapping_sub(self.fetched_before.load(Relaxed));
        let octets = sent.wrapping_sub(self.sent_before.load(Relaxed));
        self.fetched_before.store(fetched, Relaxed);
        self.sent_before.store(sent, Relaxed);
        if octets > LARGE.saturating_mul(count.into()) {
            self.row.store(0, Relaxed);
        }
        self.answered.store(now, Relaxed);
        count
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_rush)]
mod tests {
    use super::*;

    /// `count` small work requests are fetched and sent.
    fn small(rush: &Rush, count: u32) {
        let fetched = rush.fetched.load(Relaxed).wrapping_add(count);
        let sent = rush.sent.load(Relaxed).wrapping_add(100 * u64::from(count));
        rush.progress(fetched, sent);
    }

    /// Rings until one has to wait; how many did not.
    fn ring(rush: &Rush, clock: &mut i64, gap: i64) -> u32 {
        for rung in 0..10 * HIGHEST_COST {
            *clock += gap;
            if rush.rung(*clock) == Answer::InAMoment {
                return rung;
            }
            small(rush, 1);
            rush.answered(*clock);
        }
        u32::MAX
    }

    #[test]
    fn quick_ones_wait() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        // The first one comes after a long time.
        assert_eq!(ring(&rush, &mut clock, QUICK_NS), ROW + 1);
        clock += 100_000;
        small(&rush, 100);
        rush.over(clock, false);
        // It goes on as it was.
        assert_eq!(ring(&rush, &mut clock, 1_000), 0);
    }

    #[test]
    fn slow_ones_do_not() {
        let mut clock = 1_000_000;
        assert_eq!(ring(&Rush::new(100), &mut clock, QUICK_NS + 1), u32::MAX);
    }

    #[test]
    fn answers_wait_for_nothing() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        for _ in 0..100 {
            clock += 1_000;
            assert!(rush.rung(clock) == Answer::Now);
            rush.talked();
            rush.answered(clock);
        }
    }

    #[test]
    fn large_ones_do_not() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        for round in 1..100 {
            clock += 1_000;
            assert!(rush.rung(clock) == Answer::Now);
            rush.progress(round, u64::from(round) * (LARGE + 1));
            rush.answered(clock);
        }
    }

    #[test]
    fn none_waits_if_there_are_no_moments() {
        let mut clock = 1_000_000;
        assert_eq!(ring(&Rush::new(0), &mut clock, 1_000), u32::MAX);
    }

    #[test]
    fn useless_moments_become_rare() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        let mut rows = [0; 8];
        for row in &mut rows {
            *row = ring(&rush, &mut clock, 1_000);
            small(&rush, 1);
            rush.over(clock, false);
        }
        assert_eq!(rows, [9, 32, 128, 512, 2048, 8192, 8192, 8192]);
        // One that was of use, and they are as frequent as at first.
        assert_eq!(ring(&rush, &mut clock, 1_000), HIGHEST_COST);
        small(&rush, USEFUL);
        rush.over(clock, false);
        assert_eq!(ring(&rush, &mut clock, 1_000), 0);
    }

    /// As User-mode Linux showed with Writes of 4 KiB: a timer tick between doorbells, now and
    /// then, ended each row before it was long enough, and nothing was gathered for good.
    #[test]
    fn a_pause_now_and_then_does_not_keep_moments_away() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        for _ in 0..5 {
            ring(&rush, &mut clock, 1_000);
            small(&rush, 1);
            rush.over(clock, false);
        }
        let mut rung = 0;
        while rung < 2 * HIGHEST_COST {
            clock += match rung % 100 {
                0 => QUICK_NS + 1,
                _ => 1_000,
            };
            if rush.rung(clock) == Answer::InAMoment {
                break;
            }
            small(&rush, 1);
            rush.answered(clock);
            rung += 1;
        }
        assert!((HIGHEST_COST..HIGHEST_COST + HIGHEST_COST / 50).contains(&rung));
    }

    #[test]
    fn useful_moments_make_up_for_others() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        ring(&rush, &mut clock, 1_000);
        small(&rush, 1_000);
        rush.over(clock, false);
        for _ in 0..WORTH / (2 * USEFUL) {
            assert_eq!(ring(&rush, &mut clock, 1_000), 0);
            small(&rush, 1);
            rush.over(clock, false);
        }
        assert_eq!(ring(&rush, &mut clock, 1_000), 0);
        small(&rush, 1);
        rush.over(clock, false);
        assert_eq!(ring(&rush, &mut clock, 1_000), 4 * ROW);
    }

    #[test]
    fn a_pause_between_useful_moments_is_none() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        ring(&rush, &mut clock, 1_000);
        small(&rush, WORTH);
        rush.over(clock, false);
        assert_eq!(ring(&rush, &mut clock, PAUSE_NS), 0);
        small(&rush, WORTH);
        rush.over(clock, false);
        // But a long one is.
        assert_eq!(ring(&rush, &mut clock, PAUSE_NS + 1), u32::MAX);
    }

    /// As `ib_send_bw` showed, whose receiver returns credits: each of them had one Send go alone.
    #[test]
    fn a_credit_does_not_end_useful_moments_but_answers_do() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        ring(&rush, &mut clock, 1_000);
        small(&rush, WORTH);
        rush.over(clock, false);
        for answer in [Answer::InAMoment, Answer::Now] {
            clock += 1_000;
            rush.talked();
            assert!(rush.rung(clock) == answer);
            rush.over(clock, false);
        }
    }

    #[test]
    fn a_moment_for_more_than_a_run_was_of_use() {
        let rush = Rush::new(100);
        let mut clock = 1_000_000;
        assert_eq!(ring(&rush, &mut clock, 1_000), ROW + 1);
        // Messages as long as a run: the first of those that were posted has gone.
        small(&rush, 1);
        rush.over(clock, true);
        assert_eq!(ring(&rush, &mut clock, 1_000), 0);
    }
}
