// SPDX-License-Identifier: GPL-2.0

//! The read queues: RDMA Reads and Atomics, which are answered in order (RFC 5040 sections 5.2 and
//! 6, RFC 7306 section 7).
//!
//! [`Orq`] holds the outstanding requests of this end, at most ORD. [`Irq`] holds those of the
//! peer, at most IRD. Both are rings over storage of the caller: any type that can be borrowed as a
//! slice of options.

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
