// SPDX-License-Identifier: GPL-2.0

//! Tables from a number to a counted object, for RCU readers.
//!
//! The receive path looks up entries without a lock. The result is valid during the RCU read-side
//! section, or as long as a reference taken in it. After a removal RCU drops the table's own
//! reference when a grace period has ended.
//!
//! C header: [`include/linux/xarray.h`](srctree/include/linux/xarray.h)

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::Range, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    types::Opaque, //
};

use crate::sys::{
    bindings,
    random, //
};

/// The target of an entry of the C object.
#[repr(C)]
struct Node<T> {
    /// The RCU callback of the removal.
    rcu: Opaque<bindings::callback_head>,
    /// The table's reference.
    item: Arc<T>,
}

/// A table from numbers of a range to `Arc<T>`.
///
/// RCU may drop the last reference to an object in softirq context.
///
/// # Invariants
///
/// Every present entry of `xa` is a `KBox<Node<T>>` owned by the table. A removed entry is freed
/// after a grace period.
#[pin_data(PinnedDrop)]
pub(crate) struct Table<T: Send + Sync + 'static> {
    /// The entries; the lock is taken with interrupts off.
    #[pin]
    xa: Opaque<bindings::xarray>,
    /// The range of numbers.
    range: Range<u32>,
    /// The start of the next search for a free number; guarded by the lock of `xa`.
    next: UnsafeCell<u32>,
    _entries: PhantomData<Arc<T>>,
}

// SAFETY: `xa` has a lock, which also guards `next`, and `Arc<T>` is `Send` and `Sync`.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T: Send + Sync> Table<T> {
    /// Makes an empty table for the numbers of `range`. The first search starts at a random number.
    pub(crate) fn new(range: Range<u32>) -> impl PinInit<Self> {
        let len = range.end.saturating_sub(range.start);
        let skip = random::u32().checked_rem(len).unwrap_or(0);
        let next = range.start.saturating_add(skip);
        pin_init!(Self {
            xa <- Opaque::ffi_init(|slot| {
                // SAFETY: `slot` is memory for an xarray.
                unsafe { bindings::rsiw_xa_init(slot) }
            }),
            range,
            next: UnsafeCell::new(next),
            _entries: PhantomData,
        })
    }

    /// Inserts `item` under `id`. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `id` is out of range. `EBUSY`: `id` is in use. `ENOMEM`.
    pub(crate) fn insert_at(&self, id: u32, item: Arc<T>) -> Result {
        if !self.range.contains(&id) {
            return Err(EINVAL);
        }
        let node = Self::node(item)?;
        // SAFETY: `xa` is initialized; the entry is a pointer to a `Node<T>`.
        let result = to_result(unsafe {
            bindings::rsiw_xa_insert(
                self.xa.get(),
                id as usize,
                node.cast(),
                bindings::GFP_KERNEL,
            )
        });
        if result.is_err() {
            // SAFETY: The node was not inserted, so this function still owns it.
            drop(unsafe { KBox::from_raw(node) });
        }
        result
    }

    /// Allocates a free number, and inserts the object that `make` returns for it. The allocation
    /// is cyclic. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY`: no number is free. `ENOMEM`, and the error of `make`.
    pub(crate) fn insert_with(&self, make: impl FnOnce(u32) -> Result<Arc<T>>) -> Result<Arc<T>> {
        let last = self.range.end.checked_sub(1).ok_or(EBUSY)?;
        let mut id = 0;
        // SAFETY: `xa` is initialized, and its lock guards `next`. The number is reserved without
        // an entry.
        let result = unsafe {
            bindings::rsiw_xa_reserve(
                self.xa.get(),
                &mut id,
                self.range.start,
                last,
                self.next.get(),
                bindings::GFP_KERNEL,
            )
        };
        to_result(result)?;
        let entered = make(id).and_then(|item| {
            let node = Self::node(item.clone())?;
            // SAFETY: `xa` is initialized; the entry is a pointer to a `Node<T>`.
            let result = to_result(unsafe {
                bindings::rsiw_xa_store(self.xa.get(), id as usize, node.cast())
            });
            if let Err(error) = result {
                // SAFETY: The node was not inserted, so this function still owns it.
                drop(unsafe { KBox::from_raw(node) });
                return Err(error);
            }
            Ok(item)
        });
        if entered.is_err() {
            // SAFETY: `xa` is initialized; the reserved number has no entry.
            unsafe { bindings::rsiw_xa_erase(self.xa.get(), id as usize) };
        }
        entered
    }

    /// Whether there is an entry under `id`; possibly stale after the return. Any context.
    pub(crate) fn contains(&self, id: u32) -> bool {
        // SAFETY: `xa` is initialized.
        !unsafe { bindings::xa_load(self.xa.get(), id as usize) }.is_null()
    }

    /// The entry under `id`, valid while `guard` exists. Any context.
    #[inline]
    pub(crate) fn get<'g>(&'g self, id: u32, guard: &'g rcu::Guard) -> Option<&'g T> {
        self.look_up(id, guard).map(|node| &*node.item)
    }

    /// The node under `id`, valid while the guard exists. Any context.
    #[inline]
    fn look_up<'g>(&'g self, id: u32, _guard: &'g rcu::Guard) -> Option<&'g Node<T>> {
        // SAFETY: `xa` is initialized.
        let node = unsafe { bindings::xa_load(self.xa.get(), id as usize) }.cast::<Node<T>>();
        // SAFETY: By the type invariant the pointer is null or a `Node<T>`, which RCU keeps during
        // the section.
        unsafe { node.as_ref() }
    }

    /// The entry under `id`. Any context.
    #[inline]
    pub(crate) fn get_arc(&self, id: u32) -> Option<Arc<T>> {
        let guard = rcu::read_lock();
        self.look_up(id, &guard).map(|node| node.item.clone())
    }

    /// Calls `f` with each entry. Entries that are added or removed concurrently may be missed.
    /// Process context; does not sleep.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&T)) {
        let mut from = self.range.start;
        while let Some(id) = self.find(from) {
            {
                let guard = rcu::read_lock();
                if let Some(item) = self.get(id, &guard) {
                    f(item);
                }
            }
            let Some(next) = id.checked_add(1) else {
                return;
            };
            from = next;
        }
    }

    /// Removes the entry under `id`. RCU readers may use the entry for the rest of their section.
    /// Any context.
    pub(crate) fn remove(&self, id: u32) -> Option<Arc<T>> {
        // SAFETY: `xa` is initialized.
        let node = unsafe { bindings::rsiw_xa_erase(self.xa.get(), id as usize) };
        let node = node.cast::<Node<T>>();
        // SAFETY: By the type invariant the pointer is null or a `Node<T>`, which only this context
        // has removed.
        let item = unsafe { node.as_ref() }?.item.clone();
        // SAFETY: New readers cannot find the node, and RCU frees it after the sections of earlier
        // ones. `rcu` is unused until then.
        unsafe { bindings::call_rcu((*node).rcu.get(), Some(Self::free)) };
        Some(item)
    }

    /// The smallest number of an entry that is not below `from`.
    fn find(&self, from: u32) -> Option<u32> {
        let mut index = from as usize;
        // SAFETY: `xa` is initialized; `XA_PRESENT` is the filter for any entry.
        let entry = unsafe {
            bindings::xa_find(
                self.xa.get(),
                &mut index,
                u32::MAX as usize,
                bindings::RSIW_XA_PRESENT,
            )
        };
        (!entry.is_null())
            .then(|| u32::try_from(index).ok())
            .flatten()
    }

    /// Allocates the target of an entry.
    fn node(item: Arc<T>) -> Result<*mut Node<T>> {
        let node = Node {
            rcu: Opaque::uninit(),
            item,
        };
        Ok(KBox::into_raw(KBox::new(node, GFP_KERNEL)?))
    }

    /// Frees a removed entry.
    ///
    /// # Safety
    ///
    /// Called by RCU with the first field of a `Node<T>` in a box, once, in softirq context.
    unsafe extern "C" fn free(head: *mut bindings::callback_head) {
        // SAFETY: By this function's contract.
        drop(unsafe { KBox::from_raw(head.cast::<Node<T>>()) });
    }
}

#[pinned_drop]
impl<T: Send + Sync> PinnedDrop for Table<T> {
    fn drop(self: Pin<&mut Self>) {
        let mut from = 0;
        while let Some(id) = self.find(from) {
            drop(self.remove(id));
            let Some(next) = id.checked_add(1) else {
                break;
            };
            from = next;
        }
        // SAFETY: `xa` is initialized; the call frees its inner nodes.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

#[kunit_tests(rsiw_sys_table)]
mod tests {
    use super::*;
    use kernel::sync::atomic::{Acquire, Atomic, Full};

    /// An object that counts its drops.
    struct Item {
        id: u32,
        gone: Arc<Atomic<u32>>,
    }

    impl Drop for Item {
        fn drop(&mut self) {
            self.gone.fetch_add(1, Full);
        }
    }

    fn table(range: Range<u32>) -> Result<(Arc<Table<Item>>, Arc<Atomic<u32>>)> {
        let table = Arc::pin_init(Table::new(range), GFP_KERNEL)?;
        Ok((table, Arc::new(Atomic::new(0u32), GFP_KERNEL)?))
    }

    fn item(id: u32, gone: &Arc<Atomic<u32>>) -> Result<Arc<Item>> {
        let gone = gone.clone();
        Ok(Arc::new(Item { id, gone }, GFP_KERNEL)?)
    }

    fn grace_period() {
        // SAFETY: Process context.
        unsafe { bindings::rcu_barrier() };
    }

    #[test]
    fn finds_what_was_entered() -> Result {
        let (table, gone) = table(1..100)?;
        table.insert_at(7, item(7, &gone)?)?;
        assert!(table.contains(7));
        assert!(!table.contains(8));
        assert_eq!(table.get_arc(7).ok_or(ENOENT)?.id, 7);
        assert!(table.get_arc(8).is_none());
        {
            let guard = rcu::read_lock();
            assert_eq!(table.get(7, &guard).ok_or(ENOENT)?.id, 7);
        }
        assert!(table.insert_at(7, item(7, &gone)?) == Err(EBUSY));
        assert!(table.insert_at(0, item(0, &gone)?) == Err(EINVAL));
        assert!(table.insert_at(100, item(100, &gone)?) == Err(EINVAL));
        // The three refused objects are dropped, the inserted one is not.
        assert_eq!(gone.load(Acquire), 3);
        drop(table);
        grace_period();
        assert_eq!(gone.load(Acquire), 4);
        Ok(())
    }

    #[test]
    fn removed_lasts_for_a_grace_period() -> Result {
        let (table, gone) = table(1..100)?;
        table.insert_at(9, item(9, &gone)?)?;
        {
            let guard = rcu::read_lock();
            let found = table.get(9, &guard).ok_or(ENOENT)?;
            drop(table.remove(9).ok_or(ENOENT)?);
            assert!(!table.contains(9));
            // The table has the only reference, and drops it after the grace period.
            assert_eq!(found.id, 9);
            assert_eq!(gone.load(Acquire), 0);
        }
        grace_period();
        assert_eq!(gone.load(Acquire), 1);
        assert!(table.remove(9).is_none());
        Ok(())
    }

    #[test]
    fn gives_numbers_out_in_a_circle() -> Result {
        let (table, gone) = table(2..5)?;
        let mut seen = [0u32; 5];
        for _ in 0..3 {
            let item = table.insert_with(|id| item(id, &gone))?;
            let count = seen.get_mut(item.id as usize).ok_or(ERANGE)?;
            *count = count.wrapping_add(1);
        }
        assert_eq!(seen, [0, 0, 1, 1, 1]);
        assert!(table.insert_with(|id| item(id, &gone)).is_err());
        // A failure of `make` leaves the number free.
        drop(table.remove(3));
        assert!(table.insert_with(|_| Err(EIO)).is_err());
        assert_eq!(table.find(3), Some(4));
        assert_eq!(table.insert_with(|id| item(id, &gone))?.id, 3);
        drop(table);
        grace_period();
        assert_eq!(gone.load(Acquire), 4);
        Ok(())
    }

    #[test]
    fn for_each_has_every_entry_once() -> Result {
        let (table, gone) = table(1..u32::MAX)?;
        let last = u32::MAX - 1;
        let seen = || {
            let (mut count, mut sum) = (0u32, 0u64);
            table.for_each(|item| {
                count = count.wrapping_add(1);
                sum = sum.wrapping_add(u64::from(item.id));
            });
            (count, sum)
        };
        assert_eq!(seen(), (0, 0));
        for id in [1, 2, 64, 4096, last] {
            table.insert_at(id, item(id, &gone)?)?;
        }
        assert_eq!(seen(), (5, 4163 + u64::from(last)));
        // A reserved number has no entry yet.
        let mut within = None;
        let added = table.insert_with(|id| {
            within = Some(seen());
            item(id, &gone)
        })?;
        assert_eq!(within, Some((5, 4163 + u64::from(last))));
        let sum = 4163 + u64::from(last) + u64::from(added.id);
        assert_eq!(seen(), (6, sum));
        drop(table.remove(64).ok_or(ENOENT)?);
        assert_eq!(seen(), (5, sum - 64));
        Ok(())
    }
}
