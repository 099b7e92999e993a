// SPDX-License-Identifier: GPL-2.0

//! DDP segment headers (RFC 5041 section 4).
//!
//! A tagged header locates the payload by STag and tagged offset. An untagged header locates it by
//! queue, message number and message offset. Both reserve octets for the upper layer: RDMAP's
//! control octet and the STag of a Send with Invalidate ([`crate::rdmap`]).

use core::ops::Deref;

use crate::bytes::{
    Reader,
    Short,
    Writer, //
};
use crate::ids::{
    Mo,
    Msn,
    Stag,
    TaggedOffset, //
};
use crate::rdmap::terminate::{
    MpaError,
    TaggedError,
    TerminateReason,
    UntaggedError, //
};

/// Octets of a tagged header; the payload begins after them.
pub const TAGGED_LEN: usize = 14;

/// Octets of an untagged header; the payload, or RDMAP's own header, begins after them.
pub const UNTAGGED_LEN: usize = 18;

const FLAG_TAGGED: u8 = 0x80;
const FLAG_LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

/// The header of a segment of a tagged message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedHeader {
    /// The last segment of its message (L).
    pub last: bool,
    /// The octet reserved for the upper layer: RDMAP's control octet.
    pub ulp: u8,
    /// The tagged buffer.
    pub stag: Stag,
    /// The offset in the buffer of the payload's first octet.
    pub to: TaggedOffset,
}

/// The header of a segment of an untagged message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntaggedHeader {
    /// The last segment of its message (L).
    pub last: bool,
    /// The first octet reserved for the upper layer: RDMAP's control octet.
    pub ulp: u8,
    /// The other four octets: the STag of a Send with Invalidate.
    pub ulp_word: u32,
    /// The queue; any value, see [`crate::QueueNumber`].
    pub qn: u32,
    /// The message's number in its queue.
    pub msn: Msn,
    /// The offset in the message of the payload's first octet.
    pub mo: Mo,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Tagged (T is set).
    Tagged(TaggedHeader),
    /// Untagged.
    Untagged(UntaggedHeader),
}

impl Header {
    /// Reads the header at the front of a ULPDU. Reserved bits are ignored.
    ///
    /// # Errors
    ///
    /// - [`TaggedError::InvalidVersion`], [`UntaggedError::InvalidVersion`]: the version (DV) is
    ///   not 1.
    /// - [`MpaError::Marker`], which stands for an impossible length: the ULPDU is shorter than
    ///   its header.
    #[inline]
    pub fn parse(ulpdu: &[u8]) -> Result<Self, TerminateReason> {
        let short = TerminateReason::Mpa(MpaError::Marker);
        let control = *ulpdu.first().ok_or(short)?;
        let tagged = control & FLAG_TAGGED != 0;
        if control & VERSION_MASK != VERSION {
            return Err(if tagged {
                TerminateReason::Tagged(TaggedError::InvalidVersion)
            } else {
                TerminateReason::Untagged(UntaggedError::InvalidVersion)
            });
        }
        let header = if tagged {
            Self::tagged(ulpdu)
        } else {
            Self::untagged(ulpdu)
        };
        header.ok_or(short)
    }

    /// Octets of the header.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// Writes the header.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> HeaderOctets {
        match self {
            Self::Tagged(header) => header.encode(),
            Self::Untagged(header) => header.encode(),
        }
    }

    /// Reads a tagged header.
    #[inline]
    fn tagged(ulpdu: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(ulpdu.get(..TAGGED_LEN)?);
        let control = reader.u8()?;
        Some(Self::Tagged(TaggedHeader {
            last: control & FLAG_LAST != 0,
            ulp: reader.u8()?,
            stag: Stag::new(reader.u32()?),
            to: TaggedOffset::new(reader.u64()?),
        }))
    }

    /// Reads an untagged header.
    #[inline]
    fn untagged(ulpdu: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(ulpdu.get(..UNTAGGED_LEN)?);
        let control = reader.u8()?;
        Some(Self::Untagged(UntaggedHeader {
            last: control & FLAG_LAST != 0,
            ulp: reader.u8()?,
            ulp_word: reader.u32()?,
            qn: reader.u32()?,
            msn: Msn::new(reader.u32()?),
            mo: Mo::new(reader.u32()?),
        }))
    }
}

impl TaggedHeader {
    /// Writes the header.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> HeaderOctets {
        HeaderOctets(
            Writer::new()
                .u16(u16::from_be_bytes([
                    FLAG_TAGGED | last(self.last) | VERSION,
                    self.ulp,
                ]))
                .u32(self.stag.get())
                .u64(self.to.get())
                .into(),
        )
    }
}

impl UntaggedHeader {
    /// Writes the header.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> HeaderOctets {
        HeaderOctets(
            Writer::new()
                .u8(last(self.last) | VERSION)
                .u8(self.ulp)
                .u32(self.ulp_word)
                .u32(self.qn)
                .u32(self.msn.get())
                .u32(self.mo.get())
                .into(),
        )
    }
}

/// The bit L, if it is set.
#[inline]
const fn last(last: bool) -> u8 {
    if last {
        FLAG_LAST
    } else {
        0
    }
}

/// The octets of a header: 14 or 18.
#[derive(Clone, Copy)]
pub struct HeaderOctets(Short<UNTAGGED_LEN>);

impl Deref for HeaderOctets {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl core::fmt::Debug for HeaderOctets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for HeaderOctets {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for HeaderOctets {}
