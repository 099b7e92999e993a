// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: RC, in the states of iWARP.
//!
//! A queue pair carries at most one stream in its life. The connection manager attaches while it
//! sets a connection up, and starts the stream ([`Qp::start_stream`]). When the stream has ended,
//! everything that is still posted is flushed, once, in order: the send queue, then the receive
//! queue. The data path is [`QpQueues`]. The stream uses nothing else of a queue pair.
//!
//! - [`state`]: the states
//! - [`connection`]: the stream and the connection manager come and go
//! - [`post`]: work requests
//! - [`modify`]: the verbs that change and tell attributes
//! - [`peer`], [`named`]: peers that owners name, for the rendezvous
//! - [`reset`]: from any state back to the first
//! - [`rnr`]: how long a message may wait for a receive
//! - [`flush`]: completion of what will not be executed any more
//! - [`gone`]: notification of the end
//! - [`describe`]: what it tells of itself
//!
//! Locks, outermost first: the one of changes, the flush lock, the state, then those of the queues.

mod connection;
mod describe;
mod flush;
mod gone;
pub(crate) mod modify;
mod named;
pub(crate) mod peer;
mod post;
mod reset;
mod rnr;
mod state;
pub(crate) mod table;

use kernel::{
    impl_has_delayed_work,
    impl_has_work,
    new_delayed_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

pub(crate) use self::{
    connection::{
        Attached,
        Leaving, //
    },
    gone::DestroyNotify,
    state::QpState, //
};
pub(crate) use crate::sys::rdma::event::QpEvent;
use crate::{
    stream::{
        EndReason,
        Stream, //
    },
    sys::{
        rdma::{
            core_ref::{
                CoreHold,
                CoreRef, //
            },
            event::CoreQp,
            ring::Owner,
            wr::QpPtr, //
        }, //
        sync::{
            context::Caller,
            lock::{
                new_spinlock_bh,
                new_spinlock_irq,
                SpinLockBh,
                SpinLockIrq, //
            }, //
        },
    },
    verbs::{
        cq::Cq,
        device::ObjectSlot,
        qp_queues::{
            QpQueues,
            QpQueuesParts, //
        },
        wq::{
            recv::RecvSource,
            send::SendQueue, //
        },
        Association,
        Device,
        PdId,
        Qpn,
        StreamId, //
    }, //
};

/// The fields of a queue pair that its state lock protects.
pub(crate) struct QpInner {
    /// The state; [`Qp::state`] has a copy.
    state: QpState,
    /// The queue pair was taken out of `RESET`.
    initialised: bool,
    /// The owner has put the queue pair into `RESET`.
    was_reset: bool,
    /// A change of the owner to `RESET` is in progress.
    resetting: bool,
    /// Completed when the stream and the connection manager have let go, for `RESET`.
    vacated: Option<Arc<kernel::sync::Completion>>,
    /// `LAST_WQE_REACHED` is due at the end of the stream.
    last_wqe: bool,
    /// The stream, from its start to its end.
    stream: Option<Arc<Stream>>,
    /// The receiving end, if the peer is the queue pair itself.
    mirror: Option<Arc<Stream>>,
    /// Users of the core's object: destruction waits for them.
    holds: Holds,
    /// A stream was started once.
    started: bool,
    /// Why the stream ended.
    ended: Option<EndReason>,
    /// The owner or the peer has begun to end the connection in order.
    closing: bool,
    /// The connection manager, while it works for this queue pair.
    attached: Option<Arc<dyn Attached>>,
    /// Notified when the queue pair is destroyed.
    on_destroy: Option<Arc<dyn DestroyNotify>>,
    /// The attributes that the owner has set and that `query_qp` tells.
    attrs: modify::KeptAttributes,
    /// The peer, if the owner has named one.
    peer: Option<peer::NamedPeer>,
}

/// Users of the core's object, which destroying the queue pair waits for.
#[derive(Default)]
struct Holds {
    /// The stream, from its start to the end of its report.
    stream: Option<CoreHold<CoreQp>>,
    /// The receiving end.
    mirror: Option<CoreHold<CoreQp>>,
    /// The attached connection manager.
    attached: Option<CoreHold<CoreQp>>,
}

/// Parts of a new queue pair.
pub(crate) struct QpParts {
    /// Counts the queue pair in the device.
    pub(crate) object_slot: ObjectSlot,
    /// The number of the queue pair.
    pub(crate) qpn: Qpn,
    /// The protection domain.
    pub(crate) pd: PdId,
    /// Where ends of send work requests go.
    pub(crate) send_cq: Arc<Cq>,
    /// Where ends of receive work requests go.
    pub(crate) recv_cq: Arc<Cq>,
    /// Where receive work requests come from.
    pub(crate) rq: RecvSource,
    /// What it was asked to hold.
    pub(crate) cap: modify::Cap,
    /// Every send work request asks for a completion.
    pub(crate) signal_all: bool,
    /// The owner.
    pub(crate) owner: Owner,
    /// The queue pair as `ib_core` knows it.
    pub(crate) core: Arc<CoreRef<CoreQp>>,
}

/// A queue pair.
#[pin_data]
pub(crate) struct Qp {
    /// The data path.
    queues: Arc<QpQueues>,
    /// What it was asked to hold.
    cap: modify::Cap,
    /// Every send work request asks for a completion.
    signal_all: bool,
    /// The owner.
    owner: Owner,
    /// The process that made the queue pair.
    maker: Caller,
    /// The state, for a look without the lock.
    state: Atomic<u32>,
    /// The state and what goes with it.
    #[pin]
    inner: SpinLockIrq<QpInner>,
    /// Serializes changes by the owner.
    #[pin]
    changing: Mutex<()>,
    /// Serializes flushing.
    #[pin]
    flushing: SpinLockBh<flush::Flushing>,
    /// `ib_core`'s object refers to this queue pair.
    made: Atomic<bool>,
    /// Events to report, by their bits.
    events: Atomic<u32>,
    /// The last Terminate that was sent or received.
    last_terminate: Atomic<u32>,
    /// The queue pair as `ib_core` knows it. Its users: work items, the stream, the attached
    /// connection manager, and references of `iw_cm`.
    core: Arc<CoreRef<CoreQp>>,
    /// Reports events.
    #[pin]
    report: Work<Qp, { Qp::REPORT }>,
    /// Continues the flush.
    #[pin]
    flush_on: Work<Qp, { Qp::FLUSH }>,
    /// Flushes what was posted after the last pass.
    #[pin]
    flush_late: DelayedWork<Qp, { Qp::FLUSH_LATE }>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, { Qp::FLUSH_LATE }> for Qp { self.flush_late }
}

impl_has_work! {
    impl HasWork<Self, { Qp::REPORT }> for Qp { self.report }
    impl HasWork<Self, { Qp::FLUSH }> for Qp { self.flush_on }
}

impl WorkItem<{ Qp::REPORT }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.core.with(|core| {
            let pending = this.events.xchg(0, Full);
            for event in QpEvent::ALL {
                if pending & event.bit() != 0 {
                    core.dispatch(event);
                }
            }
        });
    }
}

impl WorkItem<{ Qp::FLUSH }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.flush();
    }
}

impl WorkItem<{ Qp::FLUSH_LATE }> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.flush_late();
    }
}

impl Qp {
    /// The work item that reports events.
    const REPORT: u64 = 0;
    /// The work item that continues the flush.
    const FLUSH: u64 = 1;
    /// The work item that flushes what is posted late.
    const FLUSH_LATE: u64 = 2;

    /// A queue pair. Process context; sleeps.
    pub(crate) fn new(parts: QpParts) -> Result<Arc<Self>> {
        let QpParts {
            object_slot,
            qpn,
            pd,
            send_cq,
            recv_cq,
            rq,
            cap,
            signal_all,
            owner,
            core,
        } = parts;
        let association = Association {
            pd,
            stream: StreamId::new(object_slot.device().next_number()),
        };
        let sq = SendQueue::new(
            cap.send_depth()?,
            cap.max_send_sge(),
            cap.max_inline,
            signal_all,
            owner,
        )?;
        let queues = QpQueues::new(
            QpQueuesParts {
                object_slot,
                qpn,
                association,
                send_cq,
                recv_cq,
                rq,
            },
            sq,
        )?;
        queues.set_rnr_limit(rnr::limit(&modify::KeptAttributes::default()));
        Arc::pin_init(
            try_pin_init!(Self {
                queues,
                cap,
                signal_all,
                owner,
                maker: Caller::now(),
                state: Atomic::new(QpState::Idle as u32),
                inner <- new_spinlock_irq!(
                    QpInner {
                        state: QpState::Idle,
                        initialised: false,
                        was_reset: false,
                        resetting: false,
                        vacated: None,
                        last_wqe: false,
                        stream: None,
                        mirror: None,
                        holds: Holds::default(),
                        started: false,
                        ended: None,
                        closing: false,
                        attached: None,
                        on_destroy: None,
                        attrs: modify::KeptAttributes::default(),
                        peer: None,
                    },
                    "rsiw_qp"
                ),
                changing <- new_mutex!((), "rsiw_qp_changing"),
                flushing <- new_spinlock_bh!(flush::Flushing::new(), "rsiw_qp_flush"),
                made: Atomic::new(false),
                events: Atomic::new(0),
                last_terminate: Atomic::new(0),
                core,
                report <- new_work!("rsiw_qp_report"),
                flush_on <- new_work!("rsiw_qp_flush"),
                flush_late <- new_delayed_work!("rsiw_qp_flush_late"),
            }),
            GFP_KERNEL,
        )
    }

    /// The data path.
    #[inline]
    pub(crate) fn queues(&self) -> &Arc<QpQueues> {
        &self.queues
    }

    /// The number of the queue pair.
    #[inline]
    pub(crate) fn qpn(&self) -> Qpn {
        self.queues.qpn()
    }

    /// The device of the queue pair.
    #[inline]
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.queues.device()
    }

    /// Whether a process owns it.
    #[inline]
    pub(crate) fn is_user(&self) -> bool {
        self.owner == Owner::User
    }

    /// The state at this moment.
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        QpState::from_u32(self.state.load(Acquire))
    }

    /// The queue pair as `ib_core` knows it; valid until `destroy_qp` returns.
    pub(crate) fn core(&self) -> QpPtr {
        self.core.ptr()
    }
}
