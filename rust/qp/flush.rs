// SPDX-License-Identifier: GPL-2.0

//! Completion of work requests that will not be executed.
//!
//! In the error state, and once the stream has ended, every posted work request completes with
//! `WR_FLUSH_ERR`, in order and once each. The send queue comes first, and later posts are flushed,
//! too (requirements.md RDMAP-65, DDP-66, RPC-14). The rings are their owner's memory, so a pass is
//! bounded, and the rest is left to a work item.
//!
//! A process posts receives by stores to its ring, without a call. So passes over its receive queue
//! go on, at intervals that double from [`Pace`]'s first to its longest.

use kernel::{
    sync::Arc,
    time::msecs_to_jiffies, //
};

use super::{
    Qp,
    QpState, //
};
use crate::{
    stream::Unfinished,
    sys::sync::{
        context::irqs_off,
        work, //
    },
    verbs::{
        cq::{
            Completion,
            WcOpcode,
            WcStatus, //
        },
        wq::{
            recv::RecvSource,
            wqe::BadWqe, //
        }, //
    }, //
};

/// Work requests flushed in one go.
const BUDGET: u32 = 256;

/// Times between two looks, in ms: the first, and the longest. Each look that finds nothing to do
/// doubles it.
type Pace = (u32, u32);

/// For receives that a process posts late.
const LATE: Pace = (10, 5_000);

/// For room in a kernel user's completion queue: some are emptied only now and then.
const ROOM: Pace = (1, 100);

/// The state of flushing.
pub(super) struct Flushing {
    /// The queue pair is destroyed: no completion any more.
    stopped: bool,
    /// Time until the next look, in ms; it is never less than the first of the [`Pace`].
    look_ms: u32,
    /// What the stream has left, before all that is in the queues.
    of_stream: Option<Unfinished>,
    /// The unfinished work of the receiving end, if the peer is the queue pair itself.
    of_mirror: Option<Unfinished>,
    /// What a kernel user's full completion queue did not take, of the send queue.
    left_send: Option<Flushed>,
    /// What is left of the receive queue.
    left_recv: Option<Flushed>,
}

/// A work request that is not executed.
struct Flushed {
    /// The `wr_id`.
    id: u64,
    /// The operation; `Recv` stands for the receive queue.
    opcode: WcOpcode,
    /// The status of the completion.
    status: WcStatus,
}

impl Flushing {
    /// Not stopped.
    pub(super) const fn new() -> Self {
        Self {
            stopped: false,
            look_ms: 0,
            of_stream: None,
            of_mirror: None,
            left_send: None,
            left_recv: None,
        }
    }

    /// No work request is kept here.
    pub(super) fn is_empty(&self) -> bool {
        self.of_stream.is_none()
            && self.of_mirror.is_none()
            && self.left_send.is_none()
            && self.left_recv.is_none()
    }

    /// Everything that was taken from the receive queue is completed.
    fn no_recv(&self) -> bool {
        let none = |of: &Option<Unfinished>| of.as_ref().is_none_or(|of| !of.has_recv());
        self.left_recv.is_none() && none(&self.of_stream) && none(&self.of_mirror)
    }

    /// Frees what is empty.
    fn tidy(&mut self) {
        for of in [&mut self.of_stream, &mut self.of_mirror] {
            of.take_if(|of| of.is_empty());
        }
    }

    /// How long to wait for the next look.
    fn wait(&mut self, (first, longest): Pace) -> u32 {
        self.look_ms = self.look_ms.clamp(first, longest);
        self.look_ms
    }
}

impl Flushed {
    /// The completion of the work request.
    fn completion(&self) -> Completion {
        Completion {
            id: self.id,
            opcode: self.opcode,
            status: self.status,
            bytes: 0,
            invalidated: None,
            solicited: false,
        }
    }
}

impl Qp {
    /// Flushes what is posted, if it is time to. Any context; with interrupts off a work item does.
    pub(super) fn flush(self: &Arc<Self>) {
        if irqs_off() {
            self.flush_on();
            return;
        }
        let mut guard = self.flushing.lock();
        let flushing = &mut *guard;
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
        let of = &mut flushing.of_stream;
        self.flush_queue(&mut flushing.left_send, &mut done, || self.next_send(of));
        // In a shared completion queue receives wait for the sends before them.
        if flushing.left_send.is_none()
            || !Arc::ptr_eq(self.queues.send_cq(), self.queues.recv_cq())
        {
            let mut of = [&mut flushing.of_stream, &mut flushing.of_mirror];
            self.flush_queue(&mut flushing.left_recv, &mut done, || {
                self.next_recv(&mut of)
            });
        }
        flushing.tidy();
        if flushing.no_recv() {
            self.tell_last_wqe_if_owed();
        }
        if done > 0 {
            flushing.look_ms = 0;
        }
        if flushing.left_send.is_some() || flushing.left_recv.is_some() {
            self.flush_later(flushing.wait(ROOM));
        } else if self.is_user() && matches!(self.queues.rq(), RecvSource::Own(_)) {
            self.flush_later(flushing.wait(LATE));
        }
        drop(guard);
        if done == BUDGET {
            self.flush_on();
        }
    }

    /// Completes work requests of one queue, oldest first, within the budget. One that finds no
    /// room in the completion queue becomes `left`.
    fn flush_queue(
        &self,
        left: &mut Option<Flushed>,
        done: &mut u32,
        mut next: impl FnMut() -> Option<Flushed>,
    ) {
        while *done < BUDGET {
            let Some(flushed) = left.take().or_else(&mut next) else {
                return;
            };
            if !self.report_flushed(&flushed) {
                *left = Some(flushed);
                return;
            }
            *done += 1;
        }
    }

    /// The oldest work request for the send queue: what a stream has left comes first.
    fn next_send(&self, of_stream: &mut Option<Unfinished>) -> Option<Flushed> {
        let left = of_stream.as_mut().and_then(Unfinished::next_send);
        let (id, opcode, status) = match left {
            Some(left) => left,
            None => match self.queues.sq().fetch_to_flush()? {
                Ok(wqe) => (wqe.id, wqe.opcode(), WcStatus::WrFlush),
                Err(BadWqe { id, opcode, .. }) => (id, opcode, WcStatus::WrFlush),
            },
        };
        Some(Flushed { id, opcode, status })
    }

    /// The oldest work request for the receive queue: what streams have left comes first.
    fn next_recv(&self, of: &mut [&mut Option<Unfinished>; 2]) -> Option<Flushed> {
        let left = of
            .iter_mut()
            .find_map(|of| of.as_mut().and_then(Unfinished::next_recv));
        let id = match left {
            Some(id) => id,
            None => self
                .queues
                .rq()
                .take_to_flush()?
                .map_or_else(|bad| bad.id, |wqe| wqe.id),
        };
        Some(Flushed {
            id,
            opcode: WcOpcode::Recv,
            status: WcStatus::WrFlush,
        })
    }

    /// Keeps what a stream has left until the queue pair is flushed. Before it is known that the stream
    /// has ended: a flush either sees the stream, or finds this.
    pub(super) fn keep_unfinished(&self, unfinished: Unfinished, of_mirror: bool) {
        if unfinished.is_empty() {
            return;
        }
        let mut flushing = self.flushing.lock();
        let kept = match of_mirror {
            true => &mut flushing.of_mirror,
            false => &mut flushing.of_stream,
        };
        let old = kept.replace(unfinished);
        drop(flushing);
        drop(old);
    }

    /// Completes a work request; `false` if the completion queue has no room, and a later pass
    /// completes it.
    ///
    /// Kernel users share completion queues, which do not hold all of their work requests at once.
    /// They wait for the last one without a limit. A process that does not poll loses completions
    /// that do not fit; an event of the completion queue reports that.
    fn report_flushed(&self, flushed: &Flushed) -> bool {
        let cq = match flushed.opcode {
            WcOpcode::Recv => self.queues.recv_cq(),
            _ => self.queues.send_cq(),
        };
        if self.is_user() {
            let _ = cq.complete(self.queues.qpn(), &flushed.completion());
            return true;
        }
        // A shared queue's last receive is one, and its owner may poll only after that event.
        let urgent =
            flushed.opcode == WcOpcode::Recv && matches!(self.queues.rq(), RecvSource::Shared(_));
        cq.try_complete(self.queues.qpn(), &flushed.completion(), urgent)
    }

    /// Has a work item flush after so many milliseconds. With the flush lock held: none is queued once
    /// flushing has been stopped.
    fn flush_later(self: &Arc<Self>, millis: u32) {
        let delay = msecs_to_jiffies(millis);
        let _ = work::process().enqueue_delayed::<Self, { Self::FLUSH_LATE }>(self.clone(), delay);
    }

    /// Has a work item flush. Any context.
    fn flush_on(self: &Arc<Self>) {
        let _ = work::process().enqueue::<Arc<Self>, { Self::FLUSH }>(self.clone());
    }

    /// Looks for receives a process has posted since the last pass, or for room. Process context.
    pub(super) fn flush_late(self: &Arc<Self>) {
        {
            let mut flushing = self.flushing.lock();
            flushing.look_ms = flushing.look_ms.saturating_mul(2);
        }
        self.flush();
    }

    /// No completion after this.
    pub(super) fn stop_flushing(self: &Arc<Self>) {
        self.flushing.lock().stopped = true;
        work::cancel_delayed::<_, { Self::FLUSH_LATE }>(self);
    }
}
