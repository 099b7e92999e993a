// SPDX-License-Identifier: GPL-2.0

//! Events of a stream, and the work requests that are incomplete at its end.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    inflight::SentQueue,
    Close,
    EndReason,
    Stream, //
};
use crate::verbs::cq::{
    WcOpcode,
    WcStatus, //
};

/// The work requests that a stream has fetched and not completed at its end.
pub(crate) struct Unfinished {
    /// Work requests of the send queue, in posting order.
    sends: SentQueue,
    /// A work request of the send queue that had to wait, after all of `sends`: `wr_id` and
    /// opcode.
    stalled: Option<(u64, WcOpcode)>,
    /// The `wr_id` of the receive work request of a partly received message.
    recv: Option<u64>,
}

impl Unfinished {
    /// Combines the work requests: sends, a stalled one after them, and a receive.
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

    /// Whether there is no work request.
    pub(crate) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.stalled.is_none() && self.recv.is_none()
    }

    /// Takes the oldest work request of the send queue: its `wr_id`, opcode and status.
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

    /// Whether a work request of the receive queue is left.
    pub(crate) fn has_recv(&self) -> bool {
        self.recv.is_some()
    }
}

/// Events of a stream for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// A responder may send: it has received the first FPDU, or the negotiated RTR frame.
    /// Reported once, and only by a responder.
    Ready,
    /// The peer has sent FIN, at an FPDU boundary or after a held Send. Work requests of this end
    /// are still executed. [`Ended`](Self::Ended) follows.
    HalfClosed,
    /// The stream has ended, and the queue pair is flushed. Every started stream reports it once.
    Ended(EndReason),
}

/// The owner of a stream: its queue pair.
///
/// No function is called in the data path. Unless their comments say otherwise, functions run in
/// softirq or process context, under the socket lock. They neither sleep nor call the stream.
pub(crate) trait StreamOwner: Send + Sync {
    /// Assigns a stream that is about to start. Process context, no lock held.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair has or had a stream since the last `RESET`. `ENOTCONN`: its state
    /// permits no connection, or it is being destroyed.
    fn starting(&self, stream: Arc<Stream>) -> Result;

    /// Handles the start of a graceful close, by this end or by the peer.
    fn closing(&self);

    /// Handles the end of the stream: the owner flushes its queues. The stream accesses neither
    /// queues nor regions afterwards. `unfinished` are the work requests that it has fetched and
    /// not completed.
    fn ended(&self, reason: EndReason, unfinished: Unfinished);

    /// Handles a Terminate that was sent, or received. `code` has layer, error type and error
    /// code, like the first 16 bits on the wire.
    fn terminate(&self, sent: bool, code: u32);

    /// The mode of the close if the queue pair is in the error state, else `None`. Any context.
    fn failed(&self) -> Option<Close>;

    /// Handles a full completion queue: the queue pair moves to the error state. Any context.
    fn overflowed(&self);
}

/// The user of a stream: the connection manager, which receives events.
pub(crate) trait StreamUser: Send + Sync {
    /// Handles an event. Softirq or process context, under the socket lock. The function neither
    /// sleeps nor calls the stream.
    fn stream_event(&self, event: StreamEvent);
}
