// SPDX-License-Identifier: GPL-2.0

//! Completion of what will not be executed any more.
//!
//! In the error state, and once the stream has ended, every posted work request completes with
//! `WR_FLUSH_ERR`: in order, the send queue first, once each, also those that are posted later
//! (requirements.md RDMAP-65, DDP-66, RPC-14). The rings are their owner's memory, so a pass is
//! bounded, and the rest is left to a work item.
//!
//! A process posts receives by its memory alone: nothing tells that one has been posted after the
//! last pass. So its receive queue is looked at again, soon at first and then ever more rarely.

use kernel::{
    sync::Arc,
    time::msecs_to_jiffies, //
};

use crate::{
    sys::{
        context::irqs_off,
        work, //
    },
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

/// The first look for receives posted late comes after this, in ms; each one that finds none
/// doubles it.
const FIRST_LOOK_MS: u32 = 10;

/// The longest time between two looks, in ms.
const RAREST_LOOK_MS: u32 = 5_000;

/// The state of flushing.
pub(super) struct Flushing {
    /// The queue pair is destroyed: no completion any more.
    stopped: bool,
    /// Time until the next look for receives posted late, in ms.
    look_ms: u32,
}

impl Flushing {
    /// Not stopped.
    pub(super) const fn new() -> Self {
        Self {
            stopped: false,
            look_ms: FIRST_LOOK_MS,
        }
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
    /// Flushes what is posted, if it is time to. Any context; with interrupts off a work item does.
    pub(super) fn flush(self: &Arc<Self>) {
        if irqs_off() {
            self.flush_on();
            return;
        }
        let mut flushing = self.flushing.lock();
        if flushing.stopped {
            return;
        }
        {
            let inner = self.inner.lock();
            if inner.state != QpState::Error || inner.stream.is_some() || inner.mirror.is_some() {
                return;
            }
        }
        let mut done = 0;
        while done < BUDGET {
            // A full completion queue has been reported by itself; the request is gone either way.
            if let Some(wqe) = self.sq.fetch_to_flush() {
                let (id, opcode) = match wqe {
                    Ok(wqe) => (wqe.id, wqe.opcode()),
                    Err(BadWqe { id, opcode, .. }) => (id, opcode),
                };
                let _ = self.send_cq.complete(self.qpn, &flushed(id, opcode));
            } else if let Some(wqe) = self.rq.take_to_flush() {
                let id = wqe.map_or_else(|bad| bad.id, |wqe| wqe.id);
                let _ = self
                    .recv_cq
                    .complete(self.qpn, &flushed(id, WcOpcode::Recv));
            } else {
                break;
            }
            done += 1;
        }
        if done > 0 {
            flushing.look_ms = FIRST_LOOK_MS;
        }
        if self.is_user() && matches!(self.rq, RecvSource::Own(_)) {
            let delay = msecs_to_jiffies(flushing.look_ms);
            // Under the lock: none is queued once flushing has been stopped.
            let _ =
                work::process().enqueue_delayed::<Self, { Self::FLUSH_LATE }>(self.clone(), delay);
        }
        drop(flushing);
        if done == BUDGET && (self.sq.is_pending() || self.rq.is_pending()) {
            self.flush_on();
        }
    }

    /// Has a work item flush. Any context.
    fn flush_on(self: &Arc<Self>) {
        let _ = work::process().enqueue::<Arc<Self>, { Self::FLUSH }>(self.clone());
    }

    /// Looks for receives a process has posted since the last pass. Process context.
    pub(super) fn flush_late(self: &Arc<Self>) {
        {
            let mut flushing = self.flushing.lock();
            flushing.look_ms = flushing.look_ms.saturating_mul(2).min(RAREST_LOOK_MS);
        }
        self.flush();
    }

    /// No completion after this.
    pub(super) fn stop_flushing(self: &Arc<Self>) {
        self.flushing.lock().stopped = true;
        work::cancel_delayed::<_, { Self::FLUSH_LATE }>(self);
    }
}
