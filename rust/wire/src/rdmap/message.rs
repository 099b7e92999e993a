// SPDX-License-Identifier: GPL-2.0

//! What RDMAP messages carry besides payload (RFC 5040 sections 4.3 and 4.4, RFC 7306 sections 5
//! and 6).

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

/// Octets of a Read Request behind the DDP header.
pub const READ_REQUEST_LEN: usize = 28;

/// Octets of an Atomic Request behind the DDP header.
pub const ATOMIC_REQUEST_LEN: usize = 52;

/// Octets of an Atomic Response behind the DDP header.
pub const ATOMIC_RESPONSE_LEN: usize = 12;

/// Octets of Immediate Data.
pub const IMMEDIATE_LEN: usize = 8;

/// The variants of Send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendKind {
    /// The receiver is to raise an event for it.
    pub solicited: bool,
    /// An STag of the receiver that is invalid when the Send is delivered.
    pub invalidate: Option<Stag>,
}

/// An RDMA Read Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's buffer.
    pub sink: Stag,
    /// Where in it the first octet goes.
    pub sink_to: TaggedOffset,
    /// Octets to read; with 0 neither buffer is looked at.
    pub size: u32,
    /// The responder's buffer.
    pub source: Stag,
    /// Where in it the first octet is.
    pub source_to: TaggedOffset,
}

impl ReadRequest {
    /// Reads the octets behind the DDP header; `None` if they are too few.
    #[inline]
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

    /// Writes the octets behind the DDP header.
    #[inline]
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

/// What an Atomic Request does to the 64 bits it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds.
    FetchAdd {
        /// What to add.
        add: u64,
        /// Boundaries of fields: no carry leaves the bits that are set here.
        mask: u64,
    },
    /// Replaces on equality.
    CompareSwap {
        /// What to put there.
        swap: u64,
        /// The bits that are replaced.
        swap_mask: u64,
        /// What is expected there.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
    },
}

impl AtomicOperation {
    /// What the operation makes of `original`.
    ///
    /// ```
    /// use iwarp_wire::rdmap::AtomicOperation;
    ///
    /// let add = AtomicOperation::FetchAdd { add: 1, mask: 0x8000 };
    /// // The carry out of bit 15 is dropped, other fields do not feel it.
    /// assert_eq!(add.apply(0x1_ffff), 0x1_0000);
    /// ```
    pub fn apply(&self, original: u64) -> u64 {
        match *self {
            Self::FetchAdd { add, mask } => {
                // Adding without the top bits of the fields cannot carry out of a field; the top
                // bits are then the sum without carry of what was there and what came in.
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

/// An Atomic Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The requester's name for it, returned in the response.
    pub id: u32,
    /// The buffer of the 64 bits.
    pub stag: Stag,
    /// Where in it they are; to be a multiple of 8.
    pub to: TaggedOffset,
    /// What to do with them.
    pub operation: AtomicOperation,
}

const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;
const OPERATION_MASK: u32 = 0x0f;

impl AtomicRequest {
    /// Reads the octets behind the DDP header.
    ///
    /// # Errors
    ///
    /// [`RemoteOperation::UnexpectedOpcode`] for an operation no document assigns,
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

    /// Writes the octets behind the DDP header. The comparison, which FetchAdd lacks, has data of
    /// zeros and a mask of ones then (RFC 7306 section 5.2.1).
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

/// An Atomic Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The request it answers.
    pub id: u32,
    /// The 64 bits as they were before.
    pub original: u64,
}

impl AtomicResponse {
    /// Reads the octets behind the DDP header; `None` if they are too few.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(octets);
        Some(Self {
            id: reader.u32()?,
            original: reader.u64()?,
        })
    }

    /// Writes the octets behind the DDP header.
    pub fn encode(&self) -> [u8; ATOMIC_RESPONSE_LEN] {
        Writer::new().u32(self.id).u64(self.original).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXT-04: no mask is a plain sum; a mask of one field's top bits keeps the fields apart.
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

    /// EXT-02: operations that no document assigns are unexpected; reserved bits do not count.
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
