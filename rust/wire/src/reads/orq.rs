// SPDX-License-Identifier: GPL-2.0

//! The outbound read queue: what this end asked for and how much of it came (RFC 5040 section
//! 5.2, RFC 7306 section 5).

use core::borrow::BorrowMut;

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

/// One Read or Atomic that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding<T> {
    /// What is to come.
    expected: Expected,
    /// All of it came.
    done: bool,
    /// Whatever the owner wants to find again.
    pub cookie: T,
}

/// What answers a request.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Read Response segments.
    Read {
        /// The buffer they name.
        sink: Stag,
        /// Where in it the first octet goes.
        sink_to: TaggedOffset,
        /// Octets in all.
        size: u32,
        /// Octets that came.
        received: u32,
    },
    /// An Atomic Response with this name.
    Atomic(u32),
}

/// There are as many requests outstanding as ORD allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The requests this end has outstanding, oldest first.
///
/// ```
/// use iwarp_wire::{reads::Orq, Stag, TaggedOffset};
///
/// let mut storage = [None; 8];
/// let mut orq = Orq::new(&mut storage[..], 1);
/// orq.push_read(Stag::new(0x100), TaggedOffset::new(0), 4096, "mine").expect("there is room");
/// // ORD is 1.
/// assert!(orq.push_read(Stag::new(0x100), TaggedOffset::new(0), 1, "next").is_err());
/// // Nothing came yet.
/// assert_eq!(orq.complete(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Orq<T: Copy, S: BorrowMut<[Option<Outstanding<T>>]>> {
    /// The requests.
    ring: Ring<Outstanding<T>, S>,
    /// Octets that were asked for and did not come yet.
    coming: u64,
    /// The next request waits until it is worth sending several.
    gathers: bool,
}

impl<T> Outstanding<T> {
    /// All of the answer came.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Octets of a Read's answer that came.
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

    /// Nothing is outstanding.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ring.len() == 0
    }

    /// As many requests are outstanding as can be.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ring.is_full()
    }

    /// Whether a request may be sent, and is better sent now than together with others.
    ///
    /// One that found no place would go as soon as there is one, by itself; so would all behind it.
    /// It waits instead until half of the places are free, or fewer than `plenty` octets are still
    /// to come: the peer has enough to do until then.
    #[inline]
    pub fn is_due(&mut self, plenty: u64) -> bool {
        let enough = self.len() > self.ring.limit() / 2 && self.coming >= plenty;
        self.gathers = self.is_full() || self.gathers && enough;
        !self.gathers
    }

    /// Notes a Read of `size` octets into `sink` at `sink_to`, when its request is sent.
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

    /// Notes an Atomic with the name `id`, when its request is sent.
    #[inline]
    pub fn push_atomic(&mut self, id: u32, cookie: T) -> Result<(), Full> {
        self.push(Expected::Atomic(id), cookie)
    }

    /// The oldest request.
    #[inline]
    pub fn head(&self) -> Option<&Outstanding<T>> {
        self.ring.front()
    }

    /// Takes the oldest request if all of its answer came, and returns its cookie.
    ///
    /// To be called for each decision that ends an answer, before the next segment.
    #[inline]
    pub fn complete(&mut self) -> Option<T> {
        self.ring.front().filter(|request| request.done)?;
        self.pop()
    }

    /// Takes the oldest request whether it was answered or not.
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
    /// [`RemoteOperation::UnexpectedOpcode`] if no Read is the oldest request;
    /// [`TaggedError::InvalidStag`] or [`TaggedError::BaseOrBounds`] if the segment does not name
    /// the octets that come next; [`RemoteOperation::Unspecified`] if it is the last one too
    /// early, or not the last one at the end.
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
        // A zero-length Read names no memory, whatever its fields hold.
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

    /// As many outstanding Reads as there can be.
    fn full(ord: u16) -> Queue {
        let mut orq = Orq::new(vec![None; usize::from(ord)], ord);
        for cookie in 0..ord {
            assert!(orq.is_due(0));
            ask(&mut orq, cookie).expect("there is room");
        }
        assert!(!orq.is_due(u64::MAX), "there is no place");
        orq
    }

    /// Asks for [`SIZE`] octets.
    fn ask(orq: &mut Queue, cookie: u16) -> Result<(), Full> {
        orq.push_read(Stag::new(0x100), TaggedOffset::new(0), SIZE, cookie)
    }

    /// The next `len` octets of the oldest answer come.
    fn hear(orq: &mut Queue, len: u32) -> Option<u16> {
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
    fn requests_that_found_no_place_wait_until_half_are_free() {
        let mut orq = full(16);
        for cookie in 0..7 {
            assert_eq!(hear(&mut orq, SIZE), Some(cookie));
            assert!(!orq.is_due(0), "{} are outstanding", orq.len());
        }
        assert_eq!(hear(&mut orq, SIZE), Some(7));
        for cookie in 16..24 {
            assert!(orq.is_due(0), "{} are outstanding", orq.len());
            ask(&mut orq, cookie).expect("there is room");
        }
        assert!(!orq.is_due(0));
    }

    #[test]
    fn they_wait_only_while_there_is_plenty_to_come() {
        let mut orq = full(16);
        assert_eq!(hear(&mut orq, SIZE), Some(0));
        let coming = u64::from(15 * SIZE);
        assert!(!orq.is_due(coming));
        assert_eq!(hear(&mut orq, 1), None);
        assert!(orq.is_due(coming));
        // And do not begin to wait again by themselves.
        assert!(orq.is_due(0));
    }

    #[test]
    fn what_is_still_to_come_is_kept_in_step() {
        let mut orq = full(4);
        assert_eq!(orq.coming, u64::from(4 * SIZE));
        assert_eq!(hear(&mut orq, 300), None);
        assert_eq!(orq.coming, u64::from(4 * SIZE - 300));
        assert_eq!(hear(&mut orq, SIZE - 300), Some(0));
        assert_eq!(orq.coming, u64::from(3 * SIZE));
        assert_eq!(hear(&mut orq, 1), None);
        // A stream that ends takes them out as they are.
        for left in [2, 1, 0] {
            assert!(orq.pop().is_some());
            assert_eq!(orq.coming, u64::from(left * SIZE));
        }
        assert!(orq.pop().is_none());
        orq.push_atomic(7, 0).expect("there is room");
        assert_eq!((orq.pop(), orq.coming), (Some(0), 0));
    }

    #[test]
    fn one_that_has_to_wait_never_waits_for_nothing() {
        for ord in 1..=5 {
            let mut orq = full(ord);
            while !orq.is_empty() {
                hear(&mut orq, SIZE);
            }
            assert!(orq.is_due(0), "with an ORD of {ord}");
        }
    }
}
