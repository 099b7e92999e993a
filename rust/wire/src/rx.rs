// SPDX-License-Identifier: GPL-2.0

//! The receiving direction: a decision for each segment (RFC 5041 sections 5.2, 5.3 and 7.1, RFC
//! 5040 sections 5 and 7).
//!
//! [`Receiver`] takes the segments of one stream in order and returns a [`Decision`] for each, from
//! the octets and the history of the stream. The caller finds the receive buffer of a Send and
//! checks the access rights of STags.

mod decision;
mod receiver;
mod untagged;

pub use self::decision::{
    Decision,
    ReadSegment,
    SendSegment,
    TaggedSegment, //
};
pub use self::receiver::{
    Config,
    Receiver, //
};

use crate::ddp::UNTAGGED_LEN;
use crate::rdmap::ATOMIC_REQUEST_LEN;

/// The most octets, from the front of a ULPDU, that [`Receiver::receive`] reads.
pub const HEAD_LEN: usize = UNTAGGED_LEN + ATOMIC_REQUEST_LEN;
