// SPDX-License-Identifier: GPL-2.0

//! Data that the lock of a socket guards.
//!
//! [`SockCell`] ties a value to one TCP socket. Only a [`Locked`] of that socket opens the cell. A
//! callback, the spin lock, or `lock_sock` provides the [`Locked`]. TCP calls back into its user
//! while the user calls TCP: `sk_write_space` from `tcp_sendmsg_locked`, `sk_data_ready` from
//! `sk_flush_backlog`. Such a nested call cannot open the cell, which is open already. The nested
//! call can set a flag, `missed`, for the holder.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::cell::{
    Cell,
    UnsafeCell, //
};
use core::ops::{
    Deref,
    DerefMut, //
};

use kernel::prelude::*;
use pin_init::{
    cast_init,
    init, //
};

use super::socket::{
    Locked,
    SockRef, //
};

/// A value guarded by the lock of one socket.
///
/// # Invariants
///
/// `value`, `open` and `missed` are accessed only while the socket `sock` is held exclusively.
/// While `open` is true, exactly one [`Opened`] of this cell exists.
pub(crate) struct SockCell<T> {
    /// The socket whose lock guards the value. The reference prevents reuse of its address.
    sock: SockRef,
    /// An [`Opened`] exists.
    open: Cell<bool>,
    /// A refused nested call has set the flag.
    missed: Cell<bool>,
    /// The guarded value.
    value: UnsafeCell<T>,
}

// SAFETY: The value and the flags are accessed only with a `Locked` of `sock`. The socket lock
// orders those accesses between CPUs, so `T` is moved between threads, and not shared. `SockRef` is
// a counted reference.
unsafe impl<T: Send> Send for SockCell<T> {}
// SAFETY: As above: a shared reference alone gives access only to data under the socket lock.
unsafe impl<T: Send> Sync for SockCell<T> {}

/// The reason why a cell cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// A caller further up the call chain has the cell open.
    Nested,
    /// The [`Locked`] is that of another socket.
    OtherSocket,
}

impl<T> SockCell<T> {
    /// Makes a cell whose `value` the lock of `sock` guards, initialized in place. Any context.
    pub(crate) fn init<E>(sock: SockRef, value: impl Init<T, E>) -> impl Init<Self, E> {
        // SAFETY: `UnsafeCell<T>` has the layout of `T`, and every valid `T` is a valid
        // `UnsafeCell<T>`.
        let value = unsafe { cast_init::<T, UnsafeCell<T>, E>(value) };
        init!(Self {
            sock,
            open: Cell::new(false),
            missed: Cell::new(false),
            value <- value,
        }? E)
    }

    /// The socket whose lock guards the value.
    #[inline]
    pub(crate) fn sock(&self) -> &SockRef {
        &self.sock
    }

    /// Opens the cell for the holder of the socket. Any context in which the socket can be held.
    ///
    /// # Errors
    ///
    /// [`OpenError::Nested`] inside a callback that TCP makes while the cell is open;
    /// [`Self::note`] sets the flag for the outer holder. [`OpenError::OtherSocket`].
    #[inline]
    pub(crate) fn open<'a>(&'a self, locked: &'a mut Locked) -> Result<Opened<'a, T>, OpenError> {
        if !core::ptr::eq(locked.as_ptr(), self.sock.as_ptr()) {
            return Err(OpenError::OtherSocket);
        }
        if self.open.get() {
            return Err(OpenError::Nested);
        }
        // INVARIANT: The socket is held (`locked`), and no `Opened` existed.
        self.open.set(true);
        Ok(Opened { cell: self, locked })
    }

    /// Sets the flag `missed` for the context that has the cell open.
    #[inline]
    pub(crate) fn note(&self, locked: &mut Locked) {
        if core::ptr::eq(locked.as_ptr(), self.sock.as_ptr()) {
            self.missed.set(true);
        }
    }
}

/// An open cell: access to its value and to the locked socket.
///
/// # Invariants
///
/// `locked` is a lock of `cell.sock`, and this is the only `Opened` of `cell`.
pub(crate) struct Opened<'a, T> {
    cell: &'a SockCell<T>,
    /// The proof that the socket is held.
    locked: &'a mut Locked,
}

impl<T> Opened<'_, T> {
    /// The value and the lock at once, for calls into TCP that need both.
    #[inline]
    pub(crate) fn split(&mut self) -> (&mut T, &mut Locked) {
        // SAFETY: By the type invariant there is no other reference to the value. The socket lock
        // excludes other CPUs, and `open` nested calls.
        (unsafe { &mut *self.cell.value.get() }, self.locked)
    }

    /// Clears the flag `missed` and returns it. If it was set, the caller does the work of the
    /// refused callback.
    #[inline]
    pub(crate) fn take_missed(&mut self) -> bool {
        self.cell.missed.replace(false)
    }
}

impl<T> Deref for Opened<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: As in `split`; `&self` excludes exclusive references.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for Opened<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.split().0
    }
}

impl<T> Drop for Opened<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // INVARIANT: This was the only `Opened`; the socket is still held.
        self.cell.open.set(false);
    }
}
