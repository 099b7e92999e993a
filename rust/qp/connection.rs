// SPDX-License-Identifier: GPL-2.0

//! Start and end of a queue pair's connection.
//!
//! The connection manager [attaches](Qp::attach) while it works for the queue pair. A started
//! stream reports its end ([`StreamOwner`]). A local end goes to the stream, or to the connection
//! manager before the stream starts.

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

/// How a queue pair leaves while the connection manager works for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The owner wants a graceful disconnect.
    Graceful,
    /// At once.
    Abort,
}

/// Events of a queue pair for the attached connection manager.
pub(crate) trait Attached: Send + Sync {
    /// The queue pair goes, and no stream is running: the connection manager aborts the set-up.
    ///
    /// Any context, maybe under locks: only notes it and queues work. The connection manager
    /// [detaches](Qp::detach) in finite time.
    fn qp_leaving(&self, how: Leaving);

    /// The owner of the queue pair ends the connection. Any context; only notes it and queues work.
    fn owner_closes(&self);

    /// The [terms](Qp::terms) of a rendezvous have changed.
    ///
    /// Context as above.
    fn qp_news(&self);
}

impl QpInner {
    /// How the stream ends when the queue pair is put into error.
    fn close_on_error(&self) -> Close {
        match &self.peer {
            // What has been reported as sent must arrive: the owner of a rendezvous has no other
            // means to end it.
            Some(_) => Close::Leave,
            // Destruction after a disconnect does not discard what was sent before the disconnect.
            None if self.closing => Close::Leave,
            None => Close::Abort,
        }
    }
}

/// One end of a queue pair's connection, as its stream knows it.
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
        self.qp.note_terminate(sent, code);
    }

    fn failed(&self) -> Option<Close> {
        self.qp.failed()
    }

    fn overflowed(&self) {
        self.qp.fail();
    }
}

impl Qp {
    /// Puts a socket into full operation phase for the queue pair, as [`Stream::start`].
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

    /// Gives the queue pair to a stream that is about to start. Process context.
    ///
    /// `EINVAL` if the queue pair has or had a stream, `ENOTCONN` in the error state; the caller
    /// then closes the connection.
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

    /// The connection has begun to close in order. Any context.
    fn enter_closing(&self) {
        let mut inner = self.inner.lock();
        inner.closing = true;
        if inner.state == QpState::Rts {
            self.set_state(&mut inner, QpState::Closing);
        }
    }

    /// Takes the queue pair back from its stream: the stream's last act, which afterwards touches
    /// neither queues nor regions. Softirq or process context, the socket lock held.
    ///
    /// `unfinished`: work requests that the stream has fetched and not executed.
    fn stream_ended(self: &Arc<Self>, reason: EndReason, unfinished: Unfinished) {
        let lost = !unfinished.is_empty();
        // What the receiving end has noted of a queue pair that is connected to itself.
        let told = self.events.load(Relaxed) != 0;
        self.keep_unfinished(unfinished, false);
        let mut inner = self.inner.lock();
        let stream = inner.stream.take();
        if let Some(stream) = &stream {
            stream.tell_retransmits(self.queues.counters());
        }
        inner.ended = Some(reason);
        let hold = inner.holds.stream.take();
        // In InfiniBand the owner is not told when an idle peer goes.
        let unnoticed = reason == EndReason::PeerFin
            && !lost
            && !told
            && matches!(inner.state, QpState::Rts | QpState::Closing)
            && matches!(&inner.peer, Some(peer) if !peer.closing);
        // The owner that has asked for RESET knows that it ends.
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
        // The owner finds the completion that says why; the event comes before the flush.
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

    /// Gives the receiving end of a queue pair that is connected to itself to a stream. Process
    /// context.
    ///
    /// `ENOTCONN` if the sending end has ended.
    fn set_mirror(&self, stream: Arc<Stream>) -> Result {
        let mut inner = self.inner.lock();
        if inner.state != QpState::Rts || inner.mirror.is_some() {
            return Err(crate::sys::errno::ENOTCONN);
        }
        inner.holds.mirror = Some(self.core.hold().ok_or(crate::sys::errno::ENOTCONN)?);
        inner.mirror = Some(stream);
        Ok(())
    }

    /// As [`stream_ended`](Self::stream_ended), of the receiving end.
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
            // The stream's end reports the failure, after the completions with the cause.
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

    /// Has an event reported from process context. Any context.
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

    /// Has what was noted reported from process context. Any context.
    fn report_noted(self: &Arc<Self>) {
        let _ = work::process().enqueue::<Arc<Self>, { Self::REPORT }>(self.clone());
    }

    /// Puts the queue pair into the error state. Any context; what has to wait is deferred.
    pub(crate) fn fail(self: &Arc<Self>) {
        if self.fail_quietly() {
            self.tell_last_wqe();
        }
    }

    /// As [`fail`](Self::fail). Returns `true` for the first call, if no stream's end will report
    /// the failure and the owner has not asked for `RESET`.
    pub(super) fn fail_quietly(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        let known = inner.state == QpState::Error || inner.resetting;
        self.set_state(&mut inner, QpState::Error);
        let stream = inner.stream.clone();
        let attached = inner.attached.clone();
        let how = inner.close_on_error();
        drop(inner);
        match stream {
            // The stream's end flushes.
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

    /// Tells that nothing of a shared receive queue is held any more, and nothing will be taken
    /// (the kernel's `ib_drain_qp()` waits for that).
    pub(super) fn tell_last_wqe(self: &Arc<Self>) {
        if matches!(self.queues.rq(), RecvSource::Shared(_)) {
            self.fatal(QpEvent::LastWqeReached);
        }
    }

    /// Tells it if the end of the stream has not yet been told so: all that was taken is by now.
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

    /// Tells the connection manager that the owner ends the connection. Process context.
    pub(super) fn tell_owner_closes(&self) {
        let attached = self.inner.lock().attached.clone();
        if let Some(attached) = attached {
            attached.owner_closes();
        }
    }

    /// Disconnects: the error state, in which the stream finishes the message in progress and then
    /// sends FIN. The stream's end flushes. Process context.
    ///
    /// Does nothing when the connection has ended already. `EINVAL` when there was none.
    pub(super) fn close(&self) -> Result {
        // A doorbell that was rung before is answered, as far as TCP has room.
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
            // A user also disconnects after the peer's disconnect, as rdma_disconnect(3) wants;
            // librdmacm returns an error of this call.
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
    /// `EINVAL` if one is attached already, if there is or was a stream, or in the error state.
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

    /// The connection manager has finished with the queue pair. Process context.
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

    /// From now on `ib_core`'s object refers to this queue pair.
    pub(crate) fn is_made(&self) {
        self.made.store(true, Release);
    }

    /// `iw_cm` takes a reference (`iw_add_ref`) for the caller: destroying waits for it. Process
    /// context.
    ///
    /// `None` when it is being destroyed already. And when it is still being made, as the reference
    /// is given back by way of `ib_core`'s object: a process may have guessed its number. Or it is
    /// another process's, which no earlier check has excluded. For a queue pair of the
    /// kernel that is asked later ([`of_param`](super::table::QpTable::of_param)): its user may connect it
    /// in the context of any process.
    pub(crate) fn cm_get(&self) -> Option<CoreHold<CoreQp>> {
        let ours = !self.is_user() || self.maker.is_one_with(Caller::now()) || Caller::is_trusted();
        (ours && self.made.load(Acquire))
            .then(|| self.core.hold())
            .flatten()
    }

    /// Ends the queue pair: it makes no completion and no event after this has returned. Process
    /// context; sleeps until the stream, the connection manager and `iw_cm` have let go.
    pub(crate) fn destroy(self: &Arc<Self>) {
        self.tell_owner_closes();
        self.fail_quietly();
        self.core.retire();
        self.stop_flushing();
        self.notify_destroyed();
    }
}
