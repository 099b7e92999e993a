// SPDX-License-Identifier: GPL-2.0

//! Completion queues: one ring layout for processes and kernel users, notification, overflow.
//!
//! The owner arms a queue by a store to the control word behind the ring (siw-abi.h). The driver
//! stores the entry, then loads that word. The driver disarms the queue when it calls the handler.
//! Both sides have a full barrier between store and load. Entries that do not fit are dropped, and
//! the queue's owner receives one `IB_EVENT_CQ_ERR`.

mod completion;
mod entries;

use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

pub(crate) use self::completion::{
    Completion,
    WcOpcode,
    WcStatus, //
};
use self::entries::{
    Entries,
    Pushed, //
};
use crate::{
    sys::{
        rdma::{
            core_ref::CoreRef,
            driver::Arm,
            event::CoreCq,
            ring::{
                Owner,
                Ring, //
            },
            wr::{
                QpPtr,
                Wc,
                WcRoom, //
            }, //
        },
        sync::work, //
    },
    verbs::{
        counters::Counter,
        device::ObjectSlot,
        Qpn, //
    }, //
};

/// A completion queue.
#[pin_data]
pub(crate) struct Cq {
    /// Counts the queue in the device.
    object_slot: ObjectSlot,
    /// The number by which the process names the queue.
    number: u32,
    #[pin]
    entries: Entries,
    /// An entry was dropped; the overflow is reported once.
    overflown: Atomic<bool>,
    /// The `ib_cq` of the queue, until the queue is destroyed.
    core: Arc<CoreRef<CoreCq>>,
    /// Calls handlers that may post. The context that adds a completion does not call them.
    #[pin]
    call: Work<Cq, { Cq::CALL }>,
    /// Reports the overflow.
    #[pin]
    report: Work<Cq, { Cq::REPORT }>,
}

impl_has_work! {
    impl HasWork<Self, { Cq::CALL }> for Cq { self.call }
    impl HasWork<Self, { Cq::REPORT }> for Cq { self.report }
}

impl WorkItem<{ Cq::CALL }> for Cq {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.core.with(|core| core.call_handler());
    }
}

impl WorkItem<{ Cq::REPORT }> for Cq {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.core.with(|core| core.dispatch_error());
    }
}

impl Cq {
    /// The work item that calls a handler.
    const CALL: u64 = 0;
    /// The work item that reports an overflow.
    const REPORT: u64 = 1;

    /// Makes a queue of at least `entries` entries, rounded up to a power of two.
    ///
    /// Process context; sleeps.
    pub(crate) fn new(
        object_slot: ObjectSlot,
        number: u32,
        entries: u32,
        owner: Owner,
        core: Arc<CoreRef<CoreCq>>,
    ) -> Result<Arc<Self>> {
        let entries = Entries::new(entries, owner)?;
        Arc::pin_init(
            pin_init!(Self {
                object_slot,
                number,
                entries <- entries,
                overflown: Atomic::new(false),
                core,
                call <- new_work!("rsiw_cq_call"),
                report <- new_work!("rsiw_cq_report"),
            }),
            GFP_KERNEL,
        )
    }

    /// The number by which the process names the queue.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The ring, to map it.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        self.entries.ring()
    }

    /// Adds a completion of queue pair `qpn`. Any context with interrupts on.
    ///
    /// Returns `false` when the queue is full. The completion is lost then, the overflow is
    /// reported to the owner of the queue, and the queue pair must move to the error state.
    pub(crate) fn complete(self: &Arc<Self>, qpn: Qpn, c: &Completion) -> bool {
        let pushed = self.entries.push(qpn.get(), c);
        match pushed {
            Pushed::Full => self.overflow(),
            Pushed::Quiet => {}
            Pushed::Fire => self.fire(),
        }
        pushed != Pushed::Full
    }

    /// As [`complete`](Self::complete) for a kernel user, but a full queue does not lose the
    /// completion. A completion that is not `urgent` uses at most half of the entries.
    pub(crate) fn try_complete(self: &Arc<Self>, qpn: Qpn, c: &Completion, urgent: bool) -> bool {
        if !urgent && self.entries.is_half_full() {
            return false;
        }
        let pushed = self.entries.push(qpn.get(), c);
        if pushed == Pushed::Fire {
            self.fire();
        }
        pushed != Pushed::Full
    }

    /// Calls the owner's handler, or queues the work item that calls it.
    ///
    /// Handlers of `ib_core` itself only schedule. Other handlers may post, so a work item that
    /// holds no lock calls them (docs/locking.md).
    fn fire(self: &Arc<Self>) {
        let inline = self.core.with(|core| {
            let inline = core.handler_only_schedules();
            if inline {
                core.call_handler();
            }
            inline
        });
        if inline == Some(false) {
            let _ = work::bh().enqueue::<Arc<Self>, { Self::CALL }>(self.clone());
        }
    }

    /// Reports the first entry that did not fit.
    fn overflow(self: &Arc<Self>) {
        self.object_slot
            .device()
            .counters()
            .add(Counter::CqOverflows, 1);
        if !self.overflown.xchg(true, Full) {
            let _ = work::process().enqueue::<Arc<Self>, { Self::REPORT }>(self.clone());
        }
    }

    /// Moves completions into `room` for a kernel user. Any context.
    ///
    /// `find` looks up the queue pair of a number. Completions of destroyed queue pairs are
    /// skipped: a kernel user finds the queue pair by its pointer, which no longer exists.
    pub(crate) fn poll(&self, room: &mut WcRoom<'_>, find: impl Fn(u32) -> Option<QpPtr>) {
        let mut last: Option<(u32, QpPtr)> = None;
        // The loop ends: each iteration takes an entry, and destroyed queue pairs add none.
        while !room.is_full() {
            let Some(entry) = self.entries.take() else {
                break;
            };
            if last.is_none_or(|(known, _)| known != entry.qpn) {
                let qp = find(entry.qpn);
                last = qp.map(|qp| (entry.qpn, qp));
            }
            let Some((_, qp)) = last else {
                continue;
            };
            room.push(&Wc {
                id: entry.id,
                status: entry.status,
                opcode: entry.opcode,
                bytes: entry.bytes,
                qp,
                invalidated: entry.invalidated,
            });
        }
    }

    /// Arms the queue for a kernel user; returns whether the queue has completions. Any context.
    pub(crate) fn arm(&self, arm: Arm) -> bool {
        self.entries.arm(arm)
    }

    /// Waits for running handlers; no handler is called afterwards. Process context; sleeps.
    pub(crate) fn retire(&self) {
        self.core.retire();
    }
}
