// SPDX-License-Identifier: GPL-2.0

//! The receiving direction of a stream.

use core::borrow::BorrowMut;

use super::{
    State,
    Stream, //
};
use crate::bytes::copy;
use crate::crc::Crc32c;
use crate::ddp::{
    TAGGED_LEN,
    UNTAGGED_LEN, //
};
use crate::ids::{
    Stag,
    TaggedOffset, //
};
use crate::mpa::fpdu::Next;
use crate::rdmap::terminate::{
    AccessError,
    TerminateReason, //
};
use crate::reads::{
    Inbound,
    Outstanding, //
};
use crate::rx::{
    Decision,
    HEAD_LEN, //
};

/// An FPDU that was taken, and the caller's action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Delivery<'a, T> {
    /// Octets of the FPDU on the wire. The next FPDU follows them.
    pub wire_len: usize,
    /// The action. After [`Decision::Fail`] a Terminate is due already.
    pub decision: Decision,
    /// The ULPDU, DDP header included; empty where CRC or markers are wrong.
    pub ulpdu: &'a [u8],
    /// The Read or Atomic of this end that this FPDU completes, once its payload is placed.
    pub completed: Option<T>,
}

impl<'a, T> Delivery<'a, T> {
    /// The reason if the FPDU ends the stream: an error that this end found, or the one that the
    /// peer's Terminate names.
    #[must_use]
    pub fn ends_with(&self) -> Option<TerminateReason> {
        match &self.decision {
            Decision::Terminated(terminate) => Some(terminate.reason()),
            Decision::Fail(reason) => Some(*reason),
            _ => None,
        }
    }

    /// The tagged buffer to place the payload in, and the offset there; `None` where the payload
    /// goes to a receive buffer or nowhere.
    #[must_use]
    pub fn target(&self) -> Option<(Stag, TaggedOffset)> {
        match &self.decision {
            Decision::Write(segment) => Some((segment.stag, segment.to)),
            Decision::ReadResponse(segment) if segment.len > 0 => Some((segment.stag, segment.to)),
            _ => None,
        }
    }

    /// The octets to place: empty where the decision places nothing.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let header_len = match self.decision {
            Decision::Write(_) | Decision::ReadResponse(_) => TAGGED_LEN,
            Decision::Send(_) => UNTAGGED_LEN,
            _ => return &[],
        };
        self.ulpdu.get(header_len..).unwrap_or(&[])
    }
}

impl<C, T, O, I> Stream<C, T, O, I>
where
    C: Crc32c,
    T: Copy,
    O: BorrowMut<[Option<Outstanding<Option<T>>>]>,
    I: BorrowMut<[Option<Inbound>]>,
{
    /// The total number of octets that [`Stream::receive`] needs to take the FPDU at the front of
    /// `octets`; `None` if it is whole.
    ///
    /// Never more than the FPDU has, which is at most
    /// [`MAX_FPDU_LEN`](crate::mpa::fpdu::MAX_FPDU_LEN). A caller that reads no further leaves
    /// the next FPDU in the transport.
    #[must_use]
    pub fn need(&self, octets: &[u8]) -> Option<usize> {
        let total = match self.framer.next(octets) {
            Next::Need(total) => total,
            Next::Fpdu(fpdu) => fpdu.wire_len(),
        };
        (total > octets.len()).then_some(total)
    }

    /// Takes the FPDU at the front of `octets`, the received octets that were not taken yet; `None`
    /// if it is not whole ([`Stream::need`]).
    ///
    /// CRC and markers are checked and the ULPDU is made contiguous in place. An error of an FPDU
    /// makes a Terminate due; every later FPDU is [`Decision::Dropped`]. Requests of the peer are
    /// appended to the inbound read queue: see [`Stream::next_answer`].
    pub fn receive<'a>(&mut self, octets: &'a mut [u8]) -> Option<Delivery<'a, T>> {
        let Next::Fpdu(fpdu) = self.framer.next(octets) else {
            return None;
        };
        let wire_len = fpdu.wire_len();
        let raw = octets.get_mut(..wire_len)?;
        self.framer.advance(&fpdu);
        let ulpdu = match fpdu.check::<C>(raw) {
            Ok(()) => fpdu.strip(raw),
            Err(reason) => Err(reason),
        };
        Some(match ulpdu {
            Ok(ulpdu) => self.segment(wire_len, ulpdu, fpdu.ulpdu_len()),
            Err(reason) => Delivery {
                wire_len,
                decision: self.broken(reason),
                ulpdu: &[],
                completed: None,
            },
        })
    }

    /// Copies the payload of a Write or Read Response to its tagged buffer; other payload is left
    /// to the caller.
    ///
    /// `buffer` is called with an STag, a tagged offset and a length in octets, which is not 0.
    /// It returns exactly so many octets of a buffer that the peer may write, or that this end
    /// named in a Read Request. If it fails, a Terminate becomes due.
    ///
    /// # Errors
    ///
    /// The reason for which the stream ends: the error of `buffer`, or
    /// [`Delivery::ends_with`] of `delivery`.
    pub fn place<'m>(
        &mut self,
        delivery: &Delivery<'_, T>,
        buffer: impl FnOnce(Stag, TaggedOffset, usize) -> Result<&'m mut [u8], AccessError>,
    ) -> Result<(), TerminateReason> {
        if let Some(reason) = delivery.ends_with() {
            return Err(reason);
        }
        let Some((stag, to)) = delivery.target() else {
            return Ok(());
        };
        let payload = delivery.payload();
        let placed = buffer(stag, to, payload.len()).and_then(|buffer| {
            copy(buffer, payload)
                .then_some(())
                .ok_or(AccessError::Bounds)
        });
        placed.map_err(|error| {
            let reason = error.for_write();
            self.fail(reason, delivery.ulpdu);
            reason
        })
    }

    /// Processes the ULPDU of a valid FPDU.
    fn segment<'a>(&mut self, wire_len: usize, ulpdu: &'a [u8], len: u16) -> Delivery<'a, T> {
        let head = ulpdu.get(..HEAD_LEN).unwrap_or(ulpdu);
        let decision = self
            .receiver
            .receive(head, len, &mut self.orq, &mut self.irq);
        let completed = match decision {
            Decision::ReadResponse(_) | Decision::AtomicResponse { .. } => self.orq.complete(),
            _ => None,
        };
        match decision {
            Decision::Fail(reason) => self.fail(reason, ulpdu),
            Decision::Terminated(_) => self.state = State::Ended,
            _ if self.state == State::AwaitFirst && self.receiver.started() => {
                self.state = State::Open;
            }
            _ => {}
        }
        Delivery {
            wire_len,
            decision,
            ulpdu,
            completed: completed.flatten(),
        }
    }

    /// Handles an FPDU whose CRC or markers are wrong.
    fn broken(&mut self, reason: TerminateReason) -> Decision {
        if self.receiver.is_closed() {
            return Decision::Dropped;
        }
        self.fail(reason, &[]);
        Decision::Fail(reason)
    }
}
