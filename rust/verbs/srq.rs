// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues, with their limit event (requirements.md DDP-92).

use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use crate::{
    sys::{
        rdma::{
            core_ref::CoreRef,
            driver::SrqAttr,
            event::CoreSrq,
            ring::{
                Owner,
                Ring, //
            },
            wr::RecvWrs, //
        },
        sync::{
            lock::{
                new_spinlock_irq,
                SpinLockIrq, //
            },
            work, //
        }, //
    },
    verbs::{
        device::ObjectSlot,
        limits,
        wq::{
            recv::RecvRing,
            wqe::{
                BadWqe,
                RecvWqe,
                MAX_SGE, //
            }, //
        },
        PdId, //
    }, //
};

/// Where the queue stands.
struct SrqInner {
    /// The next element to take, free running.
    get: u32,
    /// Fewer elements than this give an event, once; 0: no event.
    limit: u32,
}

/// A shared receive queue.
#[pin_data]
pub(crate) struct Srq {
    /// Counts it in the device.
    _object_slot: ObjectSlot,
    /// The protection domain.
    pd: PdId,
    /// What its owner asked for.
    max_wr: u32,
    /// Scatter-gather elements of a work request.
    max_sge: u8,
    /// The ring.
    #[pin]
    ring: RecvRing,
    /// The taking end.
    #[pin]
    inner: SpinLockIrq<SrqInner>,
    /// The queue as `ib_core` knows it, until it is destroyed.
    core: Arc<CoreRef<CoreSrq>>,
    /// Reports that the limit is reached.
    #[pin]
    report: Work<Srq>,
}

impl_has_work! {
    impl HasWork<Self> for Srq { self.report }
}

impl WorkItem for Srq {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.core.with(CoreSrq::dispatch_limit);
    }
}

impl Srq {
    /// A queue. Process context; sleeps.
    pub(crate) fn new(
        object_slot: ObjectSlot,
        pd: PdId,
        attr: SrqAttr,
        owner: Owner,
        core: Arc<CoreRef<CoreSrq>>,
    ) -> Result<Arc<Self>> {
        if attr.max_wr == 0
            || attr.max_wr > limits::MAX_SRQ_WR
            || attr.max_sge as usize > MAX_SGE
            || attr.limit > attr.max_wr
        {
            return Err(EINVAL);
        }
        let depth = attr.max_wr.checked_next_power_of_two().ok_or(EINVAL)?;
        let max_sge = attr.max_sge.max(1) as u8;
        let ring = RecvRing::new(depth, max_sge, owner)?;
        Arc::pin_init(
            try_pin_init!(Self {
                _object_slot: object_slot,
                pd,
                max_wr: depth,
                max_sge,
                ring <- ring,
                inner <- new_spinlock_irq!(SrqInner { get: 0, limit: attr.limit }, "rsiw_srq"),
                core,
                report <- new_work!("rsiw_srq_report"),
            }),
            GFP_KERNEL,
        )
    }

    /// The ring, to map it.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        self.ring.ring()
    }

    /// The protection domain.
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// What `query_srq` tells.
    pub(crate) fn attr(&self) -> SrqAttr {
        SrqAttr {
            max_wr: self.max_wr,
            max_sge: u32::from(self.max_sge),
            limit: self.inner.lock().limit,
        }
    }

    /// Arms the limit event; 0 disarms it.
    pub(crate) fn set_limit(&self, limit: u32) -> Result {
        if limit > self.max_wr {
            return Err(EINVAL);
        }
        self.inner.lock().limit = limit;
        Ok(())
    }

    /// Appends work requests of a kernel user. Any context.
    pub(crate) fn post(&self, wrs: &mut RecvWrs<'_>) -> Result {
        self.ring.post(wrs)
    }

    /// Takes the next work request, for any of the queue pairs. Any context.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Result<RecvWqe, BadWqe>> {
        let mut inner = self.inner.lock();
        let wqe = self.ring.take_at(inner.get)?;
        inner.get = inner.get.wrapping_add(1);
        // The elements in use are those from `get` on without a gap, so the one that would be
        // number `limit` of them tells.
        let reached = match inner.limit.checked_sub(1) {
            Some(more) => !self.ring.is_valid(inner.get.wrapping_add(more)),
            None => false,
        };
        if reached {
            inner.limit = 0;
        }
        drop(inner);
        if reached {
            let _ = work::process().enqueue(self.clone());
        }
        Some(wqe)
    }

    /// Waits for the event handler to be done. Process context; sleeps.
    pub(crate) fn retire(&self) {
        self.core.retire();
    }
}
