// SPDX-License-Identifier: GPL-2.0

//! Octets that another context may write to while the driver reads them.
//!
//! A process may write to memory while the device copies from it. A sender on this host may share
//! the pages of a socket buffer with a file or a process. A slice would tell the compiler that
//! there are no such writes. [`Octets`] are read by C's `memcpy()`, as elsewhere in the kernel, or
//! by volatile loads. Each octet is read once, at an unspecified time.
//!
//! C header: [`include/linux/string.h`](srctree/include/linux/string.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    alloc::{
        Allocator,
        Vec, //
    },
    prelude::*, //
};

use crate::sys::bindings;

/// A contiguous range of octets with possible concurrent writers.
///
/// # Invariants
///
/// `len` octets at `data` can be read during `'a`, by accesses that tolerate concurrent writes.
#[derive(Clone, Copy)]
pub(crate) struct Octets<'a> {
    /// The first octet.
    data: NonNull<u8>,
    /// The number of octets.
    len: usize,
    _memory: PhantomData<&'a ()>,
}

/// A word without alignment.
#[repr(C, packed)]
struct Word(u64);

impl<'a> From<&'a [u8]> for Octets<'a> {
    #[inline]
    fn from(octets: &'a [u8]) -> Self {
        // INVARIANT: The octets of a slice can be read during `'a`.
        Self {
            data: NonNull::from(octets).cast(),
            len: octets.len(),
            _memory: PhantomData,
        }
    }
}

impl<'a> Octets<'a> {
    /// An empty range.
    pub(crate) const EMPTY: Self = Self {
        data: NonNull::dangling(),
        len: 0,
        _memory: PhantomData,
    };

    /// `len` octets at `data`.
    ///
    /// # Safety
    ///
    /// The octets can be read during `'a`; concurrent writes are allowed.
    #[inline]
    pub(in crate::sys) unsafe fn from_raw(data: NonNull<u8>, len: usize) -> Self {
        // INVARIANT: By this function's contract.
        Self {
            data,
            len,
            _memory: PhantomData,
        }
    }

    /// The number of octets.
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The first `max` octets, or all if there are fewer.
    #[inline]
    pub(crate) fn up_to(self, max: usize) -> Self {
        // INVARIANT: A part of the range can be read during `'a` as well.
        Self {
            len: self.len.min(max),
            ..self
        }
    }

    /// The octets after the first `n`; `None` if there are fewer than `n`.
    #[inline]
    pub(crate) fn after(self, n: usize) -> Option<Self> {
        let len = self.len.checked_sub(n)?;
        // INVARIANT: A part of the range can be read during `'a` as well.
        Some(Self {
            // SAFETY: `n` is at most the number of octets.
            data: unsafe { self.data.add(n) },
            len,
            ..self
        })
    }

    /// The first `n` octets, and the rest; `None` if there are fewer than `n`.
    #[inline]
    pub(crate) fn split_at_checked(self, n: usize) -> Option<(Self, Self)> {
        Some((self.up_to(n), self.after(n)?))
    }

    /// A copy of the first `N` octets, word by word; `None` if there are fewer.
    #[inline]
    pub(crate) fn first_chunk<const N: usize>(self) -> Option<[u8; N]> {
        if self.len < N {
            return None;
        }
        let mut out = [0; N];
        let mut at = self.data;
        let mut words = out.chunks_exact_mut(size_of::<Word>());
        for word in &mut words {
            // SAFETY: By the type invariant, and since there are `N` octets.
            let read = unsafe { at.cast::<Word>().read_volatile() };
            word.copy_from_slice(&{ read.0 }.to_ne_bytes());
            // SAFETY: As above.
            at = unsafe { at.add(size_of::<Word>()) };
        }
        for octet in words.into_remainder() {
            // SAFETY: As above.
            unsafe {
                *octet = at.read_volatile();
                at = at.add(1);
            }
        }
        Some(out)
    }

    /// Copies the octets to `to`.
    ///
    /// # Safety
    ///
    /// `to` is valid for writes of as many octets. Concurrent accesses are allowed.
    #[inline]
    pub(in crate::sys) unsafe fn copy_to_raw(self, to: *mut u8) {
        // SAFETY: By the type invariant, and by this function's contract. The two ranges may
        // overlap if a process receives into memory that it sends. Any octets are a valid result
        // then.
        unsafe { bindings::memcpy(to.cast(), self.data.as_ptr().cast(), self.len) };
    }

    /// Copies the octets to `to`. Returns `false`, and copies nothing, if the lengths differ.
    #[inline]
    pub(crate) fn copy_to(self, to: &mut [u8]) -> bool {
        if to.len() != self.len {
            return false;
        }
        // SAFETY: `to` has as many octets, and is borrowed exclusively.
        unsafe { self.copy_to_raw(to.as_mut_ptr()) };
        true
    }

    /// Appends a copy of the octets to `vec`, up to its capacity; returns the number of octets.
    #[inline]
    pub(crate) fn append_to<A: Allocator>(self, vec: &mut Vec<u8, A>) -> usize {
        let room = vec.spare_capacity_mut();
        let octets = self.up_to(room.len());
        // SAFETY: The spare capacity has that many octets, and `vec` is borrowed exclusively.
        unsafe { octets.copy_to_raw(room.as_mut_ptr().cast()) };
        // SAFETY: The copy above has initialized that many octets of the capacity.
        unsafe { vec.inc_len(octets.len) };
        octets.len
    }

    /// Continues the CRC-32C `seed` over the octets. Neither the seed nor the result is inverted.
    #[inline]
    pub(crate) fn crc32c(self, seed: u32) -> u32 {
        // SAFETY: By the type invariant; C reads each octet once.
        unsafe { bindings::crc32c(seed, self.data.as_ptr().cast(), self.len) }
    }
}

#[kunit_tests(rsiw_sys_octets)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_at_any_place() {
        let all = [1u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
        let octets = Octets::from(&all[..]);
        for at in 0..=all.len() {
            let (mut front, mut back) = ([0; 11], [0; 11]);
            let (first, rest) = all.split_at(at);
            assert!(octets
                .up_to(at)
                .copy_to(front.get_mut(..at).unwrap_or_default()));
            assert!(octets
                .after(at)
                .is_some_and(|rest| rest.copy_to(back.get_mut(at..).unwrap_or_default())));
            assert!(front.starts_with(first));
            assert!(back.ends_with(rest));
        }
        assert!(octets.after(12).is_none());
        assert_eq!(octets.up_to(12).len(), 11);
        assert!(!octets.copy_to(&mut [0; 12]));
    }

    #[test]
    fn first_octets_are_copied_by_word() {
        let all = [1u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
        let octets = Octets::from(&all[..]);
        assert_eq!(octets.first_chunk(), Some([1, 2, 3]));
        assert_eq!(octets.first_chunk(), Some(all));
        assert_eq!(
            octets.after(2).and_then(Octets::first_chunk),
            Some([3, 4, 5, 6, 7, 8, 9, 10])
        );
        assert!(octets.first_chunk::<12>().is_none());
    }

    #[test]
    fn appends_what_there_is_room_for() -> Result {
        let mut vec = KVec::with_capacity(8, GFP_KERNEL)?;
        vec.push(1, GFP_KERNEL)?;
        assert_eq!(Octets::from(&[2u8, 3][..]).append_to(&mut vec), 2);
        let room = vec.capacity().wrapping_sub(3);
        let long = KVec::from_elem(9u8, room.wrapping_add(1), GFP_KERNEL)?;
        assert_eq!(Octets::from(&long[..]).append_to(&mut vec), room);
        assert!(vec.starts_with(&[1, 2, 3, 9]));
        assert_eq!(vec.len(), vec.capacity());
        Ok(())
    }
}
