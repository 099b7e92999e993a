// SPDX-License-Identifier: GPL-2.0

//! Posting of work requests by kernel users, and doorbells of processes.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    Attached,
    Qp,
    QpInner,
    QpState, //
};
use crate::{
    stream::Stream,
    sys::rdma::wr::{
        RecvWrs,
        SendWrs, //
    }, //
};

/// The target of a kick for posted work.
enum PostTarget {
    /// The stream, which sends the work.
    Stream(Arc<Stream>),
    /// The connection manager, which is notified of posted work.
    Attached(Arc<dyn Attached>),
    Flush,
    /// No target. Posted work is not flushed at once in [`QpState::Left`] either.
    None,
}

impl QpInner {
    /// The target of the kick for work that was just posted.
    fn post_target(&self) -> PostTarget {
        let stream = || self.stream.clone().map(PostTarget::Stream);
        let attached = || self.attached.clone().map(PostTarget::Attached);
        let target = match self.state {
            QpState::Rts | QpState::Closing => stream(),
            QpState::Error => Some(PostTarget::Flush),
            QpState::Waiting => attached(),
            QpState::Idle | QpState::Rtr | QpState::Left => None,
        };
        target.unwrap_or(PostTarget::None)
    }
}

impl Qp {
    /// Handles a doorbell of a process. The stream may defer the kick if further doorbells are
    /// likely. Process context.
    pub(crate) fn doorbell(self: &Arc<Self>) {
        if self.state() == QpState::Rts {
            let stream = self.inner.lock().stream.clone();
            if let Some(stream) = stream {
                return stream.doorbell();
            }
        }
        self.kick();
    }

    /// Notifies the target of newly posted work requests. Any context, also with interrupts off.
    pub(crate) fn kick(self: &Arc<Self>) {
        let target = self.inner.lock().post_target();
        self.kick_target(target);
    }

    /// Notifies a target of posted work requests. Any context.
    fn kick_target(self: &Arc<Self>, target: PostTarget) {
        match target {
            PostTarget::Stream(stream) => stream.kick(),
            PostTarget::Attached(attached) => attached.qp_news(),
            PostTarget::Flush => self.flush(),
            PostTarget::None => {}
        }
    }

    /// Posts send work requests of a kernel user, up to the first one that is refused. Any context.
    ///
    /// `ENOTCONN` in `RESET`, `INIT` and `RTR`. `EINVAL` for a malformed request, or when a
    /// process owns the queue. `ENOMEM` when the queue is full.
    pub(crate) fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_>) -> Result {
        if self.is_user() {
            return Err(EINVAL);
        }
        // The lock is held until the target is known, so that interrupts are disabled only once.
        let inner = self.inner.lock();
        if matches!(inner.state, QpState::Idle | QpState::Rtr) {
            return Err(crate::sys::errno::ENOTCONN);
        }
        let mut posted = false;
        let mut put = self.queues.sq().put().lock();
        let result = loop {
            let Some(wr) = wrs.current() else {
                break Ok(());
            };
            if let Err(error) = self.queues.sq().post(&mut put, wr) {
                break Err(error);
            }
            wrs.accept();
            posted = true;
        };
        drop(put);
        let target = match posted {
            true => inner.post_target(),
            false => PostTarget::None,
        };
        drop(inner);
        self.kick_target(target);
        result
    }

    /// Posts receive work requests of a kernel user, up to the first one that is refused. Any
    /// context.
    ///
    /// `EINVAL` for a malformed request, with a shared receive queue, or when a process owns the
    /// queue. `ENOMEM` when the queue is full.
    pub(crate) fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        let result = self.queues.rq().ring().ok_or(EINVAL)?.post(wrs);
        if self.state() == QpState::Error {
            self.flush();
        } else {
            self.tell_held();
        }
        result
    }

    /// Notifies the stream that holds a Send of receives that a kernel user has posted. Any
    /// context but hard interrupts.
    ///
    /// A hold that begins concurrently may be missed; its own timer finds the receive.
    fn tell_held(self: &Arc<Self>) {
        if !self.queues.is_held() {
            return;
        }
        let (stream, mirror) = {
            let inner = self.inner.lock();
            (inner.stream.clone(), inner.mirror.clone())
        };
        // If the queue pair is connected to itself, the mirror is the receiving end.
        if let Some(stream) = mirror.or(stream) {
            stream.receive_posted();
        }
    }
}
