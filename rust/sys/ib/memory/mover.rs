// SPDX-License-Identifier: GPL-2.0

//! One walk over memory for both directions.

/// Copies one way between a buffer of the caller and memory at a kernel address.
pub(super) trait Mover {
    /// Octets left to move.
    fn left(&self) -> usize;

    /// Moves `len` octets, at most [`left`](Self::left), from or to `at`.
    ///
    /// # Safety
    ///
    /// `at` is valid kernel memory for `len` octets.
    unsafe fn step(&mut self, at: *mut u8, len: usize);
}

/// From the region into a buffer.
pub(super) struct Out<'a>(pub(super) &'a mut [u8]);

impl Mover for Out<'_> {
    #[inline]
    fn left(&self) -> usize {
        self.0.len()
    }

    #[inline]
    unsafe fn step(&mut self, at: *mut u8, len: usize) {
        let buf = core::mem::take(&mut self.0);
        let Some((now, rest)) = buf.split_at_mut_checked(len) else {
            return;
        };
        // SAFETY: `at` is valid for `len` octets by the caller's promise, `now` has that length,
        // and a buffer of ours is not part of a region.
        unsafe { core::ptr::copy_nonoverlapping(at, now.as_mut_ptr(), len) };
        self.0 = rest;
    }
}

/// From a buffer into the region.
pub(super) struct In<'a>(pub(super) &'a [u8]);

impl Mover for In<'_> {
    #[inline]
    fn left(&self) -> usize {
        self.0.len()
    }

    #[inline]
    unsafe fn step(&mut self, at: *mut u8, len: usize) {
        let Some((now, rest)) = self.0.split_at_checked(len) else {
            self.0 = &[];
            return;
        };
        // SAFETY: As in `Out::step`, the other way.
        unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), at, len) };
        self.0 = rest;
    }
}
