// SPDX-License-Identifier: GPL-2.0

//! Work requests: posted by a kernel user, or in the ring of a process that rings.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    Qp,
    QpState, //
};
use crate::sys::ib::wr::{
    RecvWrs,
    SendWrs, //
};

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

    /// Posts send work requests of a kernel user; stops at the first that can not be. Any context.
    ///
    /// `ENOTCONN` before the connection is there, `EINVAL` for a request that makes no sense or
    /// when a process owns the queue, `ENOMEM` when the queue is full.
    pub(in crate::verbs) fn post_send(self: &Arc<Self>, wrs: &mut SendWrs<'_>) -> Result {
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
    pub(in crate::verbs) fn post_recv(self: &Arc<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        let result = self.rq.ring().ok_or(EINVAL)?.post(wrs);
        if self.state() == QpState::Error {
            self.flush();
        }
        result
    }
}
