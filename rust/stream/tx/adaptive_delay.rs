// SPDX-License-Identifier: GPL-2.0

//! The length of a doorbell delay: an adaptive hold-off, as in interrupt coalescing.
//!
//! The best delay ends when the process has posted all work requests that it posts before it
//! waits. The send queue shows their number. Each delay is therefore a little shorter than the
//! previous one, until clearly fewer were posted than at the peak; then the delay grows. One
//! delay of [`PROBE_INTERVAL`] is twice as long, and shows whether more would be posted.
//!
//! ```text
//! expired(waiting):
//!     before = peak
//!     if waiting > peak or current is the longest: peak = waiting
//!     if this was a probe: return
//!     if waiting < before - before / PEAK_SLACK: current += current / LONGER
//!     else if waiting < USEFUL: current = first guess
//!     else: current -= current / SHORTER
//! ```

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use super::doorbell_batch::USEFUL;

/// The shortest delay, in nanoseconds.
const SHORTEST_NS: u32 = 5_000;

/// A delay that has collected enough shortens the next one by this part.
const SHORTER: u32 = 64;

/// A delay that has collected too little lengthens the next one by this part.
const LONGER: u32 = 4;

/// The part of the peak that may be missing.
const PEAK_SLACK: u32 = 8;

/// The number of delays of which one is a probe, twice as long.
const PROBE_INTERVAL: u32 = 64;

/// The delay state of one send queue. Any context; no lock, since a wrong guess costs only time.
pub(in crate::stream) struct AdaptiveDelay {
    /// The current delay, in nanoseconds; 0: not known.
    nanos: Atomic<u32>,
    /// The most work requests that waited at the end of a delay.
    peak: Atomic<u32>,
    /// Delays so far, wrapping.
    count: Atomic<u32>,
    /// The longest delay, in nanoseconds; 0: disabled.
    longest_ns: u32,
}

impl AdaptiveDelay {
    /// Makes the state of a new send queue. A delay lasts at most `longest_us` microseconds; 0
    /// disables delays.
    pub(in crate::stream) const fn new(longest_us: u32) -> Self {
        Self {
            nanos: Atomic::new(0),
            peak: Atomic::new(0),
            count: Atomic::new(0),
            longest_ns: longest_us.saturating_mul(1_000),
        }
    }

    /// Whether doorbells may be deferred at all.
    #[inline]
    pub(in crate::stream) fn is_enabled(&self) -> bool {
        self.longest_ns != 0
    }

    /// The next delay, in nanoseconds: `guess` if none is known.
    #[inline]
    pub(in crate::stream) fn next_ns(&self, guess: u32) -> u32 {
        let current = self.current(guess);
        match self.is_probe() {
            true => self.within(current.saturating_mul(2)),
            false => current,
        }
    }

    /// Handles the end of a delay; `waiting` work requests wait. `guess` is the first delay in
    /// nanoseconds.
    #[inline]
    pub(in crate::stream) fn expired(&self, waiting: u32, guess: u32) {
        let (current, peak) = (self.current(guess), self.peak.load(Relaxed));
        let probe = self.is_probe();
        let count = self.count.load(Relaxed);
        self.count.store(count.wrapping_add(1), Relaxed);
        // The longest delay can not collect more.
        if waiting > peak || current >= self.longest_ns {
            self.peak.store(waiting, Relaxed);
        }
        if probe {
            return;
        }
        let next = match waiting >= peak.saturating_sub(peak / PEAK_SLACK) {
            // Few work requests show nothing: the delay may have been too short.
            true if waiting < USEFUL => guess,
            true => current.saturating_sub(current / SHORTER),
            false => current.saturating_add(current / LONGER),
        };
        self.nanos.store(self.within(next), Relaxed);
    }

    /// The length of a delay that is no probe.
    fn current(&self, guess: u32) -> u32 {
        self.within(match self.nanos.load(Relaxed) {
            0 => guess,
            known => known,
        })
    }

    /// Whether the current delay is a probe.
    fn is_probe(&self) -> bool {
        self.count.load(Relaxed).checked_rem(PROBE_INTERVAL) == Some(PROBE_INTERVAL - 1)
    }

    /// Limits a delay to the permitted range.
    fn within(&self, nanos: u32) -> u32 {
        nanos.max(SHORTEST_NS).min(self.longest_ns)
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_adaptive_delay)]
mod tests {
    use super::*;

    /// Nanoseconds in which a process posts a work request.
    const POST_NS: u32 = 500;

    /// Runs delays of a process that posts `most` work requests before it waits. Returns the
    /// average number that the last 100 delays collected, and the longest of these delays.
    fn delays(delay: &AdaptiveDelay, rounds: u32, most: u32, guess: u32) -> (u32, u32) {
        let (mut sum, mut longest) = (0, 0);
        for round in 0..rounds {
            let nanos = delay.next_ns(guess);
            let waiting = (nanos / POST_NS + 1).min(most);
            delay.expired(waiting, guess);
            if round + 100 >= rounds {
                sum += waiting;
                longest = longest.max(delay.current(guess));
            }
        }
        (sum / 100, longest)
    }

    #[test]
    fn the_first_delay_is_a_guess() {
        let delay = AdaptiveDelay::new(100);
        assert!(delay.is_enabled() && !AdaptiveDelay::new(0).is_enabled());
        assert_eq!(delay.next_ns(20_000), 20_000);
        assert_eq!(delay.next_ns(0), SHORTEST_NS);
        assert_eq!(delay.next_ns(u32::MAX), 100_000);
        assert_eq!(AdaptiveDelay::new(1).next_ns(20_000), 1_000);
    }

    #[test]
    fn lasts_as_long_as_is_posted() {
        for (most, guess) in [(100, 100_000), (100, 10_000), (16, 60_000), (16, 5_000)] {
            let delay = AdaptiveDelay::new(100);
            let (collected, longest) = delays(&delay, 1_000, most, guess);
            assert!(collected >= most - most / PEAK_SLACK);
            let all_there = most * POST_NS;
            let (low, high) = (all_there * 7 / 8, all_there * 5 / 4);
            assert!((low..=high).contains(&longest));
        }
    }

    #[test]
    fn grows_to_the_longest_for_a_process_that_does_not_wait() {
        let delay = AdaptiveDelay::new(100);
        let (collected, longest) = delays(&delay, 1_000, u32::MAX, SHORTEST_NS);
        assert!(longest > 90_000);
        assert!(collected > 160);
    }

    #[test]
    fn learns_of_fewer_and_of_more() {
        let delay = AdaptiveDelay::new(100);
        for most in [100, 16, 180, 4, 100] {
            let (collected, longest) = delays(&delay, 1_000, most, 40_000);
            assert!(collected >= most - most / PEAK_SLACK);
            let high = (most * POST_NS * 5 / 4).max(SHORTEST_NS);
            assert!(longest <= high);
        }
    }

    /// The process did not get the CPU during the delay.
    #[test]
    fn a_useless_delay_changes_little() {
        let delay = AdaptiveDelay::new(100);
        delays(&delay, 1_000, 100, 40_000);
        let before = delay.current(0);
        delay.expired(1, 40_000);
        assert_eq!(delay.current(0), before + before / LONGER);
        assert_eq!(delay.peak.load(Relaxed), 100);
    }

    #[test]
    fn a_probe_changes_only_the_peak() {
        let delay = AdaptiveDelay::new(100);
        delays(&delay, PROBE_INTERVAL - 1, 100, 40_000);
        let current = delay.current(0);
        assert_eq!(delay.next_ns(0), 2 * current);
        delay.expired(150, 0);
        assert_eq!(delay.peak.load(Relaxed), 150);
        assert_eq!(delay.next_ns(0), current);
    }

    #[test]
    fn nothing_is_learned_of_a_process_that_posts_little() {
        let delay = AdaptiveDelay::new(100);
        for _ in 0..100 {
            delay.expired(1, 40_000);
            assert_eq!(delay.current(0), 40_000);
        }
    }
}
