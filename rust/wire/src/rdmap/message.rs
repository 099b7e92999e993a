// SPDX-License-Identifier: GPL-2.0

//! RDMAP headers of messages (RFC 5040 sections 4.3 and 4.4, RFC 7306 sections 5 and 6).

use super::terminate::{
    RemoteOperation,
    TerminateReason, //
};
use crate::bytes::{
    Reader,
    Writer, //
};
use crate::ids::{
    Stag,
    TaggedOffset, //
};

/// Octets of a Read Request after the DDP header.
pub const READ_REQUEST_LEN: usize = 28;

/// Octets of an Atomic Request after the DDP header.
pub const ATOMIC_REQUEST_LEN: usize = 52;

/// Octets of an Atomic Response after the DDP header.
pub const ATOMIC_RESPONSE_LEN: usize = 12;

/// Octets of Immediate Data.
pub const IMMEDIATE_LEN: usize = 8;

/// The variant of a Send (RFC 5040 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendKind {
    /// With Solicited Event: its completion raises an event at the receiver.
    pub solicited: bool,
    /// With Invalidate: the STag of the receiver to invalidate before the Send is delivered.
    pub invalidate: Option<Stag>,
}

/// An RDMA Read Request (RFC 5040 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's buffer.
    pub sink: Stag,
    /// The offset there of the first octet.
    pub sink_to: TaggedOffset,
    /// Octets to read, any value; with 0 neither buffer is accessed.
    pub size: u32,
    /// The responder's buffer.
    pub source: Stag,
    /// The offset there of the first octet.
    pub source_to: TaggedOffset,
}

impl ReadRequest {
    /// A Read of `size` octets from the responder's buffer `source` to the requester's `sink`, each
    /// from a tagged offset on.
    #[inline]
    #[must_use]
    pub const fn new(size: u32, source: (Stag, TaggedOffset), sink: (Stag, TaggedOffset)) -> Self {
        Self {
            sink: sink.0,
            sink_to: sink.1,
            size,
            source: source.0,
            source_to: source.1,
        }
    }

    /// Decodes the octets after the DDP header; `None` if they are too few.
    #[inline]
    #[must_use]
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(octets);
        Some(Self {
            sink: Stag::new(reader.u32()?),
            sink_to: TaggedOffset::new(reader.u64()?),
            size: reader.u32()?,
            source: Stag::new(reader.u32()?),
            source_to: TaggedOffset::new(reader.u64()?),
        })
    }

    /// Encodes the octets after the DDP header.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; READ_REQUEST_LEN] {
        Writer::new()
            .u32(self.sink.get())
            .u64(self.sink_to.get())
            .u32(self.size)
            .u32(self.source.get())
            .u64(self.source_to.get())
            .finish()
    }
}

/// The operation of an Atomic Request on 64 bits (RFC 7306 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds, in one or more fields.
    FetchAdd {
        /// The addend.
        add: u64,
        /// The top bit of each field: no carry leaves these bits.
        mask: u64,
    },
    /// Replaces bits if other bits are equal.
    CompareSwap {
        /// The new value.
        swap: u64,
        /// The bits to replace.
        swap_mask: u64,
        /// The expected value.
        compare: u64,
        /// The bits to compare.
        compare_mask: u64,
    },
}

impl AtomicOperation {
    /// The value that replaces `original`.
    ///
    /// ```
    /// use iwarp_wire::rdmap::AtomicOperation;
    ///
    /// let add = AtomicOperation::FetchAdd { add: 1, mask: 0x8000 };
    /// // The carry out of bit 15 is dropped, the other field is unchanged.
    /// assert_eq!(add.apply(0x1_ffff), 0x1_0000);
    /// ```
    #[must_use]
    pub fn apply(&self, original: u64) -> u64 {
        match *self {
            Self::FetchAdd { add, mask } => {
                // Without the top bits of the fields the sum carries out of no field. Each top bit
                // is the exclusive or of both operands and the carry into it.
                let top = mask | (1 << 63);
                let sum = (original & !top).wrapping_add(add & !top);
                sum ^ ((original ^ add) & top)
            }
            Self::CompareSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => {
                if (original ^ compare) & compare_mask == 0 {
                    (original & !swap_mask) | (swap & swap_mask)
                } else {
                    original
                }
            }
        }
    }
}

/// An Atomic Request (RFC 7306 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The request identifier, returned in the response.
    pub id: u32,
    /// The responder's buffer.
    pub stag: Stag,
    /// The offset there of the 64 bits; the responder requires a multiple of 8.
    pub to: TaggedOffset,
    /// What the responder does with the 64 bits.
    pub operation: AtomicOperation,
}

const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;
const OPERATION_MASK: u32 = 0x0f;

impl AtomicRequest {
    /// Decodes the octets after the DDP header.
    ///
    /// # Errors
    ///
    /// [`RemoteOperation::UnexpectedOpcode`] for an operation that RFC 7306 does not assign,
    /// [`RemoteOperation::Unspecified`] if there are too few octets.
    pub fn decode(octets: &[u8]) -> Result<Self, TerminateReason> {
        let short = TerminateReason::RemoteOperation(RemoteOperation::Unspecified);
        let mut reader = Reader::new(octets);
        let mut fields = || {
            Some((
                reader.u32()? & OPERATION_MASK,
                reader.u32()?,
                Stag::new(reader.u32()?),
                TaggedOffset::new(reader.u64()?),
                [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?],
            ))
        };
        let (code, id, stag, to, [data, mask, compare, compare_mask]) = fields().ok_or(short)?;
        let operation = match code {
            FETCH_ADD => AtomicOperation::FetchAdd { add: data, mask },
            COMPARE_SWAP => AtomicOperation::CompareSwap {
                swap: data,
                swap_mask: mask,
                compare,
                compare_mask,
            },
            _ => {
                return Err(TerminateReason::RemoteOperation(
                    RemoteOperation::UnexpectedOpcode,
                ))
            }
        };
        Ok(Self {
            id,
            stag,
            to,
            operation,
        })
    }

    /// Encodes the octets after the DDP header. FetchAdd has no comparison: its data is 0, its
    /// mask all ones (RFC 7306 section 5.2.1).
    pub fn encode(&self) -> [u8; ATOMIC_REQUEST_LEN] {
        let (code, fields) = match self.operation {
            AtomicOperation::FetchAdd { add, mask } => (FETCH_ADD, [add, mask, 0, u64::MAX]),
            AtomicOperation::CompareSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => (COMPARE_SWAP, [swap, swap_mask, compare, compare_mask]),
        };
        let start = Writer::new()
            .u32(code)
            .u32(self.id)
            .u32(self.stag.get())
            .u64(self.to.get());
        fields.into_iter().fold(start, Writer::u64).finish()
    }
}

/// An Atomic Response (RFC 7306 section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The identifier of the request.
    pub id: u32,
    /// The 64 bits before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Decodes the octets after the DDP header; `None` if they are too few.
    #[must_use]
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(octets);
        Some(Self {
            id: reader.u32()?,
            original: reader.u64()?,
        })
    }

    /// Encodes the octets after the DDP header.
    #[must_use]
    pub fn encode(&self) -> [u8; ATOMIC_RESPONSE_LEN] {
        Writer::new().u32(self.id).u64(self.original).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-04: without a mask a plain sum; a mask of the fields' top bits separates the fields.
    #[test]
    fn fetch_add() {
        let sum = |original, add, mask| AtomicOperation::FetchAdd { add, mask }.apply(original);
        assert_eq!(sum(40, 2, 0), 42);
        assert_eq!(sum(u64::MAX, 1, 0), 0);
        assert_eq!(sum(1, u64::MAX, 0), 0);
        assert_eq!(sum(u64::MAX, 1, 1 << 63), 0);
        let every_16th = 0x8000_8000_8000_8000;
        assert_eq!(
            sum(0xffff_0001_7fff_8000, 0x0001_0002_0001_8000, every_16th),
            0x0000_0003_8000_0000
        );
        // Every bit a field of its own: no carry at all.
        assert_eq!(sum(0b1100, 0b1010, u64::MAX), 0b0110);
    }

    /// EXT-05: compared and swapped under masks.
    #[test]
    fn compare_swap() {
        let swap = |original, swap_mask, compare_mask| {
            AtomicOperation::CompareSwap {
                swap: 0xaaaa,
                swap_mask,
                compare: 0x1234,
                compare_mask,
            }
            .apply(original)
        };
        assert_eq!(swap(0x1234, u64::MAX, u64::MAX), 0xaaaa);
        assert_eq!(swap(0x1235, u64::MAX, u64::MAX), 0x1235);
        assert_eq!(swap(0x1235, u64::MAX, !1), 0xaaaa);
        assert_eq!(swap(0x1234, 0xff, u64::MAX), 0x12aa);
        assert_eq!(swap(0xffff, 0xff, 0), 0xffaa);
    }

    /// EXT-02: operations that are not assigned are unexpected; reserved bits are ignored.
    #[test]
    fn atomic_operations() {
        let request = AtomicRequest {
            id: 7,
            stag: Stag::new(0xcafe),
            to: TaggedOffset::new(0x2000),
            operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
        };
        for code in 0..16u8 {
            let mut octets = request.encode();
            octets[..4].copy_from_slice(&[0xff, 0xff, 0xff, 0xf0 | code]);
            let decoded = AtomicRequest::decode(&octets);
            match code {
                0 => assert_eq!(decoded, Ok(request)),
                2 => assert!(decoded.is_ok()),
                _ => assert_eq!(
                    decoded,
                    Err(TerminateReason::RemoteOperation(
                        RemoteOperation::UnexpectedOpcode
                    ))
                ),
            }
        }
        assert!(AtomicRequest::decode(&request.encode()[..51]).is_err());
    }
}
