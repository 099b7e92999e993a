// SPDX-License-Identifier: GPL-2.0

//! Configuration of a stream: the result of the MPA start-up, and the modes and reasons of its
//! end.

use iwarp_wire::{
    RtrKind,
    RtrKinds, //
};
use kernel::prelude::*;

use crate::sys::{
    errno::ECONNRESET,
    rdma::event::QpEvent, //
};

/// The role of this end in the MPA start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The end that sent the Request. An initiator may send FPDUs at once.
    Initiator {
        /// The negotiated ready-to-receive (RTR) frame (RFC 6581 section 4.4), sent as the first
        /// FPDU.
        rtr: Option<RtrKind>,
    },
    /// The end that sent the Reply. A responder sends nothing before the first valid FPDU arrives
    /// (RFC 5044 section 7.1.2).
    Responder {
        /// The RTR frames, one of which must be the first FPDU. Empty: any FPDU may be the first.
        rtr: RtrKinds,
    },
}

/// The result of the MPA start-up, and the octets read beyond it.
pub(crate) struct Config {
    /// CRCs are generated and checked.
    pub(crate) crc: bool,
    /// The peer inserts markers, which this end has requested.
    pub(crate) rx_markers: bool,
    /// This end inserts markers, which the peer has requested.
    pub(crate) tx_markers: bool,
    /// Read Requests that the peer may have outstanding (IRD); 0 is legal.
    pub(crate) ird: u16,
    /// Read Requests that this end may have outstanding (ORD); 0 is legal.
    pub(crate) ord: u16,
    /// The role of this end.
    pub(crate) role: Role,
    /// Octets after the start-up frame that were read together with it; normally empty.
    pub(crate) initial: KVec<u8>,
    /// The queue pair is connected to itself, and this is its receiving end.
    pub(crate) mirror: bool,
}

/// The negotiated parameters, for `rdma resource show`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    /// This end is the initiator.
    pub(super) initiator: bool,
    /// CRCs are generated and checked.
    pub(super) crc: bool,
    /// The peer inserts markers.
    pub(super) rx_markers: bool,
    /// This end inserts markers.
    pub(super) tx_markers: bool,
    /// Read Requests that the peer may have outstanding (IRD).
    pub(super) ird: u16,
    /// Read Requests that this end may have outstanding (ORD).
    pub(super) ord: u16,
}

impl Config {
    /// The negotiated parameters.
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

/// The mode of a local close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// Posted work requests are executed, then FIN is sent (RFC 5041 section 6.2.1).
    Graceful,
    /// The message in progress is sent, then FIN. No other work request is executed.
    Disconnect,
    /// The stream ends at once. The peer receives the bursts built so far, then FIN.
    Leave,
    /// The enhanced connection set-up failed at this end: a Terminate is sent, then FIN (RFC 6581
    /// section 9.3).
    SetUpFailed,
    /// The connection is reset.
    Abort,
}

impl Close {
    /// The precedence of the mode: only a request of a higher rank replaces a pending one.
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

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The peer sent FIN at an FPDU boundary.
    PeerFin,
    /// The peer reset the connection.
    Reset,
    /// The peer sent a Terminate.
    TerminateReceived,
    /// This end found an error, and a Terminate reports it to the peer. The value is the event
    /// for the owner of the queue pair, if no completion reports the error.
    TerminateSent(Option<QpEvent>),
    /// A local close, or an expired deadline.
    LocalClose,
    /// An error of TCP: a time-out, an unreachable peer, or FIN within an FPDU.
    LlpError(Error),
}

impl EndReason {
    /// The number of the reason in the trace event `rsiw_stream_end`, and the negative errno of
    /// TCP; 0: none.
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

    /// The reason for an error of TCP: [`Self::Reset`] for `ECONNRESET` and `EPIPE`.
    pub(super) fn of(error: Error) -> Self {
        if error == ECONNRESET || error == EPIPE {
            Self::Reset
        } else {
            Self::LlpError(error)
        }
    }
}
