// SPDX-License-Identifier: GPL-2.0

//! Identifiers of objects, each a type of its own.
//!
//! The numbers are visible to the user or the peer, which cannot choose them (requirements.md
//! DDP-81).

pub(crate) use iwarp_wire::Stag;

/// The number of a queue pair: 24 bits, unique on this host, never 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qpn(u32);

impl Qpn {
    /// The smallest number; 0 and 1 are the special queue pairs of InfiniBand.
    pub(crate) const MIN: u32 = 2;
    /// The largest number that the protocols and tools around verbs can carry.
    pub(crate) const MAX: u32 = 0x00ff_ffff;

    /// Wraps a number that the table of queue pairs has allocated.
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number itself.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

/// The number of a protection domain, unique for the lifetime of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PdId(u64);

impl PdId {
    /// Wraps a number that the device has allocated.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// The number of a queue pair's DDP stream, unique for the lifetime of its device (RFC 5041
/// section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId(u64);

impl StreamId {
    /// Wraps a number that the device has allocated.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// The identity of a stream in access checks: an STag is valid for a protection domain or for one
/// stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Association {
    /// The protection domain of its queue pair.
    pub(crate) pd: PdId,
    pub(crate) stream: StreamId,
}

/// The STag of a 24-bit index and an 8-bit key.
pub(crate) const fn stag(index: u32, key: u8) -> Stag {
    Stag::new((index << 8) | key as u32)
}
