// SPDX-License-Identifier: GPL-2.0

//! Counters of a device, which `rdma statistic` shows.
//!
//! The counters are atomic: any context may add. The data path adds once a batch, not once a
//! segment.

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
        /// A counter of a device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($(#[$meta])* $name,)*
        }

        impl Counter {
            /// The number of counters.
            const COUNT: usize = [$(Self::$name),*].len();
        }

        /// The names of the counters, in the same order.
        pub(crate) const NAMES: &[&CStr] = &[$($text),*];
    };
}

counters! {
    /// Connections established by this end's connect request.
    Connects = c"connects",
    /// Connections established by this end's accept.
    Accepts = c"accepts",
    /// Failed connection attempts of either side: the sum of the next nine counters.
    Failures = c"connect_failures",
    /// Attempts that failed with `ECONNREFUSED`: the peer has no listener.
    ConnRefused = c"connect_refused",
    /// The peer's user refused, by the MPA Reply frame.
    ConnRejected = c"connect_rejected",
    /// The peer did not answer in time.
    ConnTimeouts = c"connect_timeouts",
    /// No route to the peer.
    ConnUnreachable = c"connect_unreachable",
    /// The peer closed or reset the connection during its set-up.
    ConnResets = c"connect_resets",
    /// The peer's MPA start-up frame was malformed, or requested an unsupported feature.
    ConnProtocol = c"connect_protocol_errors",
    /// This end failed: for example memory, the queue pair or the interface.
    ConnLocal = c"connect_local_errors",
    /// Requests that this end refused.
    RejectsSent = c"rejects_sent",
    /// Requests accepted by this end whose connection failed before it was established.
    AcceptFailures = c"accept_failures",
    /// Streams closed without an error.
    Closes = c"closes",
    /// Streams aborted after an error.
    Aborts = c"aborts",
    /// Terminate messages sent.
    TerminateTx = c"terminate_tx",
    /// Terminate messages received.
    TerminateRx = c"terminate_rx",
    /// FPDUs with a wrong CRC.
    CrcErrors = c"crc_errors",
    /// Streams ended because the access check of a peer's access failed.
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
    /// RDMA Write messages received that carried at least one octet.
    RxWrites = c"rx_writes",
    /// RDMA Read Requests received.
    RxReadRequests = c"rx_read_requests",
    /// Send work requests executed.
    TxSends = c"tx_sends",
    /// RDMA Write work requests executed.
    TxWrites = c"tx_writes",
    /// RDMA Read work requests executed.
    TxReads = c"tx_reads",
    /// Segments that TCP retransmitted, on ended and on open streams.
    TcpRetransmits = c"tcp_retransmits",
    /// Completions dropped because the completion queue was full.
    CqOverflows = c"cq_overflows",
    /// Sends held because no receive was posted.
    RnrHolds = c"rnr_holds",
    /// Microseconds for which Sends were held.
    RnrHeldUs = c"rnr_held_us",
    /// Held Sends that ended the stream, because no receive was posted in time.
    RnrTimeouts = c"rnr_timeouts",
}

/// The cause of a failed connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnFailure {
    /// An error of TCP or of this end.
    Error(Error),
    /// The peer's user refused, by the MPA Reply frame.
    Rejected,
    /// This end refused.
    RejectSent,
    /// A connection that this end accepted was lost before it was established.
    Accept,
}

impl ConnFailure {
    /// The counter of the cause.
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
    /// Counters that are all zero.
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

    /// Counts a failed connection attempt: in the sum and under its cause. Any context.
    pub(crate) fn connection_failed(&self, failure: ConnFailure) {
        self.add(Counter::Failures, 1);
        self.add(failure.counter(), 1);
    }

    /// The value of counter number `index`; 0 for an unknown number. Any context.
    pub(crate) fn read(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |value| value.load(Relaxed))
    }
}
