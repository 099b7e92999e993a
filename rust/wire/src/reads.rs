// SPDX-License-Identifier: GPL-2.0

//! Bookkeeping of RDMA Reads and Atomics, which are answered in order (RFC 5040 sections 5.2 and
//! 6, RFC 7306 section 7).
//!
//! [`Orq`] holds what this end asked for, at most ORD at a time; [`Irq`] holds what the peer
//! asked for, at most IRD. Both are rings over storage that the caller owns: anything that can be
//! borrowed as a slice of options.

mod irq;
mod orq;
mod ring;

pub use self::irq::{
    Answer,
    Inbound,
    Irq,
    Request, //
};
pub use self::orq::{
    Full,
    Orq,
    Outstanding, //
};
