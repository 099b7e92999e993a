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
#[derive(Debug)]
pub struct Orq<T: Copy, S: BorrowMut<[Option<Outstanding<T>>]>> {
    /// The requests.
    ring: Ring<Outstanding<T>, S>,
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
        self.push(expected, cookie)
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
        self.ring.pop().map(|request| request.cookie)
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
