// SPDX-License-Identifier: GPL-2.0

//! Access to received octets in TCP's socket buffers.
//!
//! A socket buffer has a linear part, page fragments, and perhaps a list of further buffers. A
//! [`SkbView`] presents a range of its octets as one sequence. Sequential reads are fast: the view
//! caches the last contiguous range.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use core::{
    cell::{
        Cell,
        UnsafeCell, //
    },
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::prelude::*;

use crate::sys::{
    bindings,
    mm::octets::Octets, //
};

/// A range of octets of a socket buffer.
///
/// A sender on this host may share the pages with a file or a process that writes to them. So two
/// reads of an octet may differ.
///
/// # Invariants
///
/// If `readable`, `skb` has readable memory for the `len` octets from `base` during `'a`. `cursor`
/// is only used with `skb`.
pub(crate) struct SkbView<'a> {
    /// The socket buffer.
    skb: NonNull<bindings::sk_buff>,
    /// The offset of the view in the buffer, in octets.
    base: u32,
    /// The length of the view in octets.
    len: u32,
    /// The CPU can read the octets.
    readable: bool,
    /// The position of the last access; only the C side uses it.
    cursor: UnsafeCell<bindings::rsiw_skb_cursor>,
    /// The offset in the view and the octets of the last contiguous range, cut at the end of the
    /// view.
    last: Cell<(usize, Octets<'a>)>,
    _borrow: PhantomData<&'a [u8]>,
}

impl<'a> SkbView<'a> {
    /// Makes a view of `len` octets of `skb` from octet `base`.
    ///
    /// # Safety
    ///
    /// The octets exist, `rsiw_skb_chunk` reaches them, and their memory stays valid during `'a`.
    pub(in crate::sys) unsafe fn new(skb: NonNull<bindings::sk_buff>, base: u32, len: u32) -> Self {
        // INVARIANT: As this function's contract says.
        Self {
            skb,
            base,
            len,
            readable: true,
            cursor: UnsafeCell::new(bindings::rsiw_skb_cursor {
                part: ptr::null(),
                ..Default::default()
            }),
            last: Cell::new((0, Octets::EMPTY)),
            _borrow: PhantomData,
        }
    }

    /// Makes a view of `len` octets of `skb` that the CPU can not read.
    pub(in crate::sys) fn unreadable(skb: NonNull<bindings::sk_buff>, len: u32) -> Self {
        // INVARIANT: The view is not readable, so the invariant does not require valid memory.
        Self {
            skb,
            base: 0,
            len,
            readable: false,
            cursor: UnsafeCell::new(bindings::rsiw_skb_cursor {
                part: ptr::null(),
                ..Default::default()
            }),
            last: Cell::new((0, Octets::EMPTY)),
            _borrow: PhantomData,
        }
    }

    /// Whether the CPU can read the octets; otherwise every access fails.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    /// The length of the view in octets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether `len` octets from `off` lie in the view.
    #[inline]
    fn contains(&self, off: usize, len: usize) -> bool {
        off.checked_add(len).is_some_and(|end| end <= self.len())
    }

    /// The longest contiguous range from octet `off`, at most `max` octets; empty after the end of
    /// the view.
    #[inline]
    pub(crate) fn chunk(&self, off: usize, max: usize) -> Octets<'a> {
        // A range may hold several FPDUs, and each is read more than once.
        let (start, piece) = self.last.get();
        let rest = match off.checked_sub(start).and_then(|skip| piece.after(skip)) {
            Some(rest) if !rest.is_empty() => rest,
            _ => self.find(off),
        };
        rest.up_to(max)
    }

    /// Finds and caches the longest contiguous range from octet `off`.
    fn find(&self, off: usize) -> Octets<'a> {
        let left = self.len().saturating_sub(off);
        if left == 0 || !self.readable {
            return Octets::EMPTY;
        }
        let mut data = ptr::null();
        // The sum does not wrap: `off` lies in the view, and the view in the buffer.
        let at = self.base.wrapping_add(off as u32);
        // SAFETY: By the type invariant the buffer is valid, the cursor belongs to it, and octet
        // `at` exists.
        let found = unsafe {
            bindings::rsiw_skb_chunk(self.skb.as_ptr(), self.cursor.get(), at, &mut data)
        };
        let Some(data) = NonNull::new(data.cast::<u8>().cast_mut()) else {
            return Octets::EMPTY;
        };
        // SAFETY: `found` octets are at `data`, and by the type invariant those of the view stay
        // valid during `'a`.
        let piece = unsafe { Octets::from_raw(data, left.min(found as usize)) };
        self.last.set((off, piece));
        piece
    }

    /// Copies octets from `off` on to fill `dst`.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the range leaves the view.
    #[inline]
    pub(crate) fn copy_bits(&self, off: usize, dst: &mut [u8]) -> Result {
        if !self.contains(off, dst.len()) {
            return Err(EFAULT);
        }
        let mut off = off;
        let mut rest = dst;
        while !rest.is_empty() {
            let chunk = self.chunk(off, rest.len());
            if chunk.is_empty() {
                return Err(EFAULT);
            }
            let (now, later) = rest.split_at_mut_checked(chunk.len()).ok_or(EFAULT)?;
            if !chunk.copy_to(now) {
                return Err(EFAULT);
            }
            rest = later;
            off = off.wrapping_add(chunk.len());
        }
        Ok(())
    }

    /// Continues the CRC-32C `seed` over `len` octets from `off`. Neither the seed nor the result
    /// is inverted.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the range leaves the view.
    #[inline]
    pub(crate) fn crc32c(&self, off: usize, len: usize, seed: u32) -> Result<u32> {
        if !self.contains(off, len) {
            return Err(EFAULT);
        }
        let mut crc = seed;
        self.for_each_chunk(off, len, |chunk| {
            crc = chunk.crc32c(crc);
            Ok::<(), Error>(())
        })?;
        Ok(crc)
    }

    /// Calls `f` for each contiguous part of `len` octets from `off`, in order, until `f` fails. A
    /// range that leaves the view is cut.
    #[inline]
    pub(crate) fn for_each_chunk<E>(
        &self,
        off: usize,
        len: usize,
        mut f: impl FnMut(Octets<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut off = off;
        let mut rest = len;
        while rest != 0 {
            let chunk = self.chunk(off, rest);
            if chunk.is_empty() {
                break;
            }
            f(chunk)?;
            off = off.wrapping_add(chunk.len());
            rest = rest.wrapping_sub(chunk.len());
        }
        Ok(())
    }
}

#[kunit_tests(rsiw_sys_skb)]
mod tests {
    use super::*;

    /// A socket buffer whose octets count up from 0.
    struct Skb {
        skb: NonNull<bindings::sk_buff>,
        len: u32,
    }

    impl Skb {
        fn new(linear: u32, frags: u32, frag_len: u32, parts: u32) -> Result<Self> {
            // SAFETY: The helper has no requirements.
            let skb = unsafe { bindings::rsiw_test_skb(linear, frags, frag_len, parts) };
            Ok(Self {
                skb: NonNull::new(skb).ok_or(ENOMEM)?,
                len: (linear + frags * frag_len) * (parts + 1),
            })
        }

        fn view(&self, base: u32, len: u32) -> SkbView<'_> {
            // SAFETY: Only the test uses the buffer, and the range is inside it.
            unsafe { SkbView::new(self.skb, base, len) }
        }
    }

    impl Drop for Skb {
        fn drop(&mut self) {
            // SAFETY: `new` has allocated the buffer, and it is not used after this.
            unsafe { bindings::rsiw_test_free_skb(self.skb.as_ptr()) }
        }
    }

    /// A copy of the octets.
    fn octets(chunk: Octets<'_>) -> Result<KVec<u8>> {
        let mut vec = KVec::with_capacity(chunk.len(), GFP_KERNEL)?;
        chunk.append_to(&mut vec);
        Ok(vec)
    }

    /// Buffers of all layouts: linear part, fragments, list of buffers.
    fn shapes() -> Result<[Skb; 4]> {
        Ok([
            Skb::new(300, 0, 0, 0)?,
            Skb::new(0, 3, 700, 0)?,
            Skb::new(50, 2, 1000, 0)?,
            Skb::new(33, 2, 401, 3)?,
        ])
    }

    #[test]
    fn copies_any_range() -> Result {
        let mut buf = [0u8; 64];
        for skb in &shapes()? {
            let view = skb.view(0, skb.len);
            for off in 0..skb.len as usize {
                let len = buf.len().min(view.len() - off);
                let dst = buf.get_mut(..len).ok_or(ERANGE)?;
                view.copy_bits(off, dst)?;
                let right = dst
                    .iter()
                    .enumerate()
                    .all(|(i, octet)| *octet == (off + i) as u8);
                assert!(right);
            }
        }
        Ok(())
    }

    #[test]
    fn goes_back_and_forth() -> Result {
        for skb in &shapes()? {
            let view = skb.view(0, skb.len);
            let mut octet = [0u8];
            // A step that is prime to the length visits every octet, not in order.
            let mut at = 0u32;
            for _ in 0..skb.len {
                view.copy_bits(at as usize, &mut octet)?;
                assert_eq!(octet, [at as u8]);
                at = (at + 211) % skb.len;
            }
        }
        Ok(())
    }

    #[test]
    fn chunks_are_whole_and_in_order() -> Result {
        for skb in &shapes()? {
            let view = skb.view(10, skb.len - 10);
            assert_eq!(view.len(), skb.len as usize - 10);
            let mut next = 10u8.wrapping_add(5);
            let mut seen = 0;
            view.for_each_chunk(5, view.len() - 7, |chunk| {
                assert!(!chunk.is_empty());
                for octet in octets(chunk)? {
                    assert_eq!(octet, next);
                    next = next.wrapping_add(1);
                }
                seen += chunk.len();
                Ok::<(), Error>(())
            })?;
            assert_eq!(seen, view.len() - 7);
            assert!(view.for_each_chunk(0, 1, |_| Err(EIO)) == Err(EIO));
        }
        Ok(())
    }

    #[test]
    fn a_chunk_is_cut_where_the_piece_the_range_or_the_view_ends() -> Result {
        const MAX: usize = 48;
        for skb in &shapes()? {
            let view = skb.view(3, skb.len - 5);
            let mut cut = 0;
            for off in 0..view.len() {
                let chunk = view.chunk(off, MAX);
                assert!((1..=MAX.min(view.len() - off)).contains(&chunk.len()));
                cut += usize::from(chunk.len() < MAX.min(view.len() - off));
                let mut right = (off + 3..).map(|octet| octet as u8);
                assert!(octets(chunk)?
                    .into_iter()
                    .all(|octet| right.next() == Some(octet)));
            }
            // All layouts but the linear one have more than one contiguous range.
            assert!((cut == 0) == (skb.len == 300));
            assert!(view.chunk(view.len(), MAX).is_empty());
            assert!(view.chunk(usize::MAX, MAX).is_empty());
        }
        Ok(())
    }

    #[test]
    fn crc_is_that_of_the_octets() -> Result {
        for skb in &shapes()? {
            let view = skb.view(0, skb.len);
            let mut expected = !0;
            for i in 3..skb.len {
                expected = crate::sys::crc::crc32c(expected, &[i as u8]);
            }
            assert_eq!(view.crc32c(3, view.len() - 3, !0)?, expected);
        }
        Ok(())
    }

    #[test]
    fn ends_where_the_view_ends() -> Result {
        for skb in &shapes()? {
            let view = skb.view(1, skb.len - 2);
            let len = view.len();
            let mut two = [0u8; 2];
            assert!(view.copy_bits(len - 1, &mut two) == Err(EFAULT));
            assert!(view.copy_bits(usize::MAX, &mut two) == Err(EFAULT));
            assert!(view.crc32c(1, len, 0) == Err(EFAULT));
            assert!(view.copy_bits(len - 2, &mut two).is_ok());
            assert!(view.copy_bits(len, &mut []).is_ok());
        }
        Ok(())
    }
}
