// SPDX-License-Identifier: GPL-2.0

//! Rings in memory that a user process may map.
//!
//! A ring is an array of slots, a power of two of them; a slot is a few 64-bit words. Word 1, the
//! header, holds the "valid" flag. The producer stores the header last; the consumer stores 0
//! there. The other side is untrusted. So every word is read by a single load, and this module
//! relies on no value. The driver is producer and consumer of the completion queues of kernel
//! users. There the header is stored last as well, and is not 0.
//!
//! C header: [`include/uapi/rdma/siw-abi.h`](srctree/include/uapi/rdma/siw-abi.h)

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::sys::bindings;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "the ring layouts are written for little-endian machines"
);

/// The word of a slot that holds the header.
const HEADER: usize = 1;

/// The user of a ring, at the other side of the driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A kernel user, which uses only verbs calls; the ring is never mapped.
    Kernel(KernelUser),
    /// A process, which maps the ring.
    User,
}

/// The proof that a verbs call comes from a kernel user.
///
/// With this proof the addresses of work requests are used as kernel addresses. So only the verbs
/// callbacks create a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelUser(());

impl Owner {
    /// The owner of an object that a kernel user's call creates.
    pub(super) const fn kernel() -> Self {
        Self::Kernel(KernelUser(()))
    }

    /// A kernel user, for tests.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) const KERNEL: Self = Self::kernel();
}

/// An array of slots in memory of its own.
///
/// # Invariants
///
/// `mem` is zeroed `vmalloc()` memory of `len` octets that lives as long as this value. It has
/// `slots` times `words` words, and one more word where `control` is set.
pub(crate) struct Ring {
    /// The memory.
    mem: NonNull<u64>,
    /// Slots, a power of two.
    slots: u32,
    /// Words in a slot.
    words: u32,
    /// The length of a mapping, in octets.
    len: usize,
    /// A control word follows the slots.
    control: bool,
    owner: Owner,
}

// SAFETY: The value owns the memory, and accesses it only by atomic or volatile operations.
unsafe impl Send for Ring {}
// SAFETY: As above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Makes a ring of `slots` (a power of two) empty slots of `words` words, and with `control` a
    /// control word.
    ///
    /// Process context; sleeps.
    pub(crate) fn new(slots: u32, words: u32, control: bool, owner: Owner) -> Result<Arc<Self>> {
        if !slots.is_power_of_two() || words as usize <= HEADER {
            return Err(EINVAL);
        }
        let len = (slots as usize)
            .checked_mul(words as usize)
            .and_then(|n| n.checked_mul(size_of::<u64>()))
            .and_then(|n| n.checked_add(if control { size_of::<u64>() } else { 0 }))
            .ok_or(EINVAL)?;
        // SAFETY: The helper accepts any length.
        let mem = unsafe { bindings::rsiw_ring_alloc(len) };
        let mem = NonNull::new(mem.cast::<u64>()).ok_or(ENOMEM)?;
        // INVARIANT: The memory is new, zeroed and has `len` octets.
        let ring = Self {
            mem,
            slots,
            words,
            len,
            control,
            owner,
        };
        Ok(Arc::new(ring, GFP_KERNEL)?)
    }

    /// Slots, a power of two.
    #[inline]
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The user of the ring.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The length of a mapping, in octets.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The memory, to map it.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.mem.as_ptr().cast()
    }

    /// A pointer to word `word` of the slot of the free-running index `index`.
    #[inline]
    fn word(&self, index: u32, word: usize) -> NonNull<u64> {
        let slot = (index & self.slots.wrapping_sub(1)) as usize;
        let words = self.words as usize;
        let word = word.min(words.wrapping_sub(1));
        let offset = slot.wrapping_mul(words).wrapping_add(word);
        // SAFETY: `slot < slots` and `word < words`, which is not 0: inside of `mem`.
        unsafe { self.mem.add(offset) }
    }

    /// The header word of a slot as an atomic.
    #[inline]
    fn header_word(&self, index: u32) -> &Atomic<u64> {
        // SAFETY: The word is aligned and lives as long as `self`. The kernel's accesses are atomic
        // or volatile; the process accesses its own mapping.
        unsafe { Atomic::from_ptr(self.word(index, HEADER).as_ptr()) }
    }

    /// Loads the header of a slot with acquire ordering: later loads of the slot are not older.
    #[inline]
    pub(crate) fn header(&self, index: u32) -> u64 {
        self.header_word(index).load(Acquire)
    }

    /// Reads the words of a slot into `out`, the header included, each once.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, index: u32) -> [u64; N] {
        let mut out = [0; N];
        let base = self.word(index, 0);
        for (i, out) in out.iter_mut().take(self.words as usize).enumerate() {
            // SAFETY: `i` is below `words`, so the word is inside the slot. The load is volatile,
            // since the other side may write at any time; any value is valid.
            *out = unsafe { base.add(i).read_volatile() };
        }
        out
    }

    /// Stores the words of a slot except its header.
    #[inline]
    pub(crate) fn write<const N: usize>(&self, index: u32, words: &[u64; N]) {
        let base = self.word(index, 0);
        for (i, word) in words.iter().take(self.words as usize).enumerate() {
            if i != HEADER {
                // SAFETY: As in `read`.
                unsafe { base.add(i).write_volatile(*word) };
            }
        }
    }

    /// Stores the header of a slot, with a full barrier: after all earlier stores, before all later
    /// loads.
    #[inline]
    pub(crate) fn publish(&self, index: u32, header: u64) {
        self.header_word(index).xchg(header, Full);
    }

    /// Releases a slot to the other side, with a full barrier: before all later loads, also of
    /// other slots.
    #[inline]
    pub(crate) fn release(&self, index: u32) {
        self.header_word(index).xchg(0, Full);
    }

    /// The control word behind the last slot (`struct siw_cq_ctrl`), if there is one.
    #[inline]
    fn control(&self) -> Option<&Atomic<u32>> {
        let offset = (self.slots as usize).wrapping_mul(self.words as usize);
        if !self.control {
            return None;
        }
        // SAFETY: With `control` the memory has one more word after the slots. The word is aligned,
        // and accessed as in `header_word`.
        Some(unsafe { Atomic::from_ptr(self.mem.add(offset).as_ptr().cast::<u32>()) })
    }

    /// Reads the control word; 0 when there is none.
    #[inline]
    pub(crate) fn control_load(&self) -> u32 {
        self.control().map_or(0, |word| word.load(Relaxed))
    }

    /// Stores the control word, with a full barrier: after all earlier accesses, before all later
    /// ones.
    #[inline]
    pub(crate) fn control_store(&self, value: u32) {
        if let Some(word) = self.control() {
            word.xchg(value, Full);
        }
    }

    /// Stores `new` into the control word if its value is `old`, with a full barrier. A different
    /// value implies no ordering: later loads may be older than it.
    #[inline]
    pub(crate) fn control_change(&self, old: u32, new: u32) {
        if let Some(word) = self.control() {
            let _ = word.cmpxchg(old, new, Full);
        }
    }

    /// The right to use addresses of a kernel user's work requests as kernel addresses; `None` for
    /// the ring of a process.
    #[inline]
    pub(crate) fn kernel_memory(&self) -> Option<super::memory::KernelMemory> {
        match self.owner {
            // SAFETY: The ring belongs to a kernel user. The contract of `Driver` covers the
            // addresses that the driver takes from it, and their lifetime.
            Owner::Kernel(_) => Some(unsafe { super::memory::KernelMemory::new() }),
            Owner::User => None,
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the value owns the memory. Pages that a process still maps
        // have references of their own.
        unsafe { bindings::vfree(self.mem.as_ptr().cast()) }
    }
}
