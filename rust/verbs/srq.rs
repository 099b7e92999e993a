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

/// The consumer's state of the queue.
struct SrqInner {
    /// The index of the next element to take, free running.
    get: u32,
    /// The limit of the one-shot event: it fires below this number of elements; 0: no event.
    limit: u32,
}

/// A shared receive queue.
#[pin_data]
pub(crate) struct Srq {
    /// Counts the queue in the device.
    _object_slot: ObjectSlot,
    /// The protection domain.
    pd: PdId,
    /// The number of elements: the requested number of work requests, rounded up to a power of two.
    max_wr: u32,
    /// The largest number of scatter-gather elements in a work request.
    max_sge: u8,
    #[pin]
    ring: RecvRing,
    /// The consumer.
    #[pin]
    inner: SpinLockIrq<SrqInner>,
    /// The `ib_srq` of the queue, until the queue is destroyed.
    core: Arc<CoreRef<CoreSrq>>,
    /// Reports the limit event.
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
    /// Makes a queue of at least `attr.max_wr` work requests, rounded up to a power of two. Process
    /// context; sleeps.
    ///
    /// The limit of a process is ignored: ibv_create_srq(3) gives it no meaning, and programs leave
    /// any value there.
    ///
    /// `EINVAL` for attributes that are out of range, `ENOMEM`.
    pub(crate) fn new(
        object_slot: ObjectSlot,
        pd: PdId,
        attr: SrqAttr,
        owner: Owner,
        core: Arc<CoreRef<CoreSrq>>,
    ) -> Result<Arc<Self>> {
        let limit = match owner {
            Owner::User => 0,
            Owner::Kernel(_) => attr.limit,
        };
        if attr.max_wr == 0
            || attr.max_wr > limits::MAX_SRQ_WR
            || attr.max_sge as usize > MAX_SGE
            || limit > attr.max_wr
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
                inner <- new_spinlock_irq!(SrqInner { get: 0, limit }, "rsiw_srq"),
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

    /// The attributes for `query_srq`.
    pub(crate) fn attr(&self) -> SrqAttr {
        SrqAttr {
            max_wr: self.max_wr,
            max_sge: u32::from(self.max_sge),
            limit: self.inner.lock().limit,
        }
    }

    /// Arms the limit event; 0 disarms it. `EINVAL` when `limit` exceeds the queue. Any context.
    pub(crate) fn set_limit(&self, limit: u32) -> Result {
        if limit > self.max_wr {
            return Err(EINVAL);
        }
        self.inner.lock().limit = limit;
        Ok(())
    }

    /// Appends work requests of a kernel user. Any context. Errors as of [`RecvRing::post`].
    pub(crate) fn post(&self, wrs: &mut RecvWrs<'_>) -> Result {
        self.ring.post(wrs)
    }

    /// Takes the next work request for a queue pair; `None` when the queue is empty. Any context.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Result<RecvWqe, BadWqe>> {
        let mut inner = self.inner.lock();
        let wqe = self.ring.take_at(inner.get)?;
        inner.get = inner.get.wrapping_add(1);
        // The elements in use follow `get` without a gap. So fewer than `limit` are in use if
        // element `get + limit - 1` is not.
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

    /// Waits for a running event handler; none is called afterwards. Process context; sleeps.
    pub(crate) fn retire(&self) {
        self.core.retire();
    }
}
