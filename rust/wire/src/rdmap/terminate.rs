// SPDX-License-Identifier: GPL-2.0

//! Terminate: the message that ends a stream and names the reason. RFC 5040 sections 4.8 and 7, RFC
//! 5041 section 7, RFC 5044 section 8 and RFC 6581 section 8 define it.
//!
//! `Layer(4) EType(4) Code(8) M D R Reserved(13)`, then three parts of
//! the segment in error: its length (M), its DDP header (D), its Read Request (R).

mod access;
mod codec;
mod reason;

pub use self::access::{
    AccessError,
    AtomicError, //
};
pub use self::codec::{
    Terminate,
    TerminateOctets, //
};
pub use self::reason::{
    MpaError,
    RemoteOperation,
    RemoteProtection,
    TaggedError,
    TerminateReason,
    UntaggedError, //
};
