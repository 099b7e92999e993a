// SPDX-License-Identifier: GPL-2.0

//! From what memory protection says to what the peer is told (RFC 5041 section 7.1, RFC 5040
//! sections 7.1 and 7.2).

use super::reason::{
    RemoteProtection,
    TaggedError,
    TerminateReason, //
};

/// Why a peer may not use a tagged buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// The STag names no buffer, or an invalid one.
    InvalidStag,
    /// Outside of the buffer.
    Bounds,
    /// The buffer does not grant the right.
    Rights,
    /// The buffer belongs to another protection domain or stream.
    NotAssociated,
    /// Offset and length wrap 64 bits.
    Wrap,
}

impl AccessError {
    /// The reason for a segment of an RDMA Write.
    ///
    /// Only Read Requests and Sends with Invalidate meet a remote protection error (RFC 5040
    /// section 4.8, figure 10), so DDP has to name the lack of the right: a buffer that may not be
    /// written does not allow placement, the second check of RFC 5041 section 7.1.
    pub const fn for_write(self) -> TerminateReason {
        match self {
            Self::InvalidStag | Self::Rights => TerminateReason::Tagged(TaggedError::InvalidStag),
            Self::Bounds => TerminateReason::Tagged(TaggedError::BaseOrBounds),
            Self::NotAssociated => TerminateReason::Tagged(TaggedError::NotAssociated),
            Self::Wrap => TerminateReason::Tagged(TaggedError::ToWrap),
        }
    }

    /// The reason for the source of a Read Request or the target of an Atomic Request.
    pub const fn for_read(self) -> TerminateReason {
        TerminateReason::RemoteProtection(match self {
            Self::InvalidStag => RemoteProtection::InvalidStag,
            Self::Bounds => RemoteProtection::BaseOrBounds,
            Self::NotAssociated => RemoteProtection::NotAssociated,
            Self::Wrap => RemoteProtection::ToWrap,
            Self::Rights => RemoteProtection::AccessRights,
        })
    }

    /// The reason for a Send with Invalidate.
    ///
    /// An STag that is not associated with the stream cannot be invalidated (RFC 5040 section 5.3).
    pub const fn for_invalidate(self) -> TerminateReason {
        TerminateReason::RemoteProtection(match self {
            Self::InvalidStag => RemoteProtection::InvalidStag,
            _ => RemoteProtection::CannotInvalidate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDMAP-53, RDMAP-54, DDP-56 to DDP-59: layer, type and code of each failure.
    #[test]
    fn codes_of_failed_accesses() {
        let wire = |reason: TerminateReason| (reason.layer(), reason.etype(), reason.code());
        let cannot = (0, 1, 9);
        for (error, write, read, invalidate) in [
            (AccessError::InvalidStag, (1, 1, 0), (0, 1, 0), (0, 1, 0)),
            (AccessError::Bounds, (1, 1, 1), (0, 1, 1), cannot),
            (AccessError::Rights, (1, 1, 0), (0, 1, 2), cannot),
            (AccessError::NotAssociated, (1, 1, 2), (0, 1, 3), cannot),
            (AccessError::Wrap, (1, 1, 3), (0, 1, 4), cannot),
        ] {
            assert_eq!(wire(error.for_write()), write, "{error:?} of a Write");
            assert_eq!(wire(error.for_read()), read, "{error:?} of a Read");
            assert_eq!(
                wire(error.for_invalidate()),
                invalidate,
                "{error:?} of a Send with Invalidate"
            );
        }
    }
}
