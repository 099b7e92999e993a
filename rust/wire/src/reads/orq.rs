// SPDX-License-Identifier: GPL-2.0

//! The outbound read queue: requests of this end and the progress of their answers (RFC 5040
//! section 5.2, RFC 7306 section 5).

use core::borrow::BorrowMut;
use core::error::Error;
use core::fmt;

use super::ring::Ring;
use crate::ddp::TaggedHeader;
use crate::ids::{
    Stag,
    TaggedOffset, //
};
use crate::rdmap::{
    terminate::{
        RemoteOperation,
        TaggedError,
        TerminateReason, //
    },
    AtomicResponse, //
};
use crate::rx::ReadSegment;

/// One outstanding Read or Atomic of this end.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding<T> {
    /// The answer that matches.
    expected: Expected,
    /// The answer is complete.
    done: bool,
    /// The caller's own value, returned when the request is done.
    pub cookie: T,
}

/// The answer that matches a request, and its progress.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Read Response segments.
    Read {
        /// The buffer that they name.
        sink: Stag,
        /// The offset there of the first octet.
        sink_to: TaggedOffset,
        /// Octets in all.
        size: u32,
        /// Octets received.
        received: u32,
    },
    /// An Atomic Response with this identifier.
    Atomic(u32),
}

/// The error of a full queue: ORD requests are outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ORD requests are outstanding")
    }
}

impl Error for Full {}

/// The outstanding requests of this end, oldest first: at most ORD.
///
/// ```
/// use iwarp_wire::{reads::Orq, Stag, TaggedOffset};
///
/// let mut storage = [None; 8];
/// let mut orq = Orq::new(&mut storage[..], 1);
/// orq.push_read(Stag::new(0x100), TaggedOffset::new(0), 4096, "mine").expect("there is room");
/// // ORD is 1.
/// assert!(orq.push_read(Stag::new(0x100), TaggedOffset::new(0), 1, "next").is_err());
/// // No octet of the answer was received.
/// assert_eq!(orq.complete(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Orq<T: Copy, S: BorrowMut<[Option<Outstanding<T>>]>> {
    /// The requests.
    ring: Ring<Outstanding<T>, S>,
    /// Octets requested and not received.
    coming: u64,
    /// Batching: the next request is held back (see [`Orq::is_due`]).
    gathers: bool,
}

impl<T> Outstanding<T> {
    /// Tells whether the answer is complete.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Octets of a Read's answer received; 0 for an Atomic.
    #[inline]
    pub fn received(&self) -> u32 {
        match self.expected {
            Expected::Read { received, .. } => received,
            Expected::Atomic(_) => 0,
        }
    }
}

impl<T: Copy, S: BorrowMut<[Option<Outstanding<T>>]>> Orq<T, S> {
    /// An empty queue for at most `ord` requests, fewer if `storage` has fewer entries.
    pub fn new(storage: S, ord: u16) -> Self {
        Self {
            ring: Ring::new(storage, ord),
            coming: 0,
            gathers: false,
        }
    }

    /// Number of outstanding requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Tells whether no request is outstanding.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.len() == 0
    }

    /// Tells whether ORD requests are outstanding.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ring.is_full()
    }

    /// Tells whether the next request is to be sent now: batching of requests at a full queue.
    ///
    /// A request held back by a full queue would otherwise be sent alone with each answer that
    /// completes. Batching ends when half of the queue is free. It ends earlier when fewer than
    /// `plenty` octets are outstanding, so that the peer always has answers to send.
    ///
    /// | state | event | next |
    /// | --- | --- | --- |
    /// | due | the queue is full | batching |
    /// | due | the queue is not full | due |
    /// | batching | more than half of ORD and at least `plenty` octets are outstanding | batching |
    /// | batching | half of ORD or less, or fewer than `plenty` octets are outstanding | due |
    #[inline]
    pub fn is_due(&mut self, plenty: u64) -> bool {
        let enough = self.len() > self.ring.limit() / 2 && self.coming >= plenty;
        self.gathers = self.is_full() || self.gathers && enough;
        !self.gathers
    }

    /// Appends a Read of `size` octets into `sink` at `sink_to`, when its request is sent.
    ///
    /// # Errors
    ///
    /// [`Full`].
    #[inline]
    pub fn push_read(
        &mut self,
        sink: Stag,
        sink_to: TaggedOffset,
        size: u32,
        cookie: T,
    ) -> Result<(), Full> {
        let expected = Expected::Read {
            sink,
            sink_to,
            size,
            received: 0,
        };
        self.push(expected, cookie)?;
        self.coming = self.coming.wrapping_add(u64::from(size));
        Ok(())
    }

    /// Appends an Atomic with the identifier `id`, when its request is sent.
    ///
    /// # Errors
    ///
    /// [`Full`].
    #[inline]
    pub fn push_atomic(&mut self, id: u32, cookie: T) -> Result<(), Full> {
        self.push(Expected::Atomic(id), cookie)
    }

    /// The oldest request.
    #[inline]
    pub fn head(&self) -> Option<&Outstanding<T>> {
        self.ring.front()
    }

    /// Removes the oldest request if its answer is complete, and returns its cookie.
    ///
    /// The caller calls this after each decision that completes an answer, before the next segment.
    #[inline]
    pub fn complete(&mut self) -> Option<T> {
        self.ring.front().filter(|request| request.done)?;
        self.pop()
    }

    /// Removes the oldest request, answered or not, and returns its cookie.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let request = self.ring.pop()?;
        if let Expected::Read { size, received, .. } = request.expected {
            let missing = size.wrapping_sub(received);
            self.coming = self.coming.wrapping_sub(u64::from(missing));
        }
        Some(request.cookie)
    }

    /// Matches a segment of a Read Response with the oldest request.
    ///
    /// # Errors
    ///
    /// - [`RemoteOperation::UnexpectedOpcode`]: no Read is the oldest request.
    /// - [`TaggedError::InvalidStag`], [`TaggedError::BaseOrBounds`]: the segment does not name the
    ///   octets that come next.
    /// - [`RemoteOperation::Unspecified`]: the segment is the last one too early, or not the last
    ///   one at the end.
    #[inline]
    pub(crate) fn response(
        &mut self,
        header: &TaggedHeader,
        len: u32,
    ) -> Result<ReadSegment, TerminateReason> {
        let unexpected = TerminateReason::RemoteOperation(RemoteOperation::UnexpectedOpcode);
        let request = self.ring.front_mut().filter(|request| !request.done);
        let request = request.ok_or(unexpected)?;
        let Expected::Read {
            sink,
            sink_to,
            size,
            received,
        } = &mut request.expected
        else {
            return Err(unexpected);
        };
        let offset = *received;
        // The fields of a zero-length Read name no memory.
        if *size != 0 {
            if header.stag != *sink {
                return Err(TerminateReason::Tagged(TaggedError::InvalidStag));
            }
            if header.to != sink_to.wrapping_add(offset) {
                return Err(TerminateReason::Tagged(TaggedError::BaseOrBounds));
            }
        }
        let end = offset.checked_add(len).filter(|end| end <= size);
        let end = end.ok_or(TerminateReason::Tagged(TaggedError::BaseOrBounds))?;
        if header.last != (end == *size) {
            return Err(TerminateReason::RemoteOperation(
                RemoteOperation::Unspecified,
            ));
        }
        *received = end;
        request.done = header.last;
        self.coming = self.coming.wrapping_sub(u64::from(len));
        Ok(ReadSegment {
            stag: header.stag,
            to: header.to,
            offset,
            len,
            last: header.last,
        })
    }

    /// Matches an Atomic Response with the oldest request.
    ///
    /// # Errors
    ///
    /// [`RemoteOperation::UnexpectedOpcode`] if the oldest request is not this Atomic.
    #[inline]
    pub(crate) fn atomic_response(
        &mut self,
        response: &AtomicResponse,
    ) -> Result<(), TerminateReason> {
        match self.ring.front_mut() {
            Some(Outstanding {
                expected: Expected::Atomic(id),
                done: done @ false,
                ..
            }) if *id == response.id => {
                *done = true;
                Ok(())
            }
            _ => Err(TerminateReason::RemoteOperation(
                RemoteOperation::UnexpectedOpcode,
            )),
        }
    }

    /// Appends a request.
    #[inline]
    fn push(&mut self, expected: Expected, cookie: T) -> Result<(), Full> {
        let request = Outstanding {
            expected,
            done: false,
            cookie,
        };
        self.ring.push(request).map_err(|_| Full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        vec,
        vec::Vec, //
    };

    /// A queue that owns its memory.
    type Queue = Orq<u16, Vec<Option<Outstanding<u16>>>>;

    /// Octets of each Read.
    const SIZE: u32 = 1000;

    /// A queue with `ord` outstanding Reads.
    fn full(ord: u16) -> Queue {
        let mut orq = Orq::new(vec![None; usize::from(ord)], ord);
        for cookie in 0..ord {
            assert!(orq.is_due(0));
            request(&mut orq, cookie).expect("there is room");
        }
        assert!(!orq.is_due(u64::MAX), "the queue is full");
        orq
    }

    /// Appends a Read of [`SIZE`] octets.
    fn request(orq: &mut Queue, cookie: u16) -> Result<(), Full> {
        orq.push_read(Stag::new(0x100), TaggedOffset::new(0), SIZE, cookie)
    }

    /// Receives the next `len` octets of the oldest answer.
    fn answer(orq: &mut Queue, len: u32) -> Option<u16> {
        let received = orq.head().expect("a Read").received();
        let header = TaggedHeader {
            last: received + len == SIZE,
            ulp: 0,
            stag: Stag::new(0x100),
            to: TaggedOffset::new(u64::from(received)),
        };
        orq.response(&header, len).expect("it is in order");
        orq.complete()
    }

    #[test]
    fn batching_ends_when_half_of_the_queue_is_free() {
        let mut orq = full(16);
        for cookie in 0..7 {
            assert_eq!(answer(&mut orq, SIZE), Some(cookie));
            assert!(!orq.is_due(0), "{} are outstanding", orq.len());
        }
        assert_eq!(answer(&mut orq, SIZE), Some(7));
        for cookie in 16..24 {
            assert!(orq.is_due(0), "{} are outstanding", orq.len());
            request(&mut orq, cookie).expect("there is room");
        }
        assert!(!orq.is_due(0));
    }

    #[test]
    fn batching_ends_below_plenty() {
        let mut orq = full(16);
        assert_eq!(answer(&mut orq, SIZE), Some(0));
        let coming = u64::from(15 * SIZE);
        assert!(!orq.is_due(coming));
        assert_eq!(answer(&mut orq, 1), None);
        assert!(orq.is_due(coming));
        // Only a full queue starts it again.
        assert!(orq.is_due(0));
    }

    #[test]
    fn outstanding_octets_are_counted() {
        let mut orq = full(4);
        assert_eq!(orq.coming, u64::from(4 * SIZE));
        assert_eq!(answer(&mut orq, 300), None);
        assert_eq!(orq.coming, u64::from(4 * SIZE - 300));
        assert_eq!(answer(&mut orq, SIZE - 300), Some(0));
        assert_eq!(orq.coming, u64::from(3 * SIZE));
        assert_eq!(answer(&mut orq, 1), None);
        // A stream that ends removes requests that are not answered.
        for left in [2, 1, 0] {
            assert!(orq.pop().is_some());
            assert_eq!(orq.coming, u64::from(left * SIZE));
        }
        assert!(orq.pop().is_none());
        orq.push_atomic(7, 0).expect("there is room");
        assert_eq!((orq.pop(), orq.coming), (Some(0), 0));
    }

    #[test]
    fn batching_ends_with_an_empty_queue() {
        for ord in 1..=5 {
            let mut orq = full(ord);
            while !orq.is_empty() {
                answer(&mut orq, SIZE);
            }
            assert!(orq.is_due(0), "with an ORD of {ord}");
        }
    }
}
