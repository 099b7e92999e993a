// SPDX-License-Identifier: GPL-2.0

//! RDMAP's control octet: version and opcode (RFC 5040 section 4.1, RFC 7306 section 4).

use super::message::SendKind;
use super::terminate::{
    RemoteOperation,
    TerminateReason, //
};
use crate::ids::{
    QueueNumber,
    Stag, //
};

const VERSION_SHIFT: u32 = 6;
const VERSION: u8 = 1;
const OPCODE_MASK: u8 = 0x0f;

/// The message that a segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate Data.
    Immediate = 8,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited = 9,
    /// Atomic Request.
    AtomicRequest = 10,
    /// Atomic Response.
    AtomicResponse = 11,
}

impl Opcode {
    /// Decodes the control octet. Reserved bits are ignored.
    ///
    /// # Errors
    ///
    /// [`RemoteOperation::InvalidVersion`] if the version (RV) is not 1,
    /// [`RemoteOperation::UnexpectedOpcode`] if the opcode is not assigned.
    #[inline]
    pub fn parse(control: u8) -> Result<Self, TerminateReason> {
        if control >> VERSION_SHIFT != VERSION {
            return Err(TerminateReason::RemoteOperation(
                RemoteOperation::InvalidVersion,
            ));
        }
        Ok(match control & OPCODE_MASK {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            8 => Self::Immediate,
            9 => Self::ImmediateSolicited,
            10 => Self::AtomicRequest,
            11 => Self::AtomicResponse,
            _ => {
                return Err(TerminateReason::RemoteOperation(
                    RemoteOperation::UnexpectedOpcode,
                ))
            }
        })
    }

    /// Encodes the control octet.
    #[inline]
    #[must_use]
    pub const fn control(self) -> u8 {
        (VERSION << VERSION_SHIFT) | self as u8
    }

    /// The queue of its untagged segments; `None` if its segments are tagged.
    #[inline]
    #[must_use]
    pub const fn queue(self) -> Option<QueueNumber> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::Immediate
            | Self::ImmediateSolicited => Some(QueueNumber::Send),
            Self::ReadRequest | Self::AtomicRequest => Some(QueueNumber::ReadRequest),
            Self::Terminate => Some(QueueNumber::Terminate),
            Self::AtomicResponse => Some(QueueNumber::AtomicResponse),
        }
    }

    /// The variant of a Send whose STag field is `word`; `None` for other messages.
    ///
    /// Without Invalidate the field is ignored.
    #[inline]
    #[must_use]
    pub const fn send_kind(self, word: u32) -> Option<SendKind> {
        let (solicited, invalidate) = match self {
            Self::Send => (false, false),
            Self::SendInvalidate => (false, true),
            Self::SendSolicited => (true, false),
            Self::SendSolicitedInvalidate => (true, true),
            _ => return None,
        };
        Some(SendKind {
            solicited,
            invalidate: if invalidate {
                Some(Stag::new(word))
            } else {
                None
            },
        })
    }
}

impl From<SendKind> for Opcode {
    #[inline]
    fn from(kind: SendKind) -> Self {
        match (kind.solicited, kind.invalidate.is_some()) {
            (false, false) => Self::Send,
            (false, true) => Self::SendInvalidate,
            (true, false) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDMAP-01, RDMAP-02: the version is checked, reserved bits are not, and opcodes above
    /// eleven are unexpected.
    #[test]
    fn every_control_octet() {
        for control in 0..=u8::MAX {
            let parsed = Opcode::parse(control);
            if control >> 6 != 1 {
                let reason = TerminateReason::RemoteOperation(RemoteOperation::InvalidVersion);
                assert_eq!(parsed, Err(reason), "control octet {control:#x}");
            } else if control & 15 > 11 {
                let reason = TerminateReason::RemoteOperation(RemoteOperation::UnexpectedOpcode);
                assert_eq!(parsed, Err(reason), "control octet {control:#x}");
            } else {
                let opcode = parsed.expect("the opcode is assigned");
                assert_eq!(opcode.control(), control & 0xcf);
                assert_eq!(opcode as u8, control & 15);
            }
        }
    }

    /// RDMAP-03: the STag field counts with Invalidate only.
    #[test]
    fn kinds_of_send() {
        for solicited in [false, true] {
            for invalidate in [None, Some(Stag::new(7))] {
                let kind = SendKind {
                    solicited,
                    invalidate,
                };
                assert_eq!(Opcode::from(kind).send_kind(7), Some(kind));
            }
        }
        assert_eq!(Opcode::Write.send_kind(7), None);
        assert_eq!(Opcode::Immediate.send_kind(7), None);
    }
}
