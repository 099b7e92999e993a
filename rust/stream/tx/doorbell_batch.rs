// SPDX-License-Identifier: GPL-2.0

//! Doorbell batching: whether a doorbell transmits at once or after a short delay.
//!
//! A process rings the doorbell only if its last work request has been fetched. If each doorbell
//! transmits at once, each small message costs a system call, a call into TCP and a segment.
//! During a delay work requests are posted without a doorbell, and one burst sends all of them.
//!
//! A delay costs time if a process waits for each completion, or answers its peer. Therefore a
//! message from the peer ends the streak of quick doorbells, unless delays have earned credit. A
//! delay that collects too little costs credit, then backoff. Messages above [`LARGE`] octets are
//! worth a call each.
//!
//! ```text
//! on_doorbell(now):
//!     if rx_since_kick or now - kicked > STREAK_GAP_NS:
//!         if credit < MIN_CREDIT or now - kicked > CREDIT_GAP_NS: streak = 0; Kick
//!         if rx_since_kick and credit < MAX_CREDIT: Kick
//!         Defer
//!     streak += 1
//!     if backoff_left > 0: backoff_left -= 1; Kick
//!     if streak > STREAK and delays are enabled: Defer else Kick
//! end of each kick, which sent `count` work requests:
//!     if octets sent > LARGE * count: streak = 0
//! end of a kick after a delay; full: a burst was full:
//!     if count >= USEFUL or full:
//!         credit += max(count, USEFUL), at most MAX_CREDIT; backoff = STREAK
//!     else if credit >= 2 * USEFUL: credit -= 2 * USEFUL
//!     else: backoff = min(4 * backoff, MAX_BACKOFF); backoff_left = backoff; streak = 0
//! ```

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use super::adaptive_delay::AdaptiveDelay;

/// The longest time from the end of a kick to the next doorbell of a streak, in nanoseconds.
const STREAK_GAP_NS: i64 = 60_000;

/// As [`STREAK_GAP_NS`], while there is credit. A process that gets its completions all at once may
/// serve other queues before it posts again.
const CREDIT_GAP_NS: i64 = 100_000_000;

/// The first delay, in doorbell gaps.
const FIRST_DELAY_GAPS: u32 = 4;

/// Doorbells of a streak before one is deferred; also the least backoff.
const STREAK: u32 = 8;

/// The largest backoff, in doorbells.
const MAX_BACKOFF: u32 = 8192;

/// Work requests that a useful delay collects.
pub(super) const USEFUL: u32 = 4;

/// Credit with which a doorbell is deferred in spite of a gap.
const MIN_CREDIT: u32 = 16;

/// The largest credit, in work requests. A process with a full queue waits now and then, and has
/// posted little before that.
const MAX_CREDIT: u32 = 64;

/// Octets of a message, on average, above which a delay costs more than it gains.
const LARGE: u64 = 256 << 10;

// The states, which follow from the counters:
//
// | state | event | next |
// | --- | --- | --- |
// | counting | doorbell within STREAK_GAP_NS, `streak` up to STREAK | counting: Kick |
// | counting | doorbell within STREAK_GAP_NS, `streak` above STREAK | deferring: Defer |
// | counting, deferring | gap or received message, credit below MIN_CREDIT | counting from 0: Kick |
// | counting, deferring | gap above CREDIT_GAP_NS | counting from 0: Kick |
// | counting, deferring | shorter gap, credit at least MIN_CREDIT, no message | deferring: Defer |
// | counting, deferring | received message, MAX_CREDIT | deferring: Defer |
// | counting | received message, MIN_CREDIT to below MAX_CREDIT | counting: Kick |
// | deferring | received message, MIN_CREDIT to below MAX_CREDIT | deferring: Kick |
// | counting, deferring | messages above LARGE on average | counting from 0 |
// | deferring | doorbell within STREAK_GAP_NS | deferring: Defer |
// | deferring | timer, count >= USEFUL or a full burst | deferring, with credit |
// | deferring | timer, count < USEFUL, credit at least 2 * USEFUL | deferring, less credit |
// | deferring | timer, count < USEFUL, less credit | backing off, `backoff` times 4 |
// | backing off | doorbell within STREAK_GAP_NS | backing off, `backoff_left` less 1: Kick |
// | backing off | `backoff_left` 0 | counting |

/// The doorbell state of one send queue. Any context; no lock, since a wrong guess costs only time.
pub(in crate::stream) struct DoorbellBatcher {
    /// Doorbells in a row within [`STREAK_GAP_NS`].
    streak: Atomic<u32>,
    /// Doorbells until one may be deferred again. A gap ends a streak, but not this.
    backoff_left: Atomic<u32>,
    /// The last backoff.
    backoff: Atomic<u32>,
    /// Work requests that delays have collected, less those that useless delays should have.
    credit: Atomic<u32>,
    /// The end of the last kick, in nanoseconds.
    kicked: Atomic<i64>,
    /// A message that the process may answer was received since then.
    rx_since_kick: Atomic<bool>,
    /// Work requests fetched, wrapping.
    fetched: Atomic<u32>,
    /// Octets sent, wrapping.
    sent: Atomic<u64>,
    /// `fetched` at the last kick.
    fetched_before: Atomic<u32>,
    /// `sent` at the last kick.
    sent_before: Atomic<u64>,
    /// Nanoseconds from a kick to the next doorbell, a moving average over streaks.
    gap_ns: Atomic<u32>,
    /// The length of delays. If delays are disabled, every doorbell kicks.
    delay: AdaptiveDelay,
}

/// The answer to a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) enum DoorbellAction {
    /// Transmit now.
    Kick,
    /// Transmit when the delay has expired.
    Defer,
}

impl DoorbellBatcher {
    /// Makes the state of a new send queue. A delay lasts at most `longest_us` microseconds; 0
    /// disables delays.
    pub(in crate::stream) const fn new(longest_us: u32) -> Self {
        Self {
            streak: Atomic::new(0),
            backoff_left: Atomic::new(0),
            backoff: Atomic::new(STREAK),
            credit: Atomic::new(0),
            kicked: Atomic::new(0),
            rx_since_kick: Atomic::new(false),
            fetched: Atomic::new(0),
            sent: Atomic::new(0),
            fetched_before: Atomic::new(0),
            sent_before: Atomic::new(0),
            gap_ns: Atomic::new(0),
            delay: AdaptiveDelay::new(longest_us),
        }
    }

    /// Notes a received message that the process may answer.
    #[inline]
    pub(in crate::stream) fn note_rx(&self) {
        self.rx_since_kick.store(true, Relaxed);
    }

    /// Notes the work requests fetched and the octets sent, both wrapping.
    #[inline]
    pub(in crate::stream) fn progress(&self, fetched: u32, sent: u64) {
        self.fetched.store(fetched, Relaxed);
        self.sent.store(sent, Relaxed);
    }

    /// The length of the next delay, in nanoseconds.
    #[inline]
    pub(in crate::stream) fn delay_ns(&self) -> u32 {
        self.delay.next_ns(self.first_delay_ns())
    }

    /// The first delay, in nanoseconds.
    fn first_delay_ns(&self) -> u32 {
        self.gap_ns.load(Relaxed).saturating_mul(FIRST_DELAY_GAPS)
    }

    /// Handles the end of a delay; `waiting` work requests wait.
    #[inline]
    pub(in crate::stream) fn expired(&self, waiting: u32) {
        self.delay.expired(waiting, self.first_delay_ns());
    }

    /// Handles a doorbell at the time `now`, in nanoseconds.
    #[inline]
    pub(in crate::stream) fn on_doorbell(&self, now: i64) -> DoorbellAction {
        let gap = now.wrapping_sub(self.kicked.load(Relaxed));
        let rx_since_kick = self.rx_since_kick.load(Relaxed);
        self.rx_since_kick.store(false, Relaxed);
        if rx_since_kick || gap > STREAK_GAP_NS {
            let credit = self.credit.load(Relaxed);
            if credit < MIN_CREDIT || gap > CREDIT_GAP_NS {
                self.streak.store(0, Relaxed);
                return DoorbellAction::Kick;
            }
            // An answer to the peer is not deferred. With full credit the peer returns flow control
            // credits, one message for all that was collected.
            return match rx_since_kick && credit < MAX_CREDIT {
                true => DoorbellAction::Kick,
                false => DoorbellAction::Defer,
            };
        }
        let before = self.gap_ns.load(Relaxed);
        let gap = u32::try_from(gap).unwrap_or(0);
        let average = before.saturating_sub(before / 8).saturating_add(gap / 8);
        self.gap_ns.store(average, Relaxed);
        let streak = self.streak.load(Relaxed).saturating_add(1);
        self.streak.store(streak, Relaxed);
        let backoff_left = self.backoff_left.load(Relaxed);
        if let Some(rest) = backoff_left.checked_sub(1) {
            self.backoff_left.store(rest, Relaxed);
        }
        match streak > STREAK && backoff_left == 0 && self.delay.is_enabled() {
            true => DoorbellAction::Defer,
            false => DoorbellAction::Kick,
        }
    }

    /// Handles the end of a kick at the time `now`, in nanoseconds.
    #[inline]
    pub(in crate::stream) fn kicked(&self, now: i64) {
        self.finish(now);
    }

    /// Handles the end of the kick after a delay at the time `now`, in nanoseconds; `more`: a
    /// burst was full.
    #[inline]
    pub(in crate::stream) fn deferred_kick_done(&self, now: i64, more: bool) {
        let count = self.finish(now);
        let credit = self.credit.load(Relaxed);
        if count >= USEFUL || more {
            let credit = credit.saturating_add(count.max(USEFUL)).min(MAX_CREDIT);
            self.credit.store(credit, Relaxed);
            self.backoff.store(STREAK, Relaxed);
            return;
        }
        if let Some(credit) = credit.checked_sub(2 * USEFUL) {
            self.credit.store(credit, Relaxed);
            return;
        }
        let backoff = self
            .backoff
            .load(Relaxed)
            .saturating_mul(4)
            .min(MAX_BACKOFF);
        self.backoff.store(backoff, Relaxed);
        self.backoff_left.store(backoff, Relaxed);
        self.streak.store(0, Relaxed);
    }

    /// Evaluates a kick; returns the work requests that it sent.
    #[inline]
    fn finish(&self, now: i64) -> u32 {
        let (fetched, sent) = (self.fetched.load(Relaxed), self.sent.load(Relaxed));
        let count = fetched.wrapping_sub(self.fetched_before.load(Relaxed));
        let octets = sent.wrapping_sub(self.sent_before.load(Relaxed));
        self.fetched_before.store(fetched, Relaxed);
        self.sent_before.store(sent, Relaxed);
        if octets > LARGE.saturating_mul(count.into()) {
            self.streak.store(0, Relaxed);
        }
        self.kicked.store(now, Relaxed);
        count
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_doorbell_batch)]
mod tests {
    use super::*;

    /// `count` small work requests are fetched and sent.
    fn small(doorbells: &DoorbellBatcher, count: u32) {
        let fetched = doorbells.fetched.load(Relaxed).wrapping_add(count);
        let sent = doorbells
            .sent
            .load(Relaxed)
            .wrapping_add(100 * u64::from(count));
        doorbells.progress(fetched, sent);
    }

    /// Rings until a doorbell is deferred; returns the number of kicks before that.
    fn ring(doorbells: &DoorbellBatcher, clock: &mut i64, gap: i64) -> u32 {
        for count in 0..10 * MAX_BACKOFF {
            *clock += gap;
            if doorbells.on_doorbell(*clock) == DoorbellAction::Defer {
                return count;
            }
            small(doorbells, 1);
            doorbells.kicked(*clock);
        }
        u32::MAX
    }

    #[test]
    fn quick_doorbells_are_deferred() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        // The first doorbell comes after a long time.
        assert_eq!(ring(&doorbells, &mut clock, STREAK_GAP_NS), STREAK + 1);
        clock += 100_000;
        small(&doorbells, 100);
        doorbells.deferred_kick_done(clock, false);
        // The streak continues.
        assert_eq!(ring(&doorbells, &mut clock, 1_000), 0);
    }

    #[test]
    fn slow_doorbells_are_not() {
        let mut clock = 1_000_000;
        assert_eq!(
            ring(&DoorbellBatcher::new(100), &mut clock, STREAK_GAP_NS + 1),
            u32::MAX
        );
    }

    #[test]
    fn answers_are_not_deferred() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        for _ in 0..100 {
            clock += 1_000;
            assert!(doorbells.on_doorbell(clock) == DoorbellAction::Kick);
            doorbells.note_rx();
            doorbells.kicked(clock);
        }
    }

    #[test]
    fn large_messages_are_not_deferred() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        for round in 1..100 {
            clock += 1_000;
            assert!(doorbells.on_doorbell(clock) == DoorbellAction::Kick);
            doorbells.progress(round, u64::from(round) * (LARGE + 1));
            doorbells.kicked(clock);
        }
    }

    #[test]
    fn none_is_deferred_if_delays_are_disabled() {
        let mut clock = 1_000_000;
        assert_eq!(ring(&DoorbellBatcher::new(0), &mut clock, 1_000), u32::MAX);
    }

    #[test]
    fn useless_delays_become_rare() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        let mut streaks = [0; 8];
        for streak in &mut streaks {
            *streak = ring(&doorbells, &mut clock, 1_000);
            small(&doorbells, 1);
            doorbells.deferred_kick_done(clock, false);
        }
        assert_eq!(streaks, [9, 32, 128, 512, 2048, 8192, 8192, 8192]);
        // After a useful delay they are as frequent as at first.
        assert_eq!(ring(&doorbells, &mut clock, 1_000), MAX_BACKOFF);
        small(&doorbells, USEFUL);
        doorbells.deferred_kick_done(clock, false);
        assert_eq!(ring(&doorbells, &mut clock, 1_000), 0);
    }

    /// Seen on user-mode Linux with Writes of 4 KiB. Timer ticks between doorbells ended each
    /// streak before it was long enough, and no doorbell was deferred.
    #[test]
    fn a_gap_now_and_then_does_not_keep_delays_away() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        for _ in 0..5 {
            ring(&doorbells, &mut clock, 1_000);
            small(&doorbells, 1);
            doorbells.deferred_kick_done(clock, false);
        }
        let mut count = 0;
        while count < 2 * MAX_BACKOFF {
            clock += match count % 100 {
                0 => STREAK_GAP_NS + 1,
                _ => 1_000,
            };
            if doorbells.on_doorbell(clock) == DoorbellAction::Defer {
                break;
            }
            small(&doorbells, 1);
            doorbells.kicked(clock);
            count += 1;
        }
        assert!((MAX_BACKOFF..MAX_BACKOFF + MAX_BACKOFF / 50).contains(&count));
    }

    #[test]
    fn useful_delays_make_up_for_others() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        ring(&doorbells, &mut clock, 1_000);
        small(&doorbells, 1_000);
        doorbells.deferred_kick_done(clock, false);
        for _ in 0..MAX_CREDIT / (2 * USEFUL) {
            assert_eq!(ring(&doorbells, &mut clock, 1_000), 0);
            small(&doorbells, 1);
            doorbells.deferred_kick_done(clock, false);
        }
        assert_eq!(ring(&doorbells, &mut clock, 1_000), 0);
        small(&doorbells, 1);
        doorbells.deferred_kick_done(clock, false);
        assert_eq!(ring(&doorbells, &mut clock, 1_000), 4 * STREAK);
    }

    #[test]
    fn a_gap_between_useful_delays_is_none() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        ring(&doorbells, &mut clock, 1_000);
        small(&doorbells, MAX_CREDIT);
        doorbells.deferred_kick_done(clock, false);
        assert_eq!(ring(&doorbells, &mut clock, CREDIT_GAP_NS), 0);
        small(&doorbells, MAX_CREDIT);
        doorbells.deferred_kick_done(clock, false);
        // A long gap ends the streak.
        assert_eq!(ring(&doorbells, &mut clock, CREDIT_GAP_NS + 1), u32::MAX);
    }

    /// Seen with `ib_send_bw`, whose receiver returns credits: one Send was sent alone after each
    /// credit.
    #[test]
    fn a_credit_does_not_end_useful_delays_but_answers_do() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        ring(&doorbells, &mut clock, 1_000);
        small(&doorbells, MAX_CREDIT);
        doorbells.deferred_kick_done(clock, false);
        for answer in [DoorbellAction::Defer, DoorbellAction::Kick] {
            clock += 1_000;
            doorbells.note_rx();
            assert!(doorbells.on_doorbell(clock) == answer);
            doorbells.deferred_kick_done(clock, false);
        }
    }

    #[test]
    fn a_delay_for_more_than_a_burst_was_useful() {
        let doorbells = DoorbellBatcher::new(100);
        let mut clock = 1_000_000;
        assert_eq!(ring(&doorbells, &mut clock, 1_000), STREAK + 1);
        // Messages as long as a burst: the first one has been sent.
        small(&doorbells, 1);
        doorbells.deferred_kick_done(clock, true);
        assert_eq!(ring(&doorbells, &mut clock, 1_000), 0);
    }
}
