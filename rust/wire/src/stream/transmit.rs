// SPDX-License-Identifier: GPL-2.0

//! The transmitting direction of a stream.
//!
//! Each function writes one FPDU to the front of a buffer and returns its length in octets. An
//! FPDU that fails does not count as sent.

use core::borrow::BorrowMut;

use super::{
    State,
    Stream,
    TransmitError, //
};
use crate::bytes::copy;
use crate::crc::Crc32c;
use crate::ddp::UNTAGGED_LEN;
use crate::ids::{
    Stag,
    TaggedOffset, //
};
use crate::mpa::fpdu::WriteError;
use crate::mpa::startup::RtrKind;
use crate::rdmap::terminate::{
    AccessError,
    AtomicError, //
};
use crate::rdmap::{
    AtomicRequest,
    ReadRequest,
    SendKind,
    ATOMIC_RESPONSE_LEN,
    IMMEDIATE_LEN, //
};
use crate::reads::{
    Answer,
    Inbound,
    Outstanding,
    Request, //
};
use crate::tx::{
    self,
    Message,
    Segmenter, //
};

/// Octets of the ULPDU of an Atomic Response.
const ATOMIC_RESPONSE_ULPDU: usize = UNTAGGED_LEN + ATOMIC_RESPONSE_LEN;

impl<C, T, O, I> Stream<C, T, O, I>
where
    C: Crc32c,
    T: Copy,
    O: BorrowMut<[Option<Outstanding<Option<T>>>]>,
    I: BorrowMut<[Option<Inbound>]>,
{
    /// Writes the RTR frame or the Terminate that is due; `None` if neither is.
    ///
    /// The caller calls this first, and again after each received FPDU. After a Terminate the
    /// caller closes the connection (RFC 5040 section 4.8).
    ///
    /// # Errors
    ///
    /// [`TransmitError::NoRoom`]; [`TransmitError::QueueFull`] if the RTR frame is a Read and ORD
    /// is 0.
    pub fn next_control(&mut self, out: &mut [u8]) -> Result<Option<usize>, TransmitError> {
        match self.state {
            State::RtrDue(kind) => {
                if kind == RtrKind::Read && self.orq.is_full() {
                    return Err(TransmitError::QueueFull);
                }
                let mut msns = self.msns;
                let ulpdu = tx::rtr(kind, &mut msns);
                let len = self.write(out, &ulpdu, &[])?;
                self.msns = msns;
                if kind == RtrKind::Read {
                    let (stag, to) = (Stag::new(0), TaggedOffset::new(0));
                    self.orq
                        .push_read(stag, to, 0, None)
                        .map_err(|_| TransmitError::QueueFull)?;
                }
                self.state = State::Open;
                Ok(Some(len))
            }
            State::TerminateDue(terminate) => {
                let len = self.write(out, &terminate.ulpdu(), &[])?;
                self.state = State::Ended;
                Ok(Some(len))
            }
            State::AwaitFirst | State::Open | State::Ended => Ok(None),
        }
    }

    /// Writes the FPDU that is due without a work request of this end; `None` if none is. It is
    /// the RTR frame, a Terminate, or the next segment of the answer to a Read of the peer.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::next_control`] and [`Stream::next_answer`], which take the same
    /// arguments.
    pub fn next_due<'m>(
        &mut self,
        source: impl FnOnce(&Answer) -> Result<&'m [u8], AccessError>,
        out: &mut [u8],
    ) -> Result<Option<usize>, TransmitError> {
        if let State::Open = self.state {
            self.next_answer(source, out)
        } else {
            self.next_control(out)
        }
    }

    /// Numbers a Send of `len` octets. The caller writes all its segments with
    /// [`Stream::next_segment`] before it starts another Send or Immediate Data.
    ///
    /// A Write has no number: [`Segmenter::new`] with [`Message::Write`].
    ///
    /// # Errors
    ///
    /// [`TransmitError::NotStarted`], [`TransmitError::Ended`].
    pub fn start_send(&mut self, kind: SendKind, len: u32) -> Result<Segmenter, TransmitError> {
        self.require_open()?;
        let msn = self.msns.send();
        Ok(Segmenter::new(Message::Send { msn, kind }, len))
    }

    /// Writes the next segment of a Send or Write; `None` after the last one. `payload` is that of
    /// the whole message.
    ///
    /// # Errors
    ///
    /// [`TransmitError::NotStarted`], [`TransmitError::Ended`], [`TransmitError::NoRoom`];
    /// [`TransmitError::PayloadLength`] if `payload` ends within the segment.
    pub fn next_segment(
        &mut self,
        message: &mut Segmenter,
        payload: &[u8],
        out: &mut [u8],
    ) -> Result<Option<usize>, TransmitError> {
        self.require_open()?;
        let Some(step) = message.peek(self.mulpdu) else {
            return Ok(None);
        };
        let payload = usize::try_from(step.offset)
            .ok()
            .and_then(|offset| payload.get(offset..))
            .and_then(|rest| rest.get(..usize::from(step.len)))
            .ok_or(TransmitError::PayloadLength)?;
        let len = self.write(out, &step.header, payload)?;
        message.commit(&step);
        Ok(Some(len))
    }

    /// Writes a Read Request. `cookie` is returned with the last octet of the answer
    /// ([`Delivery::completed`](super::Delivery::completed)).
    ///
    /// # Errors
    ///
    /// [`TransmitError::NotStarted`], [`TransmitError::Ended`], [`TransmitError::NoRoom`],
    /// [`TransmitError::QueueFull`].
    pub fn read(
        &mut self,
        request: &ReadRequest,
        cookie: T,
        out: &mut [u8],
    ) -> Result<usize, TransmitError> {
        self.require_request()?;
        let mut msns = self.msns;
        let len = self.write(out, &tx::read_request(msns.read_request(), request), &[])?;
        self.msns = msns;
        self.orq
            .push_read(request.sink, request.sink_to, request.size, Some(cookie))
            .map_err(|_| TransmitError::QueueFull)?;
        Ok(len)
    }

    /// Writes an Atomic Request. `cookie` is returned with the answer.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::read`].
    pub fn atomic(
        &mut self,
        request: &AtomicRequest,
        cookie: T,
        out: &mut [u8],
    ) -> Result<usize, TransmitError> {
        self.require_request()?;
        let mut msns = self.msns;
        let len = self.write(out, &tx::atomic_request(msns.read_request(), request), &[])?;
        self.msns = msns;
        self.orq
            .push_atomic(request.id, Some(cookie))
            .map_err(|_| TransmitError::QueueFull)?;
        Ok(len)
    }

    /// Writes Immediate Data, with Solicited Event if `solicited`.
    ///
    /// # Errors
    ///
    /// [`TransmitError::NotStarted`], [`TransmitError::Ended`], [`TransmitError::NoRoom`].
    pub fn immediate(
        &mut self,
        data: [u8; IMMEDIATE_LEN],
        solicited: bool,
        out: &mut [u8],
    ) -> Result<usize, TransmitError> {
        self.require_open()?;
        let mut msns = self.msns;
        let len = self.write(out, &tx::immediate(msns.send(), data, solicited), &[])?;
        self.msns = msns;
        Ok(len)
    }

    /// Writes the next segment of the answer to the peer's oldest request, if that is a Read.
    /// The result is `None` if there is no request or it is an Atomic ([`Stream::answer_atomic`]).
    ///
    /// `source` looks up the octets that the segment reads: exactly [`Answer::len`] from
    /// [`Answer::from`] of the buffer [`Answer::source`]. It is not called for a Read of 0 octets,
    /// which names no buffer.
    ///
    /// # Errors
    ///
    /// [`TransmitError::NotStarted`], [`TransmitError::Ended`], [`TransmitError::NoRoom`];
    /// [`TransmitError::Refused`] with the error of `source`; [`TransmitError::PayloadLength`] if
    /// `source` returned another number of octets.
    pub fn next_answer<'m>(
        &mut self,
        source: impl FnOnce(&Answer) -> Result<&'m [u8], AccessError>,
        out: &mut [u8],
    ) -> Result<Option<usize>, TransmitError> {
        self.require_open()?;
        let Some(answer) = self.irq.next_step(self.mulpdu) else {
            return Ok(None);
        };
        let payload = if answer.len == 0 {
            &[]
        } else {
            source(&answer).map_err(|error| self.refuse_read(error))?
        };
        if payload.len() != usize::from(answer.len) {
            return Err(TransmitError::PayloadLength);
        }
        let len = self.write(out, &answer.header, payload)?;
        self.irq.commit(&answer);
        Ok(Some(len))
    }

    /// Executes the peer's oldest request and writes its answer, if that request is an Atomic.
    /// The result is `None` if there is no request or it is a Read ([`Stream::next_answer`]).
    ///
    /// `execute` applies the operation to the 64 bits and returns their previous value. It
    /// refuses a target that is not aligned to 64 bits ([`AtomicError::Misaligned`]). It is called
    /// at most once, and only if the answer fits into `out`.
    ///
    /// # Errors
    ///
    /// [`TransmitError::NotStarted`], [`TransmitError::Ended`], [`TransmitError::NoRoom`];
    /// [`TransmitError::AtomicRefused`] with the error of `execute`.
    pub fn answer_atomic(
        &mut self,
        execute: impl FnOnce(&AtomicRequest) -> Result<u64, AtomicError>,
        out: &mut [u8],
    ) -> Result<Option<usize>, TransmitError> {
        self.require_open()?;
        let Some((Request::Atomic(request), msn)) = self
            .irq
            .head()
            .map(|inbound| (inbound.request(), inbound.msn()))
        else {
            return Ok(None);
        };
        let ulpdu_len = u16::try_from(ATOMIC_RESPONSE_ULPDU).unwrap_or(u16::MAX);
        if out.len() < self.writer.wire_len(ulpdu_len) {
            return Err(TransmitError::NoRoom);
        }
        let original = match execute(&request) {
            Ok(original) => original,
            Err(error) => {
                self.fail(error.reason(), &tx::atomic_request(msn, &request));
                return Err(TransmitError::AtomicRefused(error));
            }
        };
        match self
            .irq
            .answer_atomic(original, self.msns.atomic_response())
        {
            Some(ulpdu) => self.write(out, &ulpdu, &[]).map(Some),
            None => Ok(None),
        }
    }

    /// Makes a Terminate due for the unanswered part of the peer's oldest request, a Read.
    fn refuse_read(&mut self, error: AccessError) -> TransmitError {
        let request = self
            .irq
            .head()
            .and_then(|inbound| Some((inbound.msn(), inbound.remaining()?)));
        if let Some((msn, remaining)) = request {
            self.fail_read(error.for_read(), msn, &remaining);
        }
        TransmitError::Refused(error)
    }

    /// Requires that messages may be transmitted.
    fn require_open(&self) -> Result<(), TransmitError> {
        match self.state {
            State::Open => Ok(()),
            State::RtrDue(_) | State::AwaitFirst => Err(TransmitError::NotStarted),
            State::TerminateDue(_) | State::Ended => Err(TransmitError::Ended),
        }
    }

    /// Requires that a Read Request or Atomic Request may be transmitted.
    fn require_request(&self) -> Result<(), TransmitError> {
        self.require_open()?;
        if self.orq.is_full() {
            return Err(TransmitError::QueueFull);
        }
        Ok(())
    }

    /// Writes one FPDU.
    fn write(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload: &[u8],
    ) -> Result<usize, TransmitError> {
        let mut left = payload;
        let fill = |to: &mut [u8]| {
            let (now, rest) = left.split_at_checked(to.len()).ok_or(())?;
            left = rest;
            copy(to, now).then_some(()).ok_or(())
        };
        self.writer
            .write::<C, ()>(out, header, payload.len(), fill)
            .map_err(|error| match error {
                WriteError::NoRoom => TransmitError::NoRoom,
                WriteError::TooLong | WriteError::Payload(()) => TransmitError::PayloadLength,
            })
    }
}
