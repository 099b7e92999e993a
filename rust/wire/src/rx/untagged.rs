// SPDX-License-Identifier: GPL-2.0

//! Untagged segments: Sends, requests, Atomic Responses, Terminate (RFC 5041 section 7.1, RFC
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

/// The error of a message of fixed length that is too short.
const TOO_SHORT: TerminateReason = TerminateReason::RemoteOperation(RemoteOperation::Unspecified);

/// The variant of Send of a segment; `None` if it is no Send, or not on the queue of Sends.
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
    /// Decides on an untagged segment with `len` octets after its header; `message` is their
    /// front.
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
            // Even if it is in error: a Terminate is not answered with another.
            Opcode::Terminate => Ok(Decision::Terminated(Terminate::decode(message))),
            _ => Err(UNEXPECTED),
        }
    }

    /// Decides on a segment of a Send (RFC 5041 section 5.3).
    ///
    /// | state | event | next |
    /// | --- | --- | --- |
    /// | between messages | first segment, L is clear | within a message |
    /// | between messages | only segment, L is set | between messages |
    /// | within a message | next segment, L is clear | within a message |
    /// | within a message | last segment, L is set | between messages |
    ///
    /// Any other message number, offset or variant is an error.
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

    /// Reverts the last decision: `segment`, the first one of a Send that has no receive buffer
    /// yet. The caller passes the segment to [`Receiver::receive`] again before any other.
    ///
    /// The stream remains [started](Receiver::started): the FPDU was valid.
    pub fn defer(&mut self, segment: &SendSegment) {
        self.send = None;
        if segment.last {
            self.send_msn = self.send_msn.previous();
        }
    }

    /// Decides on Immediate Data, which is numbered as a Send.
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

/// Checks the header of a message of one segment with `expected_len` octets, number `msn` of its
/// queue.
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
        // The message exceeds its fixed length, in this segment or a further one.
        Ok(expected) if len > expected || (len == expected && !header.last) => {
            untagged(UntaggedError::TooLong)
        }
        Ok(expected) if len == expected => Ok(()),
        _ => Err(TOO_SHORT),
    }
}
