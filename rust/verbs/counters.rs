// SPDX-License-Identifier: GPL-2.0

//! Counters of a device: what `rdma statistic` shows.
//!
//! For what does not happen for every segment; atomic, so that any context may count.

use kernel::{
    prelude::*,
    str::CStr,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::sys::errno::{
    ECONNREFUSED,
    ECONNRESET,
    EHOSTUNREACH,
    ENETUNREACH,
    EPROTO, //
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

        /// The names of the counters, in the same order.
        pub(crate) const NAMES: &[&CStr] = &[$($text),*];
    };
}

counters! {
    /// Connections that this end has asked for and got.
    Connects = c"connects",
    /// Connections that this end has granted.
    Accepts = c"accepts",
    /// Attempts that did not become a connection, of either side: the sum of the next nine.
    Failures = c"connect_failures",
    /// Of them: the peer's TCP refused, as there is no listener.
    ConnRefused = c"connect_refused",
    /// The peer's user refused, by the Reply.
    ConnRejected = c"connect_rejected",
    /// The peer did not answer in time.
    ConnTimeouts = c"connect_timeouts",
    /// No route to the peer.
    ConnUnreachable = c"connect_unreachable",
    /// The peer closed or reset the connection during its set-up.
    ConnResets = c"connect_resets",
    /// The peer's start-up frame was malformed, or asked for what this end does not do.
    ConnProtocol = c"connect_protocol_errors",
    /// This end failed: memory, the queue pair, the interface.
    ConnLocal = c"connect_local_errors",
    /// Requests that this end refused.
    RejectsSent = c"rejects_sent",
    /// Requests that this end accepted, and that failed then.
    AcceptFailures = c"accept_failures",
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
    /// Octets of received FPDUs, framing included.
    RxOctets = c"rx_octets",
    /// FPDUs sent.
    TxFpdus = c"tx_fpdus",
    /// Octets of sent FPDUs, framing included.
    TxOctets = c"tx_octets",
    /// Send messages received, also those with Invalidate.
    RxSends = c"rx_sends",
    /// RDMA Write messages received, but those of no octets.
    RxWrites = c"rx_writes",
    /// RDMA Read Requests received.
    RxReadRequests = c"rx_read_requests",
    /// Send work requests carried out.
    TxSends = c"tx_sends",
    /// Write work requests carried out.
    TxWrites = c"tx_writes",
    /// Read work requests carried out.
    TxReads = c"tx_reads",
    /// Segments that TCP sent again, of streams that have ended and of those that run.
    TcpRetransmits = c"tcp_retransmits",
    /// Completions that found no room.
    CqOverflows = c"cq_overflows",
    /// Sends that found no receive posted, and were held.
    RnrHolds = c"rnr_holds",
    /// Microseconds for which they were held.
    RnrHeldUs = c"rnr_held_us",
    /// Of them those that ended a stream, as no receive was posted in time.
    RnrTimeouts = c"rnr_timeouts",
}

/// Why an attempt did not become a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnFailure {
    /// The failure that an error of TCP, or of this end, stands for.
    Error(Error),
    /// The peer's user refused, by the Reply.
    Rejected,
    /// This end refused.
    RejectSent,
    /// A connection that this end accepted was lost before it was established.
    Accept,
}

impl ConnFailure {
    /// What is counted for it.
    fn counter(self) -> Counter {
        match self {
            Self::Error(error) if error == ECONNREFUSED => Counter::ConnRefused,
            Self::Error(error) if error == ETIMEDOUT => Counter::ConnTimeouts,
            Self::Error(error) if error == EHOSTUNREACH || error == ENETUNREACH => {
                Counter::ConnUnreachable
            }
            Self::Error(error) if error == ECONNRESET || error == EPIPE => Counter::ConnResets,
            Self::Error(error) if error == EPROTO => Counter::ConnProtocol,
            Self::Error(_) => Counter::ConnLocal,
            Self::Rejected => Counter::ConnRejected,
            Self::RejectSent => Counter::RejectsSent,
            Self::Accept => Counter::AcceptFailures,
        }
    }
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

    /// Counts an attempt that did not become a connection. Any context.
    pub(crate) fn connection_failed(&self, failure: ConnFailure) {
        self.add(Counter::Failures, 1);
        self.add(failure.counter(), 1);
    }

    /// The value of counter number `index`.
    pub(crate) fn read(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |value| value.load(Relaxed))
    }
}
