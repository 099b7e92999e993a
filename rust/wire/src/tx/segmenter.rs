// SPDX-License-Identifier: GPL-2.0

//! Messages cut into segments (RFC 5041 section 5.1).

use crate::ddp::{
    HeaderOctets,
    TaggedHeader,
    UntaggedHeader,
    TAGGED_LEN,
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
    Opcode,
    SendKind, //
};

/// A message with payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An RDMA Write to the peer's buffer `stag`, from offset `to` on.
    Write {
        /// The buffer.
        stag: Stag,
        /// The offset there of the first octet.
        to: TaggedOffset,
    },
    /// The answer to a Read Request whose sink is `stag` at `to`.
    ReadResponse {
        /// The sink's buffer.
        stag: Stag,
        /// The offset there of the first octet.
        to: TaggedOffset,
    },
    /// A Send of any kind: untagged, to queue 0.
    Send {
        /// The message number.
        msn: Msn,
        /// The variant.
        kind: SendKind,
    },
}

/// Cuts one message into segments, in order (RFC 5041 section 5.1).
///
/// | state | event | next |
/// | --- | --- | --- |
/// | segments left | [`peek`](Self::peek) | segments left |
/// | segments left | [`commit`](Self::commit) of a segment that is not the last | segments left |
/// | segments left | [`commit`](Self::commit) of the last segment | done |
/// | done | [`peek`](Self::peek) returns `None` | done |
///
/// ```
/// use iwarp_wire::{rdmap::SendKind, tx::{Message, Segmenter}, Msn};
///
/// let message = Message::Send { msn: Msn::FIRST, kind: SendKind::default() };
/// let mut segmenter = Segmenter::new(message, 2048);
/// let first = segmenter.next(1500).expect("the message has segments");
/// let second = segmenter.next(1500).expect("and a second one");
/// assert_eq!((first.offset, first.len, first.last), (0, 1482, false));
/// assert_eq!((second.offset, second.len, second.last), (1482, 566, true));
/// assert!(segmenter.next(1500).is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmenter {
    message: Message,
    /// Octets of payload.
    len: u32,
    /// Octets of payload in committed segments.
    sent: u32,
    /// The last segment is committed.
    done: bool,
}

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The DDP header.
    pub header: HeaderOctets,
    /// The offset in the message of the payload's first octet.
    pub offset: u32,
    /// Octets of payload.
    pub len: u16,
    /// Set on the last segment of the message.
    pub last: bool,
}

impl Segmenter {
    /// A segmenter without segments.
    pub(crate) const DONE: Self = Self {
        message: Message::Write {
            stag: Stag::new(0),
            to: TaggedOffset::new(0),
        },
        len: 0,
        sent: 0,
        done: true,
    };

    /// A segmenter of a message with `len` octets of payload, 0 to 2^32-1. A message without
    /// payload has one segment.
    #[inline]
    #[must_use]
    pub const fn new(message: Message, len: u32) -> Self {
        Self {
            message,
            len,
            sent: 0,
            done: false,
        }
    }

    /// The next segment, with a ULPDU of at most `mulpdu` octets; `None` after the last one.
    ///
    /// `mulpdu` may differ from segment to segment. Every segment of a message with payload carries
    /// at least one octet, even if its ULPDU exceeds `mulpdu` then. [`Segmenter::commit`] makes the
    /// change.
    #[inline]
    #[must_use]
    pub fn peek(&self, mulpdu: u16) -> Option<Step> {
        if self.done {
            return None;
        }
        let header_len = match self.message {
            Message::Write { .. } | Message::ReadResponse { .. } => TAGGED_LEN,
            Message::Send { .. } => UNTAGGED_LEN,
        };
        let room = usize::from(mulpdu).saturating_sub(header_len).max(1);
        let left = self.remaining();
        let (len, last) = match u16::try_from(left) {
            Ok(left) if usize::from(left) <= room => (left, true),
            // `room` has 16 bits, as `mulpdu` has.
            _ => (u16::try_from(room).unwrap_or(u16::MAX), false),
        };
        Some(Step {
            header: self.header(last),
            offset: self.sent,
            len,
            last,
        })
    }

    /// Counts `step`, the last result of [`Segmenter::peek`], as sent.
    #[inline]
    pub fn commit(&mut self, step: &Step) {
        self.advance(step.len, step.last);
    }

    /// Counts a segment with `len` octets of payload as sent.
    #[inline]
    pub(crate) fn advance(&mut self, len: u16, last: bool) {
        self.sent = self.sent.saturating_add(len.into()).min(self.len);
        self.done = last;
    }

    /// [`Segmenter::peek`], then [`Segmenter::commit`].
    #[inline]
    pub fn next(&mut self, mulpdu: u16) -> Option<Step> {
        let step = self.peek(mulpdu)?;
        self.commit(&step);
        Some(step)
    }

    /// Octets of payload in committed segments.
    #[inline]
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Octets of payload in further segments.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> u32 {
        self.len.saturating_sub(self.sent)
    }

    /// Tells whether the last segment is committed.
    #[inline]
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// The message that is being cut.
    #[inline]
    #[must_use]
    pub const fn message(&self) -> Message {
        self.message
    }

    /// The header of the next segment.
    #[inline]
    fn header(&self, last: bool) -> HeaderOctets {
        let tagged = |opcode: Opcode, stag: Stag, to: TaggedOffset| TaggedHeader {
            last,
            ulp: opcode.control(),
            stag,
            to: to.wrapping_add(self.sent),
        };
        match self.message {
            Message::Write { stag, to } => tagged(Opcode::Write, stag, to).encode(),
            Message::ReadResponse { stag, to } => tagged(Opcode::ReadResponse, stag, to).encode(),
            Message::Send { msn, kind } => UntaggedHeader {
                last,
                ulp: Opcode::from(kind).control(),
                ulp_word: kind.invalidate.map_or(0, Stag::get),
                qn: QueueNumber::Send.into(),
                msn,
                mo: Mo::new(self.sent),
            }
            .encode(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::Header;

    /// The offset in a step's header.
    fn named(step: &Step) -> u64 {
        match Header::parse(&step.header) {
            Ok(Header::Tagged(header)) => header.to.get(),
            Ok(Header::Untagged(header)) => header.mo.get().into(),
            Err(reason) => panic!("header is not read back: {reason:?}"),
        }
    }

    /// DDP-22: 2048 octets from offset 16384 with a MULPDU of 1500.
    #[test]
    fn tagged_as_in_the_documents() {
        let message = Message::Write {
            stag: Stag::new(1),
            to: TaggedOffset::new(16384),
        };
        let mut segmenter = Segmenter::new(message, 2048);
        let steps = [segmenter.next(1500), segmenter.next(1500)].map(|step| {
            let step = step.expect("two segments");
            (named(&step), step.len, step.last)
        });
        assert_eq!(steps, [(16384, 1486, false), (17870, 562, true)]);
        assert!(segmenter.next(1500).is_none() && segmenter.is_done());
    }

    /// DDP-21: 2048 octets of an untagged message with a MULPDU of 1500.
    #[test]
    fn untagged_as_in_the_documents() {
        let message = Message::Send {
            msn: Msn::FIRST,
            kind: SendKind::default(),
        };
        let mut segmenter = Segmenter::new(message, 2048);
        let steps = [segmenter.next(1500), segmenter.next(1500)].map(|step| {
            let step = step.expect("two segments");
            (named(&step), step.len, step.last)
        });
        assert_eq!(steps, [(0, 1482, false), (1482, 566, true)]);
        assert!(segmenter.next(1500).is_none());
    }

    /// DDP-23: a message without payload is one segment.
    #[test]
    fn no_payload_is_one_segment() {
        let message = Message::ReadResponse {
            stag: Stag::new(0),
            to: TaggedOffset::new(0),
        };
        let mut segmenter = Segmenter::new(message, 0);
        let step = segmenter.next(128).expect("one segment");
        assert_eq!((step.offset, step.len, step.last), (0, 0, true));
        assert!(segmenter.next(128).is_none());
    }

    /// DDP-20, DDP-25: the longest message, at its ends; MPA-43: never above the MULPDU.
    #[test]
    fn the_longest_message() {
        let message = Message::Send {
            msn: Msn::FIRST,
            kind: SendKind::default(),
        };
        let mut segmenter = Segmenter::new(message, u32::MAX);
        let mut expected = 0u32;
        while let Some(step) = segmenter.next(64768) {
            assert_eq!(step.offset, expected);
            assert!(usize::from(step.len) + step.header.len() <= 64768);
            expected += u32::from(step.len);
            assert_eq!(step.last, expected == u32::MAX);
        }
        assert_eq!(expected, u32::MAX);
    }

    /// DDP-09: the number of a message is in each of its segments, also after the wrap.
    #[test]
    fn every_segment_carries_the_number() {
        let message = Message::Send {
            msn: Msn::new(u32::MAX).next(),
            kind: SendKind {
                solicited: true,
                invalidate: Some(Stag::new(0xdead)),
            },
        };
        let mut segmenter = Segmenter::new(message, 500);
        while let Some(step) = segmenter.next(128) {
            let Ok(Header::Untagged(header)) = Header::parse(&step.header) else {
                panic!("header is not read back");
            };
            assert_eq!((header.msn.get(), header.ulp_word), (0, 0xdead));
        }
    }
}
