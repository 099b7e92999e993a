// SPDX-License-Identifier: GPL-2.0

//! Memory for bursts of FPDUs, which TCP sends without a copy.
//!
//! A burst buffer is one block of contiguous pages, filled from its beginning to its end. A burst
//! may continue in the next buffer ([`super::blocks`]). TCP takes references to the pages of the
//! part lent to it. The driver does not write to that part again, only to the part after it. When
//! the peer has acknowledged all octets, TCP drops the references, and the block can be reused.
//! Each CPU keeps some buffers for reuse. The choice among them depends on the CPU of the receiver
//! (docs/performance/analysis.md). A shrinker frees kept buffers.
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

/// The length of a buffer in octets: 32 KiB, or a page where pages are longer. A buffer is shorter
/// where memory is fragmented.
///
/// A peer pins less than two buffers of unaccounted memory ([`super::blocks`]): 64 KiB where a page
/// has up to 32 KiB.
pub(crate) const BLOCK: u32 = if PAGE_SIZE > 32 << 10 {
    PAGE_SIZE as u32
} else {
    32 << 10
};

/// The allocation order of `octets`: the binary logarithm of their pages.
const fn order_of(octets: u32) -> u32 {
    let pages = (octets as usize).div_ceil(PAGE_SIZE);
    pages.next_power_of_two().trailing_zeros()
}

/// The allocation order of a whole buffer.
const ORDER: u32 = order_of(BLOCK);

/// The number of buffers that a CPU keeps, 2 MiB or more: the octets in flight of two streams
/// over loopback. With fewer, buffers that TCP still holds fill all slots, and each burst allocates
/// a block.
const KEPT: usize = 64;

const _: () = assert!(PAGE_SIZE << ORDER == BLOCK as usize);

/// The number of caches, one for each CPU; on machines with more CPUs, CPUs share caches.
const CPUS: usize = 64;

/// The buffers that a CPU keeps.
#[repr(align(64))]
struct Kept {
    /// References to pages, or null.
    pages: [Atomic<*mut bindings::page>; KEPT],
    /// The slot after the last one used, modulo the number of slots. Not locked: a stale value only
    /// lengthens the search.
    next: Atomic<u32>,
}

impl Kept {
    /// The number of kept buffers.
    fn count(&self) -> usize {
        let is_kept = |slot: &&Atomic<*mut bindings::page>| !slot.load(Relaxed).is_null();
        self.pages.iter().filter(is_kept).count()
    }

    /// Frees up to `most` buffers; returns the number freed. Any context; takes no lock.
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
                // SAFETY: The exchange has moved the slot's reference here; it is not used after
                // this.
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

/// The cache of this CPU. A later migration is harmless, since the slots are atomic.
fn kept() -> Option<&'static Kept> {
    // SAFETY: The helper reads a number, in any context.
    let cpu = unsafe { bindings::rsiw_cpu() } as usize;
    POOL.get(cpu.checked_rem(CPUS)?)
}

/// The choice among the kept buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Round robin, for a receiver on another CPU of this machine. The buffer used last is in that
    /// CPU's cache, from which a transfer is slow.
    InTurn,
    /// The first free buffer, for a receiver on this CPU. Few buffers are in use then, and leave
    /// more of the cache to the payload.
    First,
}

/// A buffer for bursts, 4 to 32 KiB, or a page where pages are longer.
///
/// # Invariants
///
/// `page` is the first of `1 << order` pages of one block, `data` is its address, and the value
/// owns one reference to it. TCP has the other references; it only reads the first `lent` octets.
/// Code that accesses no octet may have a reference for a short time (`folio_try_get()`). The sum
/// of `lent` and `unused` is at most the size of the block.
pub(crate) struct BurstBuf {
    /// The first page of the block.
    page: NonNull<bindings::page>,
    /// The address of the block.
    data: NonNull<u8>,
    /// The octets from the beginning that TCP may have references to.
    lent: u32,
    /// Unused octets at the end.
    unused: u16,
    /// The binary logarithm of the number of pages.
    order: u8,
}

// SAFETY: The page reference can be used and dropped on any CPU.
unsafe impl Send for BurstBuf {}
// SAFETY: A shared reference only reads.
unsafe impl Sync for BurstBuf {}

impl BurstBuf {
    /// Takes a buffer without another reference; its content is arbitrary but initialized. Any
    /// context with interrupts on; does not sleep. `None`: no memory.
    pub(crate) fn get(reuse: Reuse) -> Option<Self> {
        Self::recycled(reuse).or_else(Self::allocated)
    }

    /// A kept buffer of this CPU without a reference of TCP.
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
            // SAFETY: The exchange has moved the slot's reference to a block of `ORDER` here.
            let buf = unsafe { Self::from_page(page, ORDER) };
            if buf.is_exclusive() {
                kept.next.store(next, Relaxed);
                return Some(buf);
            }
            // The buffer returns to its slot: TCP releases it before the buffers used later.
            buf.keep_in(slot);
        }
        None
    }

    /// A new buffer, smaller if there is no free block of `ORDER`.
    fn allocated() -> Option<Self> {
        let gfp = bindings::GFP_ATOMIC | bindings::__GFP_NOWARN | bindings::__GFP_ZERO;
        for order in [ORDER, order_of(BLOCK / 4), 0] {
            // SAFETY: The helper accepts any flags and order, and returns one block.
            let page = unsafe { bindings::rsiw_alloc_block(gfp, order) };
            if let Some(page) = NonNull::new(page) {
                // SAFETY: The allocation above returned the only reference to a block of `order`.
                return Some(unsafe { Self::from_page(page, order) });
            }
        }
        None
    }

    /// Wraps a block.
    ///
    /// # Safety
    ///
    /// The caller passes a reference to a block of `1 << order` initialized pages without other
    /// writers. If there are other readers, the value is not written to.
    unsafe fn from_page(page: NonNull<bindings::page>, order: u32) -> Self {
        // SAFETY: The page is not in high memory, so it has a kernel address.
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

    /// The usable octets of the buffer: all, unless [`Self::end_at`] has cut it.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.size().wrapping_sub(u32::from(self.unused)) as usize
    }

    /// The length of the block in octets.
    #[inline]
    fn size(&self) -> u32 {
        (PAGE_SIZE as u32).wrapping_shl(u32::from(self.order))
    }

    /// The unused octets at the end of the buffer.
    pub(crate) fn unused(&self) -> u32 {
        u32::from(self.unused)
    }

    /// Cuts the buffer at `end`, or at the end of the lent octets if that is later. No effect if
    /// 64 KiB or more would be cut.
    pub(in crate::sys) fn end_at(&mut self, end: usize) {
        let end = u32::try_from(end).unwrap_or(u32::MAX).max(self.lent);
        // INVARIANT: `end` is at least `lent`.
        self.unused = u16::try_from(self.size().saturating_sub(end)).unwrap_or(self.unused);
    }

    /// Whether the value has the only reference. A temporary reference of a page scanner makes the
    /// result `false` as well, so no caller may rely on `true` within a bounded time.
    #[inline]
    pub(crate) fn is_exclusive(&self) -> bool {
        // SAFETY: By the type invariant `page` is a page with a reference.
        unsafe { bindings::rsiw_page_is_exclusive(self.page.as_ptr()) }
    }

    /// The number of octets from the beginning that were lent to TCP.
    #[inline]
    pub(crate) fn lent(&self) -> usize {
        self.lent as usize
    }

    /// The writable octets: those after the lent ones.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let len = self.capacity().saturating_sub(self.lent());
        // SAFETY: By the type invariant the pages are contiguous initialized memory, of which TCP
        // reads only the first `lent` octets. `&mut self` excludes other uses of the driver.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr().add(self.lent()), len) }
    }

    /// Marks the octets up to `end`, at most the capacity, as lent to TCP.
    #[inline]
    pub(in crate::sys) fn lend(&mut self, end: usize) {
        // INVARIANT: `lent` grows, up to the capacity.
        self.lent = self.lent.max(end.min(self.capacity()) as u32);
    }

    /// `len` octets of the buffer from `off`; `None` if the range leaves the buffer.
    #[inline]
    pub(crate) fn part(&self, off: usize, len: usize) -> Option<&[u8]> {
        // SAFETY: By the type invariant the pages are contiguous initialized memory. No context
        // writes to it while there is a shared reference.
        let all = unsafe { slice::from_raw_parts(self.data.as_ptr(), self.capacity()) };
        all.get(off..off.checked_add(len)?)
    }

    /// The first page of the block.
    #[inline]
    pub(in crate::sys) fn page(&self) -> *mut bindings::page {
        self.page.as_ptr()
    }

    /// Moves the reference to `slot`, or drops it if the slot is in use; returns whether it moved.
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

/// The number of pages that all CPUs keep, for the shrinker. Any context.
extern "C" fn count_pages() -> usize {
    let blocks: usize = POOL.iter().map(Kept::count).sum();
    blocks << ORDER
}

/// Frees kept pages, at most `pages` rounded up to whole blocks; returns the number freed. For the
/// shrinker, which may run under any lock: takes no lock, and does not sleep.
extern "C" fn shrink_pages(pages: usize) -> usize {
    let most = pages.div_ceil(1 << ORDER);
    let shrink = |gone: usize, kept: &Kept| {
        let left = most.saturating_sub(gone);
        gone.saturating_add(kept.shrink(left))
    };
    POOL.iter().fold(0, shrink) << ORDER
}

/// The lifetime of the kept buffers: dropping the value frees them at the end of the module.
pub(crate) struct Pool {
    /// The shrinker of the kept buffers.
    shrinker: NonNull<bindings::shrinker>,
}

// SAFETY: The shrinker is only freed, which any thread may do.
unsafe impl Send for Pool {}
// SAFETY: The type has no function on a shared reference.
unsafe impl Sync for Pool {}

impl Pool {
    /// Registers the shrinker. The caller drops the value after the last buffer. Process context;
    /// sleeps. `ENOMEM` without memory.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Both functions may be called in any context. `drop` frees the shrinker before
        // their code is unloaded.
        let shrinker =
            unsafe { bindings::rsiw_shrinker_new(Some(count_pages), Some(shrink_pages)) };
        Ok(Self {
            shrinker: NonNull::new(shrinker).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: `new` has made the shrinker, which is not used after this; process context.
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

    /// Compaction and other page scanners take temporary references to any page.
    #[test]
    fn a_transient_reference_leaves_a_buffer_writable() -> Result {
        let mut buf = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        let len = buf.capacity();
        // SAFETY: The test has a reference to the page.
        unsafe { bindings::rsiw_test_get_page(buf.page()) };
        assert!(!buf.is_exclusive());
        assert_eq!(buf.space().len(), len);
        // SAFETY: Drops the reference taken above.
        unsafe { bindings::rsiw_put_page(buf.page()) };
        assert!(buf.is_exclusive());
        Ok(())
    }

    #[test]
    fn reclaim_takes_what_is_kept() -> Result {
        // The guard keeps the test on one CPU, and so on one cache.
        let _bh = BhGuard::new();
        let buf = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        if u32::from(buf.order) != ORDER {
            // Memory is too fragmented for a block of `ORDER`, and only those are kept.
            return Ok(());
        }
        keep_none();
        let page = buf.page();
        // SAFETY: The test has a reference to the page.
        unsafe { bindings::rsiw_test_get_page(page) };
        let count = || kept().map_or(0, Kept::count);
        drop(buf);
        assert_eq!(count(), 1);
        // Other CPUs may keep and take buffers concurrently.
        assert!(count_pages() >= 1 << ORDER);
        assert!(shrink_pages(usize::MAX) >= 1 << ORDER);
        assert_eq!(count(), 0);
        // SAFETY: The page has the reference taken above, the last one.
        assert!(unsafe { bindings::rsiw_page_is_exclusive(page) });
        // SAFETY: As above.
        unsafe { bindings::rsiw_put_page(page) };
        Ok(())
    }

    /// Frees the kept buffers of this CPU, so that only those of the test remain.
    fn keep_none() {
        kept().map(|kept| kept.shrink(usize::MAX));
    }

    #[test]
    fn is_used_again_but_not_while_tcp_has_it() -> Result {
        // The guard keeps the test on one CPU, and so on one cache.
        let _bh = BhGuard::new();
        keep_none();
        let first = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        if u32::from(first.order) != ORDER {
            // Memory is too fragmented for a block of `ORDER`, and only those are kept.
            return Ok(());
        }
        let page = first.page();
        drop(first);
        let again = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        assert!(again.page() == page);
        // SAFETY: The test has a reference to the page.
        unsafe { bindings::rsiw_test_get_page(page) };
        drop(again);
        let other = BurstBuf::get(Reuse::InTurn).ok_or(ENOMEM)?;
        assert!(other.page() != page);
        // SAFETY: Drops the reference taken above; the cache has another one.
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
            // Memory is too fragmented for a block of `ORDER`, and only those are kept.
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
            // Memory is too fragmented for a block of `ORDER`, and only those are kept.
            return Ok(());
        }
        let [first, second] = [one.page(), two.page()];
        drop(one);
        drop(two);
        for _ in 0..2 * KEPT {
            assert!(get()?.page() == first);
        }
        // While TCP has the first buffer, the second is used.
        // SAFETY: The cache has a reference to the page.
        unsafe { bindings::rsiw_test_get_page(first) };
        assert!(get()?.page() == second);
        // SAFETY: Drops the reference taken above.
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
                // Memory is too fragmented for a block of `ORDER`, and only those are kept.
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
