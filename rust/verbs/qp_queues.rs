// SPDX-License-Identifier: GPL-2.0

//! The data path of a queue pair: its queues, its completion queues, and the rights of its peer.
//!
//! A stream uses only this part of its queue pair. `qp::Qp` owns it, and updates rights, limits and
//! whether the queues are closed. Functions run in any context, unless documented otherwise.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::verbs::{
    counters::Counters,
    cq::{
        Completion,
        Cq, //
    },
    device::ObjectSlot,
    mr::{
        Access,
        AccessError,
        LocalBuf,
        RegionTable, //
    },
    wq::{
        recv::RecvSource,
        send::SendQueue,
        wqe::Sge, //
    },
    Association,
    Device,
    Qpn, //
};

/// The stored value for no limit of the wait of a Send.
const FOR_EVER: u64 = u64::MAX;

/// The queues of a queue pair.
#[pin_data]
pub(crate) struct QpQueues {
    /// Counts the queue pair in the device.
    object_slot: ObjectSlot,
    /// The number of the queue pair.
    qpn: Qpn,
    /// The protection domain and the stream.
    association: Association,
    /// The completion queue of send work requests.
    send_cq: Arc<Cq>,
    /// The completion queue of receive work requests.
    recv_cq: Arc<Cq>,
    #[pin]
    sq: SendQueue,
    rq: RecvSource,
    /// The peer's rights: `enum ib_access_flags`.
    rights: Atomic<u32>,
    /// Nanoseconds for which a Send may wait for a receive; [`FOR_EVER`]: no limit.
    rnr_limit: Atomic<u64>,
    /// The stream holds a Send that waits for a receive.
    held: Atomic<bool>,
    /// The queue pair is in error: queued work requests are only flushed.
    closed: Atomic<bool>,
}

/// The arguments of [`QpQueues::new`].
pub(crate) struct QpQueuesParts {
    /// Counts the queue pair in the device.
    pub(crate) object_slot: ObjectSlot,
    /// The number of the queue pair.
    pub(crate) qpn: Qpn,
    /// The protection domain and the stream.
    pub(crate) association: Association,
    /// The completion queue of send work requests.
    pub(crate) send_cq: Arc<Cq>,
    /// The completion queue of receive work requests.
    pub(crate) recv_cq: Arc<Cq>,
    /// The receive queue: the queue pair's own, or a shared one.
    pub(crate) rq: RecvSource,
}

impl QpQueues {
    /// Makes the queues of a new queue pair. Process context; sleeps.
    pub(crate) fn new(parts: QpQueuesParts, sq: impl PinInit<SendQueue>) -> Result<Arc<Self>> {
        let QpQueuesParts {
            object_slot,
            qpn,
            association,
            send_cq,
            recv_cq,
            rq,
        } = parts;
        Arc::pin_init(
            pin_init!(Self {
                object_slot,
                qpn,
                association,
                send_cq,
                recv_cq,
                sq <- sq,
                rq,
                rights: Atomic::new(u32::MAX),
                rnr_limit: Atomic::new(0),
                held: Atomic::new(false),
                closed: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// The number of the queue pair.
    #[inline]
    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The protection domain and the stream that access checks compare.
    #[inline]
    pub(crate) fn association(&self) -> Association {
        self.association
    }

    /// The device of the queue pair.
    #[inline]
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.object_slot.device()
    }

    /// The counters of the queue pair's device.
    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        self.device().counters()
    }

    /// The memory regions of the queue pair's device.
    #[inline]
    pub(crate) fn regions(&self) -> &RegionTable {
        self.device().regions()
    }

    /// The send queue. Only the context that holds the stream fetches.
    #[inline]
    pub(crate) fn sq(&self) -> &SendQueue {
        &self.sq
    }

    /// The receive queue. Only the context that holds the stream takes.
    #[inline]
    pub(crate) fn rq(&self) -> &RecvSource {
        &self.rq
    }

    /// The completion queue of send work requests.
    pub(crate) fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// The completion queue of receive work requests.
    pub(crate) fn recv_cq(&self) -> &Arc<Cq> {
        &self.recv_cq
    }

    /// Finds the memory of a scatter-gather element and checks the whole element.
    ///
    /// Context and limits as of [`pin`](RegionTable::pin). The caller passes no element of zero
    /// length.
    #[inline]
    pub(crate) fn local(&self, sge: &Sge, need: Access) -> Result<LocalBuf, AccessError> {
        let kernel = self.sq.ring().kernel_memory();
        LocalBuf::new(self.regions(), self.association, kernel, sge, need)
    }

    /// Completes a send work request. Any context with interrupts on, with or without the stream
    /// held.
    ///
    /// Returns `false` if the completion queue is full. The queue pair must move to the error state
    /// then.
    #[inline]
    #[must_use]
    pub(crate) fn complete_send(&self, c: &Completion) -> bool {
        self.send_cq.complete(self.qpn, c)
    }

    /// Completes a receive work request, as [`complete_send`](Self::complete_send).
    #[inline]
    #[must_use]
    pub(crate) fn complete_recv(&self, c: &Completion) -> bool {
        self.recv_cq.complete(self.qpn, c)
    }

    /// Sets the rights that the peer has: `enum ib_access_flags`.
    pub(crate) fn set_rights(&self, rights: u32) {
        self.rights.store(rights, Relaxed);
    }

    /// Whether the rights of the peer include `need`.
    #[inline]
    pub(crate) fn grants(&self, need: Access) -> bool {
        Access::from_ib(self.rights.load(Relaxed)).has(need)
    }

    /// Sets the [`rnr_limit`](Self::rnr_limit) in nanoseconds; `None`: no limit.
    pub(crate) fn set_rnr_limit(&self, limit: Option<u64>) {
        self.rnr_limit.store(limit.unwrap_or(FOR_EVER), Relaxed);
    }

    /// Nanoseconds for which a Send may wait for a receive; `None`: no limit.
    pub(crate) fn rnr_limit(&self) -> Option<u64> {
        let limit = self.rnr_limit.load(Relaxed);
        (limit != FOR_EVER).then_some(limit)
    }

    /// Sets whether the stream holds a Send that waits for a receive.
    pub(crate) fn set_held(&self, held: bool) {
        self.held.store(held, Relaxed);
    }

    /// Whether the stream holds a Send. A concurrent change may be missed.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }

    /// Closes or reopens the queues. Work requests of closed queues are flushed, not executed.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Relaxed);
        self.sq.set_closed(closed);
        self.rq.set_closed(closed);
    }

    /// Whether the queues are closed. A concurrent change may be missed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
}
