// SPDX-License-Identifier: GPL-2.0

//! Time limits of the steps of the start-up (requirements.md MPA-80).
//!
//! The work item that wakes an endpoint may run late, or for an earlier step. So it compares the
//! time limit with the clock.

use kernel::{
    prelude::*,
    time::{
        msecs_to_jiffies,
        Instant,
        Jiffies,
        Monotonic, //
    }, //
};

/// A time limit.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    /// The start of the limit.
    since: Instant<Monotonic>,
    /// The length in milliseconds.
    millis: u32,
}

impl Limit {
    /// A limit that begins now.
    pub(crate) fn new(millis: u32) -> Self {
        Self {
            since: Instant::now(),
            millis,
        }
    }

    /// Whether the limit is over.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining() == 0
    }

    /// Milliseconds until the limit is over.
    pub(crate) fn remaining(&self) -> u32 {
        let gone = u32::try_from(self.since.elapsed().as_millis()).unwrap_or(u32::MAX);
        self.millis.saturating_sub(gone)
    }
}

/// The time limit of the current step, if any.
pub(crate) struct Timer {
    limit: Option<Limit>,
    /// The limit was set since the last call of [`wake`](Self::wake).
    changed: bool,
}

impl Timer {
    /// Makes a timer without a limit.
    pub(crate) const fn new() -> Self {
        Self {
            limit: None,
            changed: false,
        }
    }

    /// Sets the limit of a step that begins now.
    pub(crate) fn set(&mut self, millis: u32) {
        self.limit = Some(Limit::new(millis));
        self.changed = true;
    }

    /// Removes the limit.
    pub(crate) fn clear(&mut self) {
        self.limit = None;
    }

    /// Whether the limit is over.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining() == Some(0)
    }

    /// The delay until the next check of the limit; `None` if that is scheduled already, or
    /// without a limit.
    ///
    /// `fired`: the scheduled check is running.
    pub(crate) fn wake(&mut self, fired: bool) -> Option<Jiffies> {
        let arrange = core::mem::take(&mut self.changed) || fired;
        let millis = self.remaining().filter(|_| arrange)?;
        // One jiffy is added: an early check would find the limit not over.
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
