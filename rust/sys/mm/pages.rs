// SPDX-License-Identifier: GPL-2.0

//! Memory for bursts of FPDUs, which TCP sends from where it lies.
//!
//! A burst buffer is one block of contiguous pages, filled from its beginning to its end. Bursts go on
//! from one to the next ([`super::blocks`]). TCP takes references to its pages for the part that it is
//! lent, which is not written any more; the part behind it may be. When the peer has acknowledged all
//! of it, the references are gone, and the whole block can be written again. Each CPU keeps some buffers
//! for that. Which one is used next depends on where the receiver works (docs/performance/analysis.md).
//! Reclaim takes the kept ones away.
//!
//! C headers: [`include/linux/mm.h`](srctree/include/linux/mm.h),
//! [`include/linux/shrinker.h`](srctree/include/linux/shrinker.h)

use core::{
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};

use crate::sys::bindings;

/// Octets of a buffer: 32 KiB, or a page where pages are longer. Fewer where memory is fragmented.
/// Two of them bound the memory that a peer pins without an account ([`super::blocks`]): 64 KiB where
/// a page has up to 32 KiB.
pub(crate) const BLOCK: u32 = if PAGE_SIZE > 32 << 10 {
    PAGE_SIZE as u32
} else {
    32 << 10
};

/// Pages of `octets`, as a power of two.
const fn order_of(octets: u32) -> u32 {
    let pages = (octets as usize).div_ceil(PAGE_SIZE);
    pages.next_power_of_two().trailing_zeros()
}

/// Pages of a whole buffer, as a power of two.
const ORDER: u32 = order_of(BLOCK);

/// Buffers kept by a CPU, 2 MiB: what two streams have on their way over a short distance, as on a
/// loopback. With fewer, those that TCP still has fill the places, and each burst costs a new block.
const KEPT: usize = 64;

const _: () = assert!(PAGE_SIZE << ORDER == BLOCK as usize);

/// Places that CPUs keep buffers in; CPUs beyond share.
const CPUS: usize = 64;

/// The buffers that a CPU keeps.
#[repr(align(64))]
struct Kept {
    /// References to pages, or null.
    pages: [Atomic<*mut bindings::page>; KEPT],
    /// The place after that of the last one used, wrapping. Unlocked, since a wrong one only costs
    /// time.
    next: Atomic<u32>,
}

impl Kept {
    /// How many there are.
    fn count(&self) -> usize {
        let is_kept = |slot: &&Atomic<*mut bindings::page>| !slot.load(Relaxed).is_null();
        self.pages.iter().filter(is_kept).count()
    }

    /// Gives up `most` of them; how many there were. Any context, takes no lock.
    fn shrink(&self, most: usize) -> usize {
        let mut gone = 0;
        for slot in &self.pages {
            if gone == most {
                break;
            }
            if slot.load(Relaxed).is_null() {
                continue;
            }
            if let Some(page) = NonNull::new(slot.xchg(ptr::null_mut(), Full)) {
                // SAFETY: The slot's reference is ours now, and is not used after this.
                unsafe { bindings::rsiw_put_page(page.as_ptr()) };
                gone = gone.wrapping_add(1);
            }
        }
        gone
    }
}

/// The buffers kept by all CPUs.
static POOL: [Kept; CPUS] = [const {
    Kept {
        pages: [const { Atomic::new(ptr::null_mut()) }; KEPT],
        next: Atomic::new(0),
    }
}; CPUS];

/// The place of this CPU; being moved to another one afterwards does no harm.
fn kept() -> Option<&'static Kept> {
    // SAFETY: Reads a number; allowed anywhere.
    let cpu = unsafe { bindings::rsiw_cpu() } as usize;
    POOL.get(cpu.checked_rem(CPUS)?)
}

/// Which of the buffers that are kept is used next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Each in its turn. Where the receiver is on another CPU of this machine, the one used last is
    /// in that CPU's cache. To take it back from there is slow.
    InTurn,
    /// Always the first that is free. Where the receiver works on this CPU, few go round, and
    /// leave more of the cache to what is sent.
    First,
}

/// A buffer for bursts, 4 to 32 KiB, or a page where pages are longer.
///
/// # Invariants
///
/// `page` is the first of `1 << order` pages of one block, `data` is its address, and one reference
/// to it is owned. Other references are TCP's, which only reads, and only the first `lent` octets.
/// Code that looks at pages, and at no octet of them, may have one for a short time
/// (`folio_try_get()`). `lent` and `unused` together are not above the size of the block.
pub(crate) struct BurstBuf {
    /// The block.
    page: NonNull<bindings::page>,
    /// Its address.
    data: NonNull<u8>,
    /// Octets that TCP may have references to.
    lent: u32,
    /// Octets at the end that are not used.
    unused: u16,
    /// Its size as a power of two, in pages.
    order: u8,
}

// SAFETY: Pages belong to no thread.
unsafe impl Send for BurstBuf {}
// SAFETY: A shared reference only reads.
unsafe impl Sync for BurstBuf {}

impl BurstBuf {
    /// A buffer without another reference; its content is undefined but initialized. Any context
    /// with interrupts on; does not sleep. `None`: no memory.
    pub(crate) fn get(reuse: Reuse) -> Option<Self> {
        Self::recycled(reuse).or_else(Self::allocated)
    }

    /// One that this CPU kept, and that TCP has let go of.
    fn recycled(reuse: Reuse) -> Option<Self> {
        let kept = kept()?;
        let mut next = match reuse {
            Reuse::InTurn => kept.next.load(Relaxed),
            Reuse::First => 0,
        };
        let (before, after) = kept.pages.split_at_checked(next as usize % KEPT)?;
        for slot in [after, before].into_iter().flatten() {
            next = next.wrapping_add(1);
            if slot.load(Relaxed).is_null() {
                continue;
            }
            let Some(page) = NonNull::new(slot.xchg(ptr::null_mut(), Full)) else {
                continue;
            };
            // SAFETY: The slot's reference to a block of `ORDER` is ours now.
            let buf = unsafe { Self::from_page(page, ORDER) };
            if buf.is_exclusive() {
                kept.next.store(next, Relaxed);
                return Some(buf);
            }
            // Back to where it was: it is the next to be free.
            buf.keep_in(slot);
        }
        None
    }

    /// A new one, smaller if there is no large block.
    fn allocated() -> Option<Self> {
        let gfp = bindings::GFP_ATOMIC | bindings::__GFP_NOWARN | bindings::__GFP_ZERO;
        for order in [ORDER, order_of(BLOCK / 4), 0] {
            // SAFETY: Any flags and order are fine; the helper makes it one block.
            let page = unsafe { bindings::rsiw_alloc_block(gfp, order) };
            if let Some(page) = NonNull::new(page) {
                // SAFETY: The reference to a block of `order` that was just made.
                return Some(unsafe { Self::from_page(page, order) });
            }
        }
        None
    }

    /// Wraps a block.
    ///
    /// # Safety
    ///
    /// The caller gives a reference to a block of `1 << order` initialized pages without other
    /// writers. There is no other reader either, unless the value is not written to.
    unsafe fn from_page(page: NonNull<bindings::page>, order: u32) -> Self {
        // SAFETY: A page of the kernel's own address space has an address.
        let data = unsafe { bindings::rsiw_page_address(page.as_ptr()) };
        // INVARIANT: As this function's contract says.
        Self {
            page,
            // SAFETY: As above: the address is not null.
            data: unsafe { NonNull::new_unchecked(data.cast()) },
            lent: 0,
            unused: 0,
            order: order as u8,
        }
    }

    /// Octets of the buffer that are used: all, unless [`Self::end_at`] left some out.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.size().wrapping_sub(u32::from(self.unused)) as usize
    }

    /// Octets of the block.
    #[inline]
    fn size(&self) -> u32 {
        (PAGE_SIZE as u32).wrapping_shl(u32::from(self.order))
    }

    /// Octets at the end of the buffer that are not used.
    pub(crate) fn unused(&self) -> u32 {
        u32::from(self.unused)
    }

    /// The buffer ends at `end`: up to 64 KiB behind it are not used. Nothing that TCP was lent is left
    /// out.
    pub(in crate::sys) fn end_at(&mut self, end: usize) {
        let end = u32::try_from(end).unwrap_or(u32::MAX).max(self.lent);
        // INVARIANT: What TCP was lent lies in front of `end`.
        self.unused = u16::try_from(self.size().saturating_sub(end)).unwrap_or(self.unused);
    }

    /// Whether TCP has no reference (any more). A temporary reference by a scanner of pages
    /// makes it `false`, too, so nothing may depend on it becoming `true` in time.
    #[inline]
    pub(crate) fn is_exclusive(&self) -> bool {
        // SAFETY: By the type invariant a page.
        unsafe { bindings::rsiw_page_is_exclusive(self.page.as_ptr()) }
    }

    /// Octets from the beginning that TCP was lent.
    #[inline]
    pub(crate) fn lent(&self) -> usize {
        self.lent as usize
    }

    /// The octets behind those that TCP was lent, to be written.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let len = self.capacity().saturating_sub(self.lent());
        // SAFETY: By the type invariant the pages are one piece of initialized memory, of which TCP
        // reads the first `lent` octets only. `&mut self` excludes other uses of the driver.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr().add(self.lent()), len) }
    }

    /// TCP gets references to octets up to `end`, which lie in the buffer.
    #[inline]
    pub(in crate::sys) fn lend(&mut self, end: usize) {
        // INVARIANT: More are lent, not more than there are.
        self.lent = self.lent.max(end.min(self.capacity()) as u32);
    }

    /// A part of the buffer; `None` if it does not lie in it.
    #[inline]
    pub(crate) fn part(&self, off: usize, len: usize) -> Option<&[u8]> {
        // SAFETY: By the type invariant the pages are one piece of initialized memory. There are no
        // writes to it while there is a shared reference.
        let all = unsafe { slice::from_raw_parts(self.data.as_ptr(), self.capacity()) };
        all.get(off..off.checked_add(len)?)
    }

    /// The block.
    #[inline]
    pub(in crate::sys) fn page(&self) -> *mut bindings::page {
        self.page.as_ptr()
    }

    /// Gives the reference to `slot`, or up if there is another one meanwhile.
    fn keep_in(self, slot: &Atomic<*mut bindings::page>) -> bool {
        let kept = slot
            .cmpxchg(ptr::null_mut(), self.page.as_ptr(), Full)
            .is_ok();
        if kept {
            core::mem::forget(self);
        }
        kept
    }
}

impl Drop for BurstBuf {
    fn drop(&mut self) {
        if u32::from(self.order) == ORDER {
            for slot in kept().iter().flat_map(|kept| &kept.pages) {
                if slot.load(Relaxed).is_null()
                    && slot
                        .cmpxchg(ptr::null_mut(), self.page.as_ptr(), Full)
                        .is_ok()
                {
                    return;
                }
            }
        }
        // SAFETY: By the type invariant one reference is owned; it is not used after this.
        unsafe { bindings::rsiw_put_page(self.page.as_ptr()) };
    }
}

/// Pages that all CPUs keep; for reclaim.
extern "C" fn count_pages() -> usize {
    let blocks: usize = POOL.iter().map(Kept::count).sum();
    blocks << ORDER
}

/// Gives up about `pages` of what all CPUs keep, at least a block; how many there were. For
/// reclaim, which may be entered with any lock held: takes none, and does not sleep.
extern "C" fn shrink_pages(pages: usize) -> usize {
    let most = pages.div_ceil(1 << ORDER);
    let shrink = |gone: usize, kept: &Kept| {
        let left = most.saturating_sub(gone);
        gone.saturating_add(kept.shrink(left))
    };
    POOL.iter().fold(0, shrink) << ORDER
}

/// The life of the buffers that CPUs keep: gives it back when the module ends.
pub(crate) struct Pool {
    /// Has reclaim take buffers away.
    shrinker: NonNull<bindings::shrinker>,
}

// SAFETY: The shrinker is only freed, which any thread may do.
unsafe impl Send for Pool {}
// SAFETY: A shared reference gives access to nothing.
unsafe impl Sync for Pool {}

impl Pool {
    /// To be dropped when no buffer is in use any more. Process context; sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Both functions are there as long as the module, and may be called anywhere.
        let shrinker =
            unsafe { bindings::rsiw_shrinker_new(Some(count_pages), Some(shrink_pages)) };
        Ok(Self {
            shrinker: NonNull::new(shrinker).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: Made by `new`, not used after this; process context.
        unsafe { bindings::rsiw_shrinker_free(self.shrinker.as_ptr()) };
        shrink_pages(usize::MAX);
    }
}

#[kunit_tests(rsiw_sys_pages)]
mod tests {
    use super::*;
    use crate::sys::sync::context::BhGuard;

    #[test]
    fn a_buffer_has_32_kib_whatever_a_page_has() -> Result {
        assert_eq!(BLOCK as usize, PAGE_SIZE.max(32_768));
        assert!(ORDER == 3 || PAGE_SIZE != 4096);
        let octets = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?.capacity();
        assert!(octets <= PAGE_SIZE.max(32_768));
        Ok(())
    }

    #[test]
    fn what_tcp_was_lent_is_not_written() -> Result {
        let mut buf = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        let len = buf.capacity();
        assert!(len >= PAGE_SIZE);
        assert_eq!(buf.space().len(), len);
        buf.space().fill(0x77);
        buf.lend(100);
        assert_eq!(buf.lent(), 100);
        assert_eq!(buf.space().len(), len - 100);
        buf.space().fill(0x88);
        assert_eq!(buf.part(99, 2), Some(&[0x77, 0x88][..]));
        buf.lend(10);
        assert_eq!(buf.lent(), 100);
        buf.lend(usize::MAX);
        assert!(buf.space().is_empty());
        assert!(buf.part(len, 1).is_none());
        assert!(buf.part(1, usize::MAX).is_none());
        Ok(())
    }

    /// Compaction and others take a reference to any page for a moment.
    #[test]
    fn a_transient_reference_leaves_a_buffer_writable() -> Result {
        let mut buf = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        let len = buf.capacity();
        // SAFETY: The page is ours.
        unsafe { bindings::rsiw_test_get_page(buf.page()) };
        assert!(!buf.is_exclusive());
        assert_eq!(buf.space().len(), len);
        // SAFETY: The reference taken above.
        unsafe { bindings::rsiw_put_page(buf.page()) };
        assert!(buf.is_exclusive());
        Ok(())
    }

    #[test]
    fn reclaim_takes_what_is_kept() -> Result {
        // The test stays on one CPU, and so with its buffers.
        let _bh = BhGuard::new();
        let buf = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        if u32::from(buf.order) != ORDER {
            // Memory is too fragmented for what is kept.
            return Ok(());
        }
        keep_none();
        let page = buf.page();
        // SAFETY: The page is ours.
        unsafe { bindings::rsiw_test_get_page(page) };
        let count = || kept().map_or(0, Kept::count);
        drop(buf);
        assert_eq!(count(), 1);
        // Other CPUs may keep and take buffers meanwhile.
        assert!(count_pages() >= 1 << ORDER);
        assert!(shrink_pages(usize::MAX) >= 1 << ORDER);
        assert_eq!(count(), 0);
        // SAFETY: The page has our reference of above, the last one.
        assert!(unsafe { bindings::rsiw_page_is_exclusive(page) });
        // SAFETY: As above.
        unsafe { bindings::rsiw_put_page(page) };
        Ok(())
    }

    /// Gives up what this CPU keeps: then there is none but what a test has made.
    fn keep_none() {
        kept().map(|kept| kept.shrink(usize::MAX));
    }

    #[test]
    fn is_used_again_but_not_while_tcp_has_it() -> Result {
        // The test stays on one CPU, and so with its buffers.
        let _bh = BhGuard::new();
        keep_none();
        let first = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        if u32::from(first.order) != ORDER {
            // Memory is too fragmented for what is kept.
            return Ok(());
        }
        let page = first.page();
        drop(first);
        let again = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        assert!(again.page() == page);
        // SAFETY: The page is ours.
        unsafe { bindings::rsiw_test_get_page(page) };
        drop(again);
        let other = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        assert!(other.page() != page);
        // SAFETY: The reference taken above; the buffer itself is kept.
        unsafe { bindings::rsiw_put_page(page) };
        let again = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        assert!(again.page() == page);
        Ok(())
    }

    #[test]
    fn buffers_take_turns() -> Result {
        let _bh = BhGuard::new();
        keep_none();
        let (one, two) = (
            BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?,
            BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?,
        );
        if u32::from(one.order) != ORDER || u32::from(two.order) != ORDER {
            // Memory is too fragmented for what is kept.
            return Ok(());
        }
        let pages = [one.page(), two.page()];
        drop((one, two));
        let mut before = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?.page();
        for _ in 0..2 * KEPT {
            let page = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?.page();
            assert!(pages.contains(&page));
            assert!(page != before);
            before = page;
        }
        Ok(())
    }

    #[test]
    fn the_first_one_is_used_again_at_once() -> Result {
        let _bh = BhGuard::new();
        keep_none();
        let get = || BurstBuf::get(Reuse::First).ok_or(ENOMEM);
        let (one, two) = (get()?, get()?);
        if u32::from(one.order) != ORDER || u32::from(two.order) != ORDER {
            // Memory is too fragmented for what is kept.
            return Ok(());
        }
        let [first, second] = [one.page(), two.page()];
        drop(one);
        drop(two);
        for _ in 0..2 * KEPT {
            assert!(get()?.page() == first);
        }
        // While TCP has it, the next one is.
        // SAFETY: The page is kept, so it is there.
        unsafe { bindings::rsiw_test_get_page(first) };
        assert!(get()?.page() == second);
        // SAFETY: The reference taken above.
        unsafe { bindings::rsiw_put_page(first) };
        assert!(get()?.page() == first);
        Ok(())
    }

    #[test]
    fn keeps_what_two_streams_have_on_their_way() -> Result {
        const TWO_STREAMS: usize = 64;
        let _bh = BhGuard::new();
        let mut held = [const { None }; TWO_STREAMS];
        let mut pages = [ptr::null_mut(); TWO_STREAMS];
        for (buf, page) in held.iter_mut().zip(&mut pages) {
            let got = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
            if u32::from(got.order) != ORDER {
                // Memory is too fragmented for what is kept.
                return Ok(());
            }
            *page = got.page();
            *buf = Some(got);
        }
        drop(held);
        let mut held = [const { None }; TWO_STREAMS];
        for buf in &mut held {
            let again = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
            assert!(pages.contains(&again.page()));
            *buf = Some(again);
        }
        Ok(())
    }
}
