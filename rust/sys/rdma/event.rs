// SPDX-License-Identifier: GPL-2.0

//! Completion handlers and asynchronous events: calls from the driver to users of the verbs.
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

/// An asynchronous event of a queue pair (`enum ib_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpEvent {
    /// The connection failed for a reason that no completion reports.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// The peer accessed memory without the access rights.
    AccessErr = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The queue pair takes no further work requests from its shared receive queue.
    LastWqeReached = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
}

impl QpEvent {
    /// All events.
    pub(crate) const ALL: [Self; 3] = [Self::Fatal, Self::AccessErr, Self::LastWqeReached];

    /// The bit of the event in a set of events.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The `ib_cq` of a completion queue.
///
/// # Invariants
///
/// The pointer is valid until the driver's `destroy_cq` returns. `destroy_cq` retires the
/// [`CoreRef`] through which the value is used.
pub(crate) struct CoreCq(NonNull<bindings::ib_cq>);

// SAFETY: The handlers of `ib_core` may be called on any CPU and in any task.
unsafe impl Send for CoreCq {}
// SAFETY: As above, also concurrently.
unsafe impl Sync for CoreCq {}

impl CoreCq {
    /// Wraps the `ib_cq` that `create_cq` initialises.
    ///
    /// # Safety
    ///
    /// As the type invariant says.
    pub(super) unsafe fn new(cq: NonNull<bindings::ib_cq>) -> Self {
        Self(cq)
    }

    /// Whether the completion handler only schedules work, as the handlers of `ib_core` do. Any
    /// context.
    ///
    /// Such a handler may be called in any context and under locks.
    pub(crate) fn handler_only_schedules(&self) -> bool {
        // SAFETY: By the type invariant the pointer is valid; the fields are constant once the
        // queue is in use.
        let (user, own, context) = unsafe {
            let cq = self.0.as_ptr();
            let own = !(*cq).wc.is_null();
            (!(*cq).uobject.is_null(), own, (*cq).poll_ctx)
        };
        // A queue of `ib_create_cq()` has its user's handler, and its `poll_ctx` is 0, which is
        // `IB_POLL_SOFTIRQ`. Only queues that `ib_core` itself polls have an array of completions
        // (`wc`).
        user || own
            && matches!(
                context,
                bindings::ib_poll_context_IB_POLL_SOFTIRQ
                    | bindings::ib_poll_context_IB_POLL_WORKQUEUE
                    | bindings::ib_poll_context_IB_POLL_UNBOUND_WORKQUEUE
            )
    }

    /// Calls the completion handler, in the context that the handler demands
    /// ([`handler_only_schedules`](Self::handler_only_schedules)).
    pub(crate) fn call_handler(&self) {
        let cq = self.0.as_ptr();
        // SAFETY: By the type invariant the pointer is valid; the handler's arguments are the queue
        // and its context.
        unsafe {
            if let Some(handler) = (*cq).comp_handler {
                handler(cq, (*cq).cq_context);
            }
        }
    }

    /// Dispatches `IB_EVENT_CQ_ERR` to the owner: completions were lost. Process context; the
    /// handler may sleep.
    pub(crate) fn dispatch_error(&self) {
        let cq = self.0.as_ptr();
        // SAFETY: By the type invariant the pointer is valid; the handler's arguments are an event
        // and the context.
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

/// The `ib_qp` of a queue pair.
///
/// # Invariants
///
/// As for [`CoreCq`], with `destroy_qp`.
pub(crate) struct CoreQp(QpPtr);

// SAFETY: As for `CoreCq`.
unsafe impl Send for CoreQp {}
// SAFETY: As for `CoreCq`.
unsafe impl Sync for CoreQp {}

impl CoreQp {
    /// Wraps the `ib_qp` that `create_qp` initialises.
    ///
    /// # Safety
    ///
    /// As the type invariant says.
    pub(super) unsafe fn new(qp: NonNull<bindings::ib_qp>) -> Self {
        Self(QpPtr(qp))
    }

    /// Dispatches an event to the owner. Process context; the handler may sleep.
    pub(crate) fn dispatch(&self, event: QpEvent) {
        let qp = self.0.as_ptr();
        // SAFETY: By the type invariant the pointer is valid; the handler's arguments are an event
        // and the context.
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
    /// The pointer to the `ib_qp`, for completions and comparisons. Any context.
    pub(crate) fn ptr(&self) -> QpPtr {
        // SAFETY: The pointer is copied, and the object is not accessed.
        unsafe { self.value() }.0
    }
}

/// The `ib_srq` of a shared receive queue.
///
/// # Invariants
///
/// As for [`CoreCq`], with `destroy_srq`.
pub(crate) struct CoreSrq(NonNull<bindings::ib_srq>);

// SAFETY: As for `CoreCq`.
unsafe impl Send for CoreSrq {}
// SAFETY: As for `CoreCq`.
unsafe impl Sync for CoreSrq {}

impl CoreSrq {
    /// Wraps the `ib_srq` that `create_srq` initialises.
    ///
    /// # Safety
    ///
    /// As the type invariant says.
    pub(super) unsafe fn new(srq: NonNull<bindings::ib_srq>) -> Self {
        Self(srq)
    }

    /// Dispatches `IB_EVENT_SRQ_LIMIT_REACHED` to the owner: the queue has fewer work requests than
    /// its limit. Process context; the handler may sleep.
    pub(crate) fn dispatch_limit(&self) {
        let srq = self.0.as_ptr();
        // SAFETY: By the type invariant the pointer is valid; the handler's arguments are an event
        // and the context.
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

    /// `handler_only_schedules` of a kernel user's queue with polling context `context`. `own`: the
    /// queue has an array of completions.
    fn at_once(context: bindings::ib_poll_context, own: bool) -> bool {
        let mut raw = MaybeUninit::<bindings::ib_cq>::zeroed();
        let cq = NonNull::from(&mut raw).cast::<bindings::ib_cq>();
        // SAFETY: A zeroed `ib_cq` is a valid value, and only this function has a pointer to it.
        unsafe {
            (*cq.as_ptr()).poll_ctx = context;
            if own {
                (*cq.as_ptr()).wc = NonNull::dangling().as_ptr();
            }
        }
        // SAFETY: The object lives during the call, which reads only the fields set above.
        unsafe { CoreCq::new(cq) }.handler_only_schedules()
    }

    /// The handler of a directly polled queue may post work requests. The polling context of a
    /// zeroed queue is `IB_POLL_SOFTIRQ` (docs/locking.md: no foreign code under a socket lock).
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
