// SPDX-License-Identifier: GPL-2.0

//! Error codes of networking, which the `kernel` crate of Linux 7.2 does not define.
//!
//! C header: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h)

/// Defines error codes, from the `kernel` crate of Linux 7.3, or from the bindings of Linux 7.2.
macro_rules! errno {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[cfg(rsiw_linux_7_3)]
            pub(crate) const $name: kernel::error::Error = kernel::error::code::$name;

            $(#[$doc])*
            #[cfg(not(rsiw_linux_7_3))]
            pub(crate) const $name: kernel::error::Error = code(super::bindings::$name);
        )*

        /// All codes with their numbers.
        #[cfg(CONFIG_KUNIT = "y")]
        const ALL: &[(kernel::error::Error, u32)] = &[$(($name, super::bindings::$name),)*];
    };
}

errno! {
    /// Protocol error.
    EPROTO;
    /// Operation not supported on this kind of transport.
    EOPNOTSUPP;
    /// Address family not supported.
    EAFNOSUPPORT;
    /// Address already in use.
    EADDRINUSE;
    /// No interface of this host has the address.
    EADDRNOTAVAIL;
    /// The network of the local interface is down.
    ENETDOWN;
    /// Network is unreachable.
    ENETUNREACH;
    /// Connection aborted by local software.
    ECONNABORTED;
    /// Connection reset by the peer.
    ECONNRESET;
    /// Not connected.
    ENOTCONN;
    /// Connection refused by the peer.
    ECONNREFUSED;
    /// No route to the peer.
    EHOSTUNREACH;
    /// The operation has been started.
    EINPROGRESS;
    /// The peer does not answer.
    ETIMEDOUT;
}

/// Converts a C error number at compile time. [`Error`](kernel::error::Error) has no public
/// constructor for constants.
#[cfg(not(rsiw_linux_7_3))]
const fn code(errno: u32) -> kernel::error::Error {
    // SAFETY: `Error` is one number between -4095 and -1. The codes of this file are negated C
    // error numbers, all in that range. The compiler compares the sizes, a test the values.
    unsafe { core::mem::transmute::<i32, kernel::error::Error>(-(errno as i32)) }
}

#[kernel::prelude::kunit_tests(rsiw_sys_errno)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_c() {
        for (error, number) in ALL {
            assert_eq!(error.to_errno(), -(*number as i32));
        }
    }
}
