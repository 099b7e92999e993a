// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair.

use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Release, //
};

use super::QpInner;
use crate::{
    sys::trace,
    verbs::qp_queues::QpQueues, //
};

/// The states of a queue pair, with their names in the verbs.
///
/// | state | event | next |
/// | --- | --- | --- |
/// | Idle | `modify_qp` to `RTR` | Rtr |
/// | Idle, Rtr | the connection manager's stream starts | Rts |
/// | Rtr | `modify_qp` to `RTS`, peer named | Waiting |
/// | Waiting | the stream starts | Rts |
/// | Rts | `SQD` of a named peer, or the peer's FIN | Closing |
/// | Rts, Closing | disconnect, `ERR`, CQ overflow, end of the stream | Error |
/// | Rts, Closing | an idle named peer closes in order | Left |
/// | Left | the owner disconnects, or three seconds | Error |
/// | Idle, Rtr, Waiting | `ERR`, time-out of posted work | Error |
/// | any | `modify_qp` to `RESET` | Idle |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpState {
    /// `RESET` and `INIT`: nothing but receives can be posted.
    Idle = 0,
    /// `RTR`: as idle.
    Rtr = 1,
    /// `RTS`: a stream is running.
    Rts = 2,
    /// `SQD`: the stream is being closed gracefully.
    Closing = 3,
    /// `ERR`: nothing is executed any more.
    Error = 5,
    /// `RTS` of a rendezvous: work requests wait for the stream.
    Waiting = 6,
    /// The peer of a rendezvous has closed gracefully, without loss, and the owner has no report
    /// yet. `query_qp` returns the state as before.
    Left = 7,
}

impl QpState {
    /// The state with number `value`; unknown numbers are [`Self::Error`].
    const fn from_u32(value: u32) -> Self {
        match value {
            0 => Self::Idle,
            1 => Self::Rtr,
            2 => Self::Rts,
            3 => Self::Closing,
            6 => Self::Waiting,
            7 => Self::Left,
            _ => Self::Error,
        }
    }

    /// The state's number in `enum ib_qp_state`, for trace events.
    const fn traced(self) -> u32 {
        match self {
            Self::Idle => 1,
            Self::Rtr => 2,
            Self::Rts | Self::Waiting | Self::Left => 3,
            Self::Closing => 4,
            Self::Error => 6,
        }
    }
}

/// A copy of the state, which is read without the state lock.
pub(super) struct StateCopy(Atomic<u32>);

impl StateCopy {
    /// Makes the copy for a new queue pair.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(QpState::Idle as u32))
    }

    /// The state, possibly stale after the return. Any context.
    #[inline]
    pub(super) fn get(&self) -> QpState {
        QpState::from_u32(self.0.load(Acquire))
    }

    /// Changes the state of the queue pair with data path `queues`. In the error state no work
    /// request is fetched from the queue pair's own queues. The stream may still run until a work
    /// item ends it.
    pub(super) fn change(&self, queues: &QpQueues, inner: &mut QpInner, state: QpState) {
        trace::qp_state(queues.qpn().get(), inner.state.traced(), state.traced());
        inner.state = state;
        queues.set_closed(state == QpState::Error);
        self.0.store(state as u32, Release);
    }
}
