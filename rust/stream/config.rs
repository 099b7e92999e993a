// SPDX-License-Identifier: GPL-2.0

//! Configuration of a stream: what the MPA start-up agreed on, and how and why it ends.

use iwarp_wire::{
    RtrKind,
    RtrKinds, //
};
use kernel::prelude::*;

use crate::sys::{
    errno::ECONNRESET,
    rdma::event::QpEvent, //
};

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
        /// The ready-to-receive frames, one of which must be the first FPDU; empty: any FPDU may
        /// be.
        rtr: RtrKinds,
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
    /// The peer is the queue pair itself, and this is the end that receives.
    pub(crate) mirror: bool,
}

/// The agreement of the start-up, for `rdma resource show`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    /// This end is the initiator.
    pub(super) initiator: bool,
    /// CRCs are generated and checked.
    pub(super) crc: bool,
    /// The peer puts markers into what it sends.
    pub(super) rx_markers: bool,
    /// We put markers into what we send.
    pub(super) tx_markers: bool,
    /// Read Requests the peer may have outstanding.
    pub(super) ird: u16,
    /// Read Requests we may have outstanding.
    pub(super) ord: u16,
}

impl Config {
    /// What the start-up agreed on.
    pub(super) fn agreed(&self) -> Agreed {
        Agreed {
            initiator: matches!(self.role, Role::Initiator { .. }),
            crc: self.crc,
            rx_markers: self.rx_markers,
            tx_markers: self.tx_markers,
            ird: self.ird,
            ord: self.ord,
        }
    }
}

/// How the local side ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// Everything posted so far is sent, then FIN (RFC 5041 section 6.2.1).
    Graceful,
    /// The message in progress is finished, then FIN; nothing else is executed.
    Disconnect,
    /// At once for the queue pair; the peer gets what TCP has taken, then FIN.
    Leave,
    /// The enhanced connection set-up failed at this end: a Terminate, then FIN (RFC 6581
    /// section 9.3).
    SetUpFailed,
    /// Reset.
    Abort,
}

impl Close {
    /// The precedence: a request of a higher rank replaces one of a lower.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Graceful => 0,
            Self::Disconnect => 1,
            Self::Leave => 2,
            Self::SetUpFailed => 3,
            Self::Abort => 4,
        }
    }
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The peer closed its half at an FPDU boundary.
    PeerFin,
    /// The peer reset the connection.
    Reset,
    /// The peer sent a Terminate.
    TerminateReceived,
    /// An error was found here, and a Terminate tells the peer. With the event that tells the owner
    /// of the queue pair, if no completion does.
    TerminateSent(Option<QpEvent>),
    /// The local side has asked for it.
    LocalClose,
    /// TCP gave up: time-out, unreachable, FIN inside an FPDU.
    LlpError(Error),
}

impl EndReason {
    /// The reason's number in the trace event `rsiw_stream_end`, and TCP's error.
    pub(super) fn traced(&self) -> (u32, i32) {
        match self {
            Self::PeerFin => (0, 0),
            Self::Reset => (1, 0),
            Self::TerminateReceived => (2, 0),
            Self::TerminateSent(_) => (3, 0),
            Self::LocalClose => (4, 0),
            Self::LlpError(error) => (5, error.to_errno()),
        }
    }

    /// The reason that an error of TCP stands for.
    pub(super) fn of(error: Error) -> Self {
        if error == ECONNRESET || error == EPIPE {
            Self::Reset
        } else {
            Self::LlpError(error)
        }
    }
}
