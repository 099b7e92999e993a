// SPDX-License-Identifier: GPL-2.0

//! The receiving side: what to do with each segment (RFC 5041 sections 5.2, 5.3 and 7.1, RFC
//! 5040 sections 5 and 7).
//!
//! [`Receiver`] is fed with the segments of one stream in order and answers each with a
//! [`Decision`]. It takes all decisions that the octets and the history of the stream allow; what
//! it cannot know, whether there is a buffer for a Send and whether an STag may be used, the
//! caller finds out.

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

/// The most octets of a ULPDU, from its front, that [`Receiver::receive`] looks at.
pub const HEAD_LEN: usize = UNTAGGED_LEN + ATOMIC_REQUEST_LEN;
