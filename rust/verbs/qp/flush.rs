// SPDX-License-Identifier: GPL-2.0

//! Completion of what will not be executed any more.
//!
//! In the error state, and once the stream has ended, every posted work request completes with
//! `WR_FLUSH_ERR`: in order, the send queue first, once each, also those that are posted later
//! (requirements.md RDMAP-65, DDP-66, RPC-14). The rings are their owner's memory, so a pass is
//! bounded, and the rest is left to a work item.

use kernel::sync::Arc;

use crate::{
    sys::work,
    verbs::{
        cq::{
            Completion,
            WcOpcode,
            WcStatus, //
        },
        qp::{
            Qp,
            QpState, //
        },
        queue::{
            recv::RecvSource,
            wqe::BadWqe, //
        },
    },
};

/// Work requests flushed in one go.
const BUDGET: u32 = 256;

/// The state of flushing.
pub(super) struct Flushing {
    /// The queue pair is destroyed: no completion any more.
    stopped: bool,
}

impl Flushing {
    /// Not stopped.
    pub(super) const fn new() -> Self {
        Self { stopped: false }
    }
}

/// The completion of a flushed work request.
fn flushed(id: u64, opcode: WcOpcode) -> Completion {
    Completion {
        id,
        opcode,
        status: WcStatus::WrFlush,
        bytes: 0,
        invalidated: None,
        solicited: false,
    }
}

impl Qp {
    /// Flushes what is posted, if it is time to. Any context.
    pub(super) fn flush(self: &Arc<Self>) {
        let flushing = self.flushing.lock();
        if flushing.stopped {
            return;
        }
        {
            let inner = self.inner.lock();
            if inner.state != QpState::Error || inner.stream.is_some() || inner.mirror.is_some() {
                return;
            }
        }
        let mut more = true;
        for _ in 0..BUDGET {
            // A full completion queue has been reported by itself; the request is gone either way.
            if let Some(wqe) = self.sq.fetch() {
                let (id, opcode) = match wqe {
                    Ok(wqe) => (wqe.id, wqe.opcode()),
                    Err(BadWqe { id, opcode, .. }) => (id, opcode),
                };
                let _ = self.send_cq.complete(self.qpn, &flushed(id, opcode));
            } else if let (RecvSource::Own(_), Some(wqe)) = (&self.rq, self.take_own()) {
                let _ = self
                    .recv_cq
                    .complete(self.qpn, &flushed(wqe, WcOpcode::Recv));
            } else {
                more = false;
                break;
            }
        }
        drop(flushing);
        if more && (self.sq.is_pending() || self.rq.is_pending()) {
            let _ = work::process().enqueue::<Arc<Self>, { Self::FLUSH }>(self.clone());
        }
    }

    /// The name of the next receive work request of its own.
    fn take_own(&self) -> Option<u64> {
        self.rq.ring()?;
        self.rq.take().map(|wqe| match wqe {
            Ok(wqe) => wqe.id,
            Err(bad) => bad.id,
        })
    }

    /// No completion after this.
    pub(super) fn stop_flushing(&self) {
        self.flushing.lock().stopped = true;
    }
}
