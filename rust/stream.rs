// SPDX-License-Identifier: GPL-2.0

//! One connection's life on the wire, from the end of the MPA start-up to the last FIN.
//!
//! A [`Stream`] joins a queue pair to a TCP socket in full operation phase (RFC 5044 section 7,
//! RFC 5041, RFC 5040). All of its protocol state belongs to whoever holds the socket
//! exclusively; `design.md` section 3 describes the three ways to be that holder. The protocol's
//! decisions are taken by `iwarp_wire`; this module carries them out.
//!
//! - [`guard`]: the socket lock as the stream lock, typed
//! - [`receive`]: from TCP's queue to decisions, [`place`]: from payload to memory
//! - [`respond`]: Read Requests of the peer
//! - [`transmit`]: from work requests to runs of FPDUs, [`sent`]: their completion in order
//! - [`terminate`] and [`teardown`]: the ways a stream ends

use iwarp_wire::rdmap::terminate::TerminateReason;
use kernel::prelude::*;

/// Which side of the MPA start-up this end was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sent the Request; may send FPDUs at once.
    Initiator {
        /// The ready-to-receive frame agreed on (RFC 6581 section 4.4), sent as the first FPDU.
        rtr: Option<RtrKind>,
    },
    /// Sent the Reply; sends nothing before the first valid FPDU has come (RFC 5044 7.1.2).
    Responder {
        /// The ready-to-receive frame that must be the first FPDU.
        rtr: Option<RtrKind>,
    },
}

/// What the MPA start-up agreed on, and where it left the byte stream.
pub(crate) struct Config {
    /// CRCs are generated and checked.
    pub(crate) crc: bool,
    /// The peer puts markers into what it sends (we asked for them).
    pub(crate) rx_markers: bool,
    /// We put markers into what we send (the peer asked for them).
    pub(crate) tx_markers: bool,
    /// Read Requests the peer may have outstanding towards us; 0 is legal.
    pub(crate) ird: u16,
    /// Read Requests we may have outstanding towards the peer; 0 is legal.
    pub(crate) ord: u16,
    /// Our side of the start-up.
    pub(crate) role: Role,
    /// Octets already read from the socket behind the start-up frame; normally empty.
    pub(crate) initial: KVec<u8>,
}
