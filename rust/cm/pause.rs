// SPDX-License-Identifier: GPL-2.0

//! The pause of a listener whose user closes connections.
//!
//! A server of the kernel that goes closes its connections first and its listeners a little later.
//! A client that connects again in between is a request that nobody decides on: `svcrdma` frees
//! the listener and forgets what waits in it (net/sunrpc/xprtrdma/svc_rdma_transport.c,
//! `sc_accept_q`), so that the request stays for good and the device can never be removed. Each
//! restart of an NFS server under a busy client does that, on any device that is fast. Hence
//! requests are held back for a moment, and go when the listener does; if it stays, they are late.
//!
//! How long the moment lasts is up to the server. Between close and the end of the listener it
//! takes the connection apart, a hundred memory regions and more, and a slow machine needs seconds
//! for that. So the moment lasts until the queue pair is gone, and a little longer.

use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Milliseconds for which requests are held back after a close, and after the end of a queue pair
/// whose connection was closed: many times what a server needs for its next step.
const PAUSE_MS: i64 = 1000;

/// Milliseconds after which a queue pair whose connection was closed is not waited for any more: its
/// owner is not on his way.
const LEFT_MS: i64 = 10_000;

/// Milliseconds for which a request is held back at most, however many closes there are; peers are
/// known to give up after 5 seconds.
const MOST_MS: i64 = 4000;

/// Whether requests are held back.
pub(super) struct Pause {
    /// The last close, or end of a queue pair whose connection was closed.
    last: Option<Instant<Monotonic>>,
    /// Queue pairs whose connections were closed, and that are still there.
    left: u32,
}

impl Pause {
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

/// Whether to hold back a request while so many queue pairs are left, milliseconds after the last
/// step of a close and after the peer came.
fn is_too_soon(left: u32, since: i64, came: i64) -> bool {
    let limit = if left > 0 { LEFT_MS } else { PAUSE_MS };
    since < limit && came < MOST_MS
}

#[kunit_tests(rsiw_cm_pause)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_a_close() {
        let mut pause = Pause::new();
        assert!(!pause.holds(Instant::now()));
        pause.closed();
        assert!(pause.holds(Instant::now()));
        pause.destroyed();
        assert!(pause.holds(Instant::now()));
        assert_eq!(pause.left, 0);
    }

    #[test]
    fn ends() {
        assert!(is_too_soon(0, PAUSE_MS - 1, 0));
        assert!(!is_too_soon(0, PAUSE_MS, 0));
        // Closes go on and on.
        assert!(is_too_soon(0, 0, MOST_MS - 1));
        assert!(!is_too_soon(0, 0, MOST_MS));
    }

    /// A server on a slow machine takes two seconds from the close to the end of the queue pair.
    #[test]
    fn follows_the_user() {
        assert!(is_too_soon(1, 2000, 2000));
        assert!(!is_too_soon(1, LEFT_MS, 0));
        assert!(!is_too_soon(1, 2000, MOST_MS));
    }
}
