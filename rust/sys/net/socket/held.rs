// SPDX-License-Identifier: GPL-2.0

//! References to sockets, and the ways to hold a socket exclusively.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    ops::{
        Deref,
        DerefMut, //
    },
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    types::NotThreadSafe, //
};

use super::{
    bindings,
    Locked, //
};

/// A process owns the socket. It works off what comes meanwhile, but not what others leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnedByUser;

/// A counted reference to a TCP socket, which may have been released by its owner.
///
/// # Invariants
///
/// Points to a TCP socket of which one reference is owned.
pub(crate) struct SockRef(NonNull<bindings::sock>);

// SAFETY: `struct sock` is reference counted by atomics, and locked by its users.
unsafe impl Send for SockRef {}
// SAFETY: As above.
unsafe impl Sync for SockRef {}

impl SockRef {
    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `sk` is a TCP socket to which there is a reference during the call.
    pub(super) unsafe fn new(sk: *mut bindings::sock) -> Self {
        // SAFETY: By this function's contract.
        unsafe { bindings::rsiw_sk_hold(sk) };
        // INVARIANT: The reference just taken.
        // SAFETY: A socket is not null.
        Self(unsafe { NonNull::new_unchecked(sk) })
    }

    /// The C object.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut bindings::sock {
        self.0.as_ptr()
    }

    /// Segments that TCP has sent again so far. Any context.
    pub(crate) fn retransmits(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_retransmits(self.as_ptr()) }
    }

    /// Owns the socket (`lock_sock()`). Process context; sleeps. When the guard is dropped, the
    /// caller processes the backlog, callbacks included.
    pub(crate) fn lock(&self) -> LockedProc<'_> {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_lock(self.as_ptr()) };
        // INVARIANT: The lock was just taken.
        LockedProc(self, NotThreadSafe)
    }

    /// Makes the socket the caller's for a short while. Process context with bottom halves on or
    /// off, or softirq context; not with interrupts off, and not under the lock of a socket. Does
    /// not sleep, but spins while another CPU holds it.
    ///
    /// # Errors
    ///
    /// A process owns the socket, perhaps for long.
    #[inline]
    pub(crate) fn try_lock_bh(&self) -> Result<LockedBh<'_>, OwnedByUser> {
        // SAFETY: By the type invariant.
        if !unsafe { bindings::rsiw_sk_try_lock_bh(self.as_ptr()) } {
            return Err(OwnedByUser);
        }
        // INVARIANT: The lock was just taken.
        Ok(LockedBh(self, NotThreadSafe))
    }
}

impl Clone for SockRef {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { Self::new(self.as_ptr()) }
    }
}

impl Drop for SockRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariant a reference is owned; it is not used after this.
        unsafe { bindings::rsiw_sk_put(self.as_ptr()) }
    }
}

/// A socket that a process owns.
///
/// # Invariants
///
/// The lock is held, by this task, until the value is dropped.
pub(crate) struct LockedProc<'a>(&'a SockRef, NotThreadSafe);

/// A socket whose spin lock the caller has, with bottom halves off.
///
/// # Invariants
///
/// The lock is held, by this context, until the value is dropped.
pub(crate) struct LockedBh<'a>(&'a SockRef, NotThreadSafe);

impl Deref for LockedProc<'_> {
    type Target = Locked;

    fn deref(&self) -> &Locked {
        // SAFETY: By the type invariant.
        unsafe { Locked::from_raw(self.0 .0) }
    }
}

impl DerefMut for LockedProc<'_> {
    fn deref_mut(&mut self) -> &mut Locked {
        // SAFETY: By the type invariant; `&mut self` keeps other references away.
        unsafe { Locked::from_raw_mut(self.0 .0) }
    }
}

impl Drop for LockedProc<'_> {
    fn drop(&mut self) {
        // SAFETY: `lock` has taken the lock, and nothing borrows from the guard any more.
        unsafe { bindings::release_sock(self.0.as_ptr()) }
    }
}

impl Deref for LockedBh<'_> {
    type Target = Locked;

    #[inline]
    fn deref(&self) -> &Locked {
        // SAFETY: By the type invariant.
        unsafe { Locked::from_raw(self.0 .0) }
    }
}

impl DerefMut for LockedBh<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Locked {
        // SAFETY: By the type invariant; `&mut self` keeps other references away.
        unsafe { Locked::from_raw_mut(self.0 .0) }
    }
}

impl Drop for LockedBh<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `try_lock_bh` has taken the lock, and nothing borrows from the guard any more.
        unsafe { bindings::rsiw_sk_unlock_bh(self.0.as_ptr()) }
    }
}

#[kunit_tests(rsiw_sys_held)]
mod tests {
    use super::super::TcpState;
    use super::*;
    use crate::sys::{
        mm::{
            blocks::BlockChain,
            pages::Reuse, //
        },
        testing::connected, //
    };

    #[test]
    fn excludes() -> Result {
        let (a, _b) = connected()?;
        let sock = a.sock();
        {
            let locked = sock.lock();
            assert!(locked.tcp_state() == TcpState::Established);
            assert!(sock.try_lock_bh().is_err());
        }
        let locked = sock.try_lock_bh().map_err(|_| EBUSY)?;
        assert!(locked.as_ptr() == sock.as_ptr());
        Ok(())
    }

    #[test]
    fn released_socket_does_nothing() -> Result {
        let (a, b) = connected()?;
        let sock = a.sock();
        let mut burst = BlockChain::default();
        burst
            .fill(0, 9, 9, Reuse::InTurn, |out| (out.len(), ()))
            .ok_or(ENOMEM)?;
        drop(a);
        let mut locked = sock.lock();
        assert!(locked.send_copy(b"x") == Err(EPIPE));
        assert!(locked.send_pages(&mut burst, 0, 9) == Err(EPIPE));
        assert_eq!(locked.receive_walk(0, |view| view.len()), 0);
        locked.clear_nospace();
        locked.send_fin();
        drop(locked);
        drop(b);
        Ok(())
    }
}
