// SPDX-License-Identifier: GPL-2.0

//! An FPDU that comes in parts.
//!
//! What TCP has received must be taken at every call, or the window closes for good: TCP frees a
//! buffer only as a whole, and a few octets left in it hold on to all of its memory. The tail of
//! an incomplete FPDU therefore moves here, to be checked and placed when it is whole. Most FPDUs
//! never come here; memory is there only while something is in it.

use kernel::{
    alloc::flags::{
        GFP_ATOMIC,
        __GFP_NOWARN, //
    },
    prelude::*, //
};

use super::place::Source;

/// The longest FPDU there can be: ULPDU_Length 65535, framed and padded, and a marker in front of
/// it and every 512 octets.
const MAX_STASH: usize = 2 + 65535 + 3 + 4 + 4 * 130;

/// The beginning of an FPDU.
pub(super) struct Stash {
    /// The octets that came.
    octets: KVVec<u8>,
    /// Room that could not be had in atomic context.
    wanted: usize,
}

impl Stash {
    /// Holds nothing.
    pub(super) const fn new() -> Self {
        Self {
            octets: KVVec::new(),
            wanted: 0,
        }
    }

    /// Octets held.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.octets.len()
    }

    /// No FPDU is incomplete.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// The octets held.
    pub(super) fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The octets held, for markers to be taken out of.
    pub(super) fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }

    /// Makes room for an FPDU of `len` octets.
    ///
    /// # Errors
    ///
    /// No memory now; what is held stays, and [`Self::wanted`] tells.
    pub(super) fn reserve(&mut self, len: usize) -> Result {
        let len = len.min(MAX_STASH);
        let more = len.saturating_sub(self.octets.len());
        let room = self.octets.reserve(more, GFP_ATOMIC | __GFP_NOWARN);
        self.wanted = if room.is_err() { len } else { 0 };
        Ok(room?)
    }

    /// Octets of memory that were missing; 0 if none were.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Takes memory that somebody who may sleep has allocated.
    pub(super) fn adopt(&mut self, mut room: KVVec<u8>) {
        if room.capacity() > self.octets.capacity()
            && room
                .extend_from_slice(&self.octets, GFP_ATOMIC | __GFP_NOWARN)
                .is_ok()
        {
            self.octets = room;
            self.wanted = 0;
        }
    }

    /// Appends `len` octets of `src` from offset `off`, as far as there is room.
    pub(super) fn fill<S: Source + ?Sized>(&mut self, src: &S, off: usize, len: usize) -> Result {
        let old = self.octets.len();
        let room = self.octets.capacity().saturating_sub(old);
        let octets = &mut self.octets;
        src.chunks(off, len.min(room), |chunk| {
            octets
                .extend_from_slice(chunk, GFP_ATOMIC | __GFP_NOWARN)
                .map_err(Error::from)
        })
    }
}
