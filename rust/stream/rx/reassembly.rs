// SPDX-License-Identifier: GPL-2.0

//! The reassembly buffer, for an FPDU that arrives in parts.
//!
//! All octets that TCP has received must be taken at every call, or the window closes
//! permanently. TCP frees a socket buffer only as a whole, so a few octets left in it keep all of
//! its memory. An incomplete FPDU therefore moves to the reassembly buffer, and is verified and
//! placed when it is complete. Most FPDUs bypass the buffer, which has memory only while it
//! contains octets.

use kernel::{
    alloc::flags::{
        GFP_ATOMIC,
        __GFP_NOWARN, //
    },
    prelude::*, //
};

use super::source::Source;
use crate::sys::mm::octets::Octets;

/// The length of the longest possible FPDU in octets: ULPDU_Length 65535, framed and padded, a
/// marker before it and one every 512 octets.
const MAX_LEN: usize = 2 + 65535 + 3 + 4 + 4 * 130;

/// Memory for octets.
///
/// Memory of `vmalloc()` is allocated only where sleeping is allowed, and does not grow in a
/// softirq. In a softirq `vmalloc()` would take locks that threads hold with softirqs enabled.
enum Room {
    /// Allocated in atomic context.
    Atomic(KVec<u8>),
    /// [Provided](Reassembly::provide) later.
    Provided(KVVec<u8>),
}

impl Room {
    /// The octets held.
    fn octets(&self) -> &[u8] {
        match self {
            Self::Atomic(octets) => octets,
            Self::Provided(octets) => octets,
        }
    }

    /// The capacity in octets.
    fn capacity(&self) -> usize {
        match self {
            Self::Atomic(octets) => octets.capacity(),
            Self::Provided(octets) => octets.capacity(),
        }
    }

    /// Grows the buffer by `more` octets beyond its content.
    fn reserve(&mut self, more: usize) -> Result {
        match self {
            Self::Atomic(octets) => Ok(octets.reserve(more, GFP_ATOMIC | __GFP_NOWARN)?),
            Self::Provided(_) => Err(ENOMEM),
        }
    }

    /// Appends octets; `ENOMEM`, and no change, without room for all of them.
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

/// The beginning of an incomplete FPDU.
pub(in crate::stream) struct Reassembly {
    /// The received octets.
    room: Room,
    /// Octets whose allocation failed in atomic context.
    wanted: usize,
}

impl Reassembly {
    /// Makes an empty buffer without memory.
    pub(in crate::stream) const fn new() -> Self {
        Self {
            room: Room::Atomic(KVec::new()),
            wanted: 0,
        }
    }

    /// The number of octets held.
    #[inline]
    pub(in crate::stream) fn len(&self) -> usize {
        self.octets().len()
    }

    /// Whether no FPDU is incomplete.
    #[inline]
    pub(in crate::stream) fn is_empty(&self) -> bool {
        self.octets().is_empty()
    }

    /// The octets held.
    #[inline]
    pub(in crate::stream) fn octets(&self) -> &[u8] {
        self.room.octets()
    }

    /// The octets held, for the removal of markers.
    pub(in crate::stream) fn octets_mut(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Atomic(octets) => octets,
            Room::Provided(octets) => octets,
        }
    }

    /// Octets of memory that the buffer has with room for an FPDU of `len` octets.
    pub(in crate::stream) fn footprint(&self, len: usize) -> u32 {
        let octets = len.min(MAX_LEN).max(self.room.capacity());
        // `kmalloc()` rounds up to powers of two, but for two sizes below 256.
        octets.next_power_of_two() as u32
    }

    /// Makes room for an FPDU of `len` octets.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: no memory in atomic context. The octets held stay, and [`Self::wanted`] returns
    /// the size.
    pub(in crate::stream) fn reserve(&mut self, len: usize) -> Result {
        let len = len.min(MAX_LEN);
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
    pub(in crate::stream) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Replaces the memory by memory that was allocated where sleeping is allowed.
    pub(in crate::stream) fn provide(&mut self, room: KVVec<u8>) {
        let mut room = Room::Provided(room);
        if room.capacity() > self.room.capacity() && room.extend(self.octets().into()).is_ok() {
            self.room = room;
            self.wanted = 0;
        }
    }

    /// Appends `len` octets of `src` from offset `off`, as far as there is room.
    pub(in crate::stream) fn fill<S: Source + ?Sized>(
        &mut self,
        src: &S,
        off: usize,
        len: usize,
    ) -> Result {
        let left = self.room.capacity().saturating_sub(self.len());
        let room = &mut self.room;
        src.chunks(off, len.min(left), |chunk| room.extend(chunk))
    }
}

#[kunit_tests(rsiw_stream_reassembly)]
mod tests {
    use super::*;

    #[test]
    fn provided_room_does_not_grow_by_itself() -> Result {
        let mut reassembly = Reassembly::new();
        reassembly.reserve(10)?;
        reassembly.fill(&[1_u8, 2, 3][..], 0, 3)?;
        reassembly.provide(KVVec::with_capacity(4096, GFP_KERNEL)?);
        assert!(matches!(reassembly.room, Room::Provided(_)));
        assert!(reassembly.octets() == [1, 2, 3]);
        reassembly.reserve(4096)?;
        assert_eq!(reassembly.wanted(), 0);
        let more = reassembly.room.capacity() + 1;
        assert!(reassembly.reserve(more).is_err());
        assert_eq!(reassembly.wanted(), more);
        assert!(reassembly.octets() == [1, 2, 3]);
        reassembly.provide(KVVec::with_capacity(more, GFP_KERNEL)?);
        assert_eq!(reassembly.wanted(), 0);
        reassembly.reserve(more)?;
        reassembly.fill(&[4_u8, 5][..], 1, 1)?;
        assert!(reassembly.octets() == [1, 2, 3, 5]);
        Ok(())
    }
}
