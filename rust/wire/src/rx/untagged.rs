// SPDX-License-Identifier: GPL-2.0

//! Untagged segments: Sends, requests, responses to Atomics, Terminate (RFC 5041 section 7.1, RFC
//! 5040 section 5).

use core::borrow::BorrowMut;

use super::decision::{
    Decision,
    SendSegment, //
};
use super::receiver::{
    Receiver,
    SendInProgress,
    UNEXPECTED, //
};
use crate::ddp::UntaggedHeader;
use crate::ids::{
    Mo,
    Msn,
    QueueNumber, //
};
use crate::rdmap::terminate::{
    RemoteOperation,
    Terminate,
    TerminateReason,
    UntaggedError, //
};
use crate::rdmap::{
    AtomicRequest,
    AtomicResponse,
    Opcode,
    ReadRequest,
    SendKind,
    ATOMIC_REQUEST_LEN,
    ATOMIC_RESPONSE_LEN,
    IMMEDIATE_LEN,
    READ_REQUEST_LEN, //
};
use crate::reads::{
    Inbound,
    Irq,
    Orq,
    Outstanding,
    Request, //
};

/// A message of fixed length lacks octets.
const TOO_SHORT: TerminateReason = TerminateReason::RemoteOperation(RemoteOperation::Unspecified);

/// The variant of Send that the segment belongs to, if it is one of a Send and on its queue.
#[inline(always)]
pub(super) fn send_kind(header: &UntaggedHeader) -> Option<SendKind> {
    let opcode = Opcode::parse(header.ulp).ok()?;
    let queue = QueueNumber::try_from(header.qn).ok()?;
    if opcode.queue() != Some(queue) {
        return None;
    }
    opcode.send_kind(header.ulp_word)
}

impl Receiver {
    /// An untagged segment with `len` octets behind its header, `message` being their front.
    #[inline]
    pub(super) fn untagged<T, O, I>(
        &mut self,
        header: &UntaggedHeader,
        len: u32,
        message: &[u8],
        orq: &mut Orq<T, O>,
        irq: &mut Irq<I>,
    ) -> Result<Decision, TerminateReason>
    where
        T: Copy,
        O: BorrowMut<[Option<Outstanding<T>>]>,
        I: BorrowMut<[Option<Inbound>]>,
    {
        let queue = QueueNumber::try_from(header.qn)
            .ok()
            .filter(|&queue| queue != QueueNumber::AtomicResponse || self.config.atomics)
            .ok_or(TerminateReason::Untagged(UntaggedError::InvalidQn))?;
        let opcode = Opcode::parse(header.ulp)?;
        if opcode.queue() != Some(queue) {
            return Err(UNEXPECTED);
        }
        if let Some(kind) = opcode.send_kind(header.ulp_word) {
            return self.send(kind, header, len);
        }
        match opcode {
            Opcode::Immediate | Opcode::ImmediateSolicited if self.config.immediate => {
                self.immediate(opcode, header, len, message)
            }
            Opcode::ReadRequest => {
                expect_whole(header, self.request_msn, len, READ_REQUEST_LEN)?;
                let request = ReadRequest::decode(message).ok_or(TOO_SHORT)?;
                self.request(header.msn, Request::Read(request), irq)?;
                Ok(Decision::ReadRequest)
            }
            Opcode::AtomicRequest if self.config.atomics => {
                expect_whole(header, self.request_msn, len, ATOMIC_REQUEST_LEN)?;
                let request = AtomicRequest::decode(message)?;
                self.request(header.msn, Request::Atomic(request), irq)?;
                Ok(Decision::AtomicRequest)
            }
            Opcode::AtomicResponse => {
                expect_whole(header, self.response_msn, len, ATOMIC_RESPONSE_LEN)?;
                let response = AtomicResponse::decode(message).ok_or(TOO_SHORT)?;
                orq.atomic_response(&response)?;
                self.response_msn = self.response_msn.next();
                Ok(Decision::AtomicResponse {
                    original: response.original,
                })
            }
            // Whatever else is wrong with it: a Terminate is not answered with another.
            Opcode::Terminate => Ok(Decision::Terminated(Terminate::decode(message))),
            _ => Err(UNEXPECTED),
        }
    }

    /// A segment of a Send.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        kind: SendKind,
        header: &UntaggedHeader,
        len: u32,
    ) -> Result<Decision, TerminateReason> {
        if header.msn != self.send_msn {
            return Err(TerminateReason::Untagged(UntaggedError::MsnRange));
        }
        let received = match self.send {
            Some(under_way) if under_way.kind != kind => return Err(UNEXPECTED),
            Some(under_way) => under_way.received,
            None => 0,
        };
        let mo = header.mo.get();
        if mo != received {
            return Err(TerminateReason::Untagged(UntaggedError::InvalidMo));
        }
        let end = mo
            .checked_add(len)
            .ok_or(TerminateReason::Untagged(UntaggedError::TooLong))?;
        let first = self.send.is_none();
        self.send = if header.last {
            self.send_msn = self.send_msn.next();
            None
        } else {
            Some(SendInProgress {
                received: end,
                kind,
            })
        };
        Ok(Decision::Send(SendSegment {
            first,
            mo,
            len,
            last: header.last,
            solicited: kind.solicited,
            invalidate: kind.invalidate,
        }))
    }

    /// Takes back the last decision, the first `segment` of a Send for which there is no receive
    /// buffer yet. The segment is to be given to [`Receiver::receive`] again before any other.
    ///
    /// The stream counts as [started](Receiver::started): a valid FPDU came.
    pub fn defer(&mut self, segment: &SendSegment) {
        self.send = None;
        if segment.last {
            self.send_msn = self.send_msn.previous();
        }
    }

    /// Immediate Data: counts as a Send.
    fn immediate(
        &mut self,
        opcode: Opcode,
        header: &UntaggedHeader,
        len: u32,
        message: &[u8],
    ) -> Result<Decision, TerminateReason> {
        if self.send.is_some() {
            return Err(UNEXPECTED);
        }
        expect_whole(header, self.send_msn, len, IMMEDIATE_LEN)?;
        let data = *message.first_chunk().ok_or(TOO_SHORT)?;
        self.send_msn = self.send_msn.next();
        Ok(Decision::Immediate {
            data,
            solicited: opcode == Opcode::ImmediateSolicited,
        })
    }

    /// Appends a request of the peer to the inbound read queue.
    #[inline]
    fn request<I>(
        &mut self,
        msn: Msn,
        request: Request,
        irq: &mut Irq<I>,
    ) -> Result<(), TerminateReason>
    where
        I: BorrowMut<[Option<Inbound>]>,
    {
        if !irq.push(msn, request) {
            return Err(TerminateReason::Untagged(UntaggedError::NoBuffer));
        }
        self.request_msn = self.request_msn.next();
        Ok(())
    }
}

/// Checks the header of a message that is one segment of `expected_len` octets, and number `msn`
/// of its queue.
#[inline]
fn expect_whole(
    header: &UntaggedHeader,
    msn: Msn,
    len: u32,
    expected_len: usize,
) -> Result<(), TerminateReason> {
    let untagged = |error| Err(TerminateReason::Untagged(error));
    if header.msn != msn {
        return untagged(UntaggedError::MsnRange);
    }
    if header.mo != Mo::ZERO {
        return untagged(UntaggedError::InvalidMo);
    }
    match u32::try_from(expected_len) {
        // More is to come than the message can have.
        Ok(expected) if len > expected || (len == expected && !header.last) => {
            untagged(UntaggedError::TooLong)
        }
        Ok(expected) if len == expected => Ok(()),
        _ => Err(TOO_SHORT),
    }
}
