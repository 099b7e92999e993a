// SPDX-License-Identifier: GPL-2.0

//! The inbound read queue: requests of the peer and the progress of their answers (RFC 5040 section
//! 5.2, RFC 7306 section 5).

use core::borrow::BorrowMut;

use super::ring::Ring;
use crate::bytes::Writer;
use crate::ddp::{
    HeaderOctets,
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
use crate::rdmap::{
    AtomicRequest,
    AtomicResponse,
    Opcode,
    ReadRequest,
    ATOMIC_RESPONSE_LEN, //
};
use crate::tx::{
    Message,
    Segmenter, //
};

/// A request that is answered in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An RDMA Read.
    Read(ReadRequest),
    /// An Atomic, whose response carries the earlier 64 bits.
    Atomic(AtomicRequest),
}

/// One request of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    /// The message number of the request.
    msn: Msn,
    request: Request,
    /// The answer to a Read, cut into segments.
    answer: Segmenter,
}

impl Inbound {
    /// The message number of the request.
    #[inline]
    #[must_use]
    pub fn msn(&self) -> Msn {
        self.msn
    }

    /// What the peer has requested.
    #[inline]
    #[must_use]
    pub fn request(&self) -> Request {
        self.request
    }

    /// Octets of a Read that are answered; 0 for an Atomic.
    #[inline]
    #[must_use]
    pub fn answered(&self) -> u32 {
        self.answer.sent()
    }

    /// The part of a Read that is not answered, for the copy in a Terminate (RFC 5040 section 4.8);
    /// `None` for an Atomic.
    #[must_use]
    pub fn remaining(&self) -> Option<ReadRequest> {
        let Request::Read(request) = self.request else {
            return None;
        };
        let answered = self.answered();
        Some(ReadRequest {
            sink_to: request.sink_to.wrapping_add(answered),
            size: request.size.saturating_sub(answered),
            source_to: request.source_to.wrapping_add(answered),
            ..request
        })
    }
}

/// The next segment of the answer to a Read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The segment's header.
    pub header: HeaderOctets,
    /// The buffer that is read; not to be accessed for a Read of 0 octets.
    pub source: Stag,
    /// The offset there of the payload.
    pub from: TaggedOffset,
    /// Octets of payload.
    pub len: u16,
    /// Set on the first segment of the answer.
    pub first: bool,
    /// Set on the last segment of the answer.
    pub last: bool,
}

/// The requests of the peer that are not answered in full, oldest first: at most IRD.
///
/// ```
/// use iwarp_wire::{reads::Irq, TaggedOffset};
///
/// let mut storage = [None; 4];
/// let mut irq = Irq::new(&mut storage[..], 4);
/// // `rx::Receiver` appends requests. Each segment of an answer is laid out, then committed:
/// while let Some(answer) = irq.next_step(1442) {
///     irq.commit(&answer);
/// }
/// ```
#[derive(Debug)]
pub struct Irq<S: BorrowMut<[Option<Inbound>]>> {
    /// The requests.
    ring: Ring<Inbound, S>,
}

impl<S: BorrowMut<[Option<Inbound>]>> Irq<S> {
    /// An empty queue for at most `ird` requests, fewer if `storage` has fewer entries.
    pub fn new(storage: S, ird: u16) -> Self {
        Self {
            ring: Ring::new(storage, ird),
        }
    }

    /// Number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Tells whether there is no request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.len() == 0
    }

    /// Tells whether the peer has IRD requests outstanding.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ring.is_full()
    }

    /// The oldest request.
    #[inline]
    pub fn head(&self) -> Option<&Inbound> {
        self.ring.front()
    }

    /// The next segment of the oldest request's answer, its ULPDU not longer than `mulpdu`.
    ///
    /// `None` if there is no request or the oldest one is an Atomic. [`Irq::commit`] makes the
    /// change: until then another call, with any `mulpdu`, returns the same segment.
    #[inline]
    pub fn next_step(&self, mulpdu: u16) -> Option<Answer> {
        let inbound = self.ring.front()?;
        let Request::Read(request) = inbound.request else {
            return None;
        };
        let step = inbound.answer.peek(mulpdu)?;
        Some(Answer {
            header: step.header,
            source: request.source,
            from: request.source_to.wrapping_add(step.offset),
            len: step.len,
            first: step.offset == 0,
            last: step.last,
        })
    }

    /// Counts `answer`, the last result of [`Irq::next_step`], as sent.
    ///
    /// The last segment of an answer removes the request.
    #[inline]
    pub fn commit(&mut self, answer: &Answer) {
        if let Some(inbound) = self.ring.front_mut() {
            inbound.answer.advance(answer.len, answer.last);
            if inbound.answer.is_done() {
                self.ring.pop();
            }
        }
    }

    /// Removes the oldest request, an Atomic, and returns the ULPDU of its response.
    ///
    /// `original` are the 64 bits before the operation, `msn` is the next number of Atomic
    /// Responses. `None`, and no change, if the oldest request is no Atomic.
    pub fn answer_atomic(
        &mut self,
        original: u64,
        msn: Msn,
    ) -> Option<[u8; UNTAGGED_LEN + ATOMIC_RESPONSE_LEN]> {
        let Request::Atomic(request) = self.ring.front()?.request else {
            return None;
        };
        self.ring.pop();
        let header = UntaggedHeader {
            last: true,
            ulp: Opcode::AtomicResponse.control(),
            ulp_word: 0,
            qn: QueueNumber::AtomicResponse.into(),
            msn,
            mo: Mo::ZERO,
        };
        let response = AtomicResponse {
            id: request.id,
            original,
        };
        Some(
            Writer::new()
                .put(&header.encode())
                .put(&response.encode())
                .finish(),
        )
    }

    /// Appends a request; `false` if the peer has IRD requests outstanding.
    #[inline]
    pub(crate) fn push(&mut self, msn: Msn, request: Request) -> bool {
        let answer = match request {
            Request::Read(read) => Segmenter::new(
                Message::ReadResponse {
                    stag: read.sink,
                    to: read.sink_to,
                },
                read.size,
            ),
            Request::Atomic(_) => Segmenter::DONE,
        };
        let inbound = Inbound {
            msn,
            request,
            answer,
        };
        self.ring.push(inbound).is_ok()
    }
}
