// SPDX-License-Identifier: GPL-2.0

//! Listening sockets.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::{
    cell::Cell,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    impl_has_work,
    new_work,
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use super::{
    bindings,
    callback::{
        self,
        Incoming,
        Installed, //
    },
    Base,
    Family,
    NetNs,
    Socket, //
    UnheldSocket,
};
use crate::sys::sync::work;

/// A TCP socket that listens. Process context; all functions may sleep.
///
/// The socket of a process holds a reference to its network namespace. A shared socket holds none:
/// the owner drops the value at the removal of the interface. Dropping the value resets connections
/// that were not accepted. A call of [`Incoming`] for an earlier child may still run then. So a
/// work item drops the handler after an RCU grace period (some 30 ms).
pub(crate) struct ListenSocket {
    base: Base,
    /// The handler in the socket's user data.
    installed: Cell<Option<Arc<Leftover>>>,
}

/// A handler whose drop waits until no callback uses it.
#[pin_data]
struct Leftover {
    installed: Installed,
    /// Waits for the grace period, and drops the handler.
    #[pin]
    work: Work<Self, 0>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Leftover { self.work }
}

impl WorkItem<0> for Leftover {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: Process context. The wait covers callbacks of children, which run without the
        // socket's lock.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: The handler was removed from the socket before the item was queued, once. Callers
        // that had found the handler have returned.
        unsafe { this.installed.release() };
    }
}

impl Deref for ListenSocket {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl ListenSocket {
    /// Makes a socket of the current process in a namespace, without an address yet
    /// ([`Base::create`]).
    pub(crate) fn create(net: &NetNs, family: Family) -> Result<Self> {
        Ok(Self::new(Base::create(net, family)?))
    }

    /// Makes a socket of the kernel, which belongs to no process.
    pub(crate) fn create_shared(net: &NetNs, family: Family) -> Result<Self> {
        Ok(Self::new(Base::create_shared(net, family)?))
    }

    /// Prepares a socket for listening: its children use the lock classes of kernel sockets.
    fn new(base: Base) -> Self {
        // SAFETY: The socket is owned; process context.
        unsafe { bindings::rsiw_sk_kernel_children(base.sk()) };
        Self {
            base,
            installed: Cell::new(None),
        }
    }

    /// Listens with a backlog of at most `backlog` connections. TCP calls `handler` for each
    /// incoming connection. Once for each socket.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the socket listens already, `EADDRINUSE`, `ENOMEM`.
    pub(crate) fn listen<I: Incoming>(&self, backlog: u32, handler: Arc<I>) -> Result {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        if let Some(before) = self.installed.take() {
            self.installed.set(Some(before));
            return Err(EBUSY);
        }
        let place = UniqueArc::<Leftover>::new_uninit(GFP_KERNEL)?;
        // The handler is installed before the socket listens, so that the first child calls it.
        let installed = callback::install_incoming(&self.base, handler);
        let leftover = place.pin_init_with(pin_init!(Leftover {
            installed,
            work <- new_work!("rsiw_listen_leftover"),
        }));
        match leftover {
            Ok(leftover) => self.installed.set(Some(leftover.into())),
            Err(never) => match never {},
        }
        // SAFETY: The value owns the socket.
        to_result(unsafe { bindings::kernel_listen(self.base.as_ptr(), backlog) })
            .inspect_err(|_| self.uninstall())
    }

    /// Accepts a connection, if there is one. The connection has no handler yet.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the namespace is being removed. Any other error: the accept failed.
    pub(crate) fn accept(&self) -> Result<Option<Socket>> {
        self.next_child()?.map(Socket::from_base).transpose()
    }

    /// As [`accept`](Self::accept), without a reference to the namespace. Never `ENODEV`.
    pub(crate) fn accept_unheld(&self) -> Result<Option<UnheldSocket>> {
        Ok(self.next_child()?.map(UnheldSocket::new))
    }

    /// Accepts the next connection, if there is one.
    fn next_child(&self) -> Result<Option<Base>> {
        let mut child = ptr::null_mut();
        // SAFETY: The value owns the socket; `child` is writable.
        let result = to_result(unsafe {
            bindings::kernel_accept(self.base.as_ptr(), &mut child, bindings::RSIW_O_NONBLOCK)
        });
        match result {
            // EINVAL: the socket does not listen any more, as after `ss -K`.
            Err(EAGAIN | EINVAL) => return Ok(None),
            other => other?,
        }
        let child = NonNull::new(child).ok_or(ENOMEM)?;
        // SAFETY: This socket has accepted the child, with a `struct sock`; the caller owns it.
        Ok(Some(unsafe {
            Base::from_child(child, *self.base.original())
        }))
    }

    /// Removes the handler from the socket, and queues its drop.
    fn uninstall(&self) {
        if let Some(leftover) = self.installed.take() {
            callback::uninstall(&self.base);
            let _ = work::process().enqueue::<_, 0>(leftover);
        }
    }
}

impl Drop for ListenSocket {
    fn drop(&mut self) {
        self.uninstall();
        // Now `base` releases the socket.
    }
}

#[kunit_tests(rsiw_sys_listen)]
mod tests {
    use super::*;
    use crate::sys::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
    use crate::sys::testing::{self, eventually, Seen};

    fn accepts(addr: SocketAddr) -> Result {
        testing::loopback_up()?;
        let net = NetNs::init().ok_or(ENODEV)?;
        let family = Family::of(&addr);
        let seen = Seen::new()?;
        let listener = ListenSocket::create(&net, family)?;
        listener.set_reuse();
        listener.bind(&addr)?;
        listener.listen(4, seen.clone())?;
        assert!(listener.listen(4, seen.clone()) == Err(EBUSY));
        assert!(listener.accept()?.is_none());
        let at = listener.local_addr()?;
        assert_ne!(at.port(), 0);
        for count in 1..=3 {
            let client = Socket::create(&net, family)?;
            client.connect_nonblocking(&at)?;
            assert!(eventually(|| seen.incoming() >= count));
            let child = listener.accept()?.ok_or(ENOENT)?;
            assert!(listener.accept()?.is_none());
            assert!(child.peer_addr()? == client.local_addr()?);
            // The child calls its own handler, not the listener's.
            let childs = Seen::new()?;
            child.install(childs.clone());
            client.send_nonblocking(b"x")?;
            assert!(eventually(|| childs.data() != 0));
            assert_eq!(seen.incoming(), count);
        }
        drop(listener);
        work::process().flush();
        assert!(Arc::into_unique_or_drop(seen).is_some());
        Ok(())
    }

    #[test]
    fn accepts_ipv4() -> Result {
        accepts(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)))
    }

    #[test]
    #[cfg(CONFIG_IPV6)]
    fn accepts_ipv6() -> Result {
        accepts(SocketAddr::V6(SocketAddrV6::new(
            Ipv6Addr::LOCALHOST,
            0,
            0,
            0,
        )))
    }

    /// A listener at an arbitrary IPv4 port, and its handler.
    fn listening() -> Result<(NetNs, Arc<Seen>, ListenSocket)> {
        testing::loopback_up()?;
        let net = NetNs::init().ok_or(ENODEV)?;
        let seen = Seen::new()?;
        let listener = ListenSocket::create(&net, Family::V4)?;
        listener.bind(&SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)))?;
        listener.listen(4, seen.clone())?;
        Ok((net, seen, listener))
    }

    #[test]
    fn unheld_sockets_are_reset_unless_they_are_held() -> Result {
        let (net, seen, listener) = listening()?;
        for (count, held) in [(1, false), (2, true)] {
            let client = Socket::create(&net, Family::V4)?;
            client.connect_nonblocking(&listener.local_addr()?)?;
            assert!(eventually(|| seen.incoming() >= count));
            let socket = listener.accept_unheld()?.ok_or(ENOENT)?;
            match held {
                true => drop(socket.hold()?),
                false => drop(socket),
            }
            let mut octet = [0];
            assert!(eventually(|| {
                let end = client.recv_nonblocking(&mut octet);
                match held {
                    true => end == Ok(0),
                    false => end == Err(crate::sys::errno::ECONNRESET),
                }
            }));
        }
        Ok(())
    }

    #[test]
    fn unaccepted_children_are_reset() -> Result {
        let (net, seen, listener) = listening()?;
        let client = Socket::create(&net, Family::V4)?;
        client.connect_nonblocking(&listener.local_addr()?)?;
        assert!(eventually(|| seen.incoming() == 1));
        client.send_nonblocking(b"for nobody")?;
        drop(listener);
        assert!(eventually(
            || client.tcp_state() == super::super::TcpState::Close
        ));
        Ok(())
    }

    /// A kernel thread's socket holds its namespace, too. That of the kernel does not: the driver
    /// releases it when the namespace exits.
    #[test]
    fn sockets_of_kernel_threads_hold_their_namespace() -> Result {
        let net = NetNs::init().ok_or(ENODEV)?;
        let holds = |socket: &ListenSocket| {
            // SAFETY: The value owns the socket, which no other context uses.
            unsafe { bindings::rsiw_test_holds_net(socket.base.sk()) }
        };
        assert!(holds(&ListenSocket::create(&net, Family::V4)?));
        assert!(!holds(&ListenSocket::create_shared(&net, Family::V4)?));
        Ok(())
    }
}
