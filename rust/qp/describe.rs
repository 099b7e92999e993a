// SPDX-License-Identifier: GPL-2.0

//! Attributes of a queue pair for `rdma resource show qp -dd`.

use kernel::{
    str::CStr,
    sync::atomic::Relaxed, //
};

use super::{
    Qp,
    QpState, //
};
use crate::{
    stream::EndReason,
    sys::rdma::res::ResAttrs, //
};

/// The bit of a sent Terminate in `Qp::last_terminate`.
///
/// The word is 0 without a Terminate. Otherwise it has this bit or [`RECEIVED`], and layer, error
/// type and code as on the wire.
const SENT: u32 = 1 << 31;
/// The bit of a received Terminate.
const RECEIVED: u32 = 1 << 30;

impl QpState {
    /// The name in `rdma resource show qp`: that of the verbs, or a more precise one of the
    /// driver.
    const fn name(self) -> &'static CStr {
        match self {
            Self::Idle => c"idle",
            Self::Rtr => c"rtr",
            Self::Rts => c"rts",
            Self::Closing => c"closing",
            Self::Error => c"error",
            Self::Waiting => c"awaits_rendezvous",
            Self::Left => c"peer_has_left",
        }
    }
}

impl EndReason {
    /// The name in `rdma resource show qp`.
    const fn name(&self) -> &'static CStr {
        match self {
            Self::PeerFin => c"peer_closed",
            Self::Reset => c"peer_reset",
            Self::TerminateReceived => c"terminate_received",
            Self::TerminateSent(_) => c"terminate_sent",
            Self::LocalClose => c"local_close",
            Self::LlpError(_) => c"tcp_error",
        }
    }
}

impl Qp {
    /// Stores a Terminate that was sent or received. `code` is layer, error type and code as on
    /// the wire. Any context.
    pub(super) fn note_terminate(&self, sent: bool, code: u32) {
        let how = if sent { SENT } else { RECEIVED };
        self.last_terminate.store(how | code, Relaxed);
    }

    /// Adds the driver attributes. Process context; sleeps.
    pub(crate) fn describe(&self, attrs: &mut ResAttrs<'_>) {
        let (state, stream, ended, named) = {
            let inner = self.inner.lock();
            (
                inner.state,
                inner.stream.clone(),
                inner.ended,
                inner.peer.is_some(),
            )
        };
        attrs.text(c"qp_state", state.name());
        attrs.flag(c"rendezvous", named);
        let (sq, rq) = (self.queues.sq(), self.queues.rq());
        attrs.number(c"sq_depth", sq.depth());
        attrs.number(c"sq_posted", sq.waiting());
        if let Some(ring) = rq.ring() {
            attrs.number(c"rq_depth", ring.ring().slots());
            attrs.number(c"rq_posted", ring.posted_count());
        }
        if let Some(info) = stream.and_then(|stream| stream.info()) {
            info.describe(attrs);
        }
        let terminate = self.last_terminate.load(Relaxed);
        if terminate != 0 {
            let name = match terminate & SENT != 0 {
                true => c"terminate_sent",
                false => c"terminate_received",
            };
            attrs.hex(name, (terminate & !(SENT | RECEIVED)).into());
        }
        if let Some(reason) = ended {
            attrs.text(c"end", reason.name());
            if let EndReason::LlpError(error) = reason {
                attrs.number(c"end_errno", error.to_errno().unsigned_abs());
            }
        }
    }

    /// The number of segments that TCP has retransmitted for the running stream; 0 without one.
    /// Any context.
    pub(crate) fn retransmits(&self) -> u32 {
        let stream = self.inner.lock().stream.clone();
        stream.map_or(0, |stream| stream.retransmits())
    }
}
