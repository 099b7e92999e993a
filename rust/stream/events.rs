// SPDX-License-Identifier: GPL-2.0

//! Events of a stream, and the work requests that its end leaves.

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

/// Work requests that a stream has fetched and not carried out when it ends.
pub(crate) struct Unfinished {
    /// Of the send queue.
    sends: SentQueue,
    /// A work request of the send queue that had to wait, behind the others.
    stalled: Option<(u64, WcOpcode)>,
    /// A work request of the receive queue, for a message that has come in part.
    recv: Option<u64>,
}

impl Unfinished {
    /// Work requests: sends, one behind the sends, and a receive.
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

    /// No work request.
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

    /// A work request of the receive queue is unfinished.
    pub(crate) fn has_recv(&self) -> bool {
        self.recv.is_some()
    }
}

/// Events of a stream for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The responder's side may send: the first FPDU, or the agreed ready-to-receive frame, came
    /// in whole. Once, and only on the responder's side.
    Ready,
    /// The peer has closed its half at an FPDU boundary, and work requests of this end are still
    /// carried out. [`Ended`](Self::Ended) follows.
    HalfClosed,
    /// The stream has ended, and the queue pair is flushed. Once for every stream that was started.
    Ended(EndReason),
}

/// The owner of a stream: its queue pair.
///
/// None of this is called in the data path. Softirq or process context, under the socket lock, unless
/// it says otherwise: no function sleeps or calls back into the stream.
pub(crate) trait StreamOwner: Send + Sync {
    /// Takes a stream that is about to start. Process context, no lock held.
    ///
    /// # Errors
    ///
    /// The queue pair can not be connected (any more).
    fn starting(&self, stream: Arc<Stream>) -> Result;

    /// The connection has begun to close in order.
    fn closing(&self);

    /// The stream has ended; the owner flushes its queues. The stream's last act: it touches
    /// neither queues nor regions afterwards. `unfinished` are work requests that it has fetched
    /// and not executed.
    fn ended(&self, reason: EndReason, unfinished: Unfinished);

    /// A Terminate was sent or received: layer, error type and code as on the wire.
    fn terminate(&self, sent: bool, code: u32);

    /// How the stream is to end, if the owner is in error. Any context.
    fn failed(&self) -> Option<Close>;

    /// A completion queue was full: the owner goes into error. Any context.
    fn overflowed(&self);
}

/// The user of a stream: the connection manager, which receives events.
pub(crate) trait StreamUser: Send + Sync {
    /// Takes note of an event. Softirq or process context, under the socket lock: must neither
    /// sleep nor call back into the stream.
    fn stream_event(&self, event: StreamEvent);
}
