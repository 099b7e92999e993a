// SPDX-License-Identifier: GPL-2.0

//! The transition back to `RESET`.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        Completion, //
    }, //
};

use super::{
    rnr,
    Qp,
    QpInner,
    QpState, //
};

impl QpInner {
    /// Wakes the thread that resets the queue pair, once neither a stream nor the connection
    /// manager is attached. In the error state no new one attaches.
    pub(super) fn tell_vacated(&mut self) {
        if self.stream.is_none() && self.mirror.is_none() && self.attached.is_none() {
            if let Some(vacated) = self.vacated.take() {
                vacated.complete_all();
            }
        }
    }
}

impl Qp {
    /// Changes the state to `RESET`, from any state. Process context; sleeps until the streams and
    /// the connection manager are detached, which does not depend on the peer.
    ///
    /// `EBUSY`: the owner continues to post work requests. `EINVAL`: a kernel user resets a queue
    /// pair that is in use.
    pub(super) fn reset(self: &Arc<Self>) -> Result {
        /// The maximum number of passes of the flush; each pass has a budget.
        const PASSES: u32 = 512;

        {
            let mut inner = self.inner.lock();
            // Work that a process has posted must not be executed after `RESET`.
            let posted =
                self.is_user() && (self.queues.sq().is_pending() || self.queues.rq().is_pending());
            if inner.state == QpState::Idle && inner.attached.is_none() && !posted {
                self.renew(&mut inner);
                return Ok(());
            }
        }
        if !self.is_user() {
            // A kernel user may call this in a work item of the driver, which must not wait.
            return Err(EINVAL);
        }
        let vacated = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let owed = {
            let mut inner = self.inner.lock();
            inner.resetting = true;
            inner.vacated = Some(vacated.clone());
            inner.stream.is_some() || inner.state != QpState::Error
        };
        self.fail_quietly();
        self.inner.lock().tell_vacated();
        vacated.wait_for_completion();
        for _ in 0..PASSES {
            self.flush();
            // The lock excludes a concurrent flush that has read the state before the change.
            let flushing = self.flushing.lock();
            let mut inner = self.inner.lock();
            if flushing.is_empty()
                && !self.queues.sq().is_pending()
                && !self.queues.rq().is_pending()
            {
                self.renew(&mut inner);
                return Ok(());
            }
            drop(inner);
            drop(flushing);
        }
        // The queue pair stays in the error state, which was not reported to its owner yet.
        self.inner.lock().resetting = false;
        if owed {
            self.tell_last_wqe();
        }
        Err(EBUSY)
    }

    /// Restores the state of a new queue pair.
    fn renew(&self, inner: &mut QpInner) {
        inner.peer = None;
        inner.started = false;
        inner.ended = None;
        inner.closing = false;
        inner.initialised = false;
        inner.was_reset = true;
        inner.resetting = false;
        inner.last_wqe = false;
        inner.attrs = Default::default();
        self.queues.set_rnr_limit(rnr::limit(&inner.attrs));
        self.set_rights(inner);
        self.set_state(inner, QpState::Idle);
    }
}
