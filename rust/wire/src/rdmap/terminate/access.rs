// SPDX-License-Identifier: GPL-2.0

//! Access errors of memory regions, and the Terminate of each operation (RFC 5041 section 7.1, RFC
//! 5040 sections 7.1 and 7.2).

use core::error::Error;
use core::fmt;

use super::reason::{
    RemoteOperation,
    RemoteProtection,
    TaggedError,
    TerminateReason, //
};

/// The reason why an access to a tagged buffer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// The STag names no buffer, or an invalid one.
    InvalidStag,
    /// The octets lie outside of the buffer.
    Bounds,
    /// The buffer does not grant the access.
    Rights,
    /// The buffer belongs to another protection domain or stream.
    NotAssociated,
    /// Offset and length exceed 2^64.
    Wrap,
}

impl fmt::Display for AccessError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidStag => "invalid STag",
            Self::Bounds => "outside of the buffer",
            Self::Rights => "access right not granted",
            Self::NotAssociated => "buffer of another protection domain or stream",
            Self::Wrap => "offset and length exceed 2^64",
        })
    }
}

impl Error for AccessError {}

impl AccessError {
    /// The reason for a segment of an RDMA Write.
    ///
    /// Remote protection errors are those of Read Requests and Sends with Invalidate (RFC 5040
    /// section 4.8, figure 10). A missing right is therefore an error of DDP: the buffer does not
    /// allow placement, the second check of RFC 5041 section 7.1.
    #[must_use]
    pub const fn for_write(self) -> TerminateReason {
        match self {
            Self::InvalidStag | Self::Rights => TerminateReason::Tagged(TaggedError::InvalidStag),
            Self::Bounds => TerminateReason::Tagged(TaggedError::BaseOrBounds),
            Self::NotAssociated => TerminateReason::Tagged(TaggedError::NotAssociated),
            Self::Wrap => TerminateReason::Tagged(TaggedError::ToWrap),
        }
    }

    /// The reason for the source of a Read Request or the target of an Atomic Request. An Atomic
    /// has a further error: [`AtomicError`].
    #[must_use]
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
    #[must_use]
    pub const fn for_invalidate(self) -> TerminateReason {
        TerminateReason::RemoteProtection(match self {
            Self::InvalidStag => RemoteProtection::InvalidStag,
            _ => RemoteProtection::CannotInvalidate,
        })
    }
}

/// The reason why an Atomic Request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicError {
    /// The peer may not access the target.
    Access(AccessError),
    /// The address of the target is not a multiple of 8.
    Misaligned,
}

impl fmt::Display for AtomicError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(error) => error.fmt(f),
            Self::Misaligned => f.write_str("target not aligned to 64 bits"),
        }
    }
}

impl Error for AtomicError {}

impl From<AccessError> for AtomicError {
    #[inline]
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

impl AtomicError {
    /// The reason for an Atomic Request (RFC 7306 section 8.2).
    #[must_use]
    pub const fn reason(self) -> TerminateReason {
        match self {
            Self::Access(error) => error.for_read(),
            Self::Misaligned => {
                TerminateReason::RemoteOperation(RemoteOperation::StreamCatastrophic)
            }
        }
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
