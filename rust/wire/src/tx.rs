// SPDX-License-Identifier: GPL-2.0

//! The transmitting direction: message numbers, and messages cut into segments (RFC 5041 section
//! 5.1, RFC 5040 section 5).
//!
//! A [`Segmenter`] cuts messages with payload. The other messages are one segment of fixed length:
//! the functions of this module return their whole ULPDU.

mod segmenter;

use core::ops::Deref;

use crate::bytes::{
    Short,
    Writer, //
};
use crate::ddp::{
    TaggedHeader,
    UntaggedHeader,
    UNTAGGED_LEN, //
};
use crate::ids::{
    Mo,
    Msn,
    QueueNumber,
    Stag,
    TaggedOffset, //
};
use crate::mpa::startup::RtrKind;
use crate::rdmap::{
    AtomicRequest,
    Opcode,
    ReadRequest,
    ATOMIC_REQUEST_LEN,
    IMMEDIATE_LEN,
    READ_REQUEST_LEN, //
};

pub use self::segmenter::{
    Message,
    Segmenter,
    Step, //
};

/// The next message number of each queue, in the transmitting direction (RFC 5041 section 5.1).
///
/// Numbers are taken in the order in which messages are transmitted.
#[derive(Clone, Copy, Debug)]
pub struct Msns {
    /// Sends and Immediate Data.
    send: Msn,
    /// Read Requests and Atomic Requests.
    read_request: Msn,
    /// Atomic Responses.
    atomic_response: Msn,
}

impl Msns {
    /// The numbers of a new stream: [`Msn::FIRST`] in each queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            send: Msn::FIRST,
            read_request: Msn::FIRST,
            atomic_response: Msn::FIRST,
        }
    }

    /// Takes the number of a Send or Immediate Data.
    #[inline]
    pub fn send(&mut self) -> Msn {
        take(&mut self.send)
    }

    /// Takes the number of a Read Request or Atomic Request.
    #[inline]
    pub fn read_request(&mut self) -> Msn {
        take(&mut self.read_request)
    }

    /// Takes the number of an Atomic Response.
    #[inline]
    pub fn atomic_response(&mut self) -> Msn {
        take(&mut self.atomic_response)
    }
}

impl Default for Msns {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a counter's number and increments the counter.
#[inline]
fn take(counter: &mut Msn) -> Msn {
    let now = *counter;
    *counter = now.next();
    now
}

/// The ULPDU of a Read Request.
#[inline]
#[must_use]
pub fn read_request(msn: Msn, request: &ReadRequest) -> [u8; UNTAGGED_LEN + READ_REQUEST_LEN] {
    Writer::new()
        .put(&single(Opcode::ReadRequest, QueueNumber::ReadRequest, msn).encode())
        .put(&request.encode())
        .finish()
}

/// The ULPDU of an Atomic Request.
#[must_use]
pub fn atomic_request(
    msn: Msn,
    request: &AtomicRequest,
) -> [u8; UNTAGGED_LEN + ATOMIC_REQUEST_LEN] {
    Writer::new()
        .put(&single(Opcode::AtomicRequest, QueueNumber::ReadRequest, msn).encode())
        .put(&request.encode())
        .finish()
}

/// The ULPDU of Immediate Data.
#[must_use]
pub fn immediate(
    msn: Msn,
    data: [u8; IMMEDIATE_LEN],
    solicited: bool,
) -> [u8; UNTAGGED_LEN + IMMEDIATE_LEN] {
    let opcode = if solicited {
        Opcode::ImmediateSolicited
    } else {
        Opcode::Immediate
    };
    Writer::new()
        .put(&single(opcode, QueueNumber::Send, msn).encode())
        .put(&data)
        .finish()
}

/// The ULPDU of an RTR frame, the first FPDU of an initiator in peer-to-peer mode (RFC 6581 section
/// 9.2).
///
/// A Read takes an entry of the outbound read queue. The caller appends it: 0 octets into STag 0 at
/// offset 0. Its answer completes no work request.
pub fn rtr(kind: RtrKind, msns: &mut Msns) -> RtrOctets {
    let (stag, to) = (Stag::new(0), TaggedOffset::new(0));
    RtrOctets(match kind {
        RtrKind::Fpdu => Short::EMPTY,
        RtrKind::Write => {
            let header = TaggedHeader {
                last: true,
                ulp: Opcode::Write.control(),
                stag,
                to,
            };
            Writer::new().put(&header.encode()).into()
        }
        RtrKind::Read => {
            let request = ReadRequest {
                sink: stag,
                sink_to: to,
                size: 0,
                source: stag,
                source_to: to,
            };
            let ulpdu = read_request(msns.read_request(), &request);
            Writer::new().put(&ulpdu).into()
        }
    })
}

/// The ULPDU of an RTR frame: 0, 14 or 46 octets.
#[derive(Clone, Copy)]
pub struct RtrOctets(Short<{ UNTAGGED_LEN + READ_REQUEST_LEN }>);

impl Deref for RtrOctets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// The header of an untagged message of one segment.
#[inline]
fn single(opcode: Opcode, queue: QueueNumber, msn: Msn) -> UntaggedHeader {
    UntaggedHeader {
        last: true,
        ulp: opcode.control(),
        ulp_word: 0,
        qn: queue.into(),
        msn,
        mo: Mo::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DDP-09: the numbers of each queue begin with 1.
    #[test]
    fn each_queue_has_its_numbers() {
        let mut msns = Msns::new();
        for expected in 1..4 {
            assert_eq!(msns.send().get(), expected);
        }
        assert_eq!(msns.read_request().get(), 1);
        assert_eq!(msns.atomic_response().get(), 1);
    }

    #[test]
    fn rtr_frames() {
        let mut msns = Msns::new();
        assert!(rtr(RtrKind::Fpdu, &mut msns).is_empty());
        assert_eq!(rtr(RtrKind::Write, &mut msns)[..2], [0xc1, 0x40]);
        assert_eq!(rtr(RtrKind::Read, &mut msns)[..2], [0x41, 0x41]);
        assert_eq!(msns.read_request().get(), 2);
    }
}
