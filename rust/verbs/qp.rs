// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: RC, in the states of iWARP.
//!
//! A queue pair carries at most one stream in its life. The connection manager attaches while it
//! sets a connection up, the stream takes over ([`Qp::set_rts`]), and when the stream has ended
//! ([`Qp::stream_ended`]) everything that is still posted is flushed, once, in order: the send
//! queue, then the receive queue.
//!
//! - [`modify`]: the verbs that change and tell attributes
//! - [`direct`], [`named`]: queue pairs whose owner names the peer, and which connect themselves
//! - [`reset`]: from any state back to the first
//! - [`flush`]: completion of what will not be executed any more
//!
//! Locks, outermost first: the one of changes, the flush lock, the state, then those of the queues.

pub(crate) mod direct;
mod flush;
pub(crate) mod modify;
mod named;
mod reset;

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
            Full,
            Relaxed,
            Release, //
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

pub(crate) use crate::sys::ib::event::QpEvent;
use crate::{
    stream::{
        Close,
        EndReason,
        Stream, //
    },
    sys::{
        ib::{
            core_ref::CoreRef,
            event::CoreQp,
            ring::Owner,
            wr::{
                QpPtr,
                RecvWrs,
                SendWrs, //
            }, //
        },
        lock::{
            new_spinlock_irq,
            SpinLockIrq, //
        },
        trace,
        work, //
    },
    verbs::{
        cq::{
            Completion,
            Cq, //
        },
        device::Place,
        queue::{
            recv::RecvSource,
            send::SendQueue,
            wqe::Sge, //
        },
        region::{
            Access,
            AccessError,
            LocalBuf, //
        },
        Device,
        PdId,
        Qpn, //
    },
};

/// The states of a queue pair, and what the verbs call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpState {
    /// `RESET` and `INIT`: nothing but receives can be posted.
    Idle = 0,
    /// `RTR`: as idle.
    Rtr = 1,
    /// `RTS`: a stream is running.
    Rts = 2,
    /// `SQD`: the stream is being closed gracefully.
    Closing = 3,
    /// `SQE`: a Terminate was sent or received.
    Terminate = 4,
    /// `ERR`: nothing is executed any more.
    Error = 5,
    /// `RTS` of a queue pair that connects itself: work requests wait for the stream.
    Waiting = 6,
    /// The peer of a queue pair that connects itself has left in order, nothing was lost, and the
    /// owner has not noticed: for him the state is as before.
    Left = 7,
}

impl QpState {
    /// The state of that number; anything unknown is the error state.
    const fn from_u32(value: u32) -> Self {
        match value {
            0 => Self::Idle,
            1 => Self::Rtr,
            2 => Self::Rts,
            3 => Self::Closing,
            4 => Self::Terminate,
            6 => Self::Waiting,
            7 => Self::Left,
            _ => Self::Error,
        }
    }

    /// Its number in `enum ib_qp_state`, for trace events.
    const fn traced(self) -> u32 {
        match self {
            Self::Idle => 1,
            Self::Rtr => 2,
            Self::Rts | Self::Waiting | Self::Left => 3,
            Self::Closing => 4,
            Self::Terminate => 5,
            Self::Error => 6,
        }
    }
}

/// How a queue pair leaves while the connection manager works for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The owner wants a graceful disconnect.
    Graceful,
    /// At once.
    Abort,
}

/// What the connection manager hears of the queue pair it has attached to.
pub(crate) trait Attached: Send + Sync {
    /// The queue pair goes, and no stream is running: the set-up is to be given up.
    ///
    /// Any context, maybe under locks: only notes it and queues work. The connection manager
    /// [detaches](Qp::detach) in finite time.
    fn qp_leaving(&self, how: Leaving);

    /// The owner of the queue pair ends the connection. Any context; only notes it and queues work.
    fn owner_closes(&self);

    /// What a queue pair that connects itself tells of its [terms](Qp::terms) has changed.
    ///
    /// Context as above.
    fn qp_news(&self);
}

/// The fields of a queue pair that its state lock protects.
pub(super) struct QpInner {
    /// The state; [`Qp::state`] has a copy.
    state: QpState,
    /// It was taken out of `RESET`.
    initialised: bool,
    /// Its owner has put it into `RESET`.
    was_reset: bool,
    /// The stream, from its start to its end.
    stream: Option<Arc<Stream>>,
    /// The receiving end, if the peer is the queue pair itself.
    mirror: Option<Arc<Stream>>,
    /// There was a stream once.
    started: bool,
    /// The connection manager, while it works for this queue pair.
    attached: Option<Arc<dyn Attached>>,
    /// The attributes that the owner has set and that `query_qp` tells.
    attrs: modify::Kept,
    /// The peer, if the owner has named one.
    direct: Option<direct::Direct>,
}

/// How a queue pair is made.
pub(super) struct QpParts {
    /// Its place in the device.
    pub(super) place: Place,
    /// Its number.
    pub(super) qpn: Qpn,
    /// Its protection domain.
    pub(super) pd: PdId,
    /// Where ends of send work requests go.
    pub(super) send_cq: Arc<Cq>,
    /// Where ends of receive work requests go.
    pub(super) recv_cq: Arc<Cq>,
    /// Where receive work requests come from.
    pub(super) rq: RecvSource,
    /// What it was asked to hold.
    pub(super) cap: modify::Cap,
    /// Every send work request asks for a completion.
    pub(super) signal_all: bool,
    /// Who owns it.
    pub(super) owner: Owner,
    /// The queue pair as `ib_core` knows it.
    pub(super) core: CoreQp,
}

/// A queue pair.
#[pin_data]
pub(crate) struct Qp {
    /// Its place in the device.
    place: Place,
    /// Its number.
    qpn: Qpn,
    /// Its protection domain.
    pd: PdId,
    /// Where ends of send work requests go.
    send_cq: Arc<Cq>,
    /// Where ends of receive work requests go.
    recv_cq: Arc<Cq>,
    /// The send queue.
    #[pin]
    sq: SendQueue,
    /// The receive queue.
    rq: RecvSource,
    /// What it was asked to hold.
    cap: modify::Cap,
    /// Every send work request asks for a completion.
    signal_all: bool,
    /// Who owns it.
    owner: Owner,
    /// The state, for a look without the lock.
    state: Atomic<u32>,
    /// The state and what goes with it.
    #[pin]
    inner: SpinLockIrq<QpInner>,
    /// Has changes by the owner made one after the other.
    #[pin]
    changing: Mutex<()>,
    /// Serializes flushing.
    #[pin]
    flushing: SpinLockIrq<flush::Flushing>,
    /// Events to report, by their bits.
    events: Atomic<u32>,
    /// The queue pair as `ib_core` knows it. Its users: work items, the stream, the attached
    /// connection manager, and references of `iw_cm`.
    #[pin]
    core: CoreRef<CoreQp>,
    /// Reports events.
    #[pin]
    report: Work<Qp, { Qp::REPORT }>,
    /// Goes on flushing.
    #[pin]
    flush_on: Work<Qp, { Qp::FLUSH }>,
    /// Looks for what has been posted since.
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
    /// The work item that goes on flushing.
    const FLUSH: u64 = 1;
    /// The work item that flushes what is posted late.
    const FLUSH_LATE: u64 = 2;

    /// A queue pair. Process context; sleeps.
    pub(super) fn new(parts: QpParts) -> Result<Arc<Self>> {
        let QpParts {
            place,
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
        let sq = SendQueue::new(
            cap.send_depth()?,
            cap.max_send_sge(),
            cap.max_inline,
            signal_all,
            owner,
        )?;
        Arc::pin_init(
            try_pin_init!(Self {
                place,
                qpn,
                pd,
                send_cq,
                recv_cq,
                sq <- sq,
                rq,
                cap,
                signal_all,
                owner,
                state: Atomic::new(QpState::Idle as u32),
                inner <- new_spinlock_irq!(
                    QpInner {
                        state: QpState::Idle,
                        initialised: false,
                        was_reset: false,
                        stream: None,
                        mirror: None,
                        started: false,
                        attached: None,
                        attrs: modify::Kept::default(),
                        direct: None,
                    },
                    "rsiw_qp"
                ),
                changing <- new_mutex!((), "rsiw_qp_changing"),
                flushing <- new_spinlock_irq!(flush::Flushing::new(), "rsiw_qp_flush"),
                events: Atomic::new(0),
                core <- CoreRef::new(core),
                report <- new_work!("rsiw_qp_report"),
                flush_on <- new_work!("rsiw_qp_flush"),
                flush_late <- new_delayed_work!("rsiw_qp_flush_late"),
            }),
            GFP_KERNEL,
        )
    }

    /// Its number.
    #[inline]
    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its protection domain.
    #[inline]
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// Its device.
    #[inline]
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.place.device()
    }

    /// Whether a process owns it.
    #[inline]
    pub(crate) fn is_user(&self) -> bool {
        self.owner == Owner::User
    }

    /// The send queue. Only the holder of the stream fetches.
    #[inline]
    pub(crate) fn sq(&self) -> &SendQueue {
        &self.sq
    }

    /// The receive queue. Only the holder of the stream takes.
    #[inline]
    pub(crate) fn rq(&self) -> &RecvSource {
        &self.rq
    }

    /// The state at this moment.
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        QpState::from_u32(self.state.load(Acquire))
    }

    /// Changes the state.
    fn set_state(&self, inner: &mut QpInner, state: QpState) {
        trace::qp_state(self.qpn.get(), inner.state.traced(), state.traced());
        inner.state = state;
        self.state.store(state as u32, Release);
    }

    /// The queue pair as `ib_core` knows it; valid until `destroy_qp` returns.
    pub(crate) fn core(&self) -> QpPtr {
        self.core.value().ptr()
    }

    /// Finds the memory of one of its scatter-gather elements and checks the whole of it.
    ///
    /// Context and limits as of [`pin`](crate::verbs::region::RegionTable::pin). An element of
    /// zero length is not to be looked up.
    #[inline]
    pub(crate) fn local(&self, sge: &Sge, need: Access) -> Result<LocalBuf, AccessError> {
        let kernel = self.sq.ring().kernel_memory();
        LocalBuf::new(self.device().regions(), self.pd, kernel, sge, need)
    }

    /// Reports the end of a send work request. Any context with or without the stream held.
    #[inline]
    pub(crate) fn complete_send(self: &Arc<Self>, c: &Completion) {
        if !self.send_cq.complete(self.qpn, c) {
            self.fail();
        }
    }

    /// Reports the end of a receive work request. Any context with or without the stream held.
    #[inline]
    pub(crate) fn complete_recv(self: &Arc<Self>, c: &Completion) {
        if !self.recv_cq.complete(self.qpn, c) {
            self.fail();
        }
    }

    /// Has an event reported from process context. Any context.
    pub(crate) fn fatal(self: &Arc<Self>, event: QpEvent) {
        let mut old = self.events.load(Relaxed);
        while let Err(now) = self.events.cmpxchg(old, old | event.bit(), Full) {
            old = now;
        }
        let _ = work::process().enqueue::<Arc<Self>, { Self::REPORT }>(self.clone());
    }

    /// Gives the queue pair to a stream that is about to start. Process context.
    ///
    /// `EINVAL` if it has or had a stream, `ENOTCONN` if it is in error; the caller then gives the
    /// connection up.
    pub(crate) fn set_rts(&self, stream: Arc<Stream>) -> Result {
        let mut inner = self.inner.lock();
        if inner.started {
            return Err(EINVAL);
        }
        if !matches!(inner.state, QpState::Idle | QpState::Rtr | QpState::Waiting)
            || !self.core.get()
        {
            return Err(crate::sys::errno::ENOTCONN);
        }
        inner.started = true;
        inner.stream = Some(stream);
        self.set_state(&mut inner, QpState::Rts);
        Ok(())
    }

    /// Tells how far closing has gone, for `query_qp`. Any context.
    pub(crate) fn enter(&self, state: QpState) {
        let mut inner = self.inner.lock();
        let later = match state {
            QpState::Closing => inner.state == QpState::Rts,
            QpState::Terminate => matches!(inner.state, QpState::Rts | QpState::Closing),
            _ => false,
        };
        if later {
            self.set_state(&mut inner, state);
        }
    }

    /// Takes the queue pair back from its stream: the stream's last act, which afterwards touches
    /// neither queues nor regions. Softirq or process context, the socket lock held.
    ///
    /// The stream has itself completed all that it had fetched; `lost`: some of that without
    /// success.
    pub(crate) fn stream_ended(self: &Arc<Self>, reason: EndReason, lost: bool) {
        let mut inner = self.inner.lock();
        let stream = inner.stream.take();
        // In InfiniBand nobody hears of it when a peer with which he has no business goes.
        let unnoticed = reason == EndReason::PeerFin
            && !lost
            && matches!(inner.state, QpState::Rts | QpState::Closing)
            && matches!(&inner.direct, Some(direct) if !direct.closing);
        let direct = inner.direct.is_some();
        let mirror = inner.mirror.clone();
        let end = if unnoticed {
            QpState::Left
        } else {
            QpState::Error
        };
        self.set_state(&mut inner, end);
        drop(inner);
        if stream.is_none() {
            return;
        }
        if let Some(mirror) = mirror {
            mirror.close(Close::Leave);
        }
        if unnoticed {
            drop(stream);
            self.core.put();
            return;
        }
        match reason {
            EndReason::TerminateReceived | EndReason::LlpError(_) => self.fatal(QpEvent::Fatal),
            EndReason::Reset | EndReason::PeerFin if direct => self.fatal(QpEvent::Fatal),
            _ => {}
        }
        self.flush();
        if matches!(self.rq, RecvSource::Shared(_)) {
            self.fatal(QpEvent::LastWqeReached);
        }
        drop(stream);
        self.core.put();
    }

    /// Gives the receiving end of a queue pair that is connected to itself to a stream. Process
    /// context.
    ///
    /// `ENOTCONN` if the sending end is not there any more.
    pub(crate) fn set_mirror(&self, stream: Arc<Stream>) -> Result {
        let mut inner = self.inner.lock();
        if inner.state != QpState::Rts || inner.mirror.is_some() || !self.core.get() {
            return Err(crate::sys::errno::ENOTCONN);
        }
        inner.mirror = Some(stream);
        Ok(())
    }

    /// As [`stream_ended`](Self::stream_ended), of the receiving end.
    pub(crate) fn mirror_ended(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let mirror = inner.mirror.take();
        let stream = inner.stream.clone();
        drop(inner);
        if mirror.is_none() {
            return;
        }
        match stream {
            Some(stream) => stream.close(Close::Leave),
            None => self.flush(),
        }
        drop(mirror);
        self.core.put();
    }

    /// A process has posted work requests; they may be left alone for a moment if others are
    /// likely to follow. Process context.
    pub(super) fn doorbell(self: &Arc<Self>) {
        if self.state() == QpState::Rts {
            let stream = self.inner.lock().stream.clone();
            if let Some(stream) = stream {
                return stream.doorbell();
            }
        }
        self.kick();
    }

    /// Looks after newly posted work requests. Any context, with interrupts off too.
    pub(crate) fn kick(self: &Arc<Self>) {
        match self.state() {
            QpState::Rts | QpState::Closing => {
                let stream = self.inner.lock().stream.clone();
                if let Some(stream) = stream {
                    stream.kick();
                }
            }
            QpState::Error => self.flush(),
            QpState::Waiting => {
                let attached = self.inner.lock().attached.clone();
                if let Some(attached) = attached {
                    attached.qp_news();
                }
            }
            // A peer that has left is not answered for by an error at once either.
            QpState::Idle | QpState::Rtr | QpState::Terminate | QpState::Left => {}
        }
    }

    /// Puts the queue pair into the error state. Any context; what has to wait is deferred.
    pub(crate) fn fail(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        self.set_state(&mut inner, QpState::Error);
        let stream = inner.stream.clone();
        let attached = inner.attached.clone();
        // What has been reported as sent must arrive: no more than this can the owner of a queue
        // pair that connects itself do.
        let how = match &inner.direct {
            Some(_) => Close::Leave,
            None => Close::Abort,
        };
        drop(inner);
        match stream {
            // The stream's end flushes.
            Some(stream) => stream.close(how),
            None => {
                if let Some(attached) = attached {
                    attached.qp_leaving(Leaving::Abort);
                }
                self.flush();
            }
        }
    }

    /// Tells the connection manager that the owner ends the connection. Process context.
    fn tell_owner_closes(&self) {
        let attached = self.inner.lock().attached.clone();
        if let Some(attached) = attached {
            attached.owner_closes();
        }
    }

    /// Starts the graceful end. Any context.
    ///
    /// Does nothing when the connection has ended already. `EINVAL` when there was none.
    fn close(&self) -> Result {
        let mut inner = self.inner.lock();
        match inner.state {
            QpState::Rts => {
                self.set_state(&mut inner, QpState::Closing);
                let stream = inner.stream.clone();
                drop(inner);
                if let Some(stream) = stream {
                    stream.close(Close::Graceful);
                }
                Ok(())
            }
            QpState::Closing => Ok(()),
            // Who is told that the peer has gone answers with his own disconnect, as
            // rdma_disconnect(3) wants it; librdmacm fails it if this fails.
            QpState::Terminate | QpState::Error if inner.started => Ok(()),
            QpState::Idle | QpState::Rtr => {
                let attached = inner.attached.clone();
                drop(inner);
                attached.ok_or(EINVAL)?.qp_leaving(Leaving::Graceful);
                Ok(())
            }
            QpState::Terminate | QpState::Error | QpState::Waiting | QpState::Left => Err(EINVAL),
        }
    }

    /// The connection manager begins to work for the queue pair. Process context.
    ///
    /// `EINVAL` when it does so already, when there is or was a stream, or in the error state.
    pub(crate) fn attach(&self, owner: Arc<dyn Attached>) -> Result {
        let mut inner = self.inner.lock();
        if inner.attached.is_some()
            || inner.started
            || !matches!(inner.state, QpState::Idle | QpState::Rtr)
            || !self.core.get()
        {
            return Err(EINVAL);
        }
        inner.attached = Some(owner);
        Ok(())
    }

    /// The connection manager has finished with the queue pair. Process context.
    pub(crate) fn detach(&self) {
        let attached = self.inner.lock().attached.take();
        if attached.is_some() {
            self.core.put();
        }
        drop(attached);
    }

    /// `iw_cm` takes a reference (`iw_add_ref`): destroying waits for it.
    ///
    /// `false` when it is being destroyed already.
    pub(crate) fn cm_get(&self) -> bool {
        self.core.get()
    }

    /// `iw_cm` gives a reference back (`iw_rem_ref`).
    pub(crate) fn cm_put(&self) {
        self.core.put();
    }

    /// Posts send work requests of a kernel user; stops at the first that can not be. Any context.
    ///
    /// `ENOTCONN` before the connection is there, `EINVAL` for a request that makes no sense or
    /// when a process owns the queue, `ENOMEM` when the queue is full.
    pub(super) fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_>) -> Result {
        if self.is_user() {
            return Err(EINVAL);
        }
        if matches!(self.state(), QpState::Idle | QpState::Rtr) {
            return Err(crate::sys::errno::ENOTCONN);
        }
        let mut posted = false;
        let mut put = self.sq.put().lock();
        let result = loop {
            let Some(wr) = wrs.current() else {
                break Ok(());
            };
            if let Err(error) = self.sq.post(&mut put, wr) {
                break Err(error);
            }
            wrs.accept();
            posted = true;
        };
        drop(put);
        if posted {
            self.kick();
        }
        result
    }

    /// Posts receive work requests of a kernel user. Any context.
    pub(super) fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        let result = self.rq.ring().ok_or(EINVAL)?.post(wrs);
        if self.state() == QpState::Error {
            self.flush();
        }
        result
    }

    /// Ends the queue pair: nothing of it is heard any more once this has returned. Process
    /// context; sleeps until the stream, the connection manager and `iw_cm` have let go.
    pub(super) fn destroy(self: &Arc<Self>) {
        self.tell_owner_closes();
        self.fail();
        self.core.retire();
        self.stop_flushing();
    }
}
