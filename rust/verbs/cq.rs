// SPDX-License-Identifier: GPL-2.0

//! Completion queues: one ring layout for processes and kernel users, notification, overflow.
//!
//! The owner arms a queue by storing into the control word behind the ring; we store the entry,
//! then look at that word, each with a full barrier between, and disarm it when we call
//! (siw-abi.h). Entries that do not fit are dropped, and the queue's owner gets one `CQ_ERR`.

use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
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

use crate::{
    sys::{
        ib::{
            core_ref::CoreRef,
            driver::Arm,
            event::CoreCq,
            ring::{
                Owner,
                Ring, //
            },
            wr::{
                IbWcOpcode,
                IbWcStatus,
                QpPtr,
                Wc,
                WcRoom, //
            }, //
        },
        lock::{
            new_spinlock_irq,
            SpinLockIrq, //
        },
        work, //
    },
    verbs::{
        counters::Counter,
        device::Place,
        queue::abi::{
            flag,
            opcode,
            CQE_WORDS, //
        },
        Qpn,
        Stag, //
    },
};

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WcOpcode {
    /// A Send, also one with invalidation.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read, also one with invalidation.
    Read,
    /// A local invalidation.
    LocalInv,
    /// A fast registration.
    RegMr,
    /// A receive.
    Recv,
}

impl WcOpcode {
    /// As the ring has it (`enum siw_opcode`).
    const fn to_ring(self) -> u8 {
        match self {
            Self::Send => opcode::SEND,
            Self::Write => opcode::WRITE,
            Self::Read => opcode::READ,
            Self::LocalInv => opcode::INVAL_STAG,
            Self::RegMr => opcode::REG_MR,
            Self::Recv => opcode::RECEIVE,
        }
    }

    /// As kernel users get it, from what the ring has.
    const fn to_ib(ring: u8) -> IbWcOpcode {
        match ring {
            opcode::WRITE => IbWcOpcode::Write,
            opcode::READ => IbWcOpcode::Read,
            opcode::INVAL_STAG => IbWcOpcode::LocalInv,
            opcode::REG_MR => IbWcOpcode::RegMr,
            opcode::RECEIVE => IbWcOpcode::Recv,
            _ => IbWcOpcode::Send,
        }
    }
}

/// How it ended; the values are those of `enum siw_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum WcStatus {
    /// Well.
    Success = 0,
    /// A local buffer was too short, or a request too long.
    LocLen = 1,
    /// A local key did not give the memory.
    LocProt = 2,
    /// The queue pair can not do that.
    LocQpOp = 3,
    /// Never executed, or not known to be: the queue pair is in error.
    WrFlush = 4,
    /// The peer's answer made no sense.
    BadResp = 5,
    /// A local region did not give the right.
    LocAccess = 6,
    /// The peer refused the access.
    RemAccess = 7,
    /// The peer refused the request.
    RemInvReq = 8,
    /// Anything else.
    General = 9,
}

impl WcStatus {
    /// As kernel users get it, from what the ring has.
    const fn to_ib(ring: u16) -> IbWcStatus {
        match ring {
            0 => IbWcStatus::Success,
            1 => IbWcStatus::LocLen,
            2 => IbWcStatus::LocProt,
            3 => IbWcStatus::LocQpOp,
            4 => IbWcStatus::WrFlush,
            5 => IbWcStatus::BadResp,
            6 => IbWcStatus::LocAccess,
            7 => IbWcStatus::RemAccess,
            8 => IbWcStatus::RemInvReq,
            _ => IbWcStatus::General,
        }
    }
}

/// The end of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The owner's name of the work request.
    pub(crate) id: u64,
    /// What it was.
    pub(crate) opcode: WcOpcode,
    /// How it ended.
    pub(crate) status: WcStatus,
    /// Octets received or read; for other work requests what they carried.
    pub(crate) bytes: u32,
    /// The STag which the message has invalidated here.
    pub(crate) invalidated: Option<Stag>,
    /// The peer asked for a solicited event.
    pub(crate) solicited: bool,
}

/// What is asked of the control word (`enum siw_notify_flags`).
mod notify {
    /// Nothing.
    pub(super) const NOT: u32 = 0;
    /// A solicited completion, or an unsuccessful one.
    pub(super) const SOLICITED: u32 = 1;
    /// Any completion.
    pub(super) const NEXT_COMPLETION: u32 = 2;
}

/// Where the queue stands.
struct CqInner {
    /// The next entry to fill, free running.
    put: u32,
    /// The next entry for a kernel user, free running.
    get: u32,
}

/// A completion queue.
#[pin_data]
pub(crate) struct Cq {
    /// Its place in the device.
    place: Place,
    /// Its number, for the process.
    number: u32,
    /// The entries.
    ring: Arc<Ring>,
    /// Both ends. Taken with no other lock or under that of a send queue.
    #[pin]
    inner: SpinLockIrq<CqInner>,
    /// An entry was dropped once.
    overflown: Atomic<bool>,
    /// The queue as `ib_core` knows it, until it is destroyed.
    #[pin]
    core: CoreRef<CoreCq>,
    /// Calls handlers that may post, away from where completions are made.
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

    /// A queue of at least `entries` entries. Process context; sleeps.
    pub(super) fn new(
        place: Place,
        number: u32,
        entries: u32,
        owner: Owner,
        core: CoreCq,
    ) -> Result<Arc<Self>> {
        let ring = Ring::new(
            entries.checked_next_power_of_two().ok_or(EINVAL)?,
            CQE_WORDS as u32,
            true,
            owner,
        )?;
        Arc::pin_init(
            pin_init!(Self {
                place,
                number,
                ring,
                inner <- new_spinlock_irq!(CqInner { put: 0, get: 0 }, "rsiw_cq"),
                overflown: Atomic::new(false),
                core <- CoreRef::new(core),
                call <- new_work!("rsiw_cq_call"),
                report <- new_work!("rsiw_cq_report"),
            }),
            GFP_KERNEL,
        )
    }

    /// Its number, for the process.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The ring, to map it.
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Entries.
    pub(super) fn entries(&self) -> u32 {
        self.ring.slots()
    }

    /// Adds the end of a work request of queue pair `qpn`. Any context.
    ///
    /// Gives `false` when there was no room: the completion is lost, the owner of the queue is
    /// told, and the queue pair can not go on.
    pub(super) fn complete(self: &Arc<Self>, qpn: Qpn, c: &Completion) -> bool {
        let mut flags = flag::VALID;
        if c.invalidated.is_some() && self.ring.owner() == Owner::Kernel {
            flags |= flag::REM_INVAL;
        }
        let header = u64::from(flags)
            | u64::from(c.opcode.to_ring()) << 8
            | u64::from(c.status as u16) << 16
            | u64::from(c.bytes) << 32;
        let key = c.invalidated.map_or(0, |stag| u64::from(stag.get()));
        let words = [c.id, 0, key, u64::from(qpn.get())];

        let mut inner = self.inner.lock();
        let put = inner.put;
        if self.ring.header(put) as u16 & flag::VALID != 0 {
            drop(inner);
            self.overflow();
            return false;
        }
        self.ring.write::<CQE_WORDS>(put, &words);
        self.ring.publish(put, header);
        inner.put = put.wrapping_add(1);
        let armed = self.ring.control_load();
        let urgent = c.solicited || c.status != WcStatus::Success;
        let fire =
            armed & notify::NEXT_COMPLETION != 0 || (armed & notify::SOLICITED != 0 && urgent);
        if fire {
            self.ring.control_store(notify::NOT);
        }
        drop(inner);
        if fire {
            self.fire();
        }
        true
    }

    /// Calls the owner's handler, or has it called.
    ///
    /// Handlers of `ib_core` itself only schedule; those of others may post, and are therefore
    /// called from a work item that holds no lock (design.md, section 3).
    fn fire(self: &Arc<Self>) {
        let direct = self.core.with(|core| {
            let direct = core.handler_only_schedules();
            if direct {
                core.call_handler();
            }
            direct
        });
        if direct == Some(false) {
            let _ = work::bh().enqueue::<Arc<Self>, { Self::CALL }>(self.clone());
        }
    }

    /// Reports the first entry that did not fit.
    fn overflow(self: &Arc<Self>) {
        self.place.device().counters().add(Counter::CqOverflows, 1);
        if !self.overflown.xchg(true, Full) {
            let _ = work::process().enqueue::<Arc<Self>, { Self::REPORT }>(self.clone());
        }
    }

    /// Gives completions to a kernel user. Any context.
    ///
    /// Those of queue pairs that are destroyed are passed over: their user could not tell whose
    /// they are.
    pub(super) fn poll(&self, room: &mut WcRoom<'_>) {
        let mut last: Option<(u32, QpPtr)> = None;
        let mut inner = self.inner.lock();
        // Every turn empties a slot, so that there are no more turns than slots.
        while !room.is_full() {
            let at = inner.get;
            let header = self.ring.header(at);
            if header as u16 & flag::VALID == 0 {
                break;
            }
            let [id, _, key, number] = self.ring.read::<CQE_WORDS>(at);
            self.ring.release(at);
            inner.get = at.wrapping_add(1);
            let number = number as u32;
            if last.is_none_or(|(known, _)| known != number) {
                last = self.place.device().qp_ptr(number).map(|qp| (number, qp));
            }
            let Some((_, qp)) = last else {
                continue;
            };
            room.push(&Wc {
                id,
                status: WcStatus::to_ib((header >> 16) as u16),
                opcode: WcOpcode::to_ib((header >> 8) as u8),
                bytes: (header >> 32) as u32,
                qp,
                invalidated: (header as u16 & flag::REM_INVAL != 0).then_some(key as u32),
            });
        }
    }

    /// Arms the queue for a kernel user; gives whether there are completions already. Any context.
    pub(super) fn arm(&self, arm: Arm) -> bool {
        let inner = self.inner.lock();
        let word = match arm {
            Arm::Solicited => notify::SOLICITED,
            Arm::Next => notify::SOLICITED | notify::NEXT_COMPLETION,
        };
        // A request for any completion is not weakened by a later one for solicited ones.
        self.ring.control_store(self.ring.control_load() | word);
        self.ring.header(inner.get) as u16 & flag::VALID != 0
    }

    /// Waits for the handlers to be done; none is called afterwards. Process context; sleeps.
    pub(super) fn retire(&self) {
        self.core.retire();
    }

    /// Whether an entry was ever dropped.
    pub(super) fn has_overflown(&self) -> bool {
        self.overflown.load(Acquire)
    }
}
