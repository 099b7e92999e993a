// SPDX-License-Identifier: GPL-2.0

//! The way back to `RESET`.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    Qp,
    QpInner,
    QpState, //
};
use crate::sys::work;

impl Qp {
    /// Back to `RESET`, from any state. Process context; sleeps until what was under way has ended,
    /// which does not depend on the peer.
    ///
    /// `EBUSY` when the owner goes on posting meanwhile.
    pub(super) fn reset(self: &Arc<Self>) -> Result {
        /// Rounds of work items that the end of a stream and of an endpoint may take, and then
        /// some for the flush of the queues.
        const ROUNDS: u32 = 512;

        {
            let mut inner = self.inner.lock();
            // What a process has posted may not be left to its next life.
            let posted = self.is_user() && (self.sq.is_pending() || self.rq.is_pending());
            if inner.state == QpState::Idle && inner.attached.is_none() && !posted {
                self.renew(&mut inner);
                return Ok(());
            }
        }
        if !self.is_user() {
            // May be called from a work item of ours.
            return Err(EINVAL);
        }
        let owed = {
            let mut inner = self.inner.lock();
            inner.resetting = true;
            inner.stream.is_some() || inner.state != QpState::Error
        };
        self.fail_quietly();
        for _ in 0..ROUNDS {
            work::process().flush();
            // Whoever is about to flush has looked at the state of before.
            let flushing = self.flushing.lock();
            let mut inner = self.inner.lock();
            if inner.state == QpState::Error
                && inner.stream.is_none()
                && inner.mirror.is_none()
                && inner.attached.is_none()
                && flushing.is_empty()
                && !self.sq.is_pending()
                && !self.rq.is_pending()
            {
                self.renew(&mut inner);
                return Ok(());
            }
            drop(inner);
            drop(flushing);
        }
        // It stays in error, which its owner has not heard yet.
        self.inner.lock().resetting = false;
        if owed {
            self.tell_last_wqe();
        }
        Err(EBUSY)
    }

    /// As it was made.
    fn renew(&self, inner: &mut QpInner) {
        inner.direct = None;
        inner.started = false;
        inner.closing = false;
        inner.initialised = false;
        inner.was_reset = true;
        inner.resetting = false;
        inner.last_wqe = false;
        inner.attrs = Default::default();
        self.set_rights(inner);
        self.set_state(inner, QpState::Idle);
    }
}
