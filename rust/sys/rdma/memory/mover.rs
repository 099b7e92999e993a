// SPDX-License-Identifier: GPL-2.0

//! The copy direction of a walk over the memory of a region.
//!
//! A process or a kernel user owns the memory, and may access it at the same time. So [`Octets`]
//! copies the memory, and the driver forms no reference to it.

use core::ptr::NonNull;

use crate::sys::mm::octets::Octets;

/// A copy in one direction between a buffer of the caller and memory at a kernel address.
pub(super) trait Mover {
    /// Octets left to move.
    fn left(&self) -> usize;

    /// Moves `len` octets, at most [`left`](Self::left), from or to `at`.
    ///
    /// # Safety
    ///
    /// `at` is valid kernel memory for `len` octets. Others may access it concurrently.
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
        // SAFETY: `at` is valid for `len` octets by the caller's promise.
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
        // SAFETY: `at` is valid for `len` octets by the caller's promise, and `now` has that length.
        unsafe { now.copy_to_raw(at) };
        self.0 = rest;
    }
}
