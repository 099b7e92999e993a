// SPDX-License-Identifier: GPL-2.0

//! Counted use of verbs objects that `ib_core` frees.
//!
//! `ib_core` frees an `ib_qp`, `ib_cq` or `ib_srq` after the driver's destroy callback has
//! returned. Work items of the driver may be about to use the object then. A [`CoreRef`] counts
//! these users. Its retirement refuses new users and waits for the last one.
//!
//! Only the verbs callbacks create a [`CoreRef`]. The driver holds references to it, and accesses
//! the value only as a counted user.

use core::ops::Deref;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Completion, //
    }, //
};

/// The bit of `CoreRef::users` that refuses new users.
const RETIRED: u32 = 1 << 31;

/// A pointer to an object of `ib_core`, and the number of its users.
#[pin_data]
pub(crate) struct CoreRef<T> {
    /// The pointer.
    value: T,
    /// The number of users, plus one for the owner until retirement, plus [`RETIRED`] afterwards.
    users: Atomic<u32>,
    /// Completed when a retired value has no user.
    #[pin]
    idle: Completion,
}

/// A counted user that borrows the [`CoreRef`].
struct User<'a, T>(&'a CoreRef<T>);

impl<T> Drop for User<'_, T> {
    fn drop(&mut self) {
        self.0.put();
    }
}

impl<T> Deref for User<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// A counted user that owns a reference to the [`CoreRef`]. Retirement waits until it is dropped.
pub(crate) struct CoreHold<T>(Arc<CoreRef<T>>);

impl<T> CoreHold<T> {
    /// Keeps the user counted until [`CoreRef::put_leaked`].
    pub(in crate::sys) fn leak(self) -> Arc<CoreRef<T>> {
        let core = self.0.clone();
        // Drops the `Arc` alone: `CoreHold::drop` would uncount the user.
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: The value is read once. `this` is not used afterwards, and `ManuallyDrop` does
        // not drop it.
        drop(unsafe { core::ptr::read(&this.0) });
        core
    }
}

impl<T> Drop for CoreHold<T> {
    fn drop(&mut self) {
        self.0.put();
    }
}

/// A guard that retires a value when the creation of its object fails.
///
/// When the creation succeeds, the verbs callback forgets the guard.
pub(super) struct RetireOnDrop<'a, T>(pub(super) &'a CoreRef<T>);

impl<T> Drop for RetireOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.retire();
    }
}

impl<T> CoreRef<T> {
    /// Makes a count for `value` with one user, the owner. Process context; sleeps.
    pub(super) fn new(value: T) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                value,
                users: Atomic::new(1),
                idle <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Counts a user until the result is dropped; `None` once retirement has begun. Any context.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<CoreHold<T>> {
        self.get().then(|| CoreHold(self.clone()))
    }

    /// Uncounts a user that [`CoreHold::leak`] has left counted. Any context.
    ///
    /// # Safety
    ///
    /// The caller owns a user that [`CoreHold::leak`] has left counted, and passes it once.
    pub(in crate::sys) unsafe fn put_leaked(&self) {
        self.put();
    }

    /// Counts a user; `false` once retirement has begun. A series of short users could otherwise
    /// delay the end of retirement without bound.
    fn get(&self) -> bool {
        let mut users = self.users.load(Relaxed);
        loop {
            // Below `RETIRED` the count includes the owner, so it is never 0 here.
            let more = users.wrapping_add(1);
            if more >= RETIRED {
                return false;
            }
            match self.users.cmpxchg(users, more, Acquire) {
                Ok(_) => return true,
                Err(now) => users = now,
            }
        }
    }

    /// Uncounts a user; the last one of a retired value ends the wait of `retire`. Any context.
    fn put(&self) {
        if self.users.fetch_sub(1, Full) == RETIRED | 1 {
            self.idle.complete_all();
        }
    }

    /// Calls `f` with the value; `None` once retirement has begun. Retirement waits for `f`. Any
    /// context.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.get().then(|| f(&User(self)))
    }

    /// The value, without a counted user.
    ///
    /// # Safety
    ///
    /// The caller does not access the object of `ib_core`. A comparison of pointers is allowed.
    pub(super) unsafe fn value(&self) -> &T {
        &self.value
    }

    /// Refuses new users, uncounts the owner and waits for the other users. A second call only
    /// waits. Process context; sleeps.
    pub(crate) fn retire(&self) {
        let mut users = self.users.load(Relaxed);
        while users < RETIRED {
            match self.users.cmpxchg(users, users | RETIRED, Full) {
                Ok(_) => {
                    self.put();
                    break;
                }
                Err(now) => users = now,
            }
        }
        self.idle.wait_for_completion();
    }
}

#[kunit_tests(rsiw_sys_core_ref)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_let_in_when_it_is_retired() -> Result {
        let one = CoreRef::new(7)?;
        assert!(one.get());
        // The first step of `retire`, which then waits for the remaining user.
        one.users.fetch_add(RETIRED, Full);
        one.put();
        assert!(!one.get());
        assert!(one.with(|_| ()).is_none());
        assert!(one.users.load(Relaxed) == RETIRED | 1);
        // The last user completes `idle`.
        one.put();
        one.idle.wait_for_completion();
        assert!(!one.get());
        Ok(())
    }

    #[test]
    fn without_users_it_is_retired_at_once() -> Result {
        let one = CoreRef::new(7)?;
        assert!(one.with(|value| *value) == Some(7));
        drop(one.hold().ok_or(ENOENT)?);
        one.retire();
        assert!(!one.get());
        assert!(one.hold().is_none());
        // A second call returns, as `Object::empty` retires again.
        one.retire();
        Ok(())
    }
}
