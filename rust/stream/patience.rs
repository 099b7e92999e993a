// SPDX-License-Identifier: GPL-2.0

//! The limit for a peer that does not answer while it owes acknowledgments, where TCP has no limit.
//!
//! `TCP_USER_TIMEOUT` (RFC 5482) also ends a connection whose peer answers every probe of its
//! closed window. A queue pair with an `rnr_retry` of 7 waits for such a peer without end, so TCP
//! is given no limit. Instead, while something is unacknowledged, a work item checks whether the
//! peer answers at all. TCP probes a closed window ever more rarely: a peer that is not asked need
//! not answer. The state belongs to the holder of the socket.

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

/// Checks within one limit: the connection ends at most two looks late.
const LOOKS: u32 = 4;

/// Milliseconds between two looks, at most.
const LONGEST_LOOK_MS: u32 = 10_000;

/// How long the peer may be silent.
#[derive(Default)]
pub(super) struct Patience {
    /// Milliseconds; 0: this is left to TCP.
    limit_ms: u32,
    /// The work item is queued, or about to be.
    armed: bool,
    /// Milliseconds for which consecutive checks have found no answer.
    silent_ms: u32,
}

impl Patience {
    /// Sets the limit.
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

    /// Milliseconds between two looks.
    fn look_ms(&self) -> u32 {
        (self.limit_ms / LOOKS).clamp(1, LONGEST_LOOK_MS)
    }

    /// A look at a peer that was heard `heard_ms` ago, and owes an answer or not: whether it has been
    /// silent for too long. What it owes may have been sent just before the first such look.
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
    /// Checks whether the peer is silent for too long.
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
