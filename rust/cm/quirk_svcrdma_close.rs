// SPDX-License-Identifier: GPL-2.0

//! Workaround for `svcrdma`: a listener holds requests back after its user closes a connection.
//!
//! A kernel server that shuts down closes its connections before its listeners. `svcrdma` then
//! frees the listener and leaks requests that wait in it
//! (net/sunrpc/xprtrdma/svc_rdma_transport.c, `sc_accept_q`): the device could never be removed. A
//! client that reconnects between the two closes makes such a request, at each restart of an NFS
//! server. Delayed requests end with the listener; if the listener stays open, they are only late.
//!
//! The server tears the connection down between the two closes, with a hundred memory regions and
//! more. A slow machine needs seconds for that. So requests are held back until the queue pair is
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

/// The maximum time for which the end of a queue pair whose connection was closed is awaited, in
/// milliseconds. The owner keeps a queue pair that exists after that time.
const MAX_TEARDOWN_MS: i64 = 10_000;

/// The maximum time for which a request is held back, in milliseconds, for any number of closes.
/// Some peers time out after 5 seconds.
const MAX_DELAY_MS: i64 = 4000;

/// The recent closes of the user, which decide whether requests are held back.
pub(super) struct SvcrdmaClose {
    /// The last close, or end of a queue pair whose connection was closed.
    last: Option<Instant<Monotonic>>,
    /// The number of queue pairs whose connections were closed, and that are not destroyed yet.
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

    /// Handles the close of a connection by the user.
    pub(super) fn closed(&mut self) {
        self.left = self.left.saturating_add(1);
        self.last = Some(Instant::now());
    }

    /// Handles the destruction of the queue pair of a connection that the user had closed.
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

/// Whether to hold back a request while `left` queue pairs are not destroyed. `since` and `came`
/// are the milliseconds since the last step of a close, and since the peer connected.
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
        // Closes follow each other without end.
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
