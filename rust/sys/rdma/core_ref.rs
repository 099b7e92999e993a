// SPDX-License-Identifier: GPL-2.0

//! Use of an object of `ib_core`, which frees it.
//!
//! `ib_core` frees its `ib_qp`, `ib_cq` and `ib_srq` after our destroy callback has returned, while
//! work items of ours may be about to use them. [`CoreRef`] counts the users; destroying waits for
//! the last one and refuses new ones. The callbacks of the table of verbs make and retire it: the
//! driver has references, and reaches the value only as a user.

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

/// No more users are admitted.
const RETIRED: u32 = 1 << 31;

/// A pointer-like value and its users.
#[pin_data]
pub(crate) struct CoreRef<T> {
    /// The value.
    value: T,
    /// One for each user, one until it is retired, and [`RETIRED`] from then on.
    users: Atomic<u32>,
    /// Completed when no user is left.
    #[pin]
    idle: Completion,
}

/// The right to use the value for a while.
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

/// A user of the value for as long as it lives: retiring waits for it.
pub(crate) struct CoreHold<T>(Arc<CoreRef<T>>);

impl<T> CoreHold<T> {
    /// Leaves the user counted, until [`CoreRef::put_leaked`].
    pub(in crate::sys) fn leak(self) -> Arc<CoreRef<T>> {
        let core = self.0.clone();
        // The reference is given up by hand: what is not dropped is the user alone.
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: Read once, and not used in `this` any more.
        drop(unsafe { core::ptr::read(&this.0) });
        core
    }
}

impl<T> Drop for CoreHold<T> {
    fn drop(&mut self) {
        self.0.put();
    }
}

/// Retires a value whose object could not be made.
pub(super) struct RetireOnDrop<'a, T>(pub(super) &'a CoreRef<T>);

impl<T> Drop for RetireOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.retire();
    }
}

impl<T> CoreRef<T> {
    /// Starts with `value` in use by its owner. Process context; sleeps.
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

    /// Counts another user for as long as the result lives; `None` once the value is being retired.
    /// Any context.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<CoreHold<T>> {
        self.get().then(|| CoreHold(self.clone()))
    }

    /// Counts a user off that was [leaked](CoreHold::leak). Any context.
    ///
    /// # Safety
    ///
    /// It was leaked for the caller, which calls this once.
    pub(in crate::sys) unsafe fn put_leaked(&self) {
        self.put();
    }

    /// Counts another user; `false` once the value is being retired: others that come and go all the
    /// time would keep that from ending.
    fn get(&self) -> bool {
        let mut users = self.users.load(Relaxed);
        loop {
            // The retiring context has its own reference until then.
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

    /// Counts a user off. Any context.
    fn put(&self) {
        if self.users.fetch_sub(1, Full) == RETIRED | 1 {
            self.idle.complete_all();
        }
    }

    /// Uses the value, unless it is retired.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.get().then(|| f(&User(self)))
    }

    /// The value without counting a user.
    ///
    /// For what needs no live object.
    pub(super) fn value(&self) -> &T {
        &self.value
    }

    /// Admits no further user, counts the owner off and waits for the other users. Process context;
    /// sleeps. The second time it waits only.
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
        // As `retire` begins: there is a user left, and it waits for that.
        one.users.fetch_add(RETIRED, Full);
        one.put();
        assert!(!one.get());
        assert!(one.with(|_| ()).is_none());
        assert!(one.users.load(Relaxed) == RETIRED | 1);
        // The last user ends the wait.
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
        // Once more, as its maker does.
        one.retire();
        Ok(())
    }
}
