// SPDX-License-Identifier: GPL-2.0

//! Data that belongs to the exclusive holder of a socket.
//!
//! [`SockCell`] ties a value to one TCP socket. A [`Locked`] of that socket, however it was
//! obtained (callback, spin lock, `lock_sock`), opens the cell; nothing else does. TCP calls back
//! into its user while the user calls TCP: `sk_write_space` out of `tcp_sendmsg_locked`,
//! `sk_data_ready` out of `sk_flush_backlog`. Such an inner call finds the cell open already, and
//! is refused. The inner call can leave a note for the holder.
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
/// `value`, `open` and `missed` are touched only while the socket `sock` is held exclusively.
/// While `open` is true, exactly one [`Opened`] of this cell exists.
pub(crate) struct SockCell<T> {
    /// The socket whose lock guards the value; keeps its address from being used again.
    sock: SockRef,
    /// An [`Opened`] exists.
    open: Cell<bool>,
    /// A nested call that was refused left a note.
    missed: Cell<bool>,
    /// The guarded value.
    value: UnsafeCell<T>,
}

// SAFETY: The value and the flags are reached only through `open`, which demands a `Locked` of
// `sock`. The socket lock orders those accesses between CPUs, so `T` is moved between threads, and
// not shared. `SockRef` is a reference count.
unsafe impl<T: Send> Send for SockCell<T> {}
// SAFETY: As above: a shared reference alone reaches nothing that is not under the socket lock.
unsafe impl<T: Send> Sync for SockCell<T> {}

/// Why a cell could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// The holder of the socket has the cell open further up the call chain.
    Nested,
    /// The lock shown is that of another socket.
    OtherSocket,
}

impl<T> SockCell<T> {
    /// Puts `value` under the lock of `sock`, initialized in place. Any context.
    pub(crate) fn init<E>(sock: SockRef, value: impl Init<T, E>) -> impl Init<Self, E> {
        // SAFETY: `UnsafeCell<T>` has the layout of `T`, and a valid `T` is a valid `UnsafeCell<T>`.
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
    /// [`Self::note`] leaves a note for the outer holder.
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

    /// Leaves a note for the context that has the cell open.
    #[inline]
    pub(crate) fn note(&self, locked: &mut Locked) {
        if core::ptr::eq(locked.as_ptr(), self.sock.as_ptr()) {
            self.missed.set(true);
        }
    }
}

/// A cell that is open: its value, and the socket lock that entitles to it.
///
/// # Invariants
///
/// `locked` is a lock of `cell.sock`, and this is the only `Opened` of `cell`.
pub(crate) struct Opened<'a, T> {
    /// The cell.
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

    /// Whether a refused callback left a note since the last call; its work is now the caller's.
    #[inline]
    pub(crate) fn take_missed(&mut self) -> bool {
        self.cell.missed.replace(false)
    }
}

impl<T> Deref for Opened<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: As in `split`; `&self` keeps exclusive references away.
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
