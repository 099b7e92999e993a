// SPDX-License-Identifier: GPL-2.0

//! The module's trace events (`include/trace.h`); each costs one untaken branch while it is off,
//! and nothing on kernels without trace events.

#[cfg(CONFIG_TRACEPOINTS)]
use super::bindings;

/// A queue pair changed its state; the numbers are those of `enum ib_qp_state`. Any context.
#[inline]
pub(crate) fn qp_state(qpn: u32, from: u32, to: u32) {
    #[cfg(not(CONFIG_TRACEPOINTS))]
    let _ = (qpn, from, to);
    #[cfg(CONFIG_TRACEPOINTS)]
    // SAFETY: A real static key, defined by `rust/helpers/trace.c`.
    if unsafe {
        kernel::jump_label::static_branch_unlikely!(
            bindings::__tracepoint_rsiw_qp_state,
            bindings::tracepoint,
            key
        )
    } {
        // SAFETY: The event takes three numbers.
        unsafe { bindings::rust_do_trace_rsiw_qp_state(qpn, from, to) }
    }
}

/// A Terminate was sent or received; `code` is layer, error type and code as on the wire. Any
/// context.
#[inline]
pub(crate) fn terminate(qpn: u32, sent: bool, code: u32) {
    #[cfg(not(CONFIG_TRACEPOINTS))]
    let _ = (qpn, sent, code);
    #[cfg(CONFIG_TRACEPOINTS)]
    // SAFETY: A real static key, defined by `rust/helpers/trace.c`.
    if unsafe {
        kernel::jump_label::static_branch_unlikely!(
            bindings::__tracepoint_rsiw_terminate,
            bindings::tracepoint,
            key
        )
    } {
        // SAFETY: The event takes two numbers and a truth value.
        unsafe { bindings::rust_do_trace_rsiw_terminate(qpn, sent, code) }
    }
}

/// `rdma_listen()` failed with a negative error number. Process context.
pub(crate) fn listen_failed(ifindex: u32, port: u16, error: i32) {
    #[cfg(not(CONFIG_TRACEPOINTS))]
    let _ = (ifindex, port, error);
    #[cfg(CONFIG_TRACEPOINTS)]
    // SAFETY: A real static key, defined by `rust/helpers/trace.c`.
    if unsafe {
        kernel::jump_label::static_branch_unlikely!(
            bindings::__tracepoint_rsiw_listen_failed,
            bindings::tracepoint,
            key
        )
    } {
        // SAFETY: The event takes three numbers.
        unsafe { bindings::rust_do_trace_rsiw_listen_failed(ifindex, port.into(), error) }
    }
}
