// SPDX-License-Identifier: GPL-2.0

//! Calls up: completion handlers and asynchronous events.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use core::ptr::NonNull;

use kernel::prelude::*;

use crate::sys::{
    bindings,
    rdma::{
        core_ref::CoreRef,
        wr::QpPtr, //
    }, //
};

/// Asynchronous events of a queue pair (`enum ib_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpEvent {
    /// The stream broke for a reason that no completion reports.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// The peer accessed memory without the right.
    AccessErr = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// Nothing is taken from the shared receive queue any more.
    LastWqeReached = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
}

impl QpEvent {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Fatal, Self::AccessErr, Self::LastWqeReached];

    /// A bit of its own.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A completion queue as `ib_core` knows it.
///
/// # Invariants
///
/// Valid until our `destroy_cq` returns, which retires the [`CoreRef`] that it is used through.
pub(crate) struct CoreCq(NonNull<bindings::ib_cq>);

// SAFETY: `ib_core` allows handlers to be called from anywhere.
unsafe impl Send for CoreCq {}
// SAFETY: As above.
unsafe impl Sync for CoreCq {}

impl CoreCq {
    /// Wraps the queue that `create_cq` is making.
    pub(super) fn new(cq: NonNull<bindings::ib_cq>) -> Self {
        Self(cq)
    }

    /// Whether the completion handler only schedules something, as those of `ib_core` do. It may be
    /// called in any context and under locks then.
    pub(crate) fn handler_only_schedules(&self) -> bool {
        // SAFETY: By the invariant of the type; the fields are set before the queue is used.
        let (user, own, context) = unsafe {
            let cq = self.0.as_ptr();
            let own = !(*cq).wc.is_null();
            (!(*cq).uobject.is_null(), own, (*cq).poll_ctx)
        };
        // A queue of `ib_create_cq()` has a handler of its user, and says `IB_POLL_SOFTIRQ`, which
        // is 0. `ib_core` has an array of completions only for queues that it polls itself.
        user || own
            && matches!(
                context,
                bindings::ib_poll_context_IB_POLL_SOFTIRQ
                    | bindings::ib_poll_context_IB_POLL_WORKQUEUE
                    | bindings::ib_poll_context_IB_POLL_UNBOUND_WORKQUEUE
            )
    }

    /// Calls the completion handler.
    pub(crate) fn call_handler(&self) {
        let cq = self.0.as_ptr();
        // SAFETY: By the invariant of the type; a handler takes the queue and its context.
        unsafe {
            if let Some(handler) = (*cq).comp_handler {
                handler(cq, (*cq).cq_context);
            }
        }
    }

    /// Reports lost completions to the owner. Process context; the handler may sleep.
    pub(crate) fn dispatch_error(&self) {
        let cq = self.0.as_ptr();
        // SAFETY: By the invariant of the type; a handler takes an event and the context.
        unsafe {
            if let Some(handler) = (*cq).event_handler {
                let mut event: bindings::ib_event = pin_init::zeroed();
                event.device = (*cq).device;
                event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
                event.element.cq = cq;
                handler(&mut event, (*cq).cq_context);
            }
        }
    }
}

/// A queue pair as `ib_core` knows it.
///
/// # Invariants
///
/// As of [`CoreCq`].
pub(crate) struct CoreQp(QpPtr);

// SAFETY: As of `CoreCq`.
unsafe impl Send for CoreQp {}
// SAFETY: As of `CoreCq`.
unsafe impl Sync for CoreQp {}

impl CoreQp {
    /// Wraps the queue pair that `create_qp` is making.
    pub(super) fn new(qp: NonNull<bindings::ib_qp>) -> Self {
        Self(QpPtr(qp))
    }

    /// Reports an event to the owner. Process context; the handler may sleep.
    pub(crate) fn dispatch(&self, event: QpEvent) {
        let qp = self.0.as_ptr();
        // SAFETY: By the invariant of the type; a handler takes an event and the context.
        unsafe {
            if let Some(handler) = (*qp).event_handler {
                let mut raw: bindings::ib_event = pin_init::zeroed();
                raw.device = (*qp).device;
                raw.event = event as u32;
                raw.element.qp = qp;
                handler(&mut raw, (*qp).qp_context);
            }
        }
    }
}

impl CoreRef<CoreQp> {
    /// The pointer, for completions.
    pub(crate) fn ptr(&self) -> QpPtr {
        self.value().0
    }
}

/// A shared receive queue as `ib_core` knows it.
///
/// # Invariants
///
/// As of [`CoreCq`].
pub(crate) struct CoreSrq(NonNull<bindings::ib_srq>);

// SAFETY: As of `CoreCq`.
unsafe impl Send for CoreSrq {}
// SAFETY: As of `CoreCq`.
unsafe impl Sync for CoreSrq {}

impl CoreSrq {
    /// Wraps the queue that `create_srq` is making.
    pub(super) fn new(srq: NonNull<bindings::ib_srq>) -> Self {
        Self(srq)
    }

    /// Reports to the owner that the queue has fallen below its limit. Process context.
    pub(crate) fn dispatch_limit(&self) {
        let srq = self.0.as_ptr();
        // SAFETY: By the invariant of the type; a handler takes an event and the context.
        unsafe {
            if let Some(handler) = (*srq).event_handler {
                let mut event: bindings::ib_event = pin_init::zeroed();
                event.device = (*srq).device;
                event.event = bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED;
                event.element.srq = srq;
                handler(&mut event, (*srq).srq_context);
            }
        }
    }
}

#[kunit_tests(rsiw_sys_ib_event)]
mod tests {
    use core::mem::MaybeUninit;

    use super::*;

    /// What is thought of the handler of a kernel user's queue.
    fn at_once(context: bindings::ib_poll_context, own: bool) -> bool {
        let mut raw = MaybeUninit::<bindings::ib_cq>::zeroed();
        let cq = NonNull::from(&mut raw).cast::<bindings::ib_cq>();
        // SAFETY: All zero is a valid queue, and there is no other reference to it.
        unsafe {
            (*cq.as_ptr()).poll_ctx = context;
            if own {
                (*cq.as_ptr()).wc = NonNull::dangling().as_ptr();
            }
        }
        CoreCq::new(cq).handler_only_schedules()
    }

    /// A direct poller may post from its handler, and its context has the value of zeroed memory
    /// (docs/locking.md: no foreign code under a socket lock).
    #[test]
    fn handlers_of_others_are_not_called_under_locks() {
        for context in [
            bindings::ib_poll_context_IB_POLL_SOFTIRQ,
            bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            bindings::ib_poll_context_IB_POLL_UNBOUND_WORKQUEUE,
        ] {
            assert!(at_once(context, true));
            assert!(!at_once(context, false));
        }
        let direct = bindings::ib_poll_context_IB_POLL_DIRECT;
        assert!(!at_once(direct, true));
        assert!(!at_once(direct, false));
    }
}
