// SPDX-License-Identifier: GPL-2.0

//! What there is to do with a segment.

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

/// What to do with the segment that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Part of an RDMA Write: check the peer's right to write there, then place the payload,
    /// which begins [`TAGGED_LEN`](crate::ddp::TAGGED_LEN) octets into the ULPDU and is not empty.
    Write(TaggedSegment),
    /// Part of the answer to the oldest Read this end has outstanding: place the payload, which
    /// begins [`TAGGED_LEN`](crate::ddp::TAGGED_LEN) octets into the ULPDU. Behind the last one
    /// the Read is done: [`Orq::complete`](crate::reads::Orq::complete).
    ReadResponse(ReadSegment),
    /// Part of a Send: place the payload, which begins
    /// [`UNTAGGED_LEN`](crate::ddp::UNTAGGED_LEN) octets into the ULPDU, in the receive buffer.
    Send(SendSegment),
    /// Immediate Data: complete a receive with it; nothing is placed.
    Immediate {
        /// The data.
        data: [u8; IMMEDIATE_LEN],
        /// An event is to be raised.
        solicited: bool,
    },
    /// A Read Request; it was appended to the inbound read queue.
    ReadRequest,
    /// An Atomic Request; it was appended to the inbound read queue.
    AtomicRequest,
    /// The answer to the oldest Atomic this end has outstanding, which is done:
    /// [`Orq::complete`](crate::reads::Orq::complete).
    AtomicResponse {
        /// The 64 bits as they were before.
        original: u64,
    },
    /// Good, and nothing to do: a Write without payload, or an RTR frame.
    Nothing,
    /// The peer ends the stream. Never answered with a Terminate.
    Terminated(Terminate),
    /// An error: nothing is placed, the peer is to be told
    /// ([`Terminate::for_segment`]) and the stream to be ended.
    Fail(TerminateReason),
    /// Behind an error or Terminate: the segment is to be ignored.
    Dropped,
}

/// Part of an RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedSegment {
    /// The buffer.
    pub stag: Stag,
    /// Where in it the payload goes.
    pub to: TaggedOffset,
    /// Octets of payload; not 0.
    pub len: u32,
    /// The last segment of the Write.
    pub last: bool,
}

/// Part of the answer to a Read, already found to be the octets that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The buffer, as the request named it.
    pub stag: Stag,
    /// Where in it the payload goes.
    pub to: TaggedOffset,
    /// Where in the Read the payload lies, in octets.
    pub offset: u32,
    /// Octets of payload; may be 0.
    pub len: u32,
    /// The Read is done behind it.
    pub last: bool,
}

/// Part of a Send, already found to be the octets that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSegment {
    /// A message begins: it takes a new receive buffer.
    pub first: bool,
    /// Where in the message, and the buffer, the payload goes.
    pub mo: u32,
    /// Octets of payload; may be 0.
    pub len: u32,
    /// The message is complete behind it.
    pub last: bool,
    /// An event is to be raised when the message is delivered.
    pub solicited: bool,
    /// An STag to invalidate before the message is delivered; refused with
    /// [`for_invalidate`](crate::rdmap::terminate::AccessError::for_invalidate).
    pub invalidate: Option<Stag>,
}

impl SendSegment {
    /// Octets of the message through this segment; behind the last one its length.
    #[inline]
    pub const fn end(&self) -> u32 {
        // The receiver found the sum to fit.
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

    /// The reason to give when there is no receive buffer for the message.
    #[inline]
    pub const fn no_buffer(&self) -> TerminateReason {
        TerminateReason::Untagged(UntaggedError::NoBuffer)
    }
}
