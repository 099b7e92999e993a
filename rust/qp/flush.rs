// SPDX-License-Identifier: GPL-2.0

//! Completion of work requests that will not be executed.
//!
//! In the error state, once the stream has ended, every posted work request completes with
//! `WR_FLUSH_ERR`, in order and once each. The send queue comes first, and later posts are
//! flushed, too (requirements.md RDMAP-65, DDP-66, RPC-14). The rings are memory that the owner
//! may change at any time. So a pass is bounded, and a work item continues.
//!
//! A process posts receives by stores to its ring, without a call. So passes over its receive
//! queue continue, at intervals that double from the first to the longest of a [`Pace`].

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
        qp_queues::QpQueues,
        wq::{
            recv::RecvSource,
            wqe::BadWqe, //
        }, //
    }, //
};

/// The maximum number of work requests that one pass flushes.
const BUDGET: u32 = 256;

/// The first and the longest interval between two passes, in milliseconds. Each pass that flushes
/// nothing doubles the interval.
type Pace = (u32, u32);

/// The intervals for receives that a process posts late.
const LATE: Pace = (10, 5_000);

/// The intervals for free entries in the completion queue of a kernel user, which may be polled
/// rarely.
const ROOM: Pace = (1, 100);

/// The state of flushing.
pub(super) struct Flushing {
    /// The queue pair is destroyed: no completion follows.
    stopped: bool,
    /// The interval until the next pass, in milliseconds. [`wait`](Self::wait) raises it to the
    /// first one of the [`Pace`].
    look_ms: u32,
    /// Unfinished work requests of the stream, which precede those in the queues.
    of_stream: Option<Unfinished>,
    /// Unfinished work requests of the receiving end, if the peer is the queue pair itself.
    of_mirror: Option<Unfinished>,
    /// The send work request for which the completion queue of a kernel user had no free entry.
    left_send: Option<Flushed>,
    /// The receive work request for which the completion queue of a kernel user had no free entry.
    left_recv: Option<Flushed>,
}

/// A work request that is not executed.
struct Flushed {
    /// The `wr_id`.
    id: u64,
    /// The operation; `Recv` for a receive work request.
    opcode: WcOpcode,
    /// The status of the completion.
    status: WcStatus,
}

impl Flushing {
    /// Makes the initial state: not stopped, and without work requests.
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

    /// Whether no work request is kept here.
    pub(super) fn is_empty(&self) -> bool {
        self.of_stream.is_none()
            && self.of_mirror.is_none()
            && self.left_send.is_none()
            && self.left_recv.is_none()
    }

    /// Whether every receive that was taken from the receive queue is completed.
    fn no_recv(&self) -> bool {
        let none = |of: &Option<Unfinished>| of.as_ref().is_none_or(|of| !of.has_recv());
        self.left_recv.is_none() && none(&self.of_stream) && none(&self.of_mirror)
    }

    /// Frees the unfinished work of streams if it is empty.
    fn tidy(&mut self) {
        for of in [&mut self.of_stream, &mut self.of_mirror] {
            of.take_if(|of| of.is_empty());
        }
    }

    /// The interval until the next pass, in milliseconds.
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

/// A pass of the flush, under the flush lock.
struct Pass<'a> {
    /// The data path of the queue pair.
    queues: &'a QpQueues,
    /// A process owns the queue pair.
    is_user: bool,
    /// Work requests that were completed, at most [`BUDGET`].
    done: u32,
}

impl Pass<'_> {
    /// Completes work requests of both queues within the budget.
    fn run(&mut self, flushing: &mut Flushing) {
        let queues = self.queues;
        let of = &mut flushing.of_stream;
        self.flush_queue(&mut flushing.left_send, || next_send(queues, of));
        // If both queues share a completion queue, receives wait for the sends before them.
        if flushing.left_send.is_none() || !Arc::ptr_eq(queues.send_cq(), queues.recv_cq()) {
            let mut of = [&mut flushing.of_stream, &mut flushing.of_mirror];
            self.flush_queue(&mut flushing.left_recv, || next_recv(queues, &mut of));
        }
    }

    /// Completes work requests of one queue, oldest first, within the budget. A work request for
    /// which the completion queue has no free entry becomes `left`.
    fn flush_queue(
        &mut self,
        left: &mut Option<Flushed>,
        mut next: impl FnMut() -> Option<Flushed>,
    ) {
        while self.done < BUDGET {
            let Some(flushed) = left.take().or_else(&mut next) else {
                return;
            };
            if !self.report(&flushed) {
                *left = Some(flushed);
                return;
            }
            self.done += 1;
        }
    }

    /// Completes a work request; `false` if the completion queue has no free entry. A later pass
    /// completes the work request then.
    ///
    /// Kernel users share completion queues, which have fewer entries than all of their work
    /// requests need. Such a user waits for the last completion without a time limit. A process
    /// that does not poll loses completions that do not fit; an event of the completion queue
    /// reports that.
    fn report(&self, flushed: &Flushed) -> bool {
        let queues = self.queues;
        let cq = match flushed.opcode {
            WcOpcode::Recv => queues.recv_cq(),
            _ => queues.send_cq(),
        };
        if self.is_user {
            let _ = cq.complete(queues.qpn(), &flushed.completion());
            return true;
        }
        // The last receive of a shared queue is urgent: its owner may poll only after
        // `LAST_WQE_REACHED`.
        let urgent =
            flushed.opcode == WcOpcode::Recv && matches!(queues.rq(), RecvSource::Shared(_));
        cq.try_complete(queues.qpn(), &flushed.completion(), urgent)
    }
}

/// Takes the oldest send work request. Unfinished ones of the stream come first.
fn next_send(queues: &QpQueues, of_stream: &mut Option<Unfinished>) -> Option<Flushed> {
    let left = of_stream.as_mut().and_then(Unfinished::next_send);
    let (id, opcode, status) = match left {
        Some(left) => left,
        None => match queues.sq().fetch_to_flush()? {
            Ok(wqe) => (wqe.id, wqe.opcode(), WcStatus::WrFlush),
            Err(BadWqe { id, opcode, .. }) => (id, opcode, WcStatus::WrFlush),
        },
    };
    Some(Flushed { id, opcode, status })
}

/// Takes the oldest receive work request. Unfinished ones of the streams come first.
fn next_recv(queues: &QpQueues, of: &mut [&mut Option<Unfinished>; 2]) -> Option<Flushed> {
    let left = of
        .iter_mut()
        .find_map(|of| of.as_mut().and_then(Unfinished::next_recv));
    let id = match left {
        Some(id) => id,
        None => queues
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

impl Qp {
    /// Flushes posted work requests in the error state, once the streams have ended. Any context;
    /// with interrupts off a work item does it.
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
        let mut pass = Pass {
            queues: &self.queues,
            is_user: self.is_user(),
            done: 0,
        };
        pass.run(flushing);
        let done = pass.done;
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

    /// Keeps the unfinished work requests of a stream until the queue pair is flushed.
    ///
    /// Called before the queue pair drops its reference to the stream. So a concurrent flush sees
    /// the stream or these work requests.
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

    /// Queues the work item that flushes after `millis` milliseconds. Called under the flush lock,
    /// so that none is queued after [`stop_flushing`](Self::stop_flushing).
    fn flush_later(self: &Arc<Self>, millis: u32) {
        let delay = msecs_to_jiffies(millis);
        let _ = work::process().enqueue_delayed::<Self, { Self::FLUSH_LATE }>(self.clone(), delay);
    }

    /// Queues the work item that flushes. Any context.
    fn flush_on(self: &Arc<Self>) {
        let _ = work::process().enqueue::<Arc<Self>, { Self::FLUSH }>(self.clone());
    }

    /// Flushes receives that a process has posted since the last pass, or retries after a full
    /// completion queue. Process context.
    pub(super) fn flush_late(self: &Arc<Self>) {
        {
            let mut flushing = self.flushing.lock();
            flushing.look_ms = flushing.look_ms.saturating_mul(2);
        }
        self.flush();
    }

    /// Stops flushing: no completion follows the return. Cancels the delayed work item, without
    /// waiting for a running one.
    pub(super) fn stop_flushing(self: &Arc<Self>) {
        self.flushing.lock().stopped = true;
        work::cancel_delayed::<_, { Self::FLUSH_LATE }>(self);
    }
}
