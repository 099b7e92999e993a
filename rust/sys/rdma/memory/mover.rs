// SPDX-License-Identifier: GPL-2.0

//! The copy direction of a walk over the memory of a region.
//!
//! A process or a kernel user owns the memory, and may access it concurrently. So [`Octets`] copies
//! the memory, and the driver forms no reference to it.

use core::ptr::NonNull;

use crate::sys::mm::octets::Octets;

/// A copy in one direction between a buffer of the caller and memory at a kernel address.
pub(super) trait Mover {
    /// The number of octets left to copy.
    fn left(&self) -> usize;

    /// Copies `len` octets, at most [`left`](Self::left), from or to `at`.
    ///
    /// # Safety
    ///
    /// `at` is valid kernel memory for `len` octets. Its owner may access it concurrently.
    unsafe fn step(&mut self, at: *mut u8, len: usize);
}

/// The direction from the region into a buffer.
pub(super) struct Out<'a>(pub(super) &'a mut [u8]);

impl Mover for Out<'_> {
    #[inline]
    fn left(&self) -> usize {
        self.0.len()
    }

    #[inline]
    unsafe fn step(&mut self, at: *mut u8, len: usize) {
        let buf = core::mem::take(&mut self.0);
        let (Some((now, rest)), Some(at)) = (buf.split_at_mut_checked(len), NonNull::new(at))
        else {
            return;
        };
        // SAFETY: By this function's contract `at` is valid for `len` octets.
        unsafe { Octets::from_raw(at, len) }.copy_to(now);
        self.0 = rest;
    }
}

/// The direction from a buffer into the region.
pub(super) struct In<'a>(pub(super) Octets<'a>);

impl Mover for In<'_> {
    #[inline]
    fn left(&self) -> usize {
        self.0.len()
    }

    #[inline]
    unsafe fn step(&mut self, at: *mut u8, len: usize) {
        let Some((now, rest)) = self.0.split_at_checked(len) else {
            self.0 = Octets::EMPTY;
            return;
        };
        // SAFETY: By this function's contract `at` is valid for `len` octets, which is the length
        // of `now`.
        unsafe { now.copy_to_raw(at) };
        self.0 = rest;
    }
}
