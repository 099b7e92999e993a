// SPDX-License-Identifier: GPL-2.0

//! Work requests: posted by a kernel user, or in the ring of a process that rings.

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
    /// The stream sends it.
    Stream(Arc<Stream>),
    /// The connection manager is notified of posted work.
    Attached(Arc<dyn Attached>),
    /// The work request is flushed.
    Flush,
    /// Nowhere now. After a peer has left, posted work is not failed at once either.
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
            QpState::Idle | QpState::Rtr | QpState::Terminate | QpState::Left => None,
        };
        target.unwrap_or(PostTarget::None)
    }
}

impl Qp {
    /// A process has posted work requests; the kick may be deferred if others are
    /// likely to follow. Process context.
    pub(crate) fn doorbell(self: &Arc<Self>) {
        if self.state() == QpState::Rts {
            let stream = self.inner.lock().stream.clone();
            if let Some(stream) = stream {
                return stream.doorbell();
            }
        }
        self.kick();
    }

    /// Kicks for newly posted work requests. Any context, with interrupts off too.
    pub(crate) fn kick(self: &Arc<Self>) {
        let target = self.inner.lock().post_target();
        self.kick_target(target);
    }

    /// Kicks the target. Any context.
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
    /// `ENOTCONN` before the connection is established. `EINVAL` for a malformed request, or when a
    /// process owns the queue. `ENOMEM` when the queue is full.
    pub(crate) fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_>) -> Result {
        if self.is_user() {
            return Err(EINVAL);
        }
        // Held until the target is known: interrupts go off and on once.
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

    /// Posts receive work requests of a kernel user. Any context.
    pub(crate) fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        let result = self.queues.rq().ring().ok_or(EINVAL)?.post(wrs);
        if self.state() == QpState::Error {
            self.flush();
        } else {
            self.tell_held();
        }
        result
    }
}
