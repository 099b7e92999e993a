// SPDX-License-Identifier: GPL-2.0

//! Names of objects, as types that can not be mixed up.
//!
//! Numbers which the user or the peer sees; requirements.md DDP-81: neither can choose them.

pub(crate) use iwarp_wire::Stag;

/// The number of a queue pair: 24 bits, unique on this host, never 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qpn(u32);

impl Qpn {
    /// The smallest number; 0 and 1 mean special queue pairs in InfiniBand.
    pub(crate) const MIN: u32 = 2;
    /// The largest number that the protocols and tools around verbs can carry.
    pub(crate) const MAX: u32 = 0x00ff_ffff;

    /// Wraps a number that the table of queue pairs has given out.
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number itself.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

/// A protection domain, told from every other one that its device ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PdId(u64);

impl PdId {
    /// Wraps a number that the device has given out.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// A DDP stream of a queue pair, told from every other one that its device ever had (RFC 5041
/// section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId(u64);

impl StreamId {
    /// Wraps a number that the device has given out.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// What a stream is to memory: an STag serves it by its protection domain, or by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Association {
    /// The protection domain of its queue pair.
    pub(crate) pd: PdId,
    /// The stream.
    pub(crate) stream: StreamId,
}

/// An STag of its two parts.
pub(crate) const fn stag(index: u32, key: u8) -> Stag {
    Stag::new((index << 8) | key as u32)
}
