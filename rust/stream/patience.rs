// SPDX-License-Identifier: GPL-2.0

//! The time limit for a peer that does not answer, for connections without a TCP user timeout.
//!
//! `TCP_USER_TIMEOUT` (RFC 5482) also ends a connection whose peer answers every probe of its
//! closed window. A queue pair with an `rnr_retry` of 7 waits for such a peer without limit, so
//! it sets no TCP user timeout. Instead, while octets are unacknowledged, a work item checks
//! whether the peer answers at all. TCP probes a closed window at growing intervals, and between
//! probes no answer is due. The socket lock guards the state.

use super::{
    batch::{
        Batch, //
        StreamPhase,
    },
    EndReason, //
};
use crate::sys::{
    errno::ETIMEDOUT,
    net::socket::Locked, //
};

/// The number of checks within the limit. The connection ends at most two check intervals late.
const LOOKS: u32 = 4;

/// The longest check interval in milliseconds.
const LONGEST_LOOK_MS: u32 = 10_000;

/// The time for which the peer may be silent.
#[derive(Default)]
pub(super) struct Patience {
    /// The limit in milliseconds; 0: only the limits of TCP apply.
    limit_ms: u32,
    /// The work item is queued, or about to be.
    armed: bool,
    /// Milliseconds for which consecutive checks have found no answer.
    silent_ms: u32,
}

impl Patience {
    /// Sets the limit in milliseconds; 0: only the limits of TCP apply.
    pub(super) fn set(&mut self, limit_ms: u32) {
        self.limit_ms = limit_ms;
    }

    /// Notes that something was sent. Returns the milliseconds until the first check, if one is
    /// due.
    #[inline]
    pub(super) fn sent(&mut self) -> Option<u32> {
        if self.limit_ms == 0 || self.armed {
            return None;
        }
        self.armed = true;
        self.silent_ms = 0;
        Some(self.look_ms())
    }

    /// The check interval in milliseconds.
    fn look_ms(&self) -> u32 {
        (self.limit_ms / LOOKS).clamp(1, LONGEST_LOOK_MS)
    }

    /// Checks a peer whose last segment arrived `heard_ms` milliseconds ago; `owes`: an answer is
    /// due. Returns whether the peer has been silent for too long. One more interval passes
    /// before that: the unanswered data may have been sent just before the first check.
    fn is_over(&mut self, heard_ms: u32, owes: bool) -> bool {
        let look_ms = self.look_ms();
        if !owes || heard_ms < look_ms {
            self.silent_ms = 0;
            return false;
        }
        self.silent_ms = self.silent_ms.saturating_add(look_ms);
        self.silent_ms >= self.limit_ms.saturating_add(look_ms)
    }
}

impl Batch<'_> {
    /// Ends the stream with `ETIMEDOUT` if the peer has been silent for too long, else defers the
    /// next check.
    pub(super) fn watch_peer(&mut self, locked: &mut Locked) {
        let patience = &mut self.proto.patience;
        if self.proto.phase >= StreamPhase::Ended
            || patience.limit_ms == 0
            || locked.write_queues_empty()
        {
            patience.armed = false;
        } else if patience.is_over(locked.silent_ms(), locked.awaits_answer()) {
            self.end(EndReason::LlpError(ETIMEDOUT));
        } else {
            self.ctx.shared.deferred.watch_peer = Some(patience.look_ms());
        }
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_patience)]
mod tests {
    use super::*;

    #[test]
    fn no_look_without_a_limit() {
        let mut patience = Patience::default();
        assert_eq!(patience.sent(), None);
        patience.set(8_000);
        assert_eq!(patience.sent(), Some(2_000));
        assert_eq!(patience.sent(), None);
    }

    #[test]
    fn silence_of_the_whole_limit_is_too_long() {
        let mut patience = Patience::default();
        patience.set(8_000);
        assert!(patience.sent().is_some());
        for _ in 0..4 {
            assert!(!patience.is_over(100_000, true));
        }
        assert!(patience.is_over(100_000, true));
    }

    #[test]
    fn an_answer_or_nothing_to_answer_begins_anew() {
        let mut patience = Patience::default();
        patience.set(8_000);
        assert!(patience.sent().is_some());
        for _ in 0..10 {
            for _ in 0..4 {
                assert!(!patience.is_over(100_000, true));
            }
            assert!(!patience.is_over(100_000, false));
            for _ in 0..4 {
                assert!(!patience.is_over(100_000, true));
            }
            assert!(!patience.is_over(1_999, true));
        }
    }
}
