// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair.

use kernel::sync::atomic::Release;

use super::{
    Qp,
    QpInner, //
};
use crate::sys::trace;

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
    pub(super) const fn from_u32(value: u32) -> Self {
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
    pub(super) const fn traced(self) -> u32 {
        match self {
            Self::Idle => 1,
            Self::Rtr => 2,
            Self::Rts | Self::Waiting | Self::Left => 3,
            Self::Closing => 4,
            Self::Error => 6,
        }
    }
}

impl Qp {
    /// Changes the state. In the error state no work request is fetched from the queue pair's own
    /// queues. The stream may still run until a work item ends it.
    pub(super) fn set_state(&self, inner: &mut QpInner, state: QpState) {
        trace::qp_state(
            self.queues.qpn().get(),
            inner.state.traced(),
            state.traced(),
        );
        inner.state = state;
        self.queues.set_closed(state == QpState::Error);
        self.state.store(state as u32, Release);
    }
}
