// SPDX-License-Identifier: GPL-2.0

//! Receive queues of queue pairs, and the receive ring that shared receive queues also use.
//!
//! A process posts receives by stores alone, without a doorbell.

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

use crate::{
    sys::{
        rdma::{
            ring::{
                Owner,
                Ring, //
            },
            wr::RecvWrs, //
        },
        sync::lock::{
            new_spinlock_irq,
            SpinLockIrq, //
        }, //
    },
    verbs::{
        cq::{
            WcOpcode,
            WcStatus, //
        },
        srq::Srq,
        wq::{
            abi::{
                self,
                flag,
                WqeHeader,
                RQE_SGES,
                RQE_WORDS, //
            },
            wqe::{
                BadWqe,
                RecvWqe,
                Sge,
                Sgl, //
            }, //
        },
        Stag, //
    }, //
};

/// The ring of a receive queue.
#[pin_data]
pub(crate) struct RecvRing {
    /// The elements.
    ring: Arc<Ring>,
    /// The largest number of scatter-gather elements in a work request.
    max_sge: u8,
    /// The index of the next element that a kernel owner fills, free running.
    #[pin]
    put: SpinLockIrq<u32>,
}

impl RecvRing {
    /// Makes a ring of `depth` elements (a power of two). Process context; sleeps.
    pub(crate) fn new(depth: u32, max_sge: u8, owner: Owner) -> Result<impl PinInit<Self>> {
        let ring = Ring::new(depth, RQE_WORDS as u32, false, owner)?;
        Ok(pin_init!(Self {
            ring,
            max_sge,
            put <- new_spinlock_irq!(0, "rsiw_rq"),
        }))
    }

    /// The ring, to map it.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Whether the element at `index` is in use.
    #[inline]
    pub(crate) fn is_valid(&self, index: u32) -> bool {
        self.posted(index).is_some()
    }

    /// The header of the element at `index`, if it is in use. An acquire load: later loads of the
    /// element are not older.
    #[inline]
    fn posted(&self, index: u32) -> Option<WqeHeader> {
        let header = WqeHeader(self.ring.header(index));
        header.has(flag::VALID).then_some(header)
    }

    /// The number of elements in use. Reads the header of each element.
    pub(crate) fn posted_count(&self) -> u32 {
        let mut count: u32 = 0;
        for index in 0..self.ring.slots() {
            count = count.saturating_add(self.is_valid(index).into());
        }
        count
    }

    /// Takes the element at `index`, if it is in use.
    #[inline]
    pub(crate) fn take_at(&self, index: u32) -> Option<Result<RecvWqe, BadWqe>> {
        let header = self.posted(index)?;
        Some(self.take_posted(index, header))
    }

    /// Takes the element at `index`, whose header has been read.
    #[inline]
    fn take_posted(&self, index: u32, header: WqeHeader) -> Result<RecvWqe, BadWqe> {
        let words = self.ring.read::<RQE_WORDS>(index);
        self.ring.release(index);
        let [id, ..] = words;
        match abi::decode_sgl(&words, RQE_SGES, header.num_sge(), self.max_sge) {
            Some(sgl) => Ok(RecvWqe { id, sgl }),
            None => Err(BadWqe {
                id,
                opcode: WcOpcode::Recv,
                status: WcStatus::LocQpOp,
            }),
        }
    }

    /// Appends work requests of a kernel user; stops at the first that fails. Any context.
    ///
    /// `EINVAL` for an invalid work request, or when a process owns the ring. `ENOMEM` when the
    /// ring is full.
    pub(crate) fn post(&self, wrs: &mut RecvWrs<'_>) -> Result {
        if self.ring.owner() == Owner::User {
            return Err(EINVAL);
        }
        let mut put = self.put.lock();
        while let Some(wr) = wrs.current() {
            if self.is_valid(*put) {
                return Err(ENOMEM);
            }
            let mut sgl = Sgl::EMPTY;
            for sge in wr.sges() {
                let sge = Sge {
                    addr: sge.addr,
                    len: sge.len,
                    lkey: Stag::new(sge.lkey),
                };
                if sgl.as_slice().len() >= usize::from(self.max_sge) || !sgl.push(sge) {
                    return Err(EINVAL);
                }
            }
            let mut words = [0; RQE_WORDS];
            let [id, ..] = &mut words;
            *id = wr.id();
            abi::encode_sgl(&mut words, RQE_SGES, &sgl);
            let n = sgl.as_slice().len() as u8;
            let header = WqeHeader::new(flag::VALID, n, abi::opcode::RECEIVE, Stag::new(0));
            self.ring.write(*put, &words);
            self.ring.publish(*put, header.0);
            *put = put.wrapping_add(1);
            wrs.accept();
        }
        Ok(())
    }
}

/// The receive queue of one queue pair.
pub(crate) struct OwnQueue {
    ring: Arc<RecvRing>,
    /// The index of the next element to take, free running. Only the consumer changes it: the
    /// context that holds the stream, later the flush.
    get: Atomic<u32>,
    /// Work requests are flushed, and used for no message.
    closed: Atomic<bool>,
}

impl OwnQueue {
    /// Takes the next work request, if there is one. `closed`: also from a closed queue, to flush.
    #[inline]
    fn take(&self, closed: bool) -> Option<Result<RecvWqe, BadWqe>> {
        let at = self.get.load(Relaxed);
        let header = self.ring.posted(at)?;
        // Loaded after the header: the queue was still open when the owner posted the element, or
        // the load sees the closing.
        if !closed && self.closed.load(Relaxed) {
            return None;
        }
        let wqe = self.ring.take_posted(at, header);
        self.get.store(at.wrapping_add(1), Relaxed);
        Some(wqe)
    }
}

/// The source of a queue pair's receive work requests.
pub(crate) enum RecvSource {
    /// The queue pair's own receive queue.
    Own(OwnQueue),
    /// A shared receive queue.
    Shared(Arc<Srq>),
}

impl RecvSource {
    /// Makes a queue pair's own receive queue. Process context; sleeps.
    pub(crate) fn own(ring: impl PinInit<RecvRing>) -> Result<Self> {
        Ok(Self::Own(OwnQueue {
            ring: Arc::pin_init(ring, GFP_KERNEL)?,
            get: Atomic::new(0),
            closed: Atomic::new(false),
        }))
    }

    /// The ring of the queue pair's own receive queue; `None` with a shared one.
    pub(crate) fn ring(&self) -> Option<&RecvRing> {
        match self {
            Self::Own(own) => Some(&own.ring),
            Self::Shared(_) => None,
        }
    }

    /// Closes or reopens the queue pair's own receive queue. Work requests of a closed queue are
    /// only [flushed](Self::take_to_flush). Any context.
    pub(crate) fn set_closed(&self, closed: bool) {
        if let Self::Own(own) = self {
            own.closed.store(closed, Relaxed);
        }
    }

    /// Takes the next receive work request for a message, if there is one and the queue is not
    /// closed.
    ///
    /// The caller is the consumer of the queue pair: it holds the stream. The element is read once
    /// and then checked, as by [`fetch`](super::send::SendQueue::fetch).
    #[inline]
    pub(crate) fn take(&self) -> Option<Result<RecvWqe, BadWqe>> {
        match self {
            Self::Own(own) => own.take(false),
            Self::Shared(srq) => srq.take(),
        }
    }

    /// Takes the next work request of the queue pair's own receive queue to flush it, if there is
    /// one.
    ///
    /// The caller is the consumer of the queue pair: it flushes after the stream's end.
    pub(crate) fn take_to_flush(&self) -> Option<Result<RecvWqe, BadWqe>> {
        match self {
            Self::Own(own) => own.take(true),
            Self::Shared(_) => None,
        }
    }

    /// Whether the queue pair's own receive queue has a work request.
    pub(crate) fn is_pending(&self) -> bool {
        match self {
            Self::Own(own) => own.ring.is_valid(own.get.load(Relaxed)),
            Self::Shared(_) => false,
        }
    }
}
