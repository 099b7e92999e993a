// SPDX-License-Identifier: GPL-2.0

//! The Terminate message, encoded and decoded (RFC 5040 section 4.8).

use core::fmt;
use core::ops::Deref;

use super::reason::{
    Copied,
    TerminateReason, //
};
use crate::bytes::{
    Reader,
    Short,
    Writer, //
};
use crate::ddp::{
    Header,
    UntaggedHeader,
    TAGGED_LEN,
    UNTAGGED_LEN, //
};
use crate::ids::{
    Mo,
    Msn,
    QueueNumber, //
};
use crate::rdmap::message::{
    ReadRequest,
    READ_REQUEST_LEN, //
};
use crate::rdmap::opcode::Opcode;

const FLAG_LENGTH: u16 = 0x8000;
const FLAG_DDP: u16 = 0x4000;
const FLAG_RDMAP: u16 = 0x2000;

/// The most octets of a Terminate's ULPDU.
const ULPDU_LEN: usize = UNTAGGED_LEN + 4 + 2 + UNTAGGED_LEN + READ_REQUEST_LEN;

/// A Terminate message (RFC 5040 section 4.8).
///
/// ```
/// use iwarp_wire::rdmap::terminate::{MpaError, Terminate, TerminateReason};
///
/// let terminate = Terminate::bare(TerminateReason::Mpa(MpaError::Crc));
/// let ulpdu = terminate.ulpdu();
/// assert_eq!(ulpdu[18..], [0x20, 0x02, 0, 0]);
/// assert_eq!(Terminate::decode(&ulpdu[18..]), terminate);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// Layer, error type and error code.
    reason: TerminateReason,
    /// Octets of the ULPDU in error.
    segment_len: Option<u16>,
    /// Headers of that ULPDU.
    copied: CopiedHeaders,
}

impl Terminate {
    /// A Terminate that copies nothing.
    #[must_use]
    pub fn bare(reason: TerminateReason) -> Self {
        Self {
            reason,
            segment_len: None,
            copied: CopiedHeaders::NONE,
        }
    }

    /// A Terminate for a received segment, with the copies that `reason` requires.
    ///
    /// `ulpdu` is the front of the ULPDU: 46 octets, or all of it. `ulpdu_len` is the length of the
    /// whole ULPDU in octets.
    #[must_use]
    pub fn for_segment(reason: TerminateReason, ulpdu: &[u8], ulpdu_len: u16) -> Self {
        let copied = match reason.copied() {
            Copied::Nothing => CopiedHeaders::NONE,
            Copied::Ddp => CopiedHeaders::of(ulpdu, false),
            Copied::DdpAndRead => CopiedHeaders::of(ulpdu, true),
        };
        Self {
            reason,
            // Without a header the length is left out.
            segment_len: (copied.ddp_len() != 0).then_some(ulpdu_len),
            copied,
        }
    }

    /// A Terminate for a Read Request of the inbound read queue: `msn` is its number, `request` the
    /// part that was not answered.
    ///
    /// See [`Inbound::remaining`](crate::reads::Inbound::remaining).
    #[must_use]
    pub fn for_read(reason: TerminateReason, msn: Msn, request: &ReadRequest) -> Self {
        let ulpdu = crate::tx::read_request(msn, request);
        let len = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX);
        Self::for_segment(reason, &ulpdu, len)
    }

    /// Decodes a Terminate's octets after its own DDP header.
    ///
    /// Every input has a result: incomplete copies are left out, and fewer than four octets are
    /// [`TerminateReason::Unknown`] of layer 0, error type 0, code 255.
    #[must_use]
    pub fn decode(octets: &[u8]) -> Self {
        let mut reader = Reader::new(octets);
        let (Some([layer_etype, code]), Some(flags)) = (reader.array(), reader.u16()) else {
            return Self::bare(TerminateReason::Unknown {
                layer: 0,
                etype: 0,
                code: u8::MAX,
            });
        };
        let reason = TerminateReason::from_wire(layer_etype >> 4, layer_etype & 15, code);
        // The field is there with either flag, and valid with M (RFC 5040 section 4.8).
        let segment_len = if flags & (FLAG_LENGTH | FLAG_DDP) != 0 {
            reader.u16().filter(|_| flags & FLAG_LENGTH != 0)
        } else {
            None
        };
        let read = flags & FLAG_RDMAP != 0;
        let copied = if flags & FLAG_DDP != 0 {
            CopiedHeaders::of(reader.rest(), read)
        } else if read {
            CopiedHeaders::of_read(reader.rest())
        } else {
            CopiedHeaders::NONE
        };
        Self {
            reason,
            segment_len,
            copied,
        }
    }

    /// The reason for the end of the stream.
    #[must_use]
    pub fn reason(&self) -> TerminateReason {
        self.reason
    }

    /// Octets of the ULPDU in error, if the message contains the length.
    #[must_use]
    pub fn segment_len(&self) -> Option<u16> {
        self.segment_len
    }

    /// The DDP header of the segment in error, if the message contains a valid one.
    #[must_use]
    pub fn header(&self) -> Option<Header> {
        let octets = self.copied.as_slice().get(..self.copied.ddp_len())?;
        Header::parse(octets).ok()
    }

    /// The Read Request in error, if the message contains one.
    pub fn read_request(&self) -> Option<ReadRequest> {
        self.copied
            .as_slice()
            .get(self.copied.ddp_len()..)
            .and_then(ReadRequest::decode)
    }

    /// The whole ULPDU of the message, its DDP header included.
    #[must_use]
    pub fn ulpdu(&self) -> TerminateOctets {
        let header = UntaggedHeader {
            last: true,
            ulp: Opcode::Terminate.control(),
            ulp_word: 0,
            qn: QueueNumber::Terminate.into(),
            msn: Msn::FIRST,
            mo: Mo::ZERO,
        };
        let copied = self.copied.as_slice();
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let flags = flag(self.segment_len.is_some(), FLAG_LENGTH)
            | flag(self.copied.ddp_len() != 0, FLAG_DDP)
            | flag(copied.len() > self.copied.ddp_len(), FLAG_RDMAP);
        let mut octets = Writer::<ULPDU_LEN>::new()
            .put(&header.encode())
            .u8((self.reason.layer() << 4) | (self.reason.etype() & 15))
            .u8(self.reason.code())
            .u16(flags);
        if flags & (FLAG_LENGTH | FLAG_DDP) != 0 {
            octets = octets.u16(self.segment_len.unwrap_or(0));
        }
        TerminateOctets(octets.put(copied).into())
    }
}

/// The headers a Terminate copies.
///
/// # Invariants
///
/// Empty, or a whole DDP header, or a whole untagged header and a whole Read Request, or a whole
/// Read Request. The length distinguishes these forms.
#[derive(Clone, Copy)]
struct CopiedHeaders(Short<{ UNTAGGED_LEN + READ_REQUEST_LEN }>);

impl CopiedHeaders {
    /// No header.
    const NONE: Self = Self(Short::EMPTY);

    /// The headers at the front of `ulpdu`: the DDP header, and after it, with `read`, a Read
    /// Request if the segment is one.
    fn of(ulpdu: &[u8], read: bool) -> Self {
        let len = match ulpdu {
            [0x80..=0xff, ..] => TAGGED_LEN,
            [_, control, ..] if read && Opcode::parse(*control) == Ok(Opcode::ReadRequest) => {
                UNTAGGED_LEN + READ_REQUEST_LEN
            }
            _ => UNTAGGED_LEN,
        };
        // INVARIANT: `len` is a length of whole headers; an incomplete header is left out.
        match ulpdu.get(..len).or_else(|| ulpdu.get(..UNTAGGED_LEN)) {
            Some(octets) => Self(Writer::new().put(octets).into()),
            None => Self::NONE,
        }
    }

    /// The Read Request at the front of `octets`, without a DDP header.
    fn of_read(octets: &[u8]) -> Self {
        // INVARIANT: an incomplete Read Request is left out.
        match octets.get(..READ_REQUEST_LEN) {
            Some(octets) => Self(Writer::new().put(octets).into()),
            None => Self::NONE,
        }
    }

    /// The copied octets.
    fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Octets of the copied DDP header.
    fn ddp_len(&self) -> usize {
        match self.as_slice().len() {
            READ_REQUEST_LEN => 0,
            len => len.min(UNTAGGED_LEN),
        }
    }
}

impl PartialEq for CopiedHeaders {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for CopiedHeaders {}

impl fmt::Debug for CopiedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The ULPDU of a Terminate: at most 70 octets.
#[derive(Clone, Copy)]
pub struct TerminateOctets(Short<ULPDU_LEN>);

impl Deref for TerminateOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}
