// SPDX-License-Identifier: GPL-2.0

//! A workaround for siw responders that miss FPDUs before their takeover of the socket.
//!
//! siw does not process octets that arrive between its Reply and its takeover of the socket,
//! until further octets arrive. An initiator that sends a request at once, and waits for the
//! answer, would wait forever. An initiator that has sent a message, and received none, therefore
//! repeats an RTR frame: an RDMA Write without payload. The peer does not check STag and offset
//! of such a Write (RFC 5041 section 5.2). The Write places nothing, and completes no work
//! request at either end, so it has no effect at other peers.

/// Milliseconds from the start of the stream to the first repetition, and from each to the next.
const WAITS_MS: [u32; 3] = [500, 1_000, 2_000];

/// The repetitions of a stream. The socket lock guards them.
pub(super) struct SiwTakeover {
    /// Octets of the peer have arrived: the takeover is done.
    heard: bool,
    /// The remaining waits, in milliseconds.
    left: &'static [u32],
}

impl SiwTakeover {
    /// The state of an initiator; `heard`: octets of the peer have arrived already.
    pub(super) fn new(heard: bool) -> Self {
        Self {
            heard,
            left: &WAITS_MS,
        }
    }

    /// The state of a responder, which does not send first and repeats nothing.
    pub(super) fn none() -> Self {
        Self {
            heard: true,
            left: &[],
        }
    }

    /// Notes that octets of the peer have arrived.
    #[inline]
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Milliseconds until the next repetition may be due, if there is one.
    pub(super) fn next(&self) -> Option<u32> {
        match self.heard {
            true => None,
            false => self.left.first().copied(),
        }
    }

    /// Handles the end of a wait. Returns whether the Write is repeated. `asked`: this end has
    /// sent a message. Without one the peer has nothing to answer, and a later message arrives
    /// after the takeover.
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

#[kernel::macros::kunit_tests(rsiw_stream_siw_takeover)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_answered_a_few_times() {
        let mut siw_takeover = SiwTakeover::new(false);
        for wait in WAITS_MS {
            assert_eq!(siw_takeover.next(), Some(wait));
            assert!(siw_takeover.due(true));
        }
        assert_eq!(siw_takeover.next(), None);
        assert!(!siw_takeover.due(true));
    }

    #[test]
    fn a_peer_that_was_heard_is_not() {
        let mut siw_takeover = SiwTakeover::new(false);
        assert!(siw_takeover.due(true));
        siw_takeover.heard();
        assert_eq!(siw_takeover.next(), None);
        assert!(!siw_takeover.due(true));
        assert_eq!(SiwTakeover::new(true).next(), None);
        assert_eq!(SiwTakeover::none().next(), None);
    }

    #[test]
    fn nothing_is_repeated_without_a_message() {
        let mut siw_takeover = SiwTakeover::new(false);
        assert!(!siw_takeover.due(false));
        assert_eq!(siw_takeover.next(), None);
    }
}
