// SPDX-License-Identifier: GPL-2.0

//! The decisions of a receiver.

use crate::ids::{
    Stag,
    TaggedOffset, //
};
use crate::rdmap::terminate::{
    Terminate,
    TerminateReason,
    UntaggedError, //
};
use crate::rdmap::IMMEDIATE_LEN;

/// The action for a received segment. The caller executes it before the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Part of an RDMA Write: check the peer's access, then place the payload, which is not empty
    /// and begins [`TAGGED_LEN`](crate::ddp::TAGGED_LEN) octets into the ULPDU.
    Write(TaggedSegment),
    /// Part of the answer to the oldest Read this end has outstanding: place the payload, which
    /// begins [`TAGGED_LEN`](crate::ddp::TAGGED_LEN) octets into the ULPDU. The last segment
    /// completes the Read: [`Orq::complete`](crate::reads::Orq::complete).
    ReadResponse(ReadSegment),
    /// Part of a Send: place the payload, which begins
    /// [`UNTAGGED_LEN`](crate::ddp::UNTAGGED_LEN) octets into the ULPDU, in the receive buffer.
    Send(SendSegment),
    /// Immediate Data: completes a receive; nothing is placed.
    Immediate {
        /// The octets for the completion.
        data: [u8; IMMEDIATE_LEN],
        /// With Solicited Event.
        solicited: bool,
    },
    /// A Read Request; it was appended to the inbound read queue.
    ReadRequest,
    /// An Atomic Request; it was appended to the inbound read queue.
    AtomicRequest,
    /// The answer to the oldest request of this end, an Atomic, which is done:
    /// [`Orq::complete`](crate::reads::Orq::complete).
    AtomicResponse {
        /// The 64 bits before the operation.
        original: u64,
    },
    /// No action: a Write without payload, or an RTR frame.
    Nothing,
    /// The peer's Terminate: the stream ends, without a Terminate in return.
    Terminated(Terminate),
    /// An error: nothing is placed, the caller sends a Terminate ([`Terminate::for_segment`]), and
    /// the stream ends.
    Fail(TerminateReason),
    /// A segment after an error or Terminate, which is ignored.
    Dropped,
}

/// Part of an RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedSegment {
    /// The buffer.
    pub stag: Stag,
    /// The offset there of the payload.
    pub to: TaggedOffset,
    /// Octets of payload; not 0.
    pub len: u32,
    /// Set on the last segment of the Write.
    pub last: bool,
}

/// Part of the answer to a Read: the octets after those received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The buffer that the request named.
    pub stag: Stag,
    /// The offset there of the payload.
    pub to: TaggedOffset,
    /// Octets of the answer received before.
    pub offset: u32,
    /// Octets of payload; may be 0.
    pub len: u32,
    /// Set on the last segment of the answer.
    pub last: bool,
}

/// Part of a Send: the octets after those received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSegment {
    /// Set on the first segment: the message takes a receive buffer.
    pub first: bool,
    /// The offset of the payload in the message, and in the receive buffer.
    pub mo: u32,
    /// Octets of payload; may be 0.
    pub len: u32,
    /// Set on the last segment: the message is complete.
    pub last: bool,
    /// With Solicited Event: the completion raises an event.
    pub solicited: bool,
    /// With Invalidate: the STag to invalidate before the message is delivered. Errors:
    /// [`for_invalidate`](crate::rdmap::terminate::AccessError::for_invalidate).
    pub invalidate: Option<Stag>,
}

impl SendSegment {
    /// Octets of the message up to the end of this segment; at the last one the message's length.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> u32 {
        // The receiver has checked the sum.
        self.mo.wrapping_add(self.len)
    }

    /// Checks that the payload lies within a receive buffer of `room` octets.
    ///
    /// # Errors
    ///
    /// [`UntaggedError::TooLong`].
    #[inline]
    pub const fn fit(&self, room: u32) -> Result<(), TerminateReason> {
        if self.end() <= room {
            Ok(())
        } else {
            Err(TerminateReason::Untagged(UntaggedError::TooLong))
        }
    }

    /// The reason to end the stream if the message has no receive buffer.
    #[inline]
    #[must_use]
    pub const fn no_buffer(&self) -> TerminateReason {
        TerminateReason::Untagged(UntaggedError::NoBuffer)
    }
}
