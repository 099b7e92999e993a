// SPDX-License-Identifier: GPL-2.0

//! Workaround for `svcrdma`: a listener holds requests back after its user closes a connection.
//!
//! A kernel server that shuts down closes its connections before its listeners. `svcrdma` then frees
//! the listener and leaks requests that wait in it (net/sunrpc/xprtrdma/svc_rdma_transport.c,
//! `sc_accept_q`): the device could never be removed. A client that reconnects in between makes such
//! a request, at each restart of an NFS server. Requests that are held back end with the listener; if
//! the listener stays, they are only late.
//!
//! The server tears the connection down between the two closes, a hundred memory regions and more.
//! A slow machine needs seconds for that. So requests are held back until the queue pair is
//! destroyed, and [`HOLD_BACK_MS`] longer. The listener's lock protects the state.

use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Milliseconds for which requests are held back after a close, and after the end of a queue pair
/// whose connection was closed. A server needs a small part of that for its next step.
const HOLD_BACK_MS: i64 = 1000;

/// Milliseconds after which a queue pair whose connection was closed is not waited for any more: its
/// owner keeps it.
const MAX_TEARDOWN_MS: i64 = 10_000;

/// Milliseconds for which a request is held back at most, however many closes there are; peers are
/// known to give up after 5 seconds.
const MAX_DELAY_MS: i64 = 4000;

/// Whether requests are held back.
pub(super) struct SvcrdmaClose {
    /// The last close, or end of a queue pair whose connection was closed.
    last: Option<Instant<Monotonic>>,
    /// Queue pairs whose connections were closed, and that are still there.
    left: u32,
}

impl SvcrdmaClose {
    /// No close yet.
    pub(super) const fn new() -> Self {
        Self {
            last: None,
            left: 0,
        }
    }

    /// The user has closed a connection.
    pub(super) fn closed(&mut self) {
        self.left = self.left.saturating_add(1);
        self.last = Some(Instant::now());
    }

    /// The user has destroyed the queue pair of a connection that it had closed.
    pub(super) fn destroyed(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.last = Some(Instant::now());
    }

    /// Whether to hold back the request of a peer that connected at `came`.
    pub(super) fn holds(&self, came: Instant<Monotonic>) -> bool {
        self.last.is_some_and(|last| {
            let since = last.elapsed().as_millis();
            is_too_soon(self.left, since, came.elapsed().as_millis())
        })
    }
}

/// Whether to hold back a request while `left` queue pairs are left. `since` and `came` are the
/// milliseconds since the last step of a close, and since the peer connected.
fn is_too_soon(left: u32, since: i64, came: i64) -> bool {
    let limit = if left > 0 {
        MAX_TEARDOWN_MS
    } else {
        HOLD_BACK_MS
    };
    since < limit && came < MAX_DELAY_MS
}

#[kunit_tests(rsiw_cm_svcrdma_close)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_a_close() {
        let mut close = SvcrdmaClose::new();
        assert!(!close.holds(Instant::now()));
        close.closed();
        assert!(close.holds(Instant::now()));
        close.destroyed();
        assert!(close.holds(Instant::now()));
        assert_eq!(close.left, 0);
    }

    #[test]
    fn ends() {
        assert!(is_too_soon(0, HOLD_BACK_MS - 1, 0));
        assert!(!is_too_soon(0, HOLD_BACK_MS, 0));
        // Closes go on and on.
        assert!(is_too_soon(0, 0, MAX_DELAY_MS - 1));
        assert!(!is_too_soon(0, 0, MAX_DELAY_MS));
    }

    /// A server on a slow machine takes two seconds from the close to the end of the queue pair.
    #[test]
    fn follows_the_user() {
        assert!(is_too_soon(1, 2000, 2000));
        assert!(!is_too_soon(1, MAX_TEARDOWN_MS, 0));
        assert!(!is_too_soon(1, 2000, MAX_DELAY_MS));
    }
}
