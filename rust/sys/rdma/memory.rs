// SPDX-License-Identifier: GPL-2.0

//! The memory behind registered regions and local keys, and copies from and to it.
//!
//! The memory of a region is one of these:
//! - [`UserPages`]: pages of a process, pinned by `ib_umem`
//! - [`Segments`]: kernel memory of a scatterlist (fast registration)
//! - [`KernelMemory`]: all kernel memory, for the local DMA key and DMA regions
//!
//! The device has no DMA hardware. So `ib_core` passes kernel virtual addresses in the place of DMA
//! addresses (`ib_uses_virt_dma()`).
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

/// Pages of a process, pinned until the value is dropped.
///
/// # Invariants
///
/// `umem` is a pinned `ib_umem`, and `pages` are the addresses of all of its pages in order. The
/// range begins at offset `first` of the first page.
pub(crate) struct UserPages {
    /// The pin of the pages.
    umem: NonNull<bindings::ib_umem>,
    /// The kernel addresses of the pages, in order. The device depends on a kernel without high
    /// memory (`INFINIBAND_VIRT_DMA`), so every page has an address.
    pages: KVVec<*mut c_void>,
    /// The offset of the first octet in the first page.
    first: usize,
    /// The length of the range in octets.
    len: u64,
    /// Whether the pages are pinned for writing. Other pages belong to a read-only mapping, or are
    /// shared with other processes until a write (copy on write).
    writable: bool,
}

// SAFETY: Any task may use and release an `ib_umem`; pages have no owner.
unsafe impl Send for UserPages {}
// SAFETY: A shared reference gives only copies, by operations that tolerate concurrent accesses
// (`Octets`).
unsafe impl Sync for UserPages {}

impl UserPages {
    /// Pins `len` octets at `start` of the current process. `access` are access flags (`enum
    /// ib_access_flags`). Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `EFAULT`: the process itself lacks the access rights. `ENOMEM`: the pages exceed
    /// `RLIMIT_MEMLOCK`, or there is no memory. `EINVAL`: the range is invalid.
    ///
    /// # Safety
    ///
    /// `device` is the device of the current verbs call.
    pub(super) unsafe fn pin(
        device: *mut bindings::ib_device,
        start: u64,
        len: u64,
        access: u32,
    ) -> Result<Self> {
        // SAFETY: By this function's contract `device` is the device of the current verbs call; the
        // function accepts any range.
        let umem = unsafe { bindings::rsiw_umem_get(device, start, len, access as c_int) };
        let umem = NonNull::new(from_err_ptr(umem)?).ok_or(ENOMEM)?;
        let mut this = Self {
            umem,
            pages: KVVec::new(),
            first: (start as usize) % PAGE_SIZE,
            len,
            // SAFETY: `umem` was pinned above.
            writable: unsafe { bindings::rsiw_umem_writable(umem.as_ptr()) },
        };
        // SAFETY: `umem` was pinned above.
        let n = unsafe { bindings::rsiw_umem_num_pages(umem.as_ptr()) };
        // The array has 8 octets for each page, up to gigabytes. So it is charged to the memory
        // cgroup of the process.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
        this.pages = KVVec::from_elem(core::ptr::null_mut(), n, flags)?;
        // SAFETY: `umem` was pinned above, and the array has `n` elements.
        let found = unsafe { bindings::rsiw_umem_pages(umem.as_ptr(), this.pages.as_mut_ptr(), n) };
        // INVARIANT: The check ensures that there are as many pages as the range needs.
        let need = (len as usize)
            .checked_add(this.first)
            .ok_or(EINVAL)?
            .div_ceil(PAGE_SIZE);
        if found < need || this.pages.iter().take(need).any(|page| page.is_null()) {
            return Err(EFAULT);
        }
        Ok(this)
    }

    /// Copies octets at offset `off`, in the direction of `mover`. Any context. `EFAULT` beyond the
    /// end; nothing is copied then.
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
            // SAFETY: By the type invariant `page` is the address of a pinned page, which has
            // `within + len <= PAGE_SIZE` octets.
            unsafe { mover.step(page.cast::<u8>().add(within), len) };
            at = at.wrapping_add(len);
        }
        Ok(())
    }
}

impl Drop for UserPages {
    /// Unpins the pages. Process context; sleeps, as unpinning marks pages dirty.
    fn drop(&mut self) {
        // SAFETY: By the type invariant `umem` is pinned. The pages are not used afterwards.
        unsafe { bindings::ib_umem_release(self.umem.as_ptr()) }
    }
}

/// A contiguous range of kernel memory.
#[derive(Clone, Copy)]
struct Segment {
    /// The kernel address of the first octet.
    addr: u64,
    /// The offset behind the last octet, from the start of the region.
    end: u64,
}

/// Ranges of kernel memory that a region joins to one range, in order.
///
/// # Invariants
///
/// Each segment is kernel memory that the user of the region leaves to the device as long as the
/// region is valid. `end` does not decrease from a segment to the next.
pub(crate) struct Segments {
    /// The segments; the capacity is that of the region.
    list: KVec<Segment>,
    /// The memory of the segments of a test.
    #[cfg(CONFIG_KUNIT = "y")]
    kept: KVec<KVec<u8>>,
}

impl Segments {
    /// Makes an empty list for `max` segments. The context is that of `flags`: `kmalloc()`
    /// allocates the list, as `vmalloc()` is not allowed in atomic context.
    pub(crate) fn with_capacity(max: usize, flags: Flags) -> Result<Self> {
        Ok(Self {
            list: KVec::with_capacity(max, flags)?,
            #[cfg(CONFIG_KUNIT = "y")]
            kept: KVec::new(),
        })
    }

    /// The length of all segments in octets.
    pub(crate) fn total(&self) -> u64 {
        self.list.last().map_or(0, |last| last.end)
    }

    /// Stores the segments of a mapped scatterlist behind its first `offset` octets, at most `max`.
    /// Returns the number of stored entries, and the first address.
    ///
    /// Any context.
    ///
    /// # Safety
    ///
    /// `sg` is a list of `nents` entries mapped for an `ib_device` with virtual DMA. Its memory
    /// stays available to the device as long as the verbs demand that of the user of a region.
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
            // SAFETY: `sg` is an entry of the list: not null, and among the first `nents`.
            let (addr, len) = unsafe {
                (
                    bindings::rsiw_sg_dma_address(sg),
                    u64::from(bindings::rsiw_sg_dma_len(sg)),
                )
            };
            // An offset beyond the first entry is an error of the caller. No entry is stored then.
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
            // SAFETY: `sg` is an entry of the list: not null, and among the first `nents`.
            sg = unsafe { bindings::sg_next(sg) };
        }
        (
            self.list.len(),
            self.list.first().map_or(0, |first| first.addr),
        )
    }

    /// Stores copies of `buffers` as segments, for tests. Any context.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn fill_for_test(&mut self, buffers: &[KVec<u8>]) -> Result {
        self.list.clear();
        self.kept = KVec::with_capacity(buffers.len(), GFP_ATOMIC)?;
        let mut total: u64 = 0;
        for buffer in buffers {
            let mut kept = KVec::new();
            kept.extend_from_slice(buffer, GFP_ATOMIC)?;
            total = total.wrapping_add(kept.len() as u64);
            let segment = Segment {
                addr: kept.as_mut_ptr() as u64,
                end: total,
            };
            // INVARIANT: The list keeps the memory, which nothing else accesses.
            self.kept.push(kept, GFP_ATOMIC)?;
            self.list
                .push_within_capacity(segment)
                .map_err(|_| ENOSPC)?;
        }
        Ok(())
    }

    /// Copies octets at offset `off`, in the direction of `mover`. Any context. `EFAULT` beyond the
    /// end; nothing is copied then.
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
            // SAFETY: By the type invariant the segment is valid memory; the `len` octets are
            // inside of it.
            unsafe { mover.step(addr, len) };
            at = at.wrapping_add(len as u64);
            index = index.wrapping_add(1);
        }
        Ok(())
    }
}

/// The right to access kernel memory by address.
///
/// # Invariants
///
/// The addresses come from a kernel user of the verbs. The kernel user keeps the memory of its work
/// requests and DMA regions until they are completed or deregistered. A
/// [`Driver`](super::driver::Driver) accesses only this memory, and only until then.
#[derive(Clone, Copy)]
pub(crate) struct KernelMemory(());

impl KernelMemory {
    /// Makes the right, for the callbacks that get addresses of a kernel user.
    ///
    /// # Safety
    ///
    /// The addresses used with this value come from a kernel user of the verbs.
    pub(super) unsafe fn new() -> Self {
        // INVARIANT: By this function's contract the addresses come from a kernel user.
        Self(())
    }

    /// Copies octets at address `addr`, in the direction of `mover`. Any context. `EFAULT` for an
    /// address outside of the kernel's half of the address space.
    #[inline]
    fn walk(self, addr: u64, mut mover: impl Mover) -> Result {
        let len = mover.left();
        let end = addr.checked_add(len as u64).ok_or(EFAULT)?;
        // Kernel addresses are the upper half of the address space; another address is an error of
        // the kernel user. User-mode Linux has kernel addresses in the lower half.
        if cfg!(not(CONFIG_UML)) && ((addr as i64) >= 0 || (end as i64) > 0) {
            return Err(EFAULT);
        }
        // SAFETY: By the type invariant the kernel user keeps the memory at `addr`.
        unsafe { mover.step(addr as usize as *mut u8, len) };
        Ok(())
    }
}

/// The memory of a region.
pub(crate) enum Backing {
    /// Pages of a process.
    User(UserPages),
    /// Segments of a scatterlist.
    Segments(Segments),
    /// All kernel memory; offsets are addresses.
    Kernel(KernelMemory),
}

impl Backing {
    /// Copies `dst.len()` octets from the region at offset `off`. The offset of
    /// [`Kernel`](Self::Kernel) is the address.
    ///
    /// Any context. `EFAULT` beyond the end; nothing is copied then.
    #[inline]
    pub(crate) fn read(&self, off: u64, dst: &mut [u8]) -> Result {
        match self {
            Self::User(pages) => pages.walk(off, Out(dst)),
            Self::Segments(segments) => segments.walk(off, Out(dst)),
            Self::Kernel(memory) => memory.walk(off, Out(dst)),
        }
    }

    /// Copies `src` into the region at offset `off`, as [`read`](Self::read). `EACCES`: the pages
    /// are pinned for reading only.
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
    /// Copies from kernel memory at `addr`. Any context. `EFAULT` for an address outside of the
    /// kernel's half of the address space.
    #[inline]
    pub(crate) fn read(self, addr: u64, dst: &mut [u8]) -> Result {
        self.walk(addr, Out(dst))
    }

    /// Copies to kernel memory at `addr`. Any context. Errors as for [`read`](Self::read).
    #[inline]
    pub(crate) fn write(self, addr: u64, src: Octets<'_>) -> Result {
        self.walk(addr, In(src))
    }
}
