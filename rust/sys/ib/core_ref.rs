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

/// A pointer-like value and its users.
#[pin_data]
pub(crate) struct CoreRef<T> {
    /// The value.
    value: T,
    /// One for each user, and one until it is retired.
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

    /// Counts another user; `false` when there is none any more.
    pub(crate) fn get(&self) -> bool {
        let mut users = self.users.load(Relaxed);
        loop {
            let Some(more) = users.checked_add(1).filter(|_| users != 0) else {
                return false;
            };
            match self.users.cmpxchg(users, more, Acquire) {
                Ok(_) => return true,
                Err(now) => users = now,
            }
        }
    }

    /// Counts a user off. Any context.
    pub(crate) fn put(&self) {
        if self.users.fetch_sub(1, Full) == 1 {
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

    /// Counts the owner off and waits for the other users. Once, in process context; sleeps.
    pub(crate) fn retire(&self) {
        self.put();
        self.idle.wait_for_completion();
    }
}
