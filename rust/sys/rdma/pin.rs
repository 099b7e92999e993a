// SPDX-License-Identifier: GPL-2.0

//! Values that can be taken away while others are using them.
//!
//! A [`PinCell`] is either published, with an 8-bit key, or not. Readers pin it; revocation
//! waits until the last pin is gone, and then has exclusive access. Pins are held with
//! bottom halves disabled and for a bounded time, so the wait is a short spin.
//!
//! With `CONFIG_PREEMPT_RT` a context that holds pins can be preempted, also by a real-time thread that
//! revokes. There a revocation sleeps: it takes the lock that a context holds as long as it has pins
//! (`rust/helpers/pin.c`), which lends that context its priority.
//!
//! The state word:
//!
//! | bits | content |
//! | --- | --- |
//! | 63 | published |
//! | 62 | busy: a context has exclusive access, or is about to get it |
//! | 32 to 39 | the key |
//! | 0 to 31 | the number of pins |

use core::{
    cell::UnsafeCell,
    ops::Deref, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    types::NotThreadSafe, //
};

use crate::sys::bindings;

/// Published.
const PUBLISHED: u64 = 1 << 63;
/// A context is changing the value or waiting to.
const BUSY: u64 = 1 << 62;
/// Where the key is.
const KEY_SHIFT: u32 = 32;
/// The key.
const KEY: u64 = 0xff << KEY_SHIFT;
/// The number of pins.
const PINS: u64 = 0xffff_ffff;

/// A value that readers pin and its owner can revoke.
///
/// # Invariants
///
/// Only the context that has set `BUSY` changes the value. It does so after the end of all pins that were
/// made while `PUBLISHED` was set. The value is read only through such pins.
pub(crate) struct PinCell<T> {
    /// See the head of the file.
    state: Atomic<u64>,
    /// The value.
    value: UnsafeCell<T>,
}

// SAFETY: The value moves with the cell.
unsafe impl<T: Send> Send for PinCell<T> {}
// SAFETY: Pins give shared access from several CPUs, `publish` and `revoke` exclusive one.
unsafe impl<T: Send + Sync> Sync for PinCell<T> {}

/// Something that has a [`PinCell`] in it; implemented by [`impl_has_pin_cell!`].
///
/// # Safety
///
/// `cell` returns a field of the object, the same one at each call.
pub(crate) unsafe trait HasPinCell {
    /// The type of the value.
    type Value;

    /// The cell.
    fn cell(&self) -> &PinCell<Self::Value>;
}

/// Names the field of an object that is its [`PinCell`].
macro_rules! impl_has_pin_cell {
    (impl HasPinCell<$value:ty> for $owner:ty { self.$field:ident }) => {
        // SAFETY: The field of that name: a pattern, other than `self.field`, follows no `Deref`.
        unsafe impl $crate::sys::rdma::pin::HasPinCell for $owner {
            type Value = $value;

            #[inline]
            fn cell(&self) -> &$crate::sys::rdma::pin::PinCell<$value> {
                let Self { $field, .. } = self;
                // The compiler would coerce a reference by `Deref`, but no tuple of one.
                let field = ($field,);
                let (cell,): (&$crate::sys::rdma::pin::PinCell<$value>,) = field;
                cell
            }
        }
    };
}
pub(crate) use impl_has_pin_cell;

/// Has this context hold pins, with bottom halves disabled. Nests; not with interrupts off.
struct PinSection(NotThreadSafe);

impl PinSection {
    /// Begins to hold pins.
    #[inline]
    fn new() -> Self {
        // SAFETY: Balanced by `drop`, which runs in the same task: the type is not `Send`.
        unsafe { bindings::rsiw_pin_begin() };
        Self(NotThreadSafe)
    }
}

impl Drop for PinSection {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `new` has begun the section in this task.
        unsafe { bindings::rsiw_pin_end() };
    }
}

/// Lets this context change a cell, with bottom halves disabled. Does not nest; not with interrupts off.
///
/// With `CONFIG_PREEMPT_RT` other contexts that want to change the cell sleep meanwhile.
struct ChangeGuard<'a, T> {
    /// The cell.
    cell: &'a PinCell<T>,
    /// Dropped in the task that made it.
    _task: NotThreadSafe,
}

impl<'a, T> ChangeGuard<'a, T> {
    /// For that cell.
    fn new(cell: &'a PinCell<T>) -> Self {
        // SAFETY: Balanced by `drop`, which runs in the same task: the type is not `Send`. The address is
        // only hashed.
        unsafe { bindings::rsiw_pin_change_begin(core::ptr::from_ref(cell).cast()) };
        Self {
            cell,
            _task: NotThreadSafe,
        }
    }
}

impl<T> Drop for ChangeGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `new` has begun the change in this task; the cell has not moved, as it is borrowed.
        unsafe { bindings::rsiw_pin_change_end(core::ptr::from_ref(self.cell).cast()) };
    }
}

impl<T> PinCell<T> {
    /// An unpublished value.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            state: Atomic::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Adds a pin; takes it back and says no if the value is not published under `key`.
    #[inline]
    fn try_pin(&self, key: u8) -> bool {
        // At most one pin for each CPU and a few more: the count does not reach the key.
        let old = self.state.fetch_add(1, Acquire);
        let ok = old & PUBLISHED != 0 && (old & KEY) >> KEY_SHIFT == u64::from(key);
        if !ok {
            self.unpin();
        }
        ok
    }

    /// Takes a pin away.
    #[inline]
    fn unpin(&self) {
        self.state.fetch_sub(1, Release);
    }

    /// Gets exclusive access: sets `BUSY`, and clears `PUBLISHED`, if `accept` returns `true` for a
    /// state without `BUSY`. Otherwise returns `false`.
    ///
    /// The caller has a [`ChangeGuard`]: a busy context is on another CPU and soon done, and with
    /// `CONFIG_PREEMPT_RT` there is none.
    fn enter(&self, accept: impl Fn(u64) -> bool) -> bool {
        let mut old = self.state.load(Relaxed);
        loop {
            if old & BUSY != 0 {
                core::hint::spin_loop();
                old = self.state.load(Relaxed);
                continue;
            }
            if !accept(old) {
                return false;
            }
            match self.state.cmpxchg(old, (old & !PUBLISHED) | BUSY, Full) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Ends exclusive access, with the value published under a key or not.
    fn leave(&self, key: Option<u8>) {
        let mut old = self.state.load(Relaxed);
        loop {
            let new = match key {
                Some(key) => (old & PINS) | (u64::from(key) << KEY_SHIFT) | PUBLISHED,
                None => old & (PINS | KEY),
            };
            match self.state.cmpxchg(old, new, Full) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Lets `fill` change the unpublished value, and publishes it under `key` if that succeeds.
    ///
    /// Any context with interrupts on; `fill` runs with bottom halves disabled. Fails with `EBUSY`
    /// when the value is published already.
    pub(crate) fn publish(&self, key: u8, fill: impl FnOnce(&mut T) -> Result) -> Result {
        let _change = ChangeGuard::new(self);
        if !self.enter(|old| old & PUBLISHED == 0) {
            return Err(EBUSY);
        }
        // SAFETY: `BUSY` is ours, and the last `revoke` has waited for all pins.
        let result = fill(unsafe { &mut *self.value.get() });
        self.leave(result.is_ok().then_some(key));
        result
    }

    /// Whether the value is published, at this moment.
    pub(crate) fn is_published(&self) -> bool {
        self.state.load(Acquire) & PUBLISHED != 0
    }

    /// The key under which the value is published, at this moment.
    pub(crate) fn key(&self) -> Option<u8> {
        let state = self.state.load(Acquire);
        (state & PUBLISHED != 0).then_some(((state & KEY) >> KEY_SHIFT) as u8)
    }

    /// Revokes the value: no new pin is made, and the call waits for the end of the old ones. Then
    /// `after` has exclusive access, with bottom halves disabled.
    ///
    /// Any context with interrupts on; the caller holds no pin. Fails with `ENOENT` when the value is
    /// not published; a concurrent revocation is complete then.
    pub(crate) fn revoke<R>(&self, after: impl FnOnce(&mut T) -> R) -> Result<R> {
        let _change = ChangeGuard::new(self);
        match self.enter(|old| old & PUBLISHED != 0) {
            true => self.finish_revoke(after),
            false => Err(ENOENT),
        }
    }

    /// As [`revoke`](Self::revoke), of a value that is published under `key` and that `accept`
    /// agrees to. Fails with `EPERM` when it does not agree; pins are not disturbed then.
    pub(crate) fn revoke_if<R>(
        &self,
        key: u8,
        accept: impl Fn(&T) -> bool,
        after: impl FnOnce(&mut T) -> R,
    ) -> Result<R> {
        let _change = ChangeGuard::new(self);
        loop {
            if !self.try_pin(key) {
                if self.state.load(Acquire) & BUSY != 0 {
                    // A revocation is to be complete, a publication to be seen.
                    core::hint::spin_loop();
                    continue;
                }
                return Err(ENOENT);
            }
            // SAFETY: The pin was made while the value was published under `key`.
            let accepted = accept(unsafe { &*self.value.get() });
            // While the pin exists no other value is published. A busy context waits for the end of
            // all pins, so this one ends.
            let entered = accepted && self.try_enter();
            self.unpin();
            match (accepted, entered) {
                (false, _) => return Err(EPERM),
                (true, true) => return self.finish_revoke(after),
                (true, false) => core::hint::spin_loop(),
            }
        }
    }

    /// Gets exclusive access to a published value that the caller has pinned, unless another context is
    /// busy.
    fn try_enter(&self) -> bool {
        let mut old = self.state.load(Relaxed);
        while old & BUSY == 0 {
            match self.state.cmpxchg(old, (old & !PUBLISHED) | BUSY, Full) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Waits for the pins of a value to which the caller has exclusive access, gives it to `after`,
    /// and ends the access.
    fn finish_revoke<R>(&self, after: impl FnOnce(&mut T) -> R) -> Result<R> {
        while self.state.load(Acquire) & PINS != 0 {
            // SAFETY: The caller holds no pin, so it is in no section.
            unsafe { bindings::rsiw_pin_wait() };
            if cfg!(CONFIG_PREEMPT_RT) {
                // What is left are pins about to be taken back.
                break;
            }
        }
        // SAFETY: `BUSY` is ours, and there are no pins but those that are about to be taken back
        // because `PUBLISHED` is not set.
        let result = after(unsafe { &mut *self.value.get() });
        self.leave(None);
        Ok(result)
    }
}

/// A pinned value, with bottom halves disabled.
///
/// # Invariants
///
/// A pin of `owner.cell()` that was made while the value was published.
pub(crate) struct Pinned<H: HasPinCell> {
    /// Keeps the cell.
    owner: Arc<H>,
    /// Dropped after the pin: what waits for the pin waits for the section.
    _section: PinSection,
}

impl<H: HasPinCell> Pinned<H> {
    /// Pins the value of `owner`, if it is published under `key`.
    ///
    /// Interrupts are on.
    #[inline]
    pub(crate) fn new(owner: Arc<H>, key: u8) -> Option<Self> {
        let section = PinSection::new();
        // Not `then_some`: a value made too much would take a pin away when it is dropped.
        // INVARIANT: Just pinned.
        owner.cell().try_pin(key).then(|| Self {
            owner,
            _section: section,
        })
    }

    /// What the value belongs to.
    #[inline]
    pub(crate) fn owner(&self) -> &H {
        &self.owner
    }
}

impl<H: HasPinCell> Deref for Pinned<H> {
    type Target = H::Value;

    #[inline]
    fn deref(&self) -> &H::Value {
        // SAFETY: By the invariants of both types the value does not change while this pin
        // exists; it is a pin of this cell (`HasPinCell`).
        unsafe { &*self.owner.cell().value.get() }
    }
}

impl<H: HasPinCell> Drop for Pinned<H> {
    #[inline]
    fn drop(&mut self) {
        self.owner.cell().unpin();
    }
}

#[kunit_tests(rsiw_sys_ib_pin)]
mod tests {
    use super::*;
    use crate::sys::sync::work;
    use kernel::{
        impl_has_work,
        new_work,
        time::{
            delay::fsleep,
            Delta, //
        },
        workqueue::{
            Work,
            WorkItem, //
        }, //
    };

    /// Two numbers that are the same whenever they may be read.
    #[pin_data]
    struct Twins {
        cell: PinCell<(u64, u64)>,
        /// A reader saw them differ, or the number of times they were seen.
        differed: Atomic<bool>,
        seen: Atomic<u32>,
        stop: Atomic<bool>,
        #[pin]
        reader: Work<Twins>,
    }

    impl_has_work! {
        impl HasWork<Self> for Twins { self.reader }
    }

    impl WorkItem for Twins {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            while !this.stop.load(Acquire) {
                if let Some(pin) = Pinned::new(this.clone(), 1) {
                    let (a, b) = *pin;
                    if a != b {
                        this.differed.store(true, Release);
                    }
                    this.seen.add(1u32, Relaxed);
                }
                // Lets others have the CPU.
                fsleep(Delta::from_micros(1));
            }
        }
    }

    impl_has_pin_cell! {
        impl HasPinCell<(u64, u64)> for Twins { self.cell }
    }

    fn twins() -> Result<Arc<Twins>> {
        Arc::pin_init(
            pin_init!(Twins {
                cell: PinCell::new((0, 0)),
                differed: Atomic::new(false),
                seen: Atomic::new(0),
                stop: Atomic::new(false),
                reader <- new_work!(),
            }),
            GFP_KERNEL,
        )
    }

    #[test]
    fn pins_only_what_is_published_under_the_key() -> Result {
        let twins = twins()?;
        assert!(Pinned::new(twins.clone(), 0).is_none());
        twins.cell.publish(0x5a, |value| {
            *value = (3, 3);
            Ok(())
        })?;
        assert!(Pinned::new(twins.clone(), 0).is_none());
        assert!(Pinned::new(twins.clone(), 0x5b).is_none());
        assert_eq!(*Pinned::new(twins.clone(), 0x5a).ok_or(ENOENT)?, (3, 3));
        assert!(twins.cell.publish(1, |_| Ok(())) == Err(EBUSY));
        assert!(twins.cell.revoke_if(0x5b, |_| true, |_| ()) == Err(ENOENT));
        assert!(twins.cell.revoke_if(0x5a, |value| value.0 == 4, |_| ()) == Err(EPERM));
        assert_eq!(*Pinned::new(twins.clone(), 0x5a).ok_or(ENOENT)?, (3, 3));
        let revoked = twins
            .cell
            .revoke_if(0x5a, |value| value.0 == 3, |value| value.0);
        assert_eq!(revoked?, 3);
        assert!(Pinned::new(twins.clone(), 0x5a).is_none());
        assert!(twins.cell.revoke_if(0x5a, |_| true, |_| ()) == Err(ENOENT));
        assert!(twins.cell.revoke(|_| ()) == Err(ENOENT));
        // What could not be filled is not published.
        assert!(twins.cell.publish(7, |_| Err(EIO)) == Err(EIO));
        assert!(Pinned::new(twins.clone(), 7).is_none());
        twins.cell.publish(7, |_| Ok(()))?;
        assert!(Pinned::new(twins, 7).is_some());
        Ok(())
    }

    #[test]
    fn nobody_sees_a_change_half_done() -> Result {
        let twins = twins()?;
        twins.cell.publish(1, |_| Ok(()))?;
        assert!(work::process().enqueue::<_, 0>(twins.clone()));
        let mut round = 0u64;
        // Until the reader has had its chances; each of them with a change just before or after.
        while twins.seen.load(Relaxed) < 2000 && round < 2_000_000 {
            round = round.wrapping_add(1);
            let change = |value: &mut (u64, u64)| {
                value.0 = round;
                core::hint::spin_loop();
                value.1 = round;
            };
            match round & 1 {
                0 => twins.cell.revoke(change)?,
                _ => twins
                    .cell
                    .revoke_if(1, |value| value.0 == value.1, change)?,
            }
            twins.cell.publish(1, |value| {
                if value.0 != round {
                    return Err(EINVAL);
                }
                Ok(())
            })?;
            fsleep(Delta::from_micros(1));
        }
        twins.stop.store(true, Release);
        work::process().flush();
        assert!(!twins.differed.load(Acquire));
        assert!(twins.seen.load(Acquire) >= 2000);
        Ok(())
    }
}
