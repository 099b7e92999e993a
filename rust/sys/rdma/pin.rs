// SPDX-License-Identifier: GPL-2.0

//! Revocable values that readers pin.
//!
//! A [`PinCell`] is either published, with an 8-bit key, or not. Readers pin the value; a
//! revocation waits until the last pin is dropped, and then has exclusive access. Readers hold pins
//! with bottom halves disabled and for a bounded time, so the wait is a short spin.
//!
//! With `CONFIG_PREEMPT_RT` a context that holds pins can be preempted, also by a real-time thread
//! that revokes. There a context holds a lock as long as it has pins (`rust/helpers/pin.c`). A
//! revocation sleeps on that lock, so the holder inherits its priority.
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

/// The value is published.
const PUBLISHED: u64 = 1 << 63;
/// A context changes the value, or waits for pins to do so.
const BUSY: u64 = 1 << 62;
/// The lowest bit of the key.
const KEY_SHIFT: u32 = 32;
/// The bits of the key.
const KEY: u64 = 0xff << KEY_SHIFT;
/// The bits of the number of pins.
const PINS: u64 = 0xffff_ffff;

/// A value that readers pin and its owner can revoke.
///
/// # Invariants
///
/// Only the context that has set `BUSY` changes the value. That context first waits for all pins
/// made while `PUBLISHED` was set. The value is read only through such pins.
pub(crate) struct PinCell<T> {
    /// The state word, described at the head of the file.
    state: Atomic<u64>,
    value: UnsafeCell<T>,
}

// SAFETY: The value moves with the cell.
unsafe impl<T: Send> Send for PinCell<T> {}
// SAFETY: Pins give shared access from several CPUs, `publish` and `revoke` exclusive one.
unsafe impl<T: Send + Sync> Sync for PinCell<T> {}

/// An object with a [`PinCell`] as a field; implemented by [`impl_has_pin_cell!`].
///
/// # Safety
///
/// `cell` returns the same field of the object at each call.
pub(crate) unsafe trait HasPinCell {
    /// The type of the value.
    type Value;

    fn cell(&self) -> &PinCell<Self::Value>;
}

/// Implements [`HasPinCell`] for a type; names the field.
macro_rules! impl_has_pin_cell {
    (impl HasPinCell<$value:ty> for $owner:ty { self.$field:ident }) => {
        // SAFETY: The field of that name: a pattern, other than `self.field`, follows no `Deref`.
        unsafe impl $crate::sys::rdma::pin::HasPinCell for $owner {
            type Value = $value;

            #[inline]
            fn cell(&self) -> &$crate::sys::rdma::pin::PinCell<$value> {
                let Self { $field, .. } = self;
                // A tuple prevents a coercion by `Deref`: the compiler coerces a reference only.
                let field = ($field,);
                let (cell,): (&$crate::sys::rdma::pin::PinCell<$value>,) = field;
                cell
            }
        }
    };
}
pub(crate) use impl_has_pin_cell;

/// A section in which the context may hold pins: bottom halves are disabled. Sections nest. Not
/// with interrupts off.
struct PinSection(NotThreadSafe);

impl PinSection {
    /// Begins a section.
    #[inline]
    fn new() -> Self {
        // SAFETY: `drop` ends the section in the same task, since the type is not `Send`.
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

/// The right of the context to change a cell: bottom halves are disabled. Does not nest. Not with
/// interrupts off.
///
/// With `CONFIG_PREEMPT_RT` other contexts that change the cell sleep until the guard is dropped.
struct ChangeGuard<'a, T> {
    cell: &'a PinCell<T>,
    /// The guard is dropped in the task that made it.
    _task: NotThreadSafe,
}

impl<'a, T> ChangeGuard<'a, T> {
    /// Begins a change of `cell`.
    fn new(cell: &'a PinCell<T>) -> Self {
        // SAFETY: `drop` ends the change in the same task, since the type is not `Send`. The
        // address is only hashed.
        unsafe { bindings::rsiw_pin_change_begin(core::ptr::from_ref(cell).cast()) };
        Self {
            cell,
            _task: NotThreadSafe,
        }
    }
}

impl<T> Drop for ChangeGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `new` has begun the change in this task; the cell has not moved, as it is
        // borrowed.
        unsafe { bindings::rsiw_pin_change_end(core::ptr::from_ref(self.cell).cast()) };
    }
}

impl<T> PinCell<T> {
    /// Makes a cell with an unpublished value.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            state: Atomic::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Adds a pin if the value is published under `key`. Otherwise removes the pin and returns
    /// `false`.
    #[inline]
    fn try_pin(&self, key: u8) -> bool {
        // Each CPU holds a bounded number of pins, so the count does not reach the key.
        let old = self.state.fetch_add(1, Acquire);
        let ok = old & PUBLISHED != 0 && (old & KEY) >> KEY_SHIFT == u64::from(key);
        if !ok {
            self.unpin();
        }
        ok
    }

    /// Removes a pin.
    #[inline]
    fn unpin(&self) {
        self.state.fetch_sub(1, Release);
    }

    /// Begins exclusive access: sets `BUSY`, and clears `PUBLISHED`, if `accept` returns `true` for
    /// a state without `BUSY`. Otherwise returns `false`.
    ///
    /// The caller has a [`ChangeGuard`]. So a busy context is on another CPU, and soon done. With
    /// `CONFIG_PREEMPT_RT` there is no busy context.
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

    /// Ends exclusive access; publishes the value under `key`, if there is one.
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
        // SAFETY: This context has set `BUSY`, and the last `revoke` has waited for all pins.
        let result = fill(unsafe { &mut *self.value.get() });
        self.leave(result.is_ok().then_some(key));
        result
    }

    /// Whether the value is published. The answer may be stale when it returns.
    pub(crate) fn is_published(&self) -> bool {
        self.state.load(Acquire) & PUBLISHED != 0
    }

    /// The key under which the value is published. The answer may be stale when it returns.
    pub(crate) fn key(&self) -> Option<u8> {
        let state = self.state.load(Acquire);
        (state & PUBLISHED != 0).then_some(((state & KEY) >> KEY_SHIFT) as u8)
    }

    /// Revokes the value: prevents new pins, waits for the existing ones, and then calls `after`
    /// with exclusive access and bottom halves disabled.
    ///
    /// Any context with interrupts on; the caller holds no pin. Fails with `ENOENT` when the value
    /// is not published; a concurrent revocation is complete then.
    pub(crate) fn revoke<R>(&self, after: impl FnOnce(&mut T) -> R) -> Result<R> {
        let _change = ChangeGuard::new(self);
        match self.enter(|old| old & PUBLISHED != 0) {
            true => self.finish_revoke(after),
            false => Err(ENOENT),
        }
    }

    /// As [`revoke`](Self::revoke), if the value is published under `key` and `accept` returns
    /// `true`. Fails with `EPERM` when `accept` returns `false`; existing pins stay valid then.
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
                    // Wait: a revocation must be complete before `ENOENT`, a publication visible.
                    core::hint::spin_loop();
                    continue;
                }
                return Err(ENOENT);
            }
            // SAFETY: The pin was made while the value was published under `key`.
            let accepted = accept(unsafe { &*self.value.get() });
            // While the pin exists no other value is published. A busy context waits for all pins,
            // so this context drops its pin before it tries again.
            let entered = accepted && self.try_enter();
            self.unpin();
            match (accepted, entered) {
                (false, _) => return Err(EPERM),
                (true, true) => return self.finish_revoke(after),
                (true, false) => core::hint::spin_loop(),
            }
        }
    }

    /// Begins exclusive access to a published value that the caller has pinned. Returns `false` if
    /// another context is busy.
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

    /// Completes a revocation: waits for the pins, calls `after` and ends the exclusive access. The
    /// caller has set `BUSY`.
    fn finish_revoke<R>(&self, after: impl FnOnce(&mut T) -> R) -> Result<R> {
        while self.state.load(Acquire) & PINS != 0 {
            // SAFETY: The caller holds no pin, so the context is in no pin section.
            unsafe { bindings::rsiw_pin_wait() };
            if cfg!(CONFIG_PREEMPT_RT) {
                // Any remaining pins are failed ones that `try_pin` is about to remove.
                break;
            }
        }
        // SAFETY: This context has set `BUSY`. The only pins are those that `try_pin` is about to
        // remove, because `PUBLISHED` is not set; such pins read nothing.
        let result = after(unsafe { &mut *self.value.get() });
        self.leave(None);
        Ok(result)
    }
}

/// A pinned value, with bottom halves disabled.
///
/// # Invariants
///
/// The value is a pin of `owner.cell()` made while the value was published.
pub(crate) struct Pinned<H: HasPinCell> {
    /// Keeps the cell allocated.
    owner: Arc<H>,
    /// Dropped after the pin: with `CONFIG_PREEMPT_RT` a revocation waits for the section.
    _section: PinSection,
}

impl<H: HasPinCell> Pinned<H> {
    /// Pins the value of `owner`, if it is published under `key`. Any context with interrupts on.
    #[inline]
    pub(crate) fn new(owner: Arc<H>, key: u8) -> Option<Self> {
        let section = PinSection::new();
        // Not `then_some`: its argument is made in any case, and dropping it would remove a pin.
        // INVARIANT: `try_pin` has made the pin.
        owner.cell().try_pin(key).then(|| Self {
            owner,
            _section: section,
        })
    }

    /// The object of the cell.
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
        cpu::nr_cpu_ids,
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

    /// Two numbers that are equal for every reader with a pin.
    #[pin_data]
    struct Twins {
        cell: PinCell<(u64, u64)>,
        /// Whether a reader has seen different numbers.
        differed: Atomic<bool>,
        seen: Atomic<u32>,
        /// Pins refused because of a concurrent change.
        refused: Atomic<u32>,
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
                } else {
                    this.refused.add(1u32, Relaxed);
                }
                // Gives the CPU to the other contexts.
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
                refused: Atomic::new(0),
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
        // A failed `fill` leaves the value unpublished.
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
        // One CPU may never be taken from the loop in the middle of a change.
        let overlap = || nr_cpu_ids() == 1 || twins.refused.load(Relaxed) != 0;
        // Changes the value until the reader has made 2000 reads, and met a change.
        while (twins.seen.load(Relaxed) < 2000 || !overlap()) && round < 2_000_000 {
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
        // Without overlap the test proves nothing.
        assert!(overlap());
        Ok(())
    }
}
