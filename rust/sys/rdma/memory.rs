// SPDX-License-Identifier: GPL-2.0

//! The memory behind registered regions and local keys.
//!
//! A region is made of one of
//! - [`UserPages`]: pages of a process, pinned by `ib_umem`,
//! - [`Segments`]: pieces of kernel memory from a scatterlist (fast registration),
//! - [`KernelMemory`]: all of it, for the local DMA key and DMA regions.
//!
//! The device has no DMA hardware, so `ib_core` hands kernel virtual addresses through where others
//! get DMA addresses (`ib_uses_virt_dma()`).
//!
//! C headers: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h),
//! [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

mod mover;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use core::ptr::NonNull;

use kernel::{
    alloc::Flags,
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*, //
};

use self::mover::{
    In,
    Mover,
    Out, //
};
use crate::sys::{
    bindings,
    mm::octets::Octets, //
};

/// Pages of a process, pinned for as long as this value lives.
///
/// # Invariants
///
/// `umem` is a pinned `ib_umem`, and `pages` are all of its pages in order. The first octet in use
/// is at `first` of the first page.
pub(crate) struct UserPages {
    /// The pinned memory.
    umem: NonNull<bindings::ib_umem>,
    /// The pages.
    pages: KVVec<*mut bindings::page>,
    /// Offset of the first octet in the first page.
    first: usize,
    /// Octets in all.
    len: u64,
    /// They were pinned to be written to. Others are those of a read-only mapping, or shared with
    /// other processes until they write to them.
    writable: bool,
}

// SAFETY: The umem may be used and released by any task; pages have no owner.
unsafe impl Send for UserPages {}
// SAFETY: Only copies are made through a shared reference, which tolerate the accesses of others.
unsafe impl Sync for UserPages {}

impl UserPages {
    /// Pins `len` octets at `start` of the current process; `access` are `enum ib_access_flags`.
    ///
    /// Process context; sleeps. Subject to `RLIMIT_MEMLOCK`; fails with `EFAULT` where the process
    /// itself lacks the rights.
    pub(super) fn pin(
        device: *mut bindings::ib_device,
        start: u64,
        len: u64,
        access: u32,
    ) -> Result<Self> {
        // SAFETY: `device` is the one whose verb is being executed; any range may be asked for.
        let umem = unsafe { bindings::rsiw_umem_get(device, start, len, access as c_int) };
        let umem = NonNull::new(from_err_ptr(umem)?).ok_or(ENOMEM)?;
        let mut this = Self {
            umem,
            pages: KVVec::new(),
            first: (start as usize) % PAGE_SIZE,
            len,
            // SAFETY: A pinned umem.
            writable: unsafe { bindings::rsiw_umem_writable(umem.as_ptr()) },
        };
        // SAFETY: A pinned umem.
        let n = unsafe { bindings::rsiw_umem_num_pages(umem.as_ptr()) };
        // Up to gigabytes, with which the process itself is charged.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
        this.pages = KVVec::from_elem(core::ptr::null_mut(), n, flags)?;
        // SAFETY: A pinned umem, and an array of `n` elements.
        let found = unsafe { bindings::rsiw_umem_pages(umem.as_ptr(), this.pages.as_mut_ptr(), n) };
        // INVARIANT: Checked here that there are as many pages as the range needs.
        let need = (len as usize)
            .checked_add(this.first)
            .ok_or(EINVAL)?
            .div_ceil(PAGE_SIZE);
        if found < need || this.pages.iter().take(need).any(|page| page.is_null()) {
            return Err(EFAULT);
        }
        Ok(this)
    }

    /// Moves octets from `off` on.
    #[inline]
    fn walk(&self, off: u64, mut mover: impl Mover) -> Result {
        let end = off.checked_add(mover.left() as u64).ok_or(EFAULT)?;
        if end > self.len {
            return Err(EFAULT);
        }
        let mut at = (off as usize).wrapping_add(self.first);
        while mover.left() > 0 {
            let page = *self.pages.get(at / PAGE_SIZE).ok_or(EFAULT)?;
            let within = at % PAGE_SIZE;
            let len = mover.left().min(PAGE_SIZE.wrapping_sub(within));
            // SAFETY: By the invariant of the type a pinned page.
            let base = unsafe { bindings::kmap_local_page(page) };
            // SAFETY: `within + len <= PAGE_SIZE` octets of the mapped page.
            unsafe { mover.step(base.cast::<u8>().add(within), len) };
            // SAFETY: The last mapping made here.
            unsafe { bindings::kunmap_local(base) };
            at = at.wrapping_add(len);
        }
        Ok(())
    }
}

impl Drop for UserPages {
    /// Sleeps: unpinning pages marks them dirty.
    fn drop(&mut self) {
        // SAFETY: By the invariant of the type; the pages are not used after this.
        unsafe { bindings::ib_umem_release(self.umem.as_ptr()) }
    }
}

/// A piece of kernel memory.
#[derive(Clone, Copy)]
struct Segment {
    /// The kernel address of the piece.
    addr: u64,
    /// Offset behind its last octet from the start of the region.
    end: u64,
}

/// Pieces of kernel memory, in order, as one range.
///
/// # Invariants
///
/// Each segment is kernel memory which the user of the region leaves to the device as long as the
/// region is valid. `end` of the segments does not decrease.
pub(crate) struct Segments {
    /// The pieces; the capacity is that of the region.
    list: KVec<Segment>,
}

impl Segments {
    /// An empty list for `max` pieces. `flags` decide about the context: the memory is never
    /// `vmalloc()`'s, which is not allowed in atomic context.
    pub(crate) fn with_capacity(max: usize, flags: Flags) -> Result<Self> {
        Ok(Self {
            list: KVec::with_capacity(max, flags)?,
        })
    }

    /// Octets in all.
    pub(crate) fn total(&self) -> u64 {
        self.list.last().map_or(0, |last| last.end)
    }

    /// Takes the pieces of a mapped scatterlist behind its first `offset` octets, as many as fit
    /// into `max`. Gives the number of entries taken and the first address.
    ///
    /// Any context.
    ///
    /// # Safety
    ///
    /// `sg` is a list of `nents` entries mapped for an `ib_device` with virtual DMA. Its memory
    /// stays with the device as long as the verbs demand that of the user of a region.
    pub(super) unsafe fn fill(
        &mut self,
        sg: *mut bindings::scatterlist,
        nents: usize,
        offset: u32,
        max: usize,
    ) -> (usize, u64) {
        self.list.clear();
        let mut sg = sg;
        let mut skip = u64::from(offset);
        let mut total: u64 = 0;
        for _ in 0..nents.min(max) {
            if sg.is_null() {
                break;
            }
            // SAFETY: An entry of the list.
            let (addr, len) = unsafe {
                (
                    bindings::rsiw_sg_dma_address(sg),
                    u64::from(bindings::rsiw_sg_dma_len(sg)),
                )
            };
            // An offset beyond the first entry is an error of the caller: nothing is taken.
            let Some(used) = len.checked_sub(skip) else {
                break;
            };
            total = total.wrapping_add(used);
            let segment = Segment {
                addr: addr.wrapping_add(skip),
                end: total,
            };
            if self.list.push_within_capacity(segment).is_err() {
                break;
            }
            skip = 0;
            // SAFETY: An entry of the list.
            sg = unsafe { bindings::sg_next(sg) };
        }
        (
            self.list.len(),
            self.list.first().map_or(0, |first| first.addr),
        )
    }

    /// The pieces of `buffers`, for tests, which keep the buffers as long as the list.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn fill_for_test(&mut self, buffers: &[KVec<u8>]) -> Result {
        self.list.clear();
        let mut total: u64 = 0;
        for buffer in buffers {
            total = total.wrapping_add(buffer.len() as u64);
            let addr = buffer.as_ptr() as u64;
            let segment = Segment { addr, end: total };
            self.list
                .push_within_capacity(segment)
                .map_err(|_| ENOSPC)?;
        }
        Ok(())
    }

    /// Moves octets from `off` on.
    #[inline]
    fn walk(&self, off: u64, mut mover: impl Mover) -> Result {
        let end = off.checked_add(mover.left() as u64).ok_or(EFAULT)?;
        if end > self.total() {
            return Err(EFAULT);
        }
        let mut at = off;
        let mut index = self.list.partition_point(|segment| segment.end <= off);
        while mover.left() > 0 {
            let segment = self.list.get(index).ok_or(EFAULT)?;
            let start = match index.checked_sub(1) {
                Some(before) => self.list.get(before).ok_or(EFAULT)?.end,
                None => 0,
            };
            let within = at.checked_sub(start).ok_or(EFAULT)?;
            let here = segment.end.checked_sub(at).ok_or(EFAULT)?;
            let len = (mover.left() as u64).min(here) as usize;
            let addr = segment.addr.wrapping_add(within) as usize as *mut u8;
            // SAFETY: By the invariant of the type, inside of one segment.
            unsafe { mover.step(addr, len) };
            at = at.wrapping_add(len as u64);
            index = index.wrapping_add(1);
        }
        Ok(())
    }
}

/// The right to take an address for one of kernel memory.
///
/// # Invariants
///
/// Made only where the addresses come from a kernel user of the verbs. That promises that the
/// memory of its work requests and DMA regions is there until they are done. A
/// [`Driver`](super::driver::Driver) promises to use it for these only, and until then.
#[derive(Clone, Copy)]
pub(crate) struct KernelMemory(());

impl KernelMemory {
    /// Takes over the promise.
    ///
    /// # Safety
    ///
    /// The addresses used with this value come from a kernel user of the verbs.
    pub(super) unsafe fn new() -> Self {
        // INVARIANT: The caller's promise.
        Self(())
    }

    /// Moves octets from `addr` on.
    #[inline]
    fn walk(self, addr: u64, mut mover: impl Mover) -> Result {
        let len = mover.left();
        let end = addr.checked_add(len as u64).ok_or(EFAULT)?;
        // Kernel addresses are the upper half; anything else is a stray of the kernel user. But
        // User-mode Linux lives at low addresses, as its processes do in others.
        if cfg!(not(CONFIG_UML)) && ((addr as i64) >= 0 || (end as i64) > 0) {
            return Err(EFAULT);
        }
        // SAFETY: By the invariant of the type.
        unsafe { mover.step(addr as usize as *mut u8, len) };
        Ok(())
    }
}

/// The memory of a region.
pub(crate) enum Backing {
    /// Pages of a process.
    User(UserPages),
    /// Pieces of kernel memory.
    Segments(Segments),
    /// Kernel memory by its address.
    Kernel(KernelMemory),
}

impl Backing {
    /// Copies from the region, `off` octets from its start (for kernel memory: the address).
    ///
    /// Any context. Fails with `EFAULT` beyond the end; nothing is copied then.
    #[inline]
    pub(crate) fn read(&self, off: u64, dst: &mut [u8]) -> Result {
        match self {
            Self::User(pages) => pages.walk(off, Out(dst)),
            Self::Segments(segments) => segments.walk(off, Out(dst)),
            Self::Kernel(memory) => memory.walk(off, Out(dst)),
        }
    }

    /// Copies into the region; as [`read`](Self::read). Fails with `EACCES` where the pages were pinned
    /// to be read only.
    #[inline]
    pub(crate) fn write(&self, off: u64, src: Octets<'_>) -> Result {
        match self {
            Self::User(pages) if !pages.writable => Err(EACCES),
            Self::User(pages) => pages.walk(off, In(src)),
            Self::Segments(segments) => segments.walk(off, In(src)),
            Self::Kernel(memory) => memory.walk(off, In(src)),
        }
    }
}

impl KernelMemory {
    /// Copies from kernel memory at `addr`.
    #[inline]
    pub(crate) fn read(self, addr: u64, dst: &mut [u8]) -> Result {
        self.walk(addr, Out(dst))
    }

    /// Copies to kernel memory at `addr`.
    #[inline]
    pub(crate) fn write(self, addr: u64, src: Octets<'_>) -> Result {
        self.walk(addr, In(src))
    }
}
