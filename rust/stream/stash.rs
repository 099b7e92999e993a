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
use crate::sys::octets::Octets;

/// The longest FPDU there can be: ULPDU_Length 65535, framed and padded, and a marker in front of
/// it and every 512 octets.
const MAX_STASH: usize = 2 + 65535 + 3 + 4 + 4 * 130;

/// Memory for octets.
///
/// What may be `vmalloc()`'s is allocated by who may sleep, and never grows in a softirq: `vmalloc()`
/// works there, but takes locks that processes hold with softirqs on.
enum Room {
    /// Had at once.
    Atomic(KVec<u8>),
    /// [Provided](Stash::adopt) later.
    Provided(KVVec<u8>),
}

impl Room {
    /// What is in it.
    fn octets(&self) -> &[u8] {
        match self {
            Self::Atomic(octets) => octets,
            Self::Provided(octets) => octets,
        }
    }

    /// How many octets it can hold.
    fn capacity(&self) -> usize {
        match self {
            Self::Atomic(octets) => octets.capacity(),
            Self::Provided(octets) => octets.capacity(),
        }
    }

    /// Makes it hold `more` octets besides what is in it.
    fn reserve(&mut self, more: usize) -> Result {
        match self {
            Self::Atomic(octets) => Ok(octets.reserve(more, GFP_ATOMIC | __GFP_NOWARN)?),
            Self::Provided(_) => Err(ENOMEM),
        }
    }

    /// Appends what there is room for.
    fn extend(&mut self, chunk: Octets<'_>) -> Result {
        if self.capacity().saturating_sub(self.octets().len()) < chunk.len() {
            return Err(ENOMEM);
        }
        match self {
            Self::Atomic(octets) => chunk.append_to(octets),
            Self::Provided(octets) => chunk.append_to(octets),
        };
        Ok(())
    }
}

/// The beginning of an FPDU.
pub(super) struct Stash {
    /// The octets that came.
    room: Room,
    /// Room that could not be had in atomic context.
    wanted: usize,
}

impl Stash {
    /// Holds nothing.
    pub(super) const fn new() -> Self {
        Self {
            room: Room::Atomic(KVec::new()),
            wanted: 0,
        }
    }

    /// Octets held.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.octets().len()
    }

    /// No FPDU is incomplete.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.octets().is_empty()
    }

    /// The octets held.
    #[inline]
    pub(super) fn octets(&self) -> &[u8] {
        self.room.octets()
    }

    /// The octets held, for markers to be taken out of.
    pub(super) fn octets_mut(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Atomic(octets) => octets,
            Room::Provided(octets) => octets,
        }
    }

    /// Octets of memory there are with room for an FPDU of `len` octets.
    pub(super) fn footprint(&self, len: usize) -> u32 {
        let octets = len.min(MAX_STASH).max(self.room.capacity());
        // `kmalloc()` rounds up to powers of two, but for two sizes below 256.
        octets.next_power_of_two() as u32
    }

    /// Makes room for an FPDU of `len` octets.
    ///
    /// # Errors
    ///
    /// No memory now; what is held stays, and [`Self::wanted`] tells.
    pub(super) fn reserve(&mut self, len: usize) -> Result {
        let len = len.min(MAX_STASH);
        if len <= self.room.capacity() {
            self.wanted = 0;
            return Ok(());
        }
        let more = len.saturating_sub(self.len());
        let room = self.room.reserve(more);
        self.wanted = if room.is_err() { len } else { 0 };
        room
    }

    /// Octets of memory that were missing; 0 if none were.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Takes memory that somebody who may sleep has allocated.
    pub(super) fn adopt(&mut self, room: KVVec<u8>) {
        let mut room = Room::Provided(room);
        if room.capacity() > self.room.capacity() && room.extend(self.octets().into()).is_ok() {
            self.room = room;
            self.wanted = 0;
        }
    }

    /// Appends `len` octets of `src` from offset `off`, as far as there is room.
    pub(super) fn fill<S: Source + ?Sized>(&mut self, src: &S, off: usize, len: usize) -> Result {
        let left = self.room.capacity().saturating_sub(self.len());
        let room = &mut self.room;
        src.chunks(off, len.min(left), |chunk| room.extend(chunk))
    }
}

#[kunit_tests(rsiw_stream_stash)]
mod tests {
    use super::*;

    #[test]
    fn provided_room_does_not_grow_by_itself() -> Result {
        let mut stash = Stash::new();
        stash.reserve(10)?;
        stash.fill(&[1_u8, 2, 3][..], 0, 3)?;
        stash.adopt(KVVec::with_capacity(4096, GFP_KERNEL)?);
        assert!(matches!(stash.room, Room::Provided(_)));
        assert!(stash.octets() == [1, 2, 3]);
        stash.reserve(4096)?;
        assert_eq!(stash.wanted(), 0);
        let more = stash.room.capacity() + 1;
        assert!(stash.reserve(more).is_err());
        assert_eq!(stash.wanted(), more);
        assert!(stash.octets() == [1, 2, 3]);
        stash.adopt(KVVec::with_capacity(more, GFP_KERNEL)?);
        assert_eq!(stash.wanted(), 0);
        stash.reserve(more)?;
        stash.fill(&[4_u8, 5][..], 1, 1)?;
        assert!(stash.octets() == [1, 2, 3, 5]);
        Ok(())
    }
}
