// SPDX-License-Identifier: GPL-2.0

//! The errors of transmission.

use core::error::Error;
use core::fmt;

use crate::rdmap::terminate::{
    AccessError,
    AtomicError, //
};

/// The reason why a [`Stream`](super::Stream) wrote no FPDU. The stream is unchanged, except where
/// a Terminate is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitError {
    /// The RTR frame was not written yet, or a responder waits for its initiator's first FPDU.
    NotStarted,
    /// The stream failed or ended.
    Ended,
    /// As many requests are outstanding as ORD allows.
    QueueFull,
    /// The FPDU does not fit into the buffer; [`State`](super::State) and numbers are unchanged.
    NoRoom,
    /// The payload does not have the length that its message requires.
    PayloadLength,
    /// The peer's request names memory that it may not access. A Terminate is due:
    /// [`Stream::next_control`](super::Stream::next_control).
    Refused(AccessError),
    /// The peer's Atomic Request is refused. A Terminate is due, as for
    /// [`TransmitError::Refused`].
    AtomicRefused(AtomicError),
}

impl fmt::Display for TransmitError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotStarted => "the stream has not started in this direction",
            Self::Ended => "the stream has ended",
            Self::QueueFull => "ORD requests are outstanding",
            Self::NoRoom => "the FPDU does not fit into the buffer",
            Self::PayloadLength => "the payload is not as long as its message",
            Self::Refused(error) => return write!(f, "the peer's request is refused: {error}"),
            Self::AtomicRefused(error) => {
                return write!(f, "the peer's request is refused: {error}")
            }
        })
    }
}

impl Error for TransmitError {
    #[inline]
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::AtomicRefused(error) => Some(error),
            _ => None,
        }
    }
}
