// SPDX-License-Identifier: GPL-2.0

//! How long a doorbell is left unanswered.
//!
//! Long enough that all is there which a process posts before it waits for completions, and no
//! longer, since from then on it waits for us. When that is nobody tells; but how much has been
//! posted can be seen in the ring. So a moment becomes a little shorter each time, until clearly
//! less has been posted at its end than at that of the best one before, and then longer again.
//! Now and then one is twice as long, to see whether more would come.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The shortest moment, in nanoseconds.
const SHORTEST_NS: u32 = 5_000;

/// A moment is this part shorter than the one before that gathered enough.
const SHORTER: u32 = 64;

/// And this part longer than one that did not.
const LONGER: u32 = 4;

/// What may be missing from the best one, as a part of it.
const MISSING: u32 = 8;

/// One in so many is twice as long.
const TRIALS: u32 = 64;

/// What is known of a queue's moments. Any context; unlocked, since a wrong guess only costs time.
pub(super) struct Moment {
    /// How long one lasts, in nanoseconds; 0: nothing is known.
    nanos: Atomic<u32>,
    /// Work requests that waited at the end of the best one.
    best: Atomic<u32>,
    /// Moments so far, wrapping.
    count: Atomic<u32>,
    /// The longest one, in nanoseconds; 0: there are none.
    longest_ns: u32,
}

impl Moment {
    /// None yet; one lasts `longest_us` microseconds at most.
    pub(super) const fn new(longest_us: u32) -> Self {
        Self {
            nanos: Atomic::new(0),
            best: Atomic::new(0),
            count: Atomic::new(0),
            longest_ns: longest_us.saturating_mul(1_000),
        }
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn exists(&self) -> bool {
        self.longest_ns != 0
    }

    /// How long the next one lasts, in nanoseconds: `guess` if nothing is known.
    #[inline]
    pub(super) fn length(&self, guess: u32) -> u32 {
        let usual = self.usual(guess);
        match self.is_trial() {
            true => self.within(usual.saturating_mul(2)),
            false => usual,
        }
    }

    /// One is over, at the end of which so many work requests wait.
    #[inline]
    pub(super) fn over(&self, waiting: u32, guess: u32) {
        let (usual, best) = (self.usual(guess), self.best.load(Relaxed));
        let trial = self.is_trial();
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(1), Relaxed);
        // At the longest, more does not come any more.
        if waiting > best || usual >= self.longest_ns {
            self.best.store(waiting, Relaxed);
        }
        if trial {
            return;
        }
        let next = match waiting >= best.saturating_sub(best / MISSING) {
            // Nothing is learned of a process that posts little, and it may be us who were hasty.
            true if waiting < super::USEFUL => guess,
            true => usual.saturating_sub(usual / SHORTER),
            false => usual.saturating_add(usual / LONGER),
        };
        self.nanos.store(self.within(next), Relaxed);
    }

    /// How long one lasts that is no trial.
    fn usual(&self, guess: u32) -> u32 {
        self.within(match self.nanos.load(Relaxed) {
            0 => guess,
            known => known,
        })
    }

    /// Whether the current one is twice as long.
    fn is_trial(&self) -> bool {
        self.count.load(Relaxed).checked_rem(TRIALS) == Some(TRIALS - 1)
    }

    /// Not too short, and not too long.
    fn within(&self, nanos: u32) -> u32 {
        nanos.max(SHORTEST_NS).min(self.longest_ns)
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_rush_moment)]
mod tests {
    use super::*;

    /// Nanoseconds in which a process posts a work request.
    const POST_NS: u32 = 500;

    /// Moments of a process that posts `most` work requests before it waits; what the last 100 of
    /// them gathered on average, and how long the longest of those was.
    fn moments(moment: &Moment, rounds: u32, most: u32, guess: u32) -> (u32, u32) {
        let (mut sum, mut longest) = (0, 0);
        for round in 0..rounds {
            let nanos = moment.length(guess);
            let waiting = (nanos / POST_NS + 1).min(most);
            moment.over(waiting, guess);
            if round + 100 >= rounds {
                sum += waiting;
                longest = longest.max(moment.usual(guess));
            }
        }
        (sum / 100, longest)
    }

    #[test]
    fn the_first_one_is_a_guess() {
        let moment = Moment::new(100);
        assert!(moment.exists() && !Moment::new(0).exists());
        assert_eq!(moment.length(20_000), 20_000);
        assert_eq!(moment.length(0), SHORTEST_NS);
        assert_eq!(moment.length(u32::MAX), 100_000);
        assert_eq!(Moment::new(1).length(20_000), 1_000);
    }

    #[test]
    fn lasts_as_long_as_is_posted() {
        for (most, guess) in [(100, 100_000), (100, 10_000), (16, 60_000), (16, 5_000)] {
            let moment = Moment::new(100);
            let (gathered, longest) = moments(&moment, 1_000, most, guess);
            assert!(gathered >= most - most / MISSING);
            let all_there = most * POST_NS;
            let (low, high) = (all_there * 7 / 8, all_there * 5 / 4);
            assert!((low..=high).contains(&longest));
        }
    }

    #[test]
    fn lasts_as_long_as_it_may_for_one_that_does_not_wait() {
        let moment = Moment::new(100);
        let (gathered, longest) = moments(&moment, 1_000, u32::MAX, SHORTEST_NS);
        assert!(longest > 90_000);
        assert!(gathered > 160);
    }

    #[test]
    fn learns_of_fewer_and_of_more() {
        let moment = Moment::new(100);
        for most in [100, 16, 180, 4, 100] {
            let (gathered, longest) = moments(&moment, 1_000, most, 40_000);
            assert!(gathered >= most - most / MISSING);
            let high = (most * POST_NS * 5 / 4).max(SHORTEST_NS);
            assert!(longest <= high);
        }
    }

    /// The process did not get a processor.
    #[test]
    fn one_without_use_changes_little() {
        let moment = Moment::new(100);
        moments(&moment, 1_000, 100, 40_000);
        let before = moment.usual(0);
        moment.over(1, 40_000);
        assert_eq!(moment.usual(0), before + before / LONGER);
        assert_eq!(moment.best.load(Relaxed), 100);
    }

    #[test]
    fn a_trial_changes_nothing_but_what_is_best() {
        let moment = Moment::new(100);
        moments(&moment, TRIALS - 1, 100, 40_000);
        let usual = moment.usual(0);
        assert_eq!(moment.length(0), 2 * usual);
        moment.over(150, 0);
        assert_eq!(moment.best.load(Relaxed), 150);
        assert_eq!(moment.length(0), usual);
    }

    #[test]
    fn nothing_is_learned_of_a_process_that_posts_little() {
        let moment = Moment::new(100);
        for _ in 0..100 {
            moment.over(1, 40_000);
            assert_eq!(moment.usual(0), 40_000);
        }
    }
}
