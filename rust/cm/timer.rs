// SPDX-License-Identifier: GPL-2.0

//! How long a step of the start-up may take (requirements.md MPA-80).
//!
//! The work item that wakes an endpoint may fire late, or for a step that is over; what counts is
//! the clock.

use kernel::{
    prelude::*,
    time::{
        msecs_to_jiffies,
        Instant,
        Jiffies,
        Monotonic, //
    }, //
};

/// A limit of time.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    /// When it began.
    since: Instant<Monotonic>,
    /// How long it is.
    millis: u32,
}

impl Limit {
    /// A limit for what begins now.
    pub(crate) fn new(millis: u32) -> Self {
        Self {
            since: Instant::now(),
            millis,
        }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining() == 0
    }

    /// Milliseconds until it is over.
    pub(crate) fn remaining(&self) -> u32 {
        let gone = u32::try_from(self.since.elapsed().as_millis()).unwrap_or(u32::MAX);
        self.millis.saturating_sub(gone)
    }
}

/// The limit of the step that is under way, if it has one.
pub(crate) struct Timer {
    /// The limit.
    limit: Option<Limit>,
    /// The limit was set since the last call of [`wake`](Self::wake).
    changed: bool,
}

impl Timer {
    /// No limit.
    pub(crate) const fn new() -> Self {
        Self {
            limit: None,
            changed: false,
        }
    }

    /// Limits what begins now.
    pub(crate) fn set(&mut self, millis: u32) {
        self.limit = Some(Limit::new(millis));
        self.changed = true;
    }

    /// What goes on now has no limit.
    pub(crate) fn clear(&mut self) {
        self.limit = None;
    }

    /// Whether the limit is over.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining() == Some(0)
    }

    /// When to look again, if that is not arranged for: after this long.
    ///
    /// `fired`: what was arranged for has come.
    pub(crate) fn wake(&mut self, fired: bool) -> Option<Jiffies> {
        let arrange = core::mem::take(&mut self.changed) || fired;
        let millis = self.remaining().filter(|_| arrange)?;
        // Not before it is over, or it would be looked at in vain.
        Some(msecs_to_jiffies(millis).saturating_add(1))
    }

    /// Milliseconds until the limit is over.
    fn remaining(&self) -> Option<u32> {
        self.limit.as_ref().map(Limit::remaining)
    }
}

#[kunit_tests(rsiw_cm_timer)]
mod tests {
    use super::*;
    use kernel::time::{
        delay::fsleep,
        Delta, //
    };

    #[test]
    fn is_arranged_for_once() {
        let mut timer = Timer::new();
        assert!(!timer.is_over());
        assert!(timer.wake(true).is_none());
        timer.set(60_000);
        assert!(timer
            .wake(false)
            .is_some_and(|wake| wake > msecs_to_jiffies(50_000)));
        assert!(timer.wake(false).is_none());
        // Fired early: once more.
        assert!(timer.wake(true).is_some());
        assert!(!timer.is_over());
        timer.clear();
        assert!(timer.wake(true).is_none());
    }

    #[test]
    fn ends() {
        let mut timer = Timer::new();
        timer.set(5);
        fsleep(Delta::from_millis(6));
        assert!(timer.is_over());
        timer.set(60_000);
        assert!(!timer.is_over());
    }
}
