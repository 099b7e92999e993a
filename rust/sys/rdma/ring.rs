// SPDX-License-Identifier: GPL-2.0

//! Rings: queues of work requests or completions in memory that a process may map.
//!
//! A ring is an array of slots, whose number is a power of two. A slot has two or more 64-bit
//! words. Word 1, the header, holds the "valid" flag. The producer stores the header last, and the
//! consumer stores 0 there. The process is untrusted. So each word is read by a single load, and
//! this module relies on no value.
//!
//! For completion queues of kernel users the driver is both producer and consumer. Their header is
//! stored last as well, and is not 0.
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

/// The user of a ring: the producer or the consumer that is not the driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A kernel user, which accesses the ring only through verbs calls. The ring is never mapped.
    Kernel(KernelUser),
    /// A process, which maps the ring.
    User,
}

/// The proof that a verbs call comes from a kernel user.
///
/// The proof permits the use of addresses in work requests as kernel addresses. So only the verbs
/// callbacks create a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelUser(Proof);

/// What a [`KernelUser`] stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// A verbs call of a kernel user.
    Call,
    /// A test, whose rings have no work requests with addresses to use.
    #[cfg(CONFIG_KUNIT = "y")]
    Test,
}

impl Owner {
    /// The owner of an object that a kernel user's call creates.
    ///
    /// # Safety
    ///
    /// The current verbs call is that of a kernel user.
    pub(super) const unsafe fn kernel() -> Self {
        Self::Kernel(KernelUser(Proof::Call))
    }

    /// A kernel user, for tests: [`Ring::kernel_memory`] gives nothing.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) const KERNEL: Self = Self::Kernel(KernelUser(Proof::Test));
}

/// An array of slots in its own memory.
///
/// # Invariants
///
/// `mem` is `vmalloc()` memory of `len` octets, zeroed at first, that this value owns. It has
/// `slots` times `words` words, and one more word where `control` is set.
pub(crate) struct Ring {
    /// The memory.
    mem: NonNull<u64>,
    /// The number of slots, a power of two.
    slots: u32,
    /// The number of words in a slot.
    words: u32,
    /// The length of the memory in octets.
    len: usize,
    /// Whether a control word follows the slots.
    control: bool,
    owner: Owner,
}

// SAFETY: The value owns the memory, and accesses it only by atomic or volatile operations.
unsafe impl Send for Ring {}
// SAFETY: As above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Allocates a ring of `slots` (a power of two) empty slots of `words` words (at least 2), and
    /// with `control` a control word. The memory is charged to the memory cgroup of the caller.
    ///
    /// Process context; sleeps. `EINVAL`: a number is out of range. `ENOMEM`.
    pub(crate) fn new(slots: u32, words: u32, control: bool, owner: Owner) -> Result<Arc<Self>> {
        if !slots.is_power_of_two() || words as usize <= HEADER {
            return Err(EINVAL);
        }
        let len = (slots as usize)
            .checked_mul(words as usize)
            .and_then(|n| n.checked_mul(size_of::<u64>()))
            .and_then(|n| n.checked_add(if control { size_of::<u64>() } else { 0 }))
            .ok_or(EINVAL)?;
        // SAFETY: `__vmalloc()` accepts any length, and returns null on failure.
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

    /// The number of slots, a power of two.
    #[inline]
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The user of the ring.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The length of the memory in octets.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The start of the memory, for `mmap()`.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.mem.as_ptr().cast()
    }

    /// A pointer to word `word` (at most the last one) of the slot of the free-running index
    /// `index`.
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
        // SAFETY: The word is aligned, and valid as long as `self`. All accesses of the kernel are
        // atomic or volatile. A process accesses its own mapping.
        unsafe { Atomic::from_ptr(self.word(index, HEADER).as_ptr()) }
    }

    /// Loads the header of a slot with acquire ordering: later loads of the slot return no older
    /// values. Any context.
    #[inline]
    pub(crate) fn header(&self, index: u32) -> u64 {
        self.header_word(index).load(Acquire)
    }

    /// Reads the words of a slot, the header included, each by a single load. Words beyond the slot
    /// are 0. Any context.
    #[inline]
    pub(crate) fn read<const N: usize>(&self, index: u32) -> [u64; N] {
        let mut out = [0; N];
        let base = self.word(index, 0);
        for (i, out) in out.iter_mut().take(self.words as usize).enumerate() {
            // SAFETY: `i` is below `words`, so the word is inside the slot. The load is volatile,
            // since the process may write at any time; any value is valid.
            *out = unsafe { base.add(i).read_volatile() };
        }
        out
    }

    /// Stores the words of a slot except its header. Any context.
    #[inline]
    pub(crate) fn write<const N: usize>(&self, index: u32, words: &[u64; N]) {
        let base = self.word(index, 0);
        for (i, word) in words.iter().take(self.words as usize).enumerate() {
            if i != HEADER {
                // SAFETY: As in `read`: the word is inside the slot, and the store is volatile.
                unsafe { base.add(i).write_volatile(*word) };
            }
        }
    }

    /// Stores the header of a slot, with a full barrier: after all earlier stores, before all later
    /// loads. Any context.
    #[inline]
    pub(crate) fn publish(&self, index: u32, header: u64) {
        self.header_word(index).xchg(header, Full);
    }

    /// Stores 0 as the header of a consumed slot, with a full barrier: before all later loads, also
    /// of other slots. Any context.
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
        // and all accesses of the kernel are atomic.
        Some(unsafe { Atomic::from_ptr(self.mem.add(offset).as_ptr().cast::<u32>()) })
    }

    /// Reads the control word without ordering; 0 if there is none. Any context.
    #[inline]
    pub(crate) fn control_load(&self) -> u32 {
        self.control().map_or(0, |word| word.load(Relaxed))
    }

    /// Stores the control word, with a full barrier: after all earlier accesses, before all later
    /// ones. Any context.
    #[inline]
    pub(crate) fn control_store(&self, value: u32) {
        if let Some(word) = self.control() {
            word.xchg(value, Full);
        }
    }

    /// Stores `new` into the control word if its value is `old`, with a full barrier. Otherwise
    /// there is no ordering: later loads may be older than the load of the control word. Any
    /// context.
    #[inline]
    pub(crate) fn control_change(&self, old: u32, new: u32) {
        if let Some(word) = self.control() {
            let _ = word.cmpxchg(old, new, Full);
        }
    }

    /// The right to use addresses in a kernel user's work requests as kernel addresses; `None` for
    /// the ring of a process.
    #[inline]
    pub(crate) fn kernel_memory(&self) -> Option<super::memory::KernelMemory> {
        match self.owner {
            Owner::Kernel(KernelUser(Proof::Call)) => {
                // SAFETY: The ring belongs to a kernel user. The contract of `Driver` covers the
                // addresses that the driver takes from it, and their lifetime.
                Some(unsafe { super::memory::KernelMemory::new() })
            }
            _ => None,
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

#[kunit_tests(rsiw_sys_ring)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_kernel_users_name_kernel_memory() -> Result {
        // SAFETY: No verbs call is involved; nothing uses an address of this ring.
        let kernel = unsafe { Owner::kernel() };
        for (owner, is_named) in [(kernel, true), (Owner::KERNEL, false), (Owner::User, false)] {
            let ring = Ring::new(1, 4, false, owner)?;
            assert_eq!(ring.kernel_memory().is_some(), is_named);
        }
        Ok(())
    }
}
