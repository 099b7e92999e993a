// SPDX-License-Identifier: GPL-2.0

//! Counters of a device: what `rdma statistic` shows.
//!
//! For what does not happen for every segment; atomic, so that any context may count.

use kernel::{
    str::CStr,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Defines the counters, their names and their number.
macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($(#[$meta])* $name,)*
        }

        impl Counter {
            /// How many there are.
            const COUNT: usize = [$(Self::$name),*].len();
        }

        /// Their names, in the same order.
        pub(crate) const NAMES: &[&CStr] = &[$($text),*];
    };
}

counters! {
    /// Connections that this end has asked for and got.
    Connects = c"connects",
    /// Connections that this end has granted.
    Accepts = c"accepts",
    /// Attempts that did not become a connection.
    Rejects = c"connect_failures",
    /// Streams that ended without fault.
    Closes = c"closes",
    /// Streams that broke.
    Aborts = c"aborts",
    /// Terminate messages sent.
    TerminateTx = c"terminate_tx",
    /// Terminate messages received.
    TerminateRx = c"terminate_rx",
    /// FPDUs with a wrong CRC.
    CrcErrors = c"crc_errors",
    /// Accesses by a peer that its rights did not cover.
    AccessErrors = c"access_errors",
    /// FPDUs received.
    RxFpdus = c"rx_fpdus",
    /// Their octets, framing included.
    RxOctets = c"rx_octets",
    /// FPDUs sent.
    TxFpdus = c"tx_fpdus",
    /// Their octets, framing included.
    TxOctets = c"tx_octets",
    /// Completions that found no room.
    CqOverflows = c"cq_overflows",
    /// Sends that found no receive posted, and were held.
    RnrHolds = c"rnr_holds",
    /// Microseconds for which they were held.
    RnrHeldUs = c"rnr_held_us",
    /// Of them those that ended a stream, as no receive was posted in time.
    RnrTimeouts = c"rnr_timeouts",
}

/// The counters of a device.
pub(crate) struct Counters([Atomic<u64>; Counter::COUNT]);

impl Counters {
    /// All zero.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; Counter::COUNT])
    }

    /// Adds to a counter. Any context.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        if let Some(value) = self.0.get(counter as usize) {
            value.add(n, Relaxed);
        }
    }

    /// The value of counter number `index`.
    pub(crate) fn read(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |value| value.load(Relaxed))
    }
}
