// SPDX-License-Identifier: GPL-2.0

//! The error codes of all layers (RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8,
//! RFC 6581 section 8).

/// Declares one error type's codes: an enum, its numbers on the wire and the way back.
macro_rules! codes {
    (
        $(#[$attr:meta])*
        pub enum $name:ident {
            $( $(#[$doc:meta])* $variant:ident = $code:literal, )*
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
    };
}

codes! {
    /// RDMAP, remote protection error: what a peer's Write, Read Request or Send with Invalidate
    /// asked for is not allowed.
    pub enum RemoteProtection {
        /// The STag is not valid.
        InvalidStag = 0x00,
        /// Outside of the buffer.
        BaseOrBounds = 0x01,
        /// The buffer does not grant this right.
        AccessRights = 0x02,
        /// The STag belongs to another protection domain or stream.
        NotAssociated = 0x03,
        /// The tagged offset wraps.
        ToWrap = 0x04,
        /// The STag cannot be invalidated by the peer.
        CannotInvalidate = 0x09,
        /// Anything else.
        Unspecified = 0xff,
    }
}

codes! {
    /// RDMAP, remote operation error: a message is wrong as such.
    pub enum RemoteOperation {
        /// RDMAP version.
        InvalidVersion = 0x05,
        /// The opcode is unknown, or does not belong here.
        UnexpectedOpcode = 0x06,
        /// Catastrophic, for this stream.
        StreamCatastrophic = 0x07,
        /// Catastrophic, for all streams.
        GlobalCatastrophic = 0x08,
        /// The STag cannot be invalidated by the peer; see [`RemoteProtection::CannotInvalidate`].
        CannotInvalidate = 0x09,
        /// Anything else.
        Unspecified = 0xff,
    }
}

codes! {
    /// DDP, tagged buffer error.
    pub enum TaggedError {
        /// The STag is not valid.
        InvalidStag = 0x00,
        /// Outside of the buffer.
        BaseOrBounds = 0x01,
        /// The STag belongs to another stream.
        NotAssociated = 0x02,
        /// The tagged offset wraps.
        ToWrap = 0x03,
        /// DDP version.
        InvalidVersion = 0x04,
    }
}

codes! {
    /// DDP, untagged buffer error.
    pub enum UntaggedError {
        /// No such queue.
        InvalidQn = 0x01,
        /// No buffer for the message.
        NoBuffer = 0x02,
        /// The message number is out of range.
        MsnRange = 0x03,
        /// The offset in the message is not the next one.
        InvalidMo = 0x04,
        /// The message is longer than its buffer.
        TooLong = 0x05,
        /// DDP version.
        InvalidVersion = 0x06,
    }
}

codes! {
    /// LLP error, MPA's.
    pub enum MpaError {
        /// The TCP connection was closed, lost or timed out.
        TcpLost = 0x01,
        /// CRC mismatch.
        Crc = 0x02,
        /// Markers and ULPDU_Length disagree.
        Marker = 0x03,
        /// Request or Reply is invalid.
        StartupFrame = 0x04,
        /// Catastrophic, local, during connection set-up.
        LocalCatastrophic = 0x05,
        /// The other end's IRD is less than this end's ORD needs.
        InsufficientIrd = 0x06,
        /// No RTR frame suits both ends.
        NoMatchingRtr = 0x07,
    }
}

/// Why a stream ends, as the Terminate message says it.
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
    /// From a peer, of no meaning in the documents.
    Unknown {
        /// Layer: 0 to 15.
        layer: u8,
        /// Error type: 0 to 15.
        etype: u8,
        /// Error code.
        code: u8,
    },
}

/// What a Terminate copies of the segment that was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// Nothing.
    Nothing,
    /// Its length and its DDP header.
    Ddp,
    /// These, and the Read Request if it is one.
    DdpAndRead,
}

const RDMAP: u8 = 0;
const DDP: u8 = 1;
const LLP: u8 = 2;

impl TerminateReason {
    /// The layer that found the error: 0 RDMAP, 1 DDP, 2 LLP; up to 15 from a peer.
    pub const fn layer(self) -> u8 {
        match self {
            Self::RdmapCatastrophic | Self::RemoteProtection(_) | Self::RemoteOperation(_) => RDMAP,
            Self::DdpCatastrophic | Self::Tagged(_) | Self::Untagged(_) => DDP,
            Self::Mpa(_) => LLP,
            Self::Unknown { layer, .. } => layer,
        }
    }

    /// The layer's error type, up to 15.
    pub const fn etype(self) -> u8 {
        match self {
            Self::RdmapCatastrophic | Self::DdpCatastrophic | Self::Mpa(_) => 0,
            Self::RemoteProtection(_) | Self::Tagged(_) => 1,
            Self::RemoteOperation(_) | Self::Untagged(_) => 2,
            Self::Unknown { etype, .. } => etype,
        }
    }

    /// The code of the error type.
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

    /// The meaning of what a Terminate says; total.
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

    /// Whether somebody wanted what memory does not allow (RFC 5041 section 10.4, item 5).
    pub const fn is_access(self) -> bool {
        match self {
            Self::Tagged(error) => !matches!(error, TaggedError::InvalidVersion),
            Self::RemoteProtection(_) => true,
            _ => false,
        }
    }

    /// What the Terminate copies of the segment that was wrong (RFC 5040 section 4.8, figure 10).
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

#[cfg(test)]
mod tests {
    use super::*;

    /// RDMAP-40: every number has one meaning and goes back to the same number.
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
