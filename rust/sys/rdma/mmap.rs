// SPDX-License-Identifier: GPL-2.0

//! Mapping of rings into the address space of a process (`mmap()` of an `ib_uverbs` file).
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use core::{
    mem::offset_of,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

use crate::sys::{
    bindings,
    rdma::ring::{
        Owner,
        Ring, //
    }, //
};

/// The first page offset that is allocated.
///
/// libsiw takes key `SIW_INVAL_UOBJ_KEY` for "no object", so a process could not map an object with
/// that key.
const FIRST: u32 = (bindings::SIW_INVAL_UOBJ_KEY >> PAGE_SHIFT) + 1;
/// The last page offset.
const LAST: u32 = u32::MAX;
/// The binary logarithm of the page size in octets.
const PAGE_SHIFT: u32 = kernel::page::PAGE_SHIFT as u32;

/// An entry in the table of mappings of a user context.
#[repr(C)]
struct MmapEntry {
    /// The part that `ib_core` uses.
    base: bindings::rdma_user_mmap_entry,
    /// The mapped ring.
    ring: Arc<Ring>,
}

const _: () = assert!(offset_of!(MmapEntry, base) == 0);

/// A ring that a process can map.
///
/// # Invariants
///
/// The entry is inserted, and its context is alive: `ib_core` destroys all objects of a context
/// first.
pub(super) struct Mapping(NonNull<MmapEntry>);

impl Mapping {
    /// Lets the process of `context` map `ring`.
    ///
    /// Process context; sleeps. `EINVAL`: the ring is a kernel user's, whose addresses no process
    /// may write.
    ///
    /// # Safety
    ///
    /// `context` is alive, and the object that holds the mapping is destroyed before the context.
    pub(super) unsafe fn new(
        context: NonNull<bindings::ib_ucontext>,
        ring: Arc<Ring>,
    ) -> Result<Self> {
        if ring.owner() != Owner::User {
            return Err(EINVAL);
        }
        let len = ring.len();
        let entry = KBox::new(
            MmapEntry {
                base: pin_init::zeroed(),
                ring,
            },
            GFP_KERNEL,
        )?;
        let entry = KBox::into_raw(entry);
        // SAFETY: By this function's contract a live context, and a fresh entry, which `mmap_free`
        // frees.
        let ret = unsafe {
            bindings::rdma_user_mmap_entry_insert_range(
                context.as_ptr(),
                entry.cast(),
                len,
                FIRST,
                LAST,
            )
        };
        if let Err(error) = to_result(ret) {
            // SAFETY: The insertion failed, so `ib_core` has no reference to the entry.
            drop(unsafe { KBox::from_raw(entry) });
            return Err(error);
        }
        // INVARIANT: The insertion has succeeded.
        NonNull::new(entry).map(Self).ok_or(ENOMEM)
    }

    /// The offset for `mmap()`, in octets.
    pub(super) fn key(&self) -> u64 {
        // SAFETY: By the invariant of the type.
        let page = unsafe { (*self.0.as_ptr()).base.start_pgoff };
        (page as u64) << PAGE_SHIFT
    }
}

impl Drop for Mapping {
    /// Prevents new mappings of the ring; an existing mapping keeps its pages.
    fn drop(&mut self) {
        // SAFETY: By the invariant of the type.
        unsafe { bindings::rdma_user_mmap_entry_remove(self.0.as_ptr().cast()) }
    }
}

/// `mmap`: maps the ring that the offset of `vma` names. Process context; sleeps. `EINVAL`: there
/// is no such ring.
///
/// # Safety
///
/// `ib_core` calls it with a live context and the area being mapped.
pub(super) unsafe extern "C" fn mmap(
    context: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: By this function's contract the context is live, and `vma` is the area being mapped.
    // The lookup checks the offset and the length.
    let entry = unsafe { bindings::rdma_user_mmap_entry_get(context, vma.cast()) };
    if entry.is_null() {
        return EINVAL.to_errno();
    }
    // SAFETY: All entries of the driver's contexts are of this type, and the call above has taken a
    // reference.
    let ring = unsafe { &(*entry.cast::<MmapEntry>()).ring };
    // SAFETY: The memory is from `vmalloc()`; the lookup has checked that the area is not longer.
    let ret = unsafe { bindings::rsiw_ring_map(vma.cast(), ring.as_ptr()) };
    // SAFETY: The reference taken above; the pages have their own.
    unsafe { bindings::rdma_user_mmap_entry_put(entry) };
    ret
}

/// `mmap_free`: frees an entry and its reference to the ring.
///
/// # Safety
///
/// `ib_core` calls it with the last reference to an entry.
pub(super) unsafe extern "C" fn mmap_free(entry: *mut bindings::rdma_user_mmap_entry) {
    // SAFETY: `Mapping::new` has allocated the entry, and this is the last reference to it.
    drop(unsafe { KBox::from_raw(entry.cast::<MmapEntry>()) });
}
