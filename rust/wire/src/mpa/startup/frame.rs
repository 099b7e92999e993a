// SPDX-License-Identifier: GPL-2.0

//! One start-up frame, decoded from a growing buffer and encoded (RFC 5044 section 7.1.1).

use core::error::Error;
use core::fmt;

use super::enhanced::{
    self,
    Depths,
    Enhanced, //
};
use super::{
    HEADER_LEN,
    MAX_PRIVATE_DATA, //
};
use crate::bytes::{
    copy,
    Reader,
    Writer, //
};

/// Octets of the key.
const KEY_LEN: usize = 16;

const REQUEST_KEY: [u8; KEY_LEN] = *b"MPA ID Req Frame";
const REPLY_KEY: [u8; KEY_LEN] = *b"MPA ID Rep Frame";

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the initiator to the responder.
    Request,
    /// From the responder to the initiator.
    Reply,
}

impl FrameKind {
    /// The first 16 octets of the frame.
    const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => &REQUEST_KEY,
            Self::Reply => &REPLY_KEY,
        }
    }

    /// The frame of the other direction.
    const fn other(self) -> Self {
        match self {
            Self::Request => Self::Reply,
            Self::Reply => Self::Request,
        }
    }
}

/// The revisions of MPA that are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581.
    Two,
}

impl Revision {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

impl TryFrom<u8> for Revision {
    type Error = StartupError;

    fn try_from(number: u8) -> Result<Self, StartupError> {
        match number {
            1 => Ok(Self::One),
            2 => Ok(Self::Two),
            other => Err(StartupError::Revision(other)),
        }
    }
}

/// One start-up frame.
///
/// ```
/// use iwarp_wire::mpa::startup::{parse, Frame, FrameKind, Progress, Revision};
///
/// let frame = Frame {
///     kind: FrameKind::Reply,
///     revision: Revision::One,
///     markers: false,
///     crc: true,
///     rejected: true,
///     enhanced: None,
///     private_data: b"no",
/// };
/// let mut out = [0; 64];
/// let len = frame.encode(&mut out).expect("there is room");
///
/// // Ten octets are not enough. The total never exceeds the frame.
/// assert_eq!(parse(&out[..10], FrameKind::Reply), Ok(Progress::Need { total: 20 }));
/// assert_eq!(parse(&out[..20], FrameKind::Reply), Ok(Progress::Need { total: 22 }));
/// assert_eq!(parse(&out, FrameKind::Reply), Ok(Progress::Frame { frame, len }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Request or Reply.
    pub kind: FrameKind,
    /// The sender's revision.
    pub revision: Revision,
    /// The sender requests markers in the direction that it receives (M).
    pub markers: bool,
    /// The sender requests CRCs (C).
    pub crc: bool,
    /// The connection is rejected (R); only in a Reply.
    pub rejected: bool,
    /// The enhanced word (S); only with revision 2.
    pub enhanced: Option<Enhanced>,
    /// The upper layer's private data, without the enhanced word.
    pub private_data: &'a [u8],
}

/// The reason why octets are no valid frame. The caller closes the TCP connection at once, without
/// a Terminate (RFC 5044 section 8, error 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupError {
    /// The octets do not begin with the key.
    WrongKey,
    /// The octets begin with the key of the other frame: both ends are initiators, or both are
    /// responders.
    SameRole,
    /// The revision is not supported.
    Revision(u8),
    /// The private data has this many octets, more than [`MAX_PRIVATE_DATA`].
    PrivateDataLength(u16),
    /// The private data is shorter than the enhanced word that S announces.
    EnhancedTruncated,
}

impl fmt::Display for StartupError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongKey => f.write_str("no MPA start-up frame"),
            Self::SameRole => f.write_str("both ends are initiators, or both are responders"),
            Self::Revision(revision) => write!(f, "MPA revision {revision} is not supported"),
            Self::PrivateDataLength(len) => {
                write!(f, "{len} octets of private data exceed {MAX_PRIVATE_DATA}")
            }
            Self::EnhancedTruncated => f.write_str("the enhanced word is incomplete"),
        }
    }
}

impl Error for StartupError {}

/// The reason why a frame was not encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The private data exceeds [`Frame::max_private_data`].
    PrivateDataTooLong,
    /// The buffer is shorter than [`Frame::encoded_len`].
    NoRoom,
}

impl fmt::Display for EncodeError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrivateDataTooLong => "too much private data",
            Self::NoRoom => "the frame does not fit into the buffer",
        })
    }
}

impl Error for EncodeError {}

/// The result of [`parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The frame is incomplete: call again with this many octets, from the same first one on.
    ///
    /// Never more than the frame has. A caller that reads exactly so many octets leaves those
    /// after the frame in the transport.
    Need {
        /// Octets from the frame's first one on.
        total: usize,
    },
    /// The frame is whole.
    Frame {
        /// The fields of the frame.
        frame: Frame<'a>,
        /// The length of the frame in octets; the first FPDU begins after it.
        len: usize,
    },
}

/// Decodes the start-up frame at the front of the octets received so far.
///
/// Octets after the frame, reserved flags, R in a Request and S in a frame of revision 1 are
/// ignored.
///
/// # Errors
///
/// [`StartupError`], as soon as no further octets can complete a valid frame.
pub fn parse(octets: &[u8], expected: FrameKind) -> Result<Progress<'_>, StartupError> {
    let (key, other) = (expected.key(), expected.other().key());
    let so_far = octets.get(..KEY_LEN).unwrap_or(octets);
    if !key.starts_with(so_far) {
        return Err(if other.starts_with(so_far) {
            StartupError::SameRole
        } else {
            StartupError::WrongKey
        });
    }
    let Some((header, behind)) = octets.split_first_chunk::<HEADER_LEN>() else {
        return Ok(Progress::Need { total: HEADER_LEN });
    };

    let [.., flags, revision, len0, len1] = *header;
    let revision = Revision::try_from(revision)?;
    let announced = u16::from_be_bytes([len0, len1]);
    let data_len = usize::from(announced);
    if data_len > MAX_PRIVATE_DATA {
        return Err(StartupError::PrivateDataLength(announced));
    }
    let rejected = expected == FrameKind::Reply && flags & FLAG_REJECT != 0;
    let word = revision == Revision::Two && flags & FLAG_ENHANCED != 0;
    // A rejection is valid without the word.
    if word && !rejected && data_len < enhanced::LEN {
        return Err(StartupError::EnhancedTruncated);
    }
    let len = HEADER_LEN.wrapping_add(data_len);
    let Some(data) = behind.get(..data_len) else {
        return Ok(Progress::Need { total: len });
    };

    let mut data = Reader::new(data);
    let enhanced = if word {
        data.array().map(Enhanced::decode)
    } else {
        None
    };
    let frame = Frame {
        kind: expected,
        revision,
        markers: flags & FLAG_MARKERS != 0,
        crc: flags & FLAG_CRC != 0,
        rejected,
        enhanced,
        private_data: data.rest(),
    };
    Ok(Progress::Frame { frame, len })
}

impl Frame<'_> {
    /// The most octets of private data of this frame: 512, or 508 with the enhanced word.
    #[must_use]
    pub fn max_private_data(&self) -> usize {
        MAX_PRIVATE_DATA.saturating_sub(self.word_len())
    }

    /// Octets of the frame on the wire.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        HEADER_LEN
            .saturating_add(self.word_len())
            .saturating_add(self.private_data.len())
    }

    /// Writes the frame to the front of `out` and returns its length in octets.
    ///
    /// # Errors
    ///
    /// [`EncodeError`]; the octets of `out` are undefined then.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        if self.private_data.len() > self.max_private_data() {
            return Err(EncodeError::PrivateDataTooLong);
        }
        let data_len = self.word_len().saturating_add(self.private_data.len());
        let data_len = u16::try_from(data_len).map_err(|_| EncodeError::PrivateDataTooLong)?;
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.markers, FLAG_MARKERS)
            | flag(self.crc, FLAG_CRC)
            | flag(self.rejected, FLAG_REJECT)
            | flag(self.enhanced().is_some(), FLAG_ENHANCED);

        let len = self.encoded_len();
        let out = out.get_mut(..len).ok_or(EncodeError::NoRoom)?;
        let (header, mut data) = out
            .split_first_chunk_mut::<HEADER_LEN>()
            .ok_or(EncodeError::NoRoom)?;
        *header = Writer::new()
            .put(self.kind.key())
            .u8(flags)
            .u8(self.revision.number())
            .u16(data_len)
            .finish();
        if let Some(word) = self.enhanced() {
            let (to, rest) = data.split_first_chunk_mut().ok_or(EncodeError::NoRoom)?;
            *to = word.encode();
            data = rest;
        }
        if !copy(data, self.private_data) {
            return Err(EncodeError::NoRoom);
        }
        Ok(len)
    }

    /// The sender's depths, for a connection manager: `default` where the frame does not carry or
    /// negotiate them.
    #[must_use]
    pub fn depths_or(&self, default: Depths) -> Depths {
        let said = self.enhanced();
        Depths {
            ird: said.and_then(|word| word.ird.get()).unwrap_or(default.ird),
            ord: said.and_then(|word| word.ord.get()).unwrap_or(default.ord),
        }
    }

    /// The enhanced word, if the revision is 2.
    fn enhanced(&self) -> Option<Enhanced> {
        self.enhanced.filter(|_| self.revision == Revision::Two)
    }

    /// Octets of the enhanced word in this frame: 0 or 4.
    fn word_len(&self) -> usize {
        self.enhanced().map_or(0, |_| enhanced::LEN)
    }
}
