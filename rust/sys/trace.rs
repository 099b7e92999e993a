// SPDX-License-Identifier: GPL-2.0

//! The module's trace events (`include/trace.h`).
//!
//! A disabled event costs one untaken branch. On kernels without trace events an event has no code.

use core::net::{
    IpAddr,
    Ipv6Addr,
    SocketAddr, //
};

use kernel::prelude::*;

#[cfg(CONFIG_TRACEPOINTS)]
use super::bindings;

/// Defines a function that emits a trace event if its static key is on.
macro_rules! event {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident = $key:ident, $make:ident ($($arg:ident: $type:ty),* $(,)?)
    ) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name($($arg: $type),*) {
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = ($($arg),*);
            #[cfg(CONFIG_TRACEPOINTS)]
            // SAFETY: The static key is defined by `rust/helpers/trace.c`.
            if unsafe {
                kernel::jump_label::static_branch_unlikely!(
                    bindings::$key,
                    bindings::tracepoint,
                    key
                )
            } {
                // SAFETY: The C function takes integers and booleans of these types.
                unsafe { bindings::$make($($arg),*) }
            }
        }
    };
}

event! {
    /// A queue pair changed its state; the numbers are those of `enum ib_qp_state`. Any context.
    pub(crate) fn qp_state = __tracepoint_rsiw_qp_state, rust_do_trace_rsiw_qp_state(
        qpn: u32,
        from: u32,
        to: u32,
    )
}

event! {
    /// A Terminate was sent or received; `code` holds layer, error type and error code as on the
    /// wire. Any context.
    pub(crate) fn terminate = __tracepoint_rsiw_terminate, rust_do_trace_rsiw_terminate(
        qpn: u32,
        sent: bool,
        code: u32,
    )
}

event! {
    /// `rdma_listen()` failed with a negative error number. Process context.
    pub(crate) fn listen_failed = __tracepoint_rsiw_listen_failed, rust_do_trace_rsiw_listen_failed(
        ifindex: u32,
        port: u32,
        error: i32,
    )
}

event! {
    /// A stream ended; `reason` is a number that the event's format names, `error` a negative error
    /// number of TCP or 0. Any context.
    pub(crate) fn stream_end = __tracepoint_rsiw_stream_end, rust_do_trace_rsiw_stream_end(
        qpn: u32,
        reason: u32,
        error: i32,
    )
}

/// Defines a function that emits an event of class `rsiw_connection`.
macro_rules! connection_event {
    ($(#[$meta:meta])* $vis:vis fn $name:ident = $key:ident, $make:ident) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name(qpn: u32, local: &SocketAddr, remote: &SocketAddr, result: Result) {
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = (qpn, local, remote, result, mapped);
            #[cfg(CONFIG_TRACEPOINTS)]
            // SAFETY: The static key is defined by `rust/helpers/trace.c`.
            if unsafe {
                kernel::jump_label::static_branch_unlikely!(
                    bindings::$key,
                    bindings::tracepoint,
                    key
                )
            } {
                let (from, to) = (mapped(local), mapped(remote));
                let error = result.err().map_or(0, |error| error.to_errno());
                // SAFETY: The C function copies 16 octets from each pointer, the array length.
                unsafe {
                    bindings::$make(
                        qpn,
                        from.as_ptr(),
                        local.port(),
                        to.as_ptr(),
                        remote.port(),
                        error,
                    )
                }
            }
        }
    };
}

/// The IPv6 form of an address; an IPv4 address is mapped.
fn mapped(addr: &SocketAddr) -> [u8; 16] {
    match addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
    .octets()
}

/// The value for an unknown address.
pub(crate) const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

connection_event! {
    /// An attempt of this end to connect has ended. Process context.
    pub(crate) fn connect = __tracepoint_rsiw_connect, rust_do_trace_rsiw_connect
}

connection_event! {
    /// A connection that this end has accepted is established, or has failed. Process context.
    pub(crate) fn accept = __tracepoint_rsiw_accept, rust_do_trace_rsiw_accept
}

connection_event! {
    /// This end has refused a connection request. Process context.
    pub(crate) fn reject = __tracepoint_rsiw_reject, rust_do_trace_rsiw_reject
}
