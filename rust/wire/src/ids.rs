// SPDX-License-Identifier: GPL-2.0

//! Identifiers and counters of DDP, each a type of its own (RFC 5041 section 2.1).

use core::error::Error;
use core::fmt;

/// A steering tag: identifies a tagged buffer (RFC 5041 section 4.1). Any 32-bit value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Stag(u32);

impl Stag {
    /// Makes an STag of its 32 bits, in host order.
    #[inline]
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The 32 bits, in host order.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The upper 24 bits, which verbs call the index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The lower 8 bits, which verbs call the key.
    #[inline]
    #[must_use]
    pub const fn key(self) -> u8 {
        self.0.to_be_bytes()[3]
    }
}

impl From<u32> for Stag {
    #[inline]
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl From<Stag> for u32 {
    #[inline]
    fn from(stag: Stag) -> Self {
        stag.0
    }
}

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

/// An offset in a tagged buffer, in octets (RFC 5041 section 4.1). Any 64-bit value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TaggedOffset(u64);

impl TaggedOffset {
    /// Makes an offset of a number of octets.
    #[inline]
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The offset in octets.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The offset `len` octets after this one; `None` if it exceeds 64 bits.
    #[inline]
    #[must_use]
    pub const fn checked_add(self, len: u32) -> Option<Self> {
        match self.0.checked_add(len as u64) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The offset `len` octets after this one, modulo 2^64.
    #[inline]
    #[must_use]
    pub const fn wrapping_add(self, len: u32) -> Self {
        Self(self.0.wrapping_add(len as u64))
    }
}

impl From<u64> for TaggedOffset {
    #[inline]
    fn from(value: u64) -> Self {
        Self(value)
    }
}

/// A message sequence number: counts the messages of one queue, modulo 2^32, from 1 on (RFC 5041
/// section 4.3).
///
/// ```
/// use iwarp_wire::Msn;
///
/// assert_eq!(Msn::FIRST.get(), 1);
/// assert_eq!(Msn::new(u32::MAX).next(), Msn::new(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Msn(u32);

impl Msn {
    /// The number of each queue's first message.
    pub const FIRST: Self = Self(1);

    /// Makes a message sequence number of a number.
    #[inline]
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of the message after this one; 0 follows 2^32-1.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number of the message before this one; 2^32-1 precedes 0.
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

/// A message offset: the distance in octets from the first octet of an untagged message to the
/// segment's payload (RFC 5041 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Mo(u32);

impl Mo {
    /// The offset of each message's first segment.
    pub const ZERO: Self = Self(0);

    /// Makes an offset of a number of octets.
    #[inline]
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The offset in octets.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The queues of untagged messages (RFC 5040 section 4.1, RFC 7306 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum QueueNumber {
    /// Sends of all kinds and Immediate Data.
    Send = 0,
    /// Read Requests and Atomic Requests.
    ReadRequest = 1,
    /// The Terminate message.
    Terminate = 2,
    /// Atomic Responses.
    AtomicResponse = 3,
}

/// A queue number that neither RFC 5040 nor RFC 7306 assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownQueue(pub u32);

impl fmt::Display for UnknownQueue {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue number {} is not assigned", self.0)
    }
}

impl Error for UnknownQueue {}

impl TryFrom<u32> for QueueNumber {
    type Error = UnknownQueue;

    #[inline]
    fn try_from(value: u32) -> Result<Self, UnknownQueue> {
        match value {
            0 => Ok(Self::Send),
            1 => Ok(Self::ReadRequest),
            2 => Ok(Self::Terminate),
            3 => Ok(Self::AtomicResponse),
            other => Err(UnknownQueue(other)),
        }
    }
}

impl From<QueueNumber> for u32 {
    #[inline]
    fn from(queue: QueueNumber) -> Self {
        match queue {
            QueueNumber::Send => 0,
            QueueNumber::ReadRequest => 1,
            QueueNumber::Terminate => 2,
            QueueNumber::AtomicResponse => 3,
        }
    }
}
