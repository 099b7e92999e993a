// SPDX-License-Identifier: GPL-2.0

//! Has a responder look again at what it was sent.
//!
//! siw does not look at octets that arrive between its Reply and its taking the socket over, until
//! more come: an initiator that asks at once, and then waits for the answer, would wait for good.
//! One whose peer has said nothing yet therefore repeats the Write without payload that its stream
//! began with, a few times. Of such a Write neither STag nor offset is looked at (RFC 5041 section
//! 5.2), it places nothing, and it ends no work request on either side: it is harmless at any time,
//! and unnoticed by any other peer.

/// Milliseconds from the start of the stream to the first nudge, and from each to the next.
const WAITS_MS: [u32; 3] = [500, 1_000, 2_000];

/// What is left of the nudges of a stream.
pub(super) struct Nudges {
    /// The peer has sent something: it looks.
    heard: bool,
    /// The waits that are not over.
    left: &'static [u32],
}

impl Nudges {
    /// For an initiator that has `heard` its peer, or not yet.
    pub(super) fn new(heard: bool) -> Self {
        Self {
            heard,
            left: &WAITS_MS,
        }
    }

    /// For a stream that does not nudge: a responder does not send first.
    pub(super) fn none() -> Self {
        Self {
            heard: true,
            left: &[],
        }
    }

    /// The peer has sent something.
    #[inline]
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Milliseconds until the next nudge may be due, if there is one.
    pub(super) fn next(&self) -> Option<u32> {
        match self.heard {
            true => None,
            false => self.left.first().copied(),
        }
    }

    /// The wait is over; whether it ends with a nudge. One whose user has `asked` for nothing may
    /// well hear nothing, and what it sends later arrives at a peer that looks.
    pub(super) fn due(&mut self, asked: bool) -> bool {
        match self.left.split_first() {
            Some((_, left)) if asked && !self.heard => {
                self.left = left;
                true
            }
            _ => {
                self.left = &[];
                false
            }
        }
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_nudge)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_nudged_a_few_times() {
        let mut nudges = Nudges::new(false);
        for wait in WAITS_MS {
            assert_eq!(nudges.next(), Some(wait));
            assert!(nudges.due(true));
        }
        assert_eq!(nudges.next(), None);
        assert!(!nudges.due(true));
    }

    #[test]
    fn a_peer_that_was_heard_is_not() {
        let mut nudges = Nudges::new(false);
        assert!(nudges.due(true));
        nudges.heard();
        assert_eq!(nudges.next(), None);
        assert!(!nudges.due(true));
        assert_eq!(Nudges::new(true).next(), None);
        assert_eq!(Nudges::none().next(), None);
    }

    #[test]
    fn who_has_asked_nothing_does_not_nudge() {
        let mut nudges = Nudges::new(false);
        assert!(!nudges.due(false));
        assert_eq!(nudges.next(), None);
    }
}
