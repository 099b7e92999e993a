// SPDX-License-Identifier: GPL-2.0

//! RC queue pairs in the states of iWARP.
//!
//! A queue pair has at most one connection until it is reset. The connection manager attaches for
//! the set-up, and starts the stream ([`Qp::start_stream`]). After the end of the stream each
//! posted work request is flushed once, in order: the send queue, then the receive queue. The data
//! path is [`QpQueues`]. The stream accesses only the data path and the callbacks of
//! [`StreamOwner`](crate::stream::StreamOwner).
//!
//! - [`state`]: the states
//! - [`connection`]: start and end of a connection, and its users
//! - [`post`]: posting of work requests, and doorbells
//! - [`modify`]: attributes, `modify_qp` and `query_qp`
//! - [`peer`], [`named`]: peers that owners name, for the rendezvous
//! - [`reset`]: the transition to `RESET`
//! - [`rnr`]: the time for which a Send waits for a receive
//! - [`flush`]: completion of work requests that will not be executed
//! - [`describe`]: driver attributes for `rdma resource show qp`
//! - [`table`]: queue pairs by number
//!
//! Lock order, outermost first: `Qp::changing`, `Qp::flushing`, `Qp::inner`, the locks of the
//! queues.

mod connection;
mod describe;
mod flush;
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
        DestroyNotify,
        Leaving, //
    },
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
            res::ResAttrs,
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
            },
            work, //
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
    /// The owner has taken the queue pair out of `RESET`.
    initialised: bool,
    /// The owner has put the queue pair into `RESET`.
    was_reset: bool,
    /// A transition to `RESET` is in progress.
    resetting: bool,
    /// Completed when neither a stream nor the connection manager is attached. A transition to
    /// `RESET` waits for it.
    vacated: Option<Arc<kernel::sync::Completion>>,
    /// The stream has ended, and `LAST_WQE_REACHED` was not reported yet.
    last_wqe: bool,
    /// The stream, from its start to its end.
    stream: Option<Arc<Stream>>,
    /// The stream of the receiving end, if the peer is the queue pair itself.
    mirror: Option<Arc<Stream>>,
    /// Counted users of the `ib_qp`, which destruction waits for.
    holds: Holds,
    /// A stream has been started since the last `RESET`.
    started: bool,
    /// The reason for the end of the stream.
    ended: Option<EndReason>,
    /// The owner or the peer has begun to close the connection gracefully.
    closing: bool,
    /// The attached connection manager.
    attached: Option<Arc<dyn Attached>>,
    /// Notified when the queue pair is destroyed.
    on_destroy: Option<Arc<dyn DestroyNotify>>,
    /// The attributes that `modify_qp` has set and `query_qp` returns.
    attrs: modify::KeptAttributes,
    /// The peer, if the owner has named one.
    peer: Option<peer::NamedPeer>,
}

/// Counted users of the `ib_qp`. [`Qp::destroy`] waits until they are dropped.
#[derive(Default)]
struct Holds {
    /// The stream, until its end has been reported.
    stream: Option<CoreHold<CoreQp>>,
    /// The stream of the receiving end.
    mirror: Option<CoreHold<CoreQp>>,
    /// The attached connection manager.
    attached: Option<CoreHold<CoreQp>>,
}

/// Parts of a new queue pair.
pub(crate) struct QpParts {
    /// Counts the queue pair towards the limit of the device.
    pub(crate) object_slot: ObjectSlot,
    /// The number of the queue pair.
    pub(crate) qpn: Qpn,
    /// The protection domain.
    pub(crate) pd: PdId,
    /// The completion queue of send work requests.
    pub(crate) send_cq: Arc<Cq>,
    /// The completion queue of receive work requests.
    pub(crate) recv_cq: Arc<Cq>,
    /// The receive queue, own or shared.
    pub(crate) rq: RecvSource,
    /// The capacity, from [`Cap::checked`](modify::Cap::checked).
    pub(crate) cap: modify::Cap,
    /// Every send work request generates a completion (`IB_SIGNAL_ALL_WR`).
    pub(crate) signal_all: bool,
    /// A process or a kernel user, which decides how work requests are posted.
    pub(crate) owner: Owner,
    /// The `ib_qp`.
    pub(crate) core: Arc<CoreRef<CoreQp>>,
}

/// A queue pair.
#[pin_data]
pub(crate) struct Qp {
    /// The data path.
    queues: Arc<QpQueues>,
    /// The capacity, from [`Cap::checked`](modify::Cap::checked).
    cap: modify::Cap,
    /// Every send work request generates a completion (`IB_SIGNAL_ALL_WR`).
    signal_all: bool,
    owner: Owner,
    /// The process that created the queue pair.
    maker: Caller,
    /// A copy of the state, which is read without the lock.
    state: state::StateCopy,
    /// The state and the fields that change with it.
    #[pin]
    inner: SpinLockIrq<QpInner>,
    /// Serializes [`modify`](Self::modify).
    #[pin]
    changing: Mutex<()>,
    /// Serializes flushing.
    #[pin]
    flushing: SpinLockBh<flush::Flushing>,
    /// The `ib_qp` refers to this queue pair.
    made: Atomic<bool>,
    /// The set of events to report, as bits of [`QpEvent::bit`].
    events: Atomic<u32>,
    /// The last Terminate that was sent or received.
    last_terminate: describe::LastTerminate,
    /// The `ib_qp`. Its counted users are work items, streams, the attached connection manager,
    /// and references of `iw_cm`.
    core: Arc<CoreRef<CoreQp>>,
    /// Reports events.
    #[pin]
    report: Work<Qp, { Qp::REPORT }>,
    /// Continues the flush.
    #[pin]
    flush_on: Work<Qp, { Qp::FLUSH }>,
    /// Flushes work requests that were posted after the last pass.
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
    type Pointer = work::Delayed<Self>;

    fn run(this: work::Delayed<Self>) {
        let this = this.into_arc();
        this.flush_late();
    }
}

impl Qp {
    /// The work item that reports events.
    const REPORT: u64 = 0;
    /// The work item that continues the flush.
    const FLUSH: u64 = 1;
    /// The work item that flushes late posts.
    const FLUSH_LATE: u64 = 2;

    /// Makes a queue pair in the state [`QpState::Idle`]. Process context; sleeps.
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
                state: state::StateCopy::new(),
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
                last_terminate: describe::LastTerminate::new(),
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

    /// Whether a process owns the queue pair.
    #[inline]
    pub(crate) fn is_user(&self) -> bool {
        self.owner == Owner::User
    }

    /// The state, possibly stale after the return. Any context.
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        self.state.get()
    }

    /// Changes the state, under the state lock.
    fn set_state(&self, inner: &mut QpInner, state: QpState) {
        self.state.change(&self.queues, inner, state);
    }

    /// Adds the driver attributes. Process context; sleeps.
    pub(crate) fn describe(&self, attrs: &mut ResAttrs<'_>) {
        let info = describe::QpSnapshot::new(&self.inner.lock());
        info.describe(&self.queues, &self.last_terminate, attrs);
    }

    /// The `ib_qp`, valid until `destroy_qp` returns.
    pub(crate) fn core(&self) -> QpPtr {
        self.core.ptr()
    }
}
