// SPDX-License-Identifier: GPL-2.0

//! TCP sockets for connections that are served in softirq context.
//!
//! - [`Socket`]: a connection, as its owner sees it, in process context
//! - [`OwnerSock`]: on whose behalf a connection is accepted
//! - [`UnheldSocket`]: an accepted connection that does not hold its network namespace yet
//! - [`ListenSocket`]: a listening socket, and the connections that come in
//! - [`SockRef`]: a reference, to lock the socket
//! - [`Locked`]: what the holder of the socket may do; obtained by [`SockRef::lock`],
//!   [`SockRef::try_lock_bh`], or as the argument of a callback ([`Handler`])
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/net/tcp.h`](srctree/include/net/tcp.h)

mod base;
mod callback;
mod held;
mod listen;
mod locked;
mod state;

use core::{
    cell::Cell,
    ops::Deref, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

use crate::sys::{
    bindings,
    errno::EINPROGRESS,
    net::{
        from_storage,
        storage_len,
        to_storage,
        Family,
        NetNs,
        SocketAddr,
        Storage, //
    }, //
};

use self::{
    base::Base,
    callback::Installed, //
};
pub(crate) use self::{
    callback::{
        CallbackSock,
        Handler,
        Incoming, //
    },
    held::{
        LockedBh,
        SockRef, //
    },
    listen::ListenSocket,
    locked::Locked,
    state::{
        TcpInfo,
        TcpState, //
    },
};

/// A TCP connection, or what is to become one. Process context; all may sleep.
///
/// It keeps its network namespace from ending, as a user's socket does. When it is dropped the
/// callbacks are restored: none is running or will run then. The reference to the handler is
/// dropped, and the socket is released. FIN closes it, or a reset after
/// [`Socket::set_linger_abort`].
pub(crate) struct Socket {
    /// The C object.
    base: Base,
    /// The handler in the socket's user data.
    installed: Cell<Installed>,
}

impl Deref for Socket {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Socket {
    /// Makes a socket in a namespace, ready to connect. Small frames are sent at once, memory is
    /// taken as softirqs need it, urgent data is data.
    pub(crate) fn create(net: &NetNs, family: Family) -> Result<Self> {
        Self::from_base(Base::create(net, family)?)
    }

    /// Makes a connection of a socket that has no other user.
    fn from_base(base: Base) -> Result<Self> {
        let socket = Self::not_holding(base);
        socket.hold_net()?;
        Ok(socket)
    }

    /// As [`from_base`](Self::from_base), but the namespace is not kept from ending.
    fn not_holding(base: Base) -> Self {
        let socket = Self {
            base,
            installed: Cell::new(Installed::NONE),
        };
        // SAFETY: The socket is ours, and a TCP one; process context.
        unsafe { bindings::rsiw_sk_prepare(socket.base.sk()) };
        socket
    }

    /// Takes a reference to the socket's namespace; `ENODEV` if the end of the namespace has begun.
    fn hold_net(&self) -> Result {
        // SAFETY: The socket is ours, and a TCP one; process context.
        match unsafe { bindings::rsiw_sk_hold_net(self.base.sk()) } {
            true => Ok(()),
            false => Err(ENODEV),
        }
    }

    /// Asks the security modules whether the current process may connect to `addr`. Before the
    /// socket is connected.
    ///
    /// # Errors
    ///
    /// `EACCES`, `EPERM`…: what they say.
    pub(crate) fn ask_to_connect(&self, addr: &SocketAddr) -> Result {
        let mut storage = to_storage(addr);
        // SAFETY: The socket is ours, and not connected; the address is one of as many octets.
        to_result(unsafe {
            bindings::rsiw_sock_may_connect(
                self.base.as_ptr(),
                (&raw mut storage).cast(),
                storage_len(addr),
            )
        })
    }

    /// Ends the connection by a reset. The socket can connect again, from the address that it has;
    /// a port that TCP has drawn is given back.
    pub(crate) fn disconnect(&self) -> Result {
        // SAFETY: The socket is ours.
        to_result(unsafe { bindings::rsiw_sock_disconnect(self.base.as_ptr()) })
    }

    /// Charges an accepted connection, which is charged to no process, to the memory cgroup of the
    /// current process.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: what the connection holds is above its limit.
    pub(crate) fn charge_to_caller(&self) -> Result {
        // SAFETY: The socket is ours, and a TCP one; process context.
        to_result(unsafe { bindings::rsiw_sk_charge_current(self.base.sk()) })
    }

    /// Gives a connection that a shared listener accepted to the process which made `owner`. The
    /// connection has the label and the control groups of `owner` from now on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: what the connection holds is above the limit of the memory cgroup.
    pub(crate) fn inherit(&self, owner: &OwnerSock) -> Result {
        // SAFETY: Both sockets are owned, and TCP ones; process context.
        to_result(unsafe { bindings::rsiw_sk_inherit(self.base.sk(), owner.0.sk()) })
    }

    /// Begins to connect. [`Handler::state_change`] is called at the end of it;
    /// [`Socket::tcp_state`] and [`Socket::take_error`] return the outcome.
    pub(crate) fn connect_nonblocking(&self, addr: &SocketAddr) -> Result {
        let mut storage = to_storage(addr);
        // SAFETY: The socket is ours; the address is one of as many octets.
        let result = to_result(unsafe {
            bindings::kernel_connect(
                self.base.as_ptr(),
                (&raw mut storage).cast(),
                storage_len(addr),
                bindings::RSIW_O_NONBLOCK,
            )
        });
        match result {
            Err(error) if error == EINPROGRESS => Ok(()),
            other => other,
        }
    }

    /// The peer's address.
    pub(crate) fn peer_addr(&self) -> Result<SocketAddr> {
        let mut storage = Storage::default();
        // SAFETY: The socket is ours; the address has room for any.
        let len =
            unsafe { bindings::kernel_getpeername(self.base.as_ptr(), (&raw mut storage).cast()) };
        if len < 0 {
            return Err(Error::from_errno(len));
        }
        from_storage(&storage)
    }

    /// Has the release of the socket reset the connection, and throw away what is not sent.
    pub(crate) fn set_linger_abort(&self) {
        // SAFETY: The socket is ours.
        unsafe { bindings::sock_no_linger(self.base.sk()) }
    }

    /// Limits how long the peer may leave data unacknowledged, in milliseconds; 0: as the system
    /// does (RFC 5482).
    pub(crate) fn set_user_timeout(&self, millis: u32) {
        let millis = c_int::try_from(millis).unwrap_or(c_int::MAX);
        // SAFETY: The socket is ours, and a TCP one. No value is refused that is not negative.
        unsafe { bindings::rsiw_sk_set_user_timeout(self.base.sk(), millis) };
    }

    /// Fixes the octets that may wait to be sent or acknowledged; TCP adapts the limit otherwise.
    pub(crate) fn set_sndbuf_cap(&self, octets: u32) {
        let octets = c_int::try_from(octets).unwrap_or(c_int::MAX);
        // SAFETY: The socket is ours.
        unsafe { bindings::rsiw_sk_cap_sndbuf(self.base.sk(), octets) }
    }

    /// Sends as far as there is room; returns how many octets.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: no room, or not connected yet.
    pub(crate) fn send_nonblocking(&self, buf: &[u8]) -> Result<usize> {
        // SAFETY: The socket is ours; the pointer and the length are those of a slice.
        let sent =
            unsafe { bindings::rsiw_sock_send(self.base.as_ptr(), buf.as_ptr().cast(), buf.len()) };
        octets(sent)
    }

    /// Receives what has arrived, up to the size of `buf`; 0 octets: the peer has sent FIN.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is nothing. `ENOTCONN`: not connected yet.
    pub(crate) fn recv_nonblocking(&self, buf: &mut [u8]) -> Result<usize> {
        // SAFETY: The socket is ours; the pointer and the length are those of a writable slice.
        let received = unsafe {
            bindings::rsiw_sock_recv(self.base.as_ptr(), buf.as_mut_ptr().cast(), buf.len())
        };
        octets(received)
    }

    /// The state of the connection at this moment.
    pub(crate) fn tcp_state(&self) -> TcpState {
        // SAFETY: The socket is ours.
        TcpState::from_raw(unsafe { bindings::rsiw_sk_state(self.base.sk()) })
    }

    /// The error that TCP noted, once.
    pub(crate) fn take_error(&self) -> Option<Error> {
        // SAFETY: The socket is ours.
        let error = unsafe { bindings::rsiw_sk_take_error(self.base.sk()) };
        (error < 0).then(|| Error::from_errno(error))
    }

    /// Installs `handler`, in place of an earlier one, whose reference is dropped.
    ///
    /// Earlier events are not repeated: the caller checks the state, and reads, after this.
    pub(crate) fn install<H: Handler>(&self, handler: Arc<H>) {
        self.put(callback::install(&self.base, handler));
    }

    /// Replaces the note of the installed handler, and drops the earlier handler.
    fn put(&self, new: Installed) {
        let old = self.installed.replace(new);
        // SAFETY: The callbacks of a connection run under its lock, which the exchange held: none
        // uses the old handler any more.
        unsafe { old.release() };
    }

    /// The addresses of both ends, for trace events; [`UNKNOWN`](crate::sys::trace::UNKNOWN) where there is
    /// none. Process context; sleeps.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        (
            self.local_addr().unwrap_or(crate::sys::trace::UNKNOWN),
            self.peer_addr().unwrap_or(crate::sys::trace::UNKNOWN),
        )
    }

    /// A reference, to lock the socket.
    pub(crate) fn sock(&self) -> SockRef {
        // SAFETY: The socket is ours, so it is counted.
        unsafe { SockRef::new(self.base.sk()) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        callback::uninstall(&self.base);
        self.put(Installed::NONE);
        // Now `base` releases the socket.
    }
}

/// A socket that is never connected. The owner of a queue pair makes it in its own context.
/// Connections accepted on its behalf get the label, control group and memory cgroup of that
/// socket.
pub(crate) struct OwnerSock(Base);

impl OwnerSock {
    /// Makes one for the current process ([`Base::create`]).
    pub(crate) fn create(net: &NetNs, family: Family) -> Result<Self> {
        Ok(Self(Base::create(net, family)?))
    }
}

/// An accepted connection that does not keep its network namespace from ending. Process context;
/// all may sleep.
///
/// Its owner drops it before the namespace ends. The drop resets it, so no TIME-WAIT socket
/// remains.
pub(crate) struct UnheldSocket(Socket);

impl UnheldSocket {
    /// Takes in the child of a listening socket.
    fn new(base: Base) -> Self {
        let socket = Socket::not_holding(base);
        socket.set_linger_abort();
        Self(socket)
    }

    /// Makes an ordinary connection of it.
    ///
    /// # Errors
    ///
    /// `ENODEV`: its namespace has begun to end.
    pub(crate) fn hold(self) -> Result<Socket> {
        self.0.hold_net()?;
        // SAFETY: The socket is ours, and a TCP one; process context.
        unsafe { bindings::rsiw_sk_set_linger_normal(self.0.base.sk()) };
        Ok(self.0)
    }
}

impl Deref for UnheldSocket {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.0
    }
}

/// A number of octets, or a negative error.
fn octets(result: c_int) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::from_errno(result))
}

#[kunit_tests(rsiw_sys_socket)]
mod tests {
    use super::*;
    use crate::sys::testing::{connected, eventually, Seen};

    #[test]
    fn connects_and_moves_octets_both_ways() -> Result {
        let (a, b) = connected()?;
        assert!(a.tcp_state() == TcpState::Established);
        assert!(a.local_addr()? == b.peer_addr()?);
        assert!(b.local_addr()? == a.peer_addr()?);
        let mut buf = [0u8; 16];
        assert!(b.recv_nonblocking(&mut buf) == Err(EAGAIN));
        assert_eq!(a.send_nonblocking(b"question")?, 8);
        assert!(eventually(|| b.recv_nonblocking(&mut buf) == Ok(8)));
        assert_eq!(buf.get(..8), Some(&b"question"[..]));
        assert_eq!(b.send_nonblocking(b"answer")?, 6);
        assert!(eventually(|| a.recv_nonblocking(&mut buf) == Ok(6)));
        assert_eq!(buf.get(..6), Some(&b"answer"[..]));
        a.sock().lock().send_fin();
        assert!(eventually(|| b.recv_nonblocking(&mut buf) == Ok(0)));
        assert!(b.tcp_state() == TcpState::CloseWait);
        Ok(())
    }

    #[test]
    fn refused_connection_is_told() -> Result {
        let (a, b) = connected()?;
        let nobody = b.local_addr()?;
        drop((a, b));
        let seen = Seen::new()?;
        let net = NetNs::init().ok_or(ENODEV)?;
        let socket = Socket::create(&net, Family::V4)?;
        socket.install(seen.clone());
        // The listener of the pair is gone.
        let begun = socket.connect_nonblocking(&nobody);
        assert!(eventually(|| socket.tcp_state() == TcpState::Close));
        let error = begun.err().or_else(|| socket.take_error());
        assert!(error == Some(crate::sys::errno::ECONNREFUSED));
        Ok(())
    }

    #[test]
    fn callbacks_come_until_the_handler_goes() -> Result {
        let (a, b) = connected()?;
        let first = Seen::new()?;
        let second = Seen::new()?;
        b.install(first.clone());
        a.send_nonblocking(b"1")?;
        assert!(eventually(|| first.data() != 0));
        b.install(second.clone());
        let before = first.data();
        a.send_nonblocking(b"2")?;
        assert!(eventually(|| second.data() != 0));
        assert_eq!(first.data(), before);
        // The socket had the only other reference, and let it go.
        assert!(Arc::into_unique_or_drop(first).is_some());
        a.set_linger_abort();
        drop(a);
        assert!(eventually(|| second.errors() != 0));
        assert!(b.take_error() == Some(crate::sys::errno::ECONNRESET));
        drop(b);
        assert!(Arc::into_unique_or_drop(second).is_some());
        Ok(())
    }
}
