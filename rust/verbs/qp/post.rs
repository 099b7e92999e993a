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
    sys::ib::wr::{
        RecvWrs,
        SendWrs, //
    }, //
};

/// Who looks after what is posted.
enum LooksAfterPosts {
    /// The stream sends it.
    Stream(Arc<Stream>),
    /// The connection manager learns that there is something to send.
    Attached(Arc<dyn Attached>),
    /// It is flushed.
    Flush,
    /// Nobody now. A peer that has left is not answered for by an error at once either.
    Nobody,
}

impl QpInner {
    /// Who looks after what has just been posted.
    fn looks_after_posts(&self) -> LooksAfterPosts {
        let stream = || self.stream.clone().map(LooksAfterPosts::Stream);
        let attached = || self.attached.clone().map(LooksAfterPosts::Attached);
        let who = match self.state {
            QpState::Rts | QpState::Closing => stream(),
            QpState::Error => Some(LooksAfterPosts::Flush),
            QpState::Waiting => attached(),
            QpState::Idle | QpState::Rtr | QpState::Terminate | QpState::Left => None,
        };
        who.unwrap_or(LooksAfterPosts::Nobody)
    }
}

impl Qp {
    /// A process has posted work requests; they may be left alone for a moment if others are
    /// likely to follow. Process context.
    pub(in crate::verbs) fn doorbell(self: &Arc<Self>) {
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
        let who = self.inner.lock().looks_after_posts();
        self.look_after(who);
    }

    /// Has those look after newly posted work requests. Any context.
    fn look_after(self: &Arc<Self>, who: LooksAfterPosts) {
        match who {
            LooksAfterPosts::Stream(stream) => stream.kick(),
            LooksAfterPosts::Attached(attached) => attached.qp_news(),
            LooksAfterPosts::Flush => self.flush(),
            LooksAfterPosts::Nobody => {}
        }
    }

    /// Posts send work requests of a kernel user; stops at the first that can not be. Any context.
    ///
    /// `ENOTCONN` before the connection is there, `EINVAL` for a request that makes no sense or
    /// when a process owns the queue, `ENOMEM` when the queue is full.
    pub(in crate::verbs) fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_>) -> Result {
        if self.is_user() {
            return Err(EINVAL);
        }
        // Held until it is known who is to look: interrupts go off and on once.
        let inner = self.inner.lock();
        if matches!(inner.state, QpState::Idle | QpState::Rtr) {
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
        let who = match posted {
            true => inner.looks_after_posts(),
            false => LooksAfterPosts::Nobody,
        };
        drop(inner);
        self.look_after(who);
        result
    }

    /// Posts receive work requests of a kernel user. Any context.
    pub(in crate::verbs) fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        let result = self.rq.ring().ok_or(EINVAL)?.post(wrs);
        if self.state() == QpState::Error {
            self.flush();
        } else {
            self.tell_held();
        }
        result
    }
}
