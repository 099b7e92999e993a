// SPDX-License-Identifier: GPL-2.0

//! References to sockets, and the locks that hold a socket exclusively.
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

/// The error for a socket that a process owns (`lock_sock()`). At its release the process handles
/// the backlog of TCP, but no work of other contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnedByUser;

/// A counted reference to a TCP socket, which may have been released by its owner.
///
/// # Invariants
///
/// The pointer names a TCP socket, and the value owns one reference to it.
pub(crate) struct SockRef(NonNull<bindings::sock>);

// SAFETY: `struct sock` has an atomic reference count, and its users lock it.
unsafe impl Send for SockRef {}
// SAFETY: As above.
unsafe impl Sync for SockRef {}

impl SockRef {
    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `sk` is a TCP socket with a reference during the call.
    pub(super) unsafe fn new(sk: *mut bindings::sock) -> Self {
        // SAFETY: By this function's contract.
        unsafe { bindings::rsiw_sk_hold(sk) };
        // INVARIANT: The value owns the reference taken above.
        // SAFETY: By this function's contract `sk` is a socket, and so not null.
        Self(unsafe { NonNull::new_unchecked(sk) })
    }

    /// The C object.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut bindings::sock {
        self.0.as_ptr()
    }

    /// The number of segments that TCP has retransmitted. Any context.
    pub(crate) fn retransmits(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_retransmits(self.as_ptr()) }
    }

    /// Takes ownership of the socket (`lock_sock()`). Process context; sleeps. Dropping the guard
    /// processes the backlog, callbacks included.
    pub(crate) fn lock(&self) -> LockedProc<'_> {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_lock(self.as_ptr()) };
        // INVARIANT: The call above has taken the lock.
        LockedProc(self, NotThreadSafe)
    }

    /// Takes the spin lock of the socket. Process or softirq context; not with interrupts off, and
    /// not under the lock of a socket. Does not sleep, but spins while another CPU holds the lock.
    ///
    /// # Errors
    ///
    /// [`OwnedByUser`]: a process owns the socket, for an unbounded time.
    #[inline]
    pub(crate) fn try_lock_bh(&self) -> Result<LockedBh<'_>, OwnedByUser> {
        // SAFETY: By the type invariant.
        if !unsafe { bindings::rsiw_sk_try_lock_bh(self.as_ptr()) } {
            return Err(OwnedByUser);
        }
        // INVARIANT: The call above has taken the lock.
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
        // SAFETY: By the type invariant the value owns the reference, which is not used after this.
        unsafe { bindings::rsiw_sk_put(self.as_ptr()) }
    }
}

/// A socket that a process owns.
///
/// # Invariants
///
/// This task holds the lock until the value is dropped.
pub(crate) struct LockedProc<'a>(&'a SockRef, NotThreadSafe);

/// A socket whose spin lock the caller holds, with bottom halves off.
///
/// # Invariants
///
/// This context holds the lock until the value is dropped.
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
        // SAFETY: By the type invariant; `&mut self` excludes other references.
        unsafe { Locked::from_raw_mut(self.0 .0) }
    }
}

impl Drop for LockedProc<'_> {
    fn drop(&mut self) {
        // SAFETY: `lock` has taken the lock, and no borrow of the guard is left.
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
        // SAFETY: By the type invariant; `&mut self` excludes other references.
        unsafe { Locked::from_raw_mut(self.0 .0) }
    }
}

impl Drop for LockedBh<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `try_lock_bh` has taken the lock, and no borrow of the guard is left.
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
