// SPDX-License-Identifier: GPL-2.0

//! What those who start, end and watch a stream have to do with it.

use iwarp_wire::{
    RtrKind,
    RtrKinds, //
};
use kernel::prelude::*;

use super::sent::SentQueue;
use crate::verbs::{
    cq::{
        WcOpcode,
        WcStatus, //
    },
    qp::QpEvent, //
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
        /// The ready-to-receive frames of which one must be the first FPDU; empty: any may be.
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

/// How the local side wants a stream to end.
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
    /// A request of a higher rank overrides one of a lower.
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
    /// [`Stream::close`].
    LocalClose,
    /// TCP gave up: time-out, unreachable, FIN inside an FPDU.
    LlpError(Error),
}

/// Work requests that a stream has fetched and not carried out when it ends.
pub(crate) struct Unfinished {
    /// Of the send queue.
    sends: SentQueue,
    /// One of the send queue that had to wait, behind the others.
    stalled: Option<(u64, WcOpcode)>,
    /// One of the receive queue, for a message that has come in part.
    recv: Option<u64>,
}

impl Unfinished {
    /// What is given: sends, one behind them, and a receive.
    pub(super) fn new(
        sends: SentQueue,
        stalled: Option<(u64, WcOpcode)>,
        recv: Option<u64>,
    ) -> Self {
        Self {
            sends,
            stalled,
            recv,
        }
    }

    /// There is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.stalled.is_none() && self.recv.is_none()
    }

    /// Takes the oldest work request of the send queue: its name, and what is to be said of it.
    pub(crate) fn next_send(&mut self) -> Option<(u64, WcOpcode, WcStatus)> {
        if let Some(entry) = self.sends.pop() {
            let status = match entry.status {
                WcStatus::Success => WcStatus::WrFlush,
                error => error,
            };
            return Some((entry.id, entry.opcode, status));
        }
        let (id, opcode) = self.stalled.take()?;
        Some((id, opcode, WcStatus::WrFlush))
    }

    /// Takes the work request of the receive queue.
    pub(crate) fn next_recv(&mut self) -> Option<u64> {
        self.recv.take()
    }

    /// There is one of the receive queue.
    pub(crate) fn has_recv(&self) -> bool {
        self.recv.is_some()
    }
}

/// What a stream tells its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The responder's side may send: the first FPDU, or the agreed ready-to-receive frame, came
    /// in whole. Once, and only on the responder's side.
    Ready,
    /// The peer has closed its half at an FPDU boundary, and work requests of this end are still
    /// carried out. [`Ended`](Self::Ended) follows.
    HalfClosed,
    /// The queue pair has been told and is flushed. Once for every stream that was started.
    Ended(EndReason),
}

/// The one who started a stream.
pub(crate) trait Owner: Send + Sync {
    /// Takes note of an event. Softirq or process context, under the socket lock: must neither
    /// sleep nor call back into the stream.
    fn stream_event(&self, event: StreamEvent);
}
