// SPDX-License-Identifier: GPL-2.0

//! Attributes of a queue pair for `rdma resource show qp -dd`.

use kernel::{
    str::CStr,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    QpInner,
    QpState, //
};
use crate::{
    stream::{
        EndReason,
        Stream, //
    },
    sys::rdma::res::ResAttrs,
    verbs::qp_queues::QpQueues, //
};

/// The bit of a sent Terminate in [`LastTerminate`].
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

/// The last Terminate that was sent or received; 0 without one. Otherwise the word has [`SENT`] or
/// [`RECEIVED`], and layer, error type and code as on the wire.
pub(super) struct LastTerminate(Atomic<u32>);

impl LastTerminate {
    /// Makes the word of a new queue pair.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Stores a Terminate that was sent or received. `code` is layer, error type and code as on
    /// the wire. Any context.
    pub(super) fn note(&self, sent: bool, code: u32) {
        let how = if sent { SENT } else { RECEIVED };
        self.0.store(how | code, Relaxed);
    }

    /// Adds the attribute of the Terminate, if there was one.
    fn describe(&self, attrs: &mut ResAttrs<'_>) {
        let terminate = self.0.load(Relaxed);
        if terminate != 0 {
            let name = match terminate & SENT != 0 {
                true => c"terminate_sent",
                false => c"terminate_received",
            };
            attrs.hex(name, (terminate & !(SENT | RECEIVED)).into());
        }
    }
}

/// A snapshot of the fields that the state lock protects.
pub(super) struct QpSnapshot {
    state: QpState,
    /// The stream, unless it has ended.
    stream: Option<Arc<Stream>>,
    /// The reason for the end of the stream.
    ended: Option<EndReason>,
    /// The owner has named a peer.
    named: bool,
}

impl QpSnapshot {
    /// Takes the snapshot, under the state lock.
    pub(super) fn new(inner: &QpInner) -> Self {
        Self {
            state: inner.state,
            stream: inner.stream.clone(),
            ended: inner.ended,
            named: inner.peer.is_some(),
        }
    }

    /// Adds the driver attributes of the queue pair with data path `queues`. Process context;
    /// sleeps.
    pub(super) fn describe(
        self,
        queues: &QpQueues,
        terminate: &LastTerminate,
        attrs: &mut ResAttrs<'_>,
    ) {
        attrs.text(c"qp_state", self.state.name());
        attrs.flag(c"rendezvous", self.named);
        let (sq, rq) = (queues.sq(), queues.rq());
        attrs.number(c"sq_depth", sq.depth());
        attrs.number(c"sq_posted", sq.waiting());
        if let Some(ring) = rq.ring() {
            attrs.number(c"rq_depth", ring.ring().slots());
            attrs.number(c"rq_posted", ring.posted_count());
        }
        if let Some(info) = self.stream.and_then(|stream| stream.info()) {
            info.describe(attrs);
        }
        terminate.describe(attrs);
        if let Some(reason) = self.ended {
            attrs.text(c"end", reason.name());
            if let EndReason::LlpError(error) = reason {
                attrs.number(c"end_errno", error.to_errno().unsigned_abs());
            }
        }
    }
}
