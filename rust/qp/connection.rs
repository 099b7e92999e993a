// SPDX-License-Identifier: GPL-2.0

//! Start and end of a queue pair's connection.
//!
//! The connection manager [attaches](Qp::attach) for the set-up of a connection. A started stream
//! reports its end through [`StreamOwner`]. A request of the owner to end the connection goes to
//! the stream, or to the connection manager before the stream starts.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

use super::{
    Qp,
    QpEvent,
    QpInner,
    QpState, //
};
use crate::{
    stream::{
        Close,
        Config,
        EndReason,
        Stream,
        StreamOwner,
        StreamUser,
        Unfinished, //
    },
    sys::{
        net::socket::Socket, //
        rdma::{
            core_ref::CoreHold,
            event::CoreQp, //
        },
        sync::{
            context::Caller,
            work, //
        },
    },
    verbs::wq::recv::RecvSource, //
};

/// The kind of end that a queue pair requests of the attached connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// A graceful disconnect of the owner.
    Graceful,
    /// The connection ends at once, with a reset.
    Abort,
}

/// Events of a queue pair for the attached connection manager.
pub(crate) trait Attached: Send + Sync {
    /// The queue pair ends without a running stream: the connection manager aborts the set-up.
    ///
    /// Any context, possibly under locks. An implementation records the event and queues a work
    /// item. The connection manager [detaches](Qp::detach) in finite time.
    fn qp_leaving(&self, how: Leaving);

    /// The owner of the queue pair ends the connection. Any context; as
    /// [`qp_leaving`](Self::qp_leaving).
    fn owner_closes(&self);

    /// The [terms](Qp::terms) of a rendezvous have changed; this includes newly posted work.
    ///
    /// Any context; as [`qp_leaving`](Self::qp_leaving).
    fn qp_news(&self);
}

/// An object that outlives a queue pair, and is notified of its destruction.
pub(crate) trait DestroyNotify: Send + Sync {
    /// The owner has destroyed the queue pair. Process context; may sleep.
    fn qp_destroyed(&self);
}

impl QpInner {
    /// How the stream ends when the queue pair enters the error state.
    fn close_on_error(&self) -> Close {
        match &self.peer {
            // Work that was reported as completed must reach the peer: the owner of a rendezvous
            // has no other means to end the connection.
            Some(_) => Close::Leave,
            // Destruction after a disconnect does not discard data that was sent before the
            // disconnect.
            None if self.closing => Close::Leave,
            None => Close::Abort,
        }
    }
}

/// The owner of a stream: one end of the connection of a queue pair.
struct StreamEnd {
    /// The queue pair.
    qp: Arc<Qp>,
    /// This is the receiving end of a queue pair that is connected to itself.
    mirror: bool,
}

impl StreamOwner for StreamEnd {
    fn starting(&self, stream: Arc<Stream>) -> Result {
        match self.mirror {
            true => self.qp.set_mirror(stream),
            false => self.qp.set_rts(stream),
        }
    }

    fn closing(&self) {
        self.qp.enter_closing();
    }

    fn ended(&self, reason: EndReason, unfinished: Unfinished) {
        match self.mirror {
            true => self.qp.mirror_ended(reason, unfinished),
            false => self.qp.stream_ended(reason, unfinished),
        }
    }

    fn terminate(&self, sent: bool, code: u32) {
        self.qp.last_terminate.note(sent, code);
    }

    fn failed(&self) -> Option<Close> {
        self.qp.failed()
    }

    fn overflowed(&self) {
        self.qp.fail();
    }
}

impl Qp {
    /// Starts a stream on `socket` for the queue pair, as [`Stream::start`]: MPA's full operation
    /// phase begins. Process context.
    pub(crate) fn start_stream(
        self: &Arc<Self>,
        socket: Socket,
        config: Config,
        user: Arc<dyn StreamUser>,
    ) -> Result<Arc<Stream>, (Error, Socket)> {
        let end = StreamEnd {
            qp: self.clone(),
            mirror: config.mirror,
        };
        match Arc::new(end, GFP_KERNEL) {
            Ok(end) => Stream::start(self.queues.clone(), end, user, socket, config),
            Err(error) => Err((error.into(), socket)),
        }
    }

    /// Assigns the queue pair, in `RTS`, to a stream that is about to start. Process context.
    ///
    /// `EINVAL`: the queue pair has or had a stream since the last `RESET`. `ENOTCONN`: its state
    /// is not `Idle`, `Rtr` or `Waiting`, or it is being destroyed. The caller then closes the
    /// connection.
    fn set_rts(&self, stream: Arc<Stream>) -> Result {
        let mut inner = self.inner.lock();
        if inner.started {
            return Err(EINVAL);
        }
        if !matches!(inner.state, QpState::Idle | QpState::Rtr | QpState::Waiting) {
            return Err(crate::sys::errno::ENOTCONN);
        }
        inner.holds.stream = Some(self.core.hold().ok_or(crate::sys::errno::ENOTCONN)?);
        inner.started = true;
        inner.stream = Some(stream);
        self.set_state(&mut inner, QpState::Rts);
        Ok(())
    }

    /// Handles the start of a graceful close. Any context.
    fn enter_closing(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        if inner.state == QpState::Rts {
            self.set_state(&mut inner, QpState::Closing);
        }
    }

    /// Handles the end of the stream: changes the state to `Error` or `Left`, flushes, and reports
    /// the end. Softirq or process context, under the socket lock.
    ///
    /// This is the last callback of the stream, which accesses neither queues nor regions
    /// afterwards.
    ///
    /// `unfinished` are work requests that the stream has fetched and not executed.
    fn stream_ended(self: &Arc<Self>, reason: EndReason, unfinished: Unfinished) {
        let lost = !unfinished.is_empty();
        // Whether the receiving end of a queue pair that is connected to itself has noted an
        // event.
        let told = self.events.load(Relaxed) != 0;
        self.keep_unfinished(unfinished, false);
        let mut inner = self.inner.lock();
        let stream = inner.stream.take();
        if let Some(stream) = &stream {
            stream.tell_retransmits(self.queues.counters());
        }
        inner.ended = Some(reason);
        let hold = inner.holds.stream.take();
        // InfiniBand does not report the end of an idle peer to the owner.
        let unnoticed = reason == EndReason::PeerFin
            && !lost
            && !told
            && matches!(inner.state, QpState::Rts | QpState::Closing)
            && matches!(&inner.peer, Some(peer) if !peer.closing);
        // An owner that resets the queue pair expects the end, so no event reports it.
        let quiet = inner.resetting;
        inner.last_wqe |= stream.is_some() && !unnoticed && !quiet;
        let peer = inner.peer.is_some();
        let mirror = inner.mirror.clone();
        let end = if unnoticed {
            QpState::Left
        } else {
            QpState::Error
        };
        self.set_state(&mut inner, end);
        inner.tell_vacated();
        drop(inner);
        if stream.is_none() {
            return;
        }
        if let Some(mirror) = mirror {
            mirror.close(Close::Leave);
        }
        if unnoticed {
            drop(stream);
            drop(hold);
            return;
        }
        let event = match reason {
            _ if quiet || told => None,
            EndReason::TerminateReceived | EndReason::LlpError(_) => Some(QpEvent::Fatal),
            EndReason::TerminateSent(event) => event,
            EndReason::Reset | EndReason::PeerFin => peer.then_some(QpEvent::Fatal),
            EndReason::LocalClose => None,
        };
        // The event is reported after the flush, so that the owner finds the completion with the
        // cause. It is noted before, since the flush may report events, too.
        if let Some(event) = event {
            self.note(event);
        }
        self.flush();
        if event.is_some() || told {
            self.report_noted();
        }
        drop(stream);
        drop(hold);
    }

    /// Assigns the receiving end of a queue pair that is connected to itself to a stream. Process
    /// context.
    ///
    /// `ENOTCONN`: the sending end is not in `RTS`, a receiving end exists, or the queue pair is
    /// being destroyed.
    fn set_mirror(&self, stream: Arc<Stream>) -> Result {
        let mut inner = self.inner.lock();
        if inner.state != QpState::Rts || inner.mirror.is_some() {
            return Err(crate::sys::errno::ENOTCONN);
        }
        inner.holds.mirror = Some(self.core.hold().ok_or(crate::sys::errno::ENOTCONN)?);
        inner.mirror = Some(stream);
        Ok(())
    }

    /// As [`stream_ended`](Self::stream_ended), for the receiving end.
    fn mirror_ended(self: &Arc<Self>, reason: EndReason, unfinished: Unfinished) {
        self.keep_unfinished(unfinished, true);
        let mut inner = self.inner.lock();
        let mirror = inner.mirror.take();
        let hold = inner.holds.mirror.take();
        inner.tell_vacated();
        let stream = inner.stream.clone();
        let quiet = inner.resetting;
        drop(inner);
        if mirror.is_none() {
            return;
        }
        let event = match reason {
            EndReason::TerminateSent(event) if !quiet => event,
            _ => None,
        };
        if let Some(event) = event {
            self.note(event);
        }
        match stream {
            // The end of the stream reports the failure, after the completions with the cause.
            Some(stream) => stream.close(Close::Leave),
            None => {
                self.flush();
                if event.is_some() {
                    self.report_noted();
                }
            }
        }
        drop(mirror);
        drop(hold);
    }

    /// Reports an event through a work item. Any context.
    pub(crate) fn fatal(self: &Arc<Self>, event: QpEvent) {
        self.note(event);
        self.report_noted();
    }

    /// Notes an event for [`report_noted`](Self::report_noted). Any context.
    fn note(&self, event: QpEvent) {
        let mut old = self.events.load(Relaxed);
        while let Err(now) = self.events.cmpxchg(old, old | event.bit(), Full) {
            old = now;
        }
    }

    /// Queues the work item that reports noted events. Any context.
    fn report_noted(self: &Arc<Self>) {
        let _ = work::process().enqueue::<Arc<Self>, { Self::REPORT }>(self.clone());
    }

    /// Enters the error state, and reports `LAST_WQE_REACHED` unless the end of a stream will. Any
    /// context; steps that may sleep are left to work items.
    pub(crate) fn fail(self: &Arc<Self>) {
        if self.fail_quietly() {
            self.tell_last_wqe();
        }
    }

    /// As [`fail`](Self::fail), without the event. Returns `true` if the caller has to report the
    /// failure.
    ///
    /// Returns `false` if a stream will report the failure at its end, or the queue pair was in
    /// the error state before. The same holds during a transition to `RESET`.
    pub(super) fn fail_quietly(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        let known = inner.state == QpState::Error || inner.resetting;
        self.set_state(&mut inner, QpState::Error);
        let stream = inner.stream.clone();
        let attached = inner.attached.clone();
        let how = inner.close_on_error();
        drop(inner);
        match stream {
            // The end of the stream flushes the queues.
            Some(stream) => {
                stream.close(how);
                false
            }
            None => {
                if let Some(attached) = attached {
                    attached.qp_leaving(Leaving::Abort);
                }
                self.flush();
                !known
            }
        }
    }

    /// Reports `LAST_WQE_REACHED` for a shared receive queue: the queue pair holds no receive of
    /// the queue, and will take none. The kernel's `ib_drain_qp()` waits for this event. Any
    /// context.
    pub(super) fn tell_last_wqe(self: &Arc<Self>) {
        if matches!(self.queues.rq(), RecvSource::Shared(_)) {
            self.fatal(QpEvent::LastWqeReached);
        }
    }

    /// Reports `LAST_WQE_REACHED` once after the end of the stream. Every receive that was taken
    /// is completed by then.
    pub(super) fn tell_last_wqe_if_owed(self: &Arc<Self>) {
        if core::mem::take(&mut self.inner.lock().last_wqe) {
            self.tell_last_wqe();
        }
    }

    /// How the stream of a queue pair in the error state ends; `None` in other states. Any context.
    fn failed(&self) -> Option<Close> {
        let inner = self.inner.lock();
        (inner.state == QpState::Error).then(|| match inner.closing {
            true => Close::Disconnect,
            false => inner.close_on_error(),
        })
    }

    /// Notifies the attached connection manager that the owner ends the connection. Process
    /// context.
    pub(super) fn tell_owner_closes(&self) {
        let attached = self.inner.lock().attached.clone();
        if let Some(attached) = attached {
            attached.owner_closes();
        }
    }

    /// Disconnects: enters the error state, in which the stream finishes the message in progress
    /// and then sends FIN. The end of the stream flushes the queues. Before a stream starts, the
    /// attached connection manager aborts the set-up. Process context.
    ///
    /// Does nothing if the connection has ended already. `EINVAL`: there was no connection.
    pub(super) fn close(&self) -> Result {
        // Sends work requests of earlier doorbells, as far as the send buffer has space.
        let stream = self.inner.lock().stream.clone();
        if let Some(stream) = stream {
            stream.kick();
        }
        let mut inner = self.inner.lock();
        match inner.state {
            QpState::Rts | QpState::Closing => {
                inner.closing = true;
                self.set_state(&mut inner, QpState::Error);
                let stream = inner.stream.clone();
                drop(inner);
                if let Some(stream) = stream {
                    stream.close(Close::Disconnect);
                }
                Ok(())
            }
            // Users disconnect after the peer's disconnect, too, as rdma_disconnect(3) requires.
            // librdmacm passes an error of this call on to the program.
            QpState::Error if inner.started => Ok(()),
            QpState::Idle | QpState::Rtr => {
                let attached = inner.attached.clone();
                drop(inner);
                attached.ok_or(EINVAL)?.qp_leaving(Leaving::Graceful);
                Ok(())
            }
            QpState::Error | QpState::Waiting | QpState::Left => Err(EINVAL),
        }
    }

    /// Attaches a connection manager. Process context.
    ///
    /// `EINVAL`: one is attached already, there is or was a stream, or the queue pair is being
    /// destroyed. The same error for states other than `Idle` and `Rtr`.
    pub(crate) fn attach(&self, owner: Arc<dyn Attached>) -> Result {
        let mut inner = self.inner.lock();
        if inner.attached.is_some()
            || inner.started
            || !matches!(inner.state, QpState::Idle | QpState::Rtr)
        {
            return Err(EINVAL);
        }
        inner.holds.attached = Some(self.core.hold().ok_or(EINVAL)?);
        inner.attached = Some(owner);
        Ok(())
    }

    /// Detaches the connection manager, which has finished with the queue pair. Process context.
    pub(crate) fn detach(&self) {
        let (attached, hold) = {
            let mut inner = self.inner.lock();
            let taken = (inner.attached.take(), inner.holds.attached.take());
            inner.tell_vacated();
            taken
        };
        drop(hold);
        drop(attached);
    }

    /// Registers `on_destroy` for the destruction of the queue pair. Process context.
    ///
    /// Only an [attached](Self::attach) user may register, once: the queue pair is not destroyed
    /// before the user detaches.
    pub(crate) fn notify_on_destroy(&self, on_destroy: Arc<dyn DestroyNotify>) {
        let old = self.inner.lock().on_destroy.replace(on_destroy);
        drop(old);
    }

    /// Notifies the registered object, if any. Process context; sleeps.
    fn notify_destroyed(&self) {
        let on_destroy = self.inner.lock().on_destroy.take();
        if let Some(on_destroy) = on_destroy {
            on_destroy.qp_destroyed();
        }
    }

    /// The number of segments that TCP has retransmitted for the running stream; 0 without one.
    /// Any context.
    pub(crate) fn retransmits(&self) -> u32 {
        let stream = self.inner.lock().stream.clone();
        stream.map_or(0, |stream| stream.retransmits())
    }

    /// Marks the queue pair as created: the `ib_qp` refers to it from now on.
    pub(crate) fn is_made(&self) {
        self.made.store(true, Release);
    }

    /// Takes a reference for `iw_cm` (`iw_get_qp`), which [`destroy`](Self::destroy) waits for.
    ///
    /// Must not sleep: `iw_cm` calls in process context, with `iwcm_id_private::lock` held and
    /// interrupts off.
    ///
    /// `None` in these cases:
    ///
    /// - The queue pair is being destroyed.
    /// - The `ib_qp` does not refer to the queue pair yet, but `iw_cm` drops the reference through
    ///   the `ib_qp`. A process may have guessed the number.
    /// - A process owns the queue pair, and the caller is another process with another effective
    ///   user ID, and not [trusted](Caller::is_trusted). No earlier check excludes such a caller.
    ///
    /// For a queue pair of the kernel the owner is checked later, by
    /// [`of_param`](super::table::QpTable::of_param): its user may connect it in the context of
    /// any process.
    pub(crate) fn cm_get(&self) -> Option<CoreHold<CoreQp>> {
        let ours = !self.is_user() || self.maker.is_one_with(Caller::now()) || Caller::is_trusted();
        (ours && self.made.load(Acquire))
            .then(|| self.core.hold())
            .flatten()
    }

    /// Destroys the queue pair: no completion and no event follows the return. Process context;
    /// sleeps until the streams, the connection manager and `iw_cm` have dropped their references.
    pub(crate) fn destroy(self: &Arc<Self>) {
        self.tell_owner_closes();
        self.fail_quietly();
        self.core.retire();
        self.stop_flushing();
        self.notify_destroyed();
    }
}
