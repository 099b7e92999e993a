// SPDX-License-Identifier: GPL-2.0

//! What was read and TCP was not told of yet.
//!
//! Told of a run at a time, TCP would acknowledge each run by itself: a packet to make, to carry
//! and to work on at both ends for every 64 KiB, as it leaves. In bulk transfers several runs come
//! in one burst, so TCP is told of all of them at once, at the latest when the softirqs of the burst
//! have run. Small things it is told of as they come: whoever sent them may wait for the
//! acknowledgment, or the room.

/// Octets read at a time from which on more are likely to come in the same burst.
const BULK: usize = 16 << 10;

/// Octets that TCP is not told of, at most, but for those of the last reading: less than four whole
/// runs at MTU 1500, so that the fourth one settles. Little enough to stay in a processor's cache,
/// and not to be missed in the peer's window.
const MOST: usize = 240 << 10;

/// Octets read that TCP still keeps.
#[derive(Default)]
pub(super) struct Unsettled(usize);

impl Unsettled {
    /// How many there are.
    #[inline]
    pub(super) fn octets(&self) -> usize {
        self.0
    }

    /// `taken` more were read; how many TCP is to be told of now. If it is none but there are some,
    /// somebody has to come back when the burst is over, and [`settle`](Self::settle).
    #[inline]
    pub(super) fn read(&mut self, taken: usize) -> usize {
        self.0 = self.0.saturating_add(taken);
        match taken < BULK || self.0 >= MOST {
            true => self.settle(),
            false => 0,
        }
    }

    /// TCP is told of all; how many they are.
    #[inline]
    pub(super) fn settle(&mut self) -> usize {
        core::mem::take(&mut self.0)
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_unsettled)]
mod tests {
    use super::*;

    /// A whole run at MTU 1500.
    const RUN: usize = 45 * 1448;

    #[test]
    fn small_things_are_settled_at_once() {
        let mut unsettled = Unsettled::default();
        for taken in [1, 64, BULK - 1] {
            assert_eq!(unsettled.read(taken), taken);
            assert_eq!(unsettled.octets(), 0);
        }
    }

    #[test]
    fn runs_are_settled_four_at_a_time() {
        let mut unsettled = Unsettled::default();
        for _ in 0..3 {
            for runs in 1..4 {
                assert_eq!(unsettled.read(RUN), 0);
                assert_eq!(unsettled.octets(), runs * RUN);
            }
            assert_eq!(unsettled.read(RUN), 4 * RUN);
        }
    }

    #[test]
    fn what_is_small_settles_what_was_before_it() {
        let mut unsettled = Unsettled::default();
        assert_eq!(unsettled.read(RUN), 0);
        assert_eq!(unsettled.read(0), RUN);
        assert_eq!(unsettled.read(RUN), 0);
        assert_eq!(unsettled.read(100), RUN + 100);
        assert_eq!(unsettled.settle(), 0);
    }

    #[test]
    fn nothing_is_settled_twice() {
        let mut unsettled = Unsettled::default();
        assert_eq!(unsettled.read(RUN), 0);
        assert_eq!(unsettled.settle(), RUN);
        assert_eq!(unsettled.settle(), 0);
        assert_eq!(unsettled.read(MOST), MOST);
    }
}
