// SPDX-License-Identifier: GPL-2.0

//! TCP sockets for connections that are processed in softirq context.
//!
//! - [`Socket`]: a connection; used by its owner in process context
//! - [`OwnerSock`]: the process credentials of accepted connections
//! - [`UnheldSocket`]: an accepted connection without a reference to its network namespace
//! - [`ListenSocket`]: a listening socket, and its incoming connections
//! - [`SockRef`]: a reference, to lock the socket
//! - [`Locked`]: the functions of the context that holds the socket; obtained by
//!   [`SockRef::lock`], [`SockRef::try_lock_bh`], or as the argument of a callback ([`Handler`])
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

/// A TCP socket that is connected, or not connected yet. Process context; all functions may sleep.
///
/// The socket holds a reference to its network namespace, as a user's socket does. Dropping the
/// value restores the callbacks, so that none runs afterwards, drops the handler and releases the
/// socket. The release sends FIN, or a reset after [`Socket::set_linger_abort`].
pub(crate) struct Socket {
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
    /// Makes a socket in a namespace, ready to connect. Nagle's algorithm is off, allocations are
    /// atomic, and urgent data is received in line.
    pub(crate) fn create(net: &NetNs, family: Family) -> Result<Self> {
        Ok(Self::not_holding(Base::create(net, family)?))
    }

    /// Makes a connection of a socket without another user; takes a reference to its namespace.
    fn from_base(base: Base) -> Result<Self> {
        base.hold_net()?;
        Ok(Self::not_holding(base))
    }

    /// As [`from_base`](Self::from_base), without taking a reference to the namespace.
    fn not_holding(base: Base) -> Self {
        let socket = Self {
            base,
            installed: Cell::new(Installed::NONE),
        };
        // SAFETY: The value owns the socket, a TCP one; process context.
        unsafe { bindings::rsiw_sk_prepare(socket.base.sk()) };
        socket
    }

    /// Checks with the security modules whether the current process may connect to `addr`. The
    /// socket is not connected yet.
    ///
    /// # Errors
    ///
    /// The error of a security module, such as `EACCES` or `EPERM`.
    pub(crate) fn ask_to_connect(&self, addr: &SocketAddr) -> Result {
        let mut storage = to_storage(addr);
        // SAFETY: The value owns the socket, which is not connected; the length is that of the
        // address.
        to_result(unsafe {
            bindings::rsiw_sock_may_connect(
                self.base.as_ptr(),
                (&raw mut storage).cast(),
                storage_len(addr),
            )
        })
    }

    /// Resets the connection. The socket can connect again, from the same address; a port that TCP
    /// has chosen is released.
    pub(crate) fn disconnect(&self) -> Result {
        // SAFETY: The value owns the socket.
        to_result(unsafe { bindings::rsiw_sock_disconnect(self.base.as_ptr()) })
    }

    /// Assigns an accepted connection to the process that made `owner`. The connection inherits the
    /// security label and the control groups of `owner`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the memory of the connection exceeds the limit of the memory cgroup.
    pub(crate) fn inherit(&self, owner: &OwnerSock) -> Result {
        // SAFETY: Both sockets are owned, and TCP ones; process context.
        to_result(unsafe { bindings::rsiw_sk_inherit(self.base.sk(), owner.0.sk()) })
    }

    /// Calls `f`, which may sleep. Its allocations with `GFP_KERNEL_ACCOUNT` are charged to the
    /// memory cgroup of the socket, or to that of the caller if the socket has none. Process
    /// context.
    pub(crate) fn with_memcg<T>(&self, f: impl FnOnce() -> T) -> T {
        // SAFETY: The value owns the socket, whose memory cgroup stays until its end; process
        // context.
        let before = unsafe { bindings::rsiw_sk_enter_memcg(self.base.sk()) };
        let value = f();
        // SAFETY: `before` is the value that the call above has replaced.
        unsafe { bindings::rsiw_leave_memcg(before) };
        value
    }

    /// Starts to connect. TCP calls [`Handler::state_change`] when the attempt has ended;
    /// [`Socket::tcp_state`] and [`Socket::take_error`] return the outcome.
    pub(crate) fn connect_nonblocking(&self, addr: &SocketAddr) -> Result {
        let mut storage = to_storage(addr);
        // SAFETY: The value owns the socket; the length is that of the address.
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
        // SAFETY: The value owns the socket; the storage holds any address.
        let len =
            unsafe { bindings::kernel_getpeername(self.base.as_ptr(), (&raw mut storage).cast()) };
        if len < 0 {
            return Err(Error::from_errno(len));
        }
        from_storage(&storage)
    }

    /// Makes the release of the socket reset the connection, and discard unsent data.
    pub(crate) fn set_linger_abort(&self) {
        // SAFETY: The value owns the socket.
        unsafe { bindings::sock_no_linger(self.base.sk()) }
    }

    /// Sets the TCP user timeout (RFC 5482) in milliseconds; 0: the default of the system.
    pub(crate) fn set_user_timeout(&self, millis: u32) {
        let millis = c_int::try_from(millis).unwrap_or(c_int::MAX);
        // SAFETY: The value owns the socket, a TCP one. `millis` is not negative.
        unsafe { bindings::rsiw_sk_set_user_timeout(self.base.sk(), millis) };
    }

    /// Fixes the size of the send buffer in octets; otherwise TCP adapts it.
    pub(crate) fn set_sndbuf_cap(&self, octets: u32) {
        let octets = c_int::try_from(octets).unwrap_or(c_int::MAX);
        // SAFETY: The value owns the socket.
        unsafe { bindings::rsiw_sk_cap_sndbuf(self.base.sk(), octets) }
    }

    /// Sends as much as the send buffer takes; returns the number of octets.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the send buffer is full, or the socket is not connected yet.
    pub(crate) fn send_nonblocking(&self, buf: &[u8]) -> Result<usize> {
        // SAFETY: The value owns the socket; the pointer and the length are those of a slice.
        let sent =
            unsafe { bindings::rsiw_sock_send(self.base.as_ptr(), buf.as_ptr().cast(), buf.len()) };
        octets(sent)
    }

    /// Receives available octets, up to the length of `buf`; 0 octets: the peer has sent FIN.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: no octets are available. `ENOTCONN`: the socket is not connected yet.
    pub(crate) fn recv_nonblocking(&self, buf: &mut [u8]) -> Result<usize> {
        // SAFETY: The value owns the socket; the pointer and the length are those of a writable
        // slice.
        let received = unsafe {
            bindings::rsiw_sock_recv(self.base.as_ptr(), buf.as_mut_ptr().cast(), buf.len())
        };
        octets(received)
    }

    /// The state of the connection, possibly stale after the return.
    pub(crate) fn tcp_state(&self) -> TcpState {
        // SAFETY: The value owns the socket.
        TcpState::from_raw(unsafe { bindings::rsiw_sk_state(self.base.sk()) })
    }

    /// Takes the pending error of the socket.
    pub(crate) fn take_error(&self) -> Option<Error> {
        // SAFETY: The value owns the socket.
        let error = unsafe { bindings::rsiw_sk_take_error(self.base.sk()) };
        (error < 0).then(|| Error::from_errno(error))
    }

    /// Installs `handler` and drops the previous one.
    ///
    /// TCP does not repeat earlier events: the caller checks the state, and reads, afterwards.
    pub(crate) fn install<H: Handler>(&self, handler: Arc<H>) {
        self.put(callback::install(&self.base, handler));
    }

    /// Replaces the record of the installed handler, and drops the previous handler.
    fn put(&self, new: Installed) {
        let old = self.installed.replace(new);
        // SAFETY: The callbacks of a connection run under its lock, which the exchange of callbacks
        // has held. So no callback uses the old handler.
        unsafe { old.release() };
    }

    /// The local and the peer's address, for trace events; [`UNKNOWN`](crate::sys::trace::UNKNOWN)
    /// for a missing one. Process context; sleeps.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        (
            self.local_addr().unwrap_or(crate::sys::trace::UNKNOWN),
            self.peer_addr().unwrap_or(crate::sys::trace::UNKNOWN),
        )
    }

    /// A reference, to lock the socket.
    pub(crate) fn sock(&self) -> SockRef {
        // SAFETY: The value owns the socket, and so a reference to its `struct sock`.
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

/// A socket that is never connected, made by the process that owns a queue pair or accepts a
/// connection.
///
/// Connections accepted for the queue pair inherit the socket's security label, control group and
/// memory cgroup.
pub(crate) struct OwnerSock(Base);

impl OwnerSock {
    /// Makes a socket of the current process ([`Base::create`]).
    pub(crate) fn create(net: &NetNs, family: Family) -> Result<Self> {
        Ok(Self(Base::create(net, family)?))
    }

    /// As [`create`](Self::create); `None` for a kernel thread, which has no such attributes.
    pub(crate) fn of_caller(net: &NetNs, family: Family) -> Result<Option<Self>> {
        // SAFETY: The helper reads a flag of the current task.
        let is_process = unsafe { bindings::rsiw_caller_is_process() };
        is_process.then(|| Self::create(net, family)).transpose()
    }
}

/// An accepted connection without a reference to its network namespace. Process context; all
/// functions may sleep.
///
/// The owner drops the value before the namespace is removed. Dropping it resets the connection, so
/// no TIME-WAIT socket remains.
pub(crate) struct UnheldSocket(Socket);

impl UnheldSocket {
    /// Wraps the child of a listening socket.
    fn new(base: Base) -> Self {
        let socket = Socket::not_holding(base);
        socket.set_linger_abort();
        Self(socket)
    }

    /// Takes a reference to the namespace, and makes a [`Socket`] of the connection.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the namespace is being removed.
    pub(crate) fn hold(self) -> Result<Socket> {
        self.0.base.hold_net()?;
        // SAFETY: The value owns the socket, a TCP one; process context.
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

/// Converts a C result: a number of octets, or a negative error.
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
        // The listener of the pair is closed.
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
        // The socket has dropped the only other reference.
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
