// SPDX-License-Identifier: GPL-2.0

//! Use of an object of `ib_core` that will be freed by somebody else.
//!
//! `ib_core` frees its `ib_qp`, `ib_cq` and `ib_srq` after our destroy callback has returned, while
//! work items of ours may be about to use them. [`CoreRef`] counts the users; destroying waits for
//! the last one and refuses new ones.

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
        Completion, //
    }, //
};

/// No more users are let in.
const RETIRED: u32 = 1 << 31;

/// A pointer-like value and its users.
#[pin_data]
pub(crate) struct CoreRef<T> {
    /// The value.
    value: T,
    /// One for each user, one until it is retired, and [`RETIRED`] from then on.
    users: Atomic<u32>,
    /// There are no users any more.
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

impl<T> CoreRef<T> {
    /// Starts with `value` in use by its owner.
    pub(crate) fn new(value: T) -> impl PinInit<Self> {
        pin_init!(Self {
            value,
            users: Atomic::new(1),
            idle <- Completion::new(),
        })
    }

    /// Counts another user; `false` once the value is being retired: others that come and go all the
    /// time would keep that from ending.
    pub(crate) fn get(&self) -> bool {
        let mut users = self.users.load(Relaxed);
        loop {
            // Whoever retires it has his own one until then.
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
    pub(crate) fn put(&self) {
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
    /// For those who know that the object is not being destroyed, such as its own callbacks.
    pub(crate) fn value(&self) -> &T {
        &self.value
    }

    /// Lets nobody in any more, counts the owner off and waits for the other users. Once, in process
    /// context; sleeps.
    pub(crate) fn retire(&self) {
        self.users.fetch_add(RETIRED, Full);
        self.put();
        self.idle.wait_for_completion();
    }
}

#[kunit_tests(rsiw_sys_core_ref)]
mod tests {
    use kernel::sync::Arc;

    use super::*;

    #[test]
    fn nobody_is_let_in_when_it_is_retired() -> Result {
        let one = Arc::pin_init(CoreRef::new(7), GFP_KERNEL)?;
        assert!(one.get());
        // As `retire` begins: there is a user left, for whom it waits.
        one.users.fetch_add(RETIRED, Full);
        one.put();
        assert!(!one.get());
        assert!(one.with(|_| ()).is_none());
        assert!(one.users.load(Relaxed) == RETIRED | 1);
        // The last one ends the wait.
        one.put();
        one.idle.wait_for_completion();
        assert!(!one.get());
        Ok(())
    }

    #[test]
    fn without_users_it_is_retired_at_once() -> Result {
        let one = Arc::pin_init(CoreRef::new(7), GFP_KERNEL)?;
        assert!(one.with(|value| *value) == Some(7));
        one.retire();
        assert!(!one.get());
        Ok(())
    }
}
