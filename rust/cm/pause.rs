// SPDX-License-Identifier: GPL-2.0

//! The pause of a listener whose user closes connections.
//!
//! A server of the kernel that goes closes its connections first and its listeners a little later.
//! A client that connects again in between is a request that nobody decides on: `svcrdma` frees
//! the listener and forgets what waits in it (net/sunrpc/xprtrdma/svc_rdma_transport.c,
//! `sc_accept_q`), so that the request stays for good and the device can never be removed. Each
//! restart of an NFS server under a busy client does that, on any device that is fast. Hence
//! requests are held back for a moment, and go when the listener does; if it stays, they are late.

use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Milliseconds after a close for which requests are held back: many times what a server needs
/// until its listener goes.
const PAUSE_MS: i64 = 1000;

/// Milliseconds for which a request is held back at most, however many closes there are; peers are
/// known to give up after 5 seconds.
const MOST_MS: i64 = 3000;

/// Whether requests are held back.
pub(super) struct Pause {
    /// The last close.
    closed: Option<Instant<Monotonic>>,
}

impl Pause {
    /// No close yet.
    pub(super) const fn new() -> Self {
        Self { closed: None }
    }

    /// The user has closed a connection.
    pub(super) fn begin(&mut self) {
        self.closed = Some(Instant::now());
    }

    /// Whether to hold back the request of a peer that connected at `came`.
    pub(super) fn holds(&self, came: Instant<Monotonic>) -> bool {
        self.closed.is_some_and(|closed| {
            is_too_soon(closed.elapsed().as_millis(), came.elapsed().as_millis())
        })
    }
}

/// Whether to hold back a request, milliseconds after the last close and after the peer came.
fn is_too_soon(closed: i64, came: i64) -> bool {
    closed < PAUSE_MS && came < MOST_MS
}

#[kunit_tests(rsiw_cm_pause)]
mod tests {
    use super::*;

    #[test]
    fn begins_with_a_close() {
        let mut pause = Pause::new();
        assert!(!pause.holds(Instant::now()));
        pause.begin();
        assert!(pause.holds(Instant::now()));
    }

    #[test]
    fn ends() {
        assert!(is_too_soon(PAUSE_MS - 1, 0));
        assert!(!is_too_soon(PAUSE_MS, 0));
        // Closes go on and on.
        assert!(is_too_soon(0, MOST_MS - 1));
        assert!(!is_too_soon(0, MOST_MS));
    }
}
