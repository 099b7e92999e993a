// SPDX-License-Identifier: GPL-2.0

//! The error codes of all layers (RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8,
//! RFC 6581 section 8).

use core::error::Error;
use core::fmt;

/// Declares one error type's codes: an enum, its numbers on the wire, their meaning in words, and
/// the conversion from a number.
macro_rules! codes {
    (
        $(#[$attr:meta])*
        pub enum $name:ident {
            $( $(#[$doc:meta])* $variant:ident = $code:literal => $text:literal, )*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $( $(#[$doc])* $variant = $code, )*
        }

        impl $name {
            /// Every code of this type, in the order of the wire.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// The code on the wire.
            #[inline]
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The meaning of a code from the wire.
            #[inline]
            const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            #[inline]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $( Self::$variant => $text, )*
                })
            }
        }

        impl Error for $name {}
    };
}

codes! {
    /// RDMAP, remote protection error (layer 0, type 1): the memory that a Read Request or a Send
    /// with Invalidate of the peer names may not be used.
    pub enum RemoteProtection {
        /// The STag is not valid.
        InvalidStag = 0x00 => "invalid STag",
        /// The octets lie outside of the buffer.
        BaseOrBounds = 0x01 => "base or bounds violation",
        /// The buffer does not grant the access.
        AccessRights = 0x02 => "access rights violation",
        /// The STag belongs to another protection domain or stream.
        NotAssociated = 0x03 => "STag not associated with the RDMAP stream",
        /// Tagged offset and length exceed 2^64.
        ToWrap = 0x04 => "tagged offset wrap",
        /// The peer may not invalidate the STag.
        CannotInvalidate = 0x09 => "STag cannot be invalidated",
        /// Any other protection error.
        Unspecified = 0xff => "unspecified error",
    }
}

codes! {
    /// RDMAP, remote operation error (layer 0, type 2): the message itself is in error.
    pub enum RemoteOperation {
        /// The version (RV) is not 1.
        InvalidVersion = 0x05 => "invalid RDMAP version",
        /// The opcode is unknown, or not permitted here.
        UnexpectedOpcode = 0x06 => "unexpected opcode",
        /// Catastrophic error of this stream.
        StreamCatastrophic = 0x07 => "catastrophic error, localized to the RDMAP stream",
        /// Catastrophic error of all streams.
        GlobalCatastrophic = 0x08 => "catastrophic error, global",
        /// The peer may not invalidate the STag; see [`RemoteProtection::CannotInvalidate`].
        CannotInvalidate = 0x09 => "STag cannot be invalidated",
        /// Any other operation error.
        Unspecified = 0xff => "unspecified error",
    }
}

codes! {
    /// DDP, tagged buffer error (layer 1, type 1).
    pub enum TaggedError {
        /// The STag is not valid.
        InvalidStag = 0x00 => "invalid STag",
        /// The octets lie outside of the buffer.
        BaseOrBounds = 0x01 => "base or bounds violation",
        /// The STag belongs to another stream.
        NotAssociated = 0x02 => "STag not associated with the DDP stream",
        /// Tagged offset and length exceed 2^64.
        ToWrap = 0x03 => "tagged offset wrap",
        /// The version (DV) is not 1.
        InvalidVersion = 0x04 => "invalid DDP version",
    }
}

codes! {
    /// DDP, untagged buffer error (layer 1, type 2).
    pub enum UntaggedError {
        /// The queue does not exist.
        InvalidQn = 0x01 => "invalid queue number",
        /// The queue has no buffer for the message.
        NoBuffer = 0x02 => "no buffer available",
        /// The message number is not the expected one.
        MsnRange = 0x03 => "message sequence number out of range",
        /// The message offset is not the expected one.
        InvalidMo = 0x04 => "invalid message offset",
        /// The message is longer than its buffer.
        TooLong = 0x05 => "message too long for the buffer",
        /// The version (DV) is not 1.
        InvalidVersion = 0x06 => "invalid DDP version",
    }
}

codes! {
    /// MPA error (layer 2, type 0).
    pub enum MpaError {
        /// The TCP connection was closed, lost or timed out.
        TcpLost = 0x01 => "TCP connection closed, terminated or lost",
        /// The CRC of an FPDU does not match.
        Crc = 0x02 => "CRC mismatch",
        /// A marker and ULPDU_Length disagree.
        Marker = 0x03 => "marker and ULPDU length mismatch",
        /// The Request or Reply is invalid.
        StartupFrame = 0x04 => "invalid MPA Request or Reply frame",
        /// Catastrophic error, local, during connection set-up.
        LocalCatastrophic = 0x05 => "local catastrophic error",
        /// The peer's ORD exceeds this end's IRD.
        InsufficientIrd = 0x06 => "insufficient IRD resources",
        /// No RTR frame suits both ends.
        NoMatchingRtr = 0x07 => "no matching RTR option",
    }
}

/// The reason for which a stream ends, as the Terminate message carries it: layer, error type,
/// code.
///
/// ```
/// use iwarp_wire::rdmap::terminate::{MpaError, TerminateReason};
///
/// let reason = TerminateReason::Mpa(MpaError::Crc);
/// assert_eq!((reason.layer(), reason.etype(), reason.code()), (2, 0, 2));
/// assert_eq!(TerminateReason::from_wire(2, 0, 2), reason);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TerminateReason {
    /// RDMAP, local catastrophic error (0/0/00).
    RdmapCatastrophic,
    /// RDMAP, remote protection error (0/1).
    RemoteProtection(RemoteProtection),
    /// RDMAP, remote operation error (0/2).
    RemoteOperation(RemoteOperation),
    /// DDP, local catastrophic error (1/0/00).
    DdpCatastrophic,
    /// DDP, tagged buffer error (1/1).
    Tagged(TaggedError),
    /// DDP, untagged buffer error (1/2).
    Untagged(UntaggedError),
    /// MPA error (2/0).
    Mpa(MpaError),
    /// Received, and not assigned by any of the RFCs.
    Unknown {
        /// Layer: 0 to 15.
        layer: u8,
        /// Error type: 0 to 15.
        etype: u8,
        /// Error code.
        code: u8,
    },
}

/// The copies that a Terminate takes of the segment in error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// No copy.
    Nothing,
    /// The length and the DDP header.
    Ddp,
    /// The length, the DDP header, and the Read Request of such a segment.
    DdpAndRead,
}

const RDMAP: u8 = 0;
const DDP: u8 = 1;
const LLP: u8 = 2;

impl TerminateReason {
    /// The layer that found the error: 0 RDMAP, 1 DDP, 2 LLP; up to 15 from a peer.
    #[must_use]
    pub const fn layer(self) -> u8 {
        match self {
            Self::RdmapCatastrophic | Self::RemoteProtection(_) | Self::RemoteOperation(_) => RDMAP,
            Self::DdpCatastrophic | Self::Tagged(_) | Self::Untagged(_) => DDP,
            Self::Mpa(_) => LLP,
            Self::Unknown { layer, .. } => layer,
        }
    }

    /// The layer's error type, up to 15.
    #[must_use]
    pub const fn etype(self) -> u8 {
        match self {
            Self::RdmapCatastrophic | Self::DdpCatastrophic | Self::Mpa(_) => 0,
            Self::RemoteProtection(_) | Self::Tagged(_) => 1,
            Self::RemoteOperation(_) | Self::Untagged(_) => 2,
            Self::Unknown { etype, .. } => etype,
        }
    }

    /// The code of the error type.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::RdmapCatastrophic | Self::DdpCatastrophic => 0,
            Self::RemoteProtection(error) => error.code(),
            Self::RemoteOperation(error) => error.code(),
            Self::Tagged(error) => error.code(),
            Self::Untagged(error) => error.code(),
            Self::Mpa(error) => error.code(),
            Self::Unknown { code, .. } => code,
        }
    }

    /// The meaning of a Terminate's layer and error type, 0 to 15 each, and error code. Every
    /// combination has one: [`TerminateReason::Unknown`] where no document assigns it.
    pub fn from_wire(layer: u8, etype: u8, code: u8) -> Self {
        let known = match (layer, etype) {
            (RDMAP, 0) if code == 0 => Some(Self::RdmapCatastrophic),
            (RDMAP, 1) => RemoteProtection::from_code(code).map(Self::RemoteProtection),
            (RDMAP, 2) => RemoteOperation::from_code(code).map(Self::RemoteOperation),
            (DDP, 0) if code == 0 => Some(Self::DdpCatastrophic),
            (DDP, 1) => TaggedError::from_code(code).map(Self::Tagged),
            (DDP, 2) => UntaggedError::from_code(code).map(Self::Untagged),
            (LLP, 0) => MpaError::from_code(code).map(Self::Mpa),
            _ => None,
        };
        known.unwrap_or(Self::Unknown { layer, etype, code })
    }

    /// Tells whether the error is an access of the peer to memory that it may not use (RFC 5041
    /// section 8.3, item 5).
    #[must_use]
    pub const fn is_access(self) -> bool {
        match self {
            Self::Tagged(error) => !matches!(error, TaggedError::InvalidVersion),
            Self::RemoteProtection(_) => true,
            _ => false,
        }
    }

    /// The copies that the Terminate takes of the segment in error (RFC 5040 section 4.8, figure
    /// 10).
    pub(super) const fn copied(self) -> Copied {
        match self {
            Self::RdmapCatastrophic
            | Self::DdpCatastrophic
            | Self::Mpa(_)
            | Self::Unknown { .. } => Copied::Nothing,
            Self::RemoteOperation(_) | Self::Tagged(_) | Self::Untagged(_) => Copied::Ddp,
            Self::RemoteProtection(_) => Copied::DdpAndRead,
        }
    }
}

impl fmt::Display for TerminateReason {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RdmapCatastrophic => f.write_str("RDMAP local catastrophic error"),
            Self::RemoteProtection(error) => write!(f, "RDMAP remote protection error: {error}"),
            Self::RemoteOperation(error) => write!(f, "RDMAP remote operation error: {error}"),
            Self::DdpCatastrophic => f.write_str("DDP local catastrophic error"),
            Self::Tagged(error) => write!(f, "DDP tagged buffer error: {error}"),
            Self::Untagged(error) => write!(f, "DDP untagged buffer error: {error}"),
            Self::Mpa(error) => write!(f, "MPA error: {error}"),
            Self::Unknown { layer, etype, code } => {
                write!(
                    f,
                    "unknown error: layer {layer}, type {etype}, code {code:#04x}"
                )
            }
        }
    }
}

impl Error for TerminateReason {}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDMAP-40: every number has one meaning, which has the same number.
    #[test]
    fn every_number_survives() {
        for layer in 0..16 {
            for etype in 0..16 {
                for code in 0..=u8::MAX {
                    let reason = TerminateReason::from_wire(layer, etype, code);
                    assert_eq!(
                        (reason.layer(), reason.etype(), reason.code()),
                        (layer, etype, code)
                    );
                }
            }
        }
    }

    /// RDMAP-40: the rows of the table, by number.
    #[test]
    fn every_row_has_its_number() {
        let rows: std::vec::Vec<(u8, u8, u8)> = std::iter::empty()
            .chain([TerminateReason::RdmapCatastrophic])
            .chain(
                RemoteProtection::ALL
                    .iter()
                    .map(|&e| TerminateReason::RemoteProtection(e)),
            )
            .chain(
                RemoteOperation::ALL
                    .iter()
                    .map(|&e| TerminateReason::RemoteOperation(e)),
            )
            .chain([TerminateReason::DdpCatastrophic])
            .chain(TaggedError::ALL.iter().map(|&e| TerminateReason::Tagged(e)))
            .chain(
                UntaggedError::ALL
                    .iter()
                    .map(|&e| TerminateReason::Untagged(e)),
            )
            .chain(MpaError::ALL.iter().map(|&e| TerminateReason::Mpa(e)))
            .map(|reason| (reason.layer(), reason.etype(), reason.code()))
            .collect();
        let expected = [
            (0, 0, 0x00),
            (0, 1, 0x00),
            (0, 1, 0x01),
            (0, 1, 0x02),
            (0, 1, 0x03),
            (0, 1, 0x04),
            (0, 1, 0x09),
            (0, 1, 0xff),
            (0, 2, 0x05),
            (0, 2, 0x06),
            (0, 2, 0x07),
            (0, 2, 0x08),
            (0, 2, 0x09),
            (0, 2, 0xff),
            (1, 0, 0x00),
            (1, 1, 0x00),
            (1, 1, 0x01),
            (1, 1, 0x02),
            (1, 1, 0x03),
            (1, 1, 0x04),
            (1, 2, 0x01),
            (1, 2, 0x02),
            (1, 2, 0x03),
            (1, 2, 0x04),
            (1, 2, 0x05),
            (1, 2, 0x06),
            (2, 0, 0x01),
            (2, 0, 0x02),
            (2, 0, 0x03),
            (2, 0, 0x04),
            (2, 0, 0x05),
            (2, 0, 0x06),
            (2, 0, 0x07),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn what_is_about_access() {
        let all = (0..=2).flat_map(|layer| (0..=2).map(move |etype| (layer, etype)));
        let about: std::vec::Vec<(u8, u8, u8)> = all
            .flat_map(|(layer, etype)| (0..=255).map(move |code| (layer, etype, code)))
            .filter(|&(layer, etype, code)| {
                TerminateReason::from_wire(layer, etype, code).is_access()
            })
            .collect();
        let rdmap = [0x00, 0x01, 0x02, 0x03, 0x04, 0x09, 0xff].map(|code| (0, 1, code));
        let ddp = [0x00, 0x01, 0x02, 0x03].map(|code| (1, 1, code));
        assert_eq!(about, [rdmap.as_slice(), ddp.as_slice()].concat());
    }
}
