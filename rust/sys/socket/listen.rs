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
    prelude::*,
    sync::Arc, //
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
};

/// A TCP socket that listens. Process context; all may sleep.
///
/// It does not keep its network namespace from ending: who has it drops it when the interface it
/// serves goes. When it is dropped, connections that were not accepted are reset, no call of
/// [`Incoming`] is running or will run, and the handler has been let go; this waits for an RCU
/// grace period.
pub(crate) struct ListenSocket {
    /// The C object.
    base: Base,
    /// The handler in the socket's user data.
    installed: Cell<Installed>,
}

impl Deref for ListenSocket {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl ListenSocket {
    /// Makes a socket in a namespace, without an address yet.
    pub(crate) fn create(net: &NetNs, family: Family) -> Result<Self> {
        Ok(Self {
            base: Base::create(net, family)?,
            installed: Cell::new(Installed::NONE),
        })
    }

    /// Listens, with at most `backlog` connections that wait to be accepted, and has TCP tell
    /// `handler` of each that comes. Once.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is listening already, `EADDRINUSE`.
    pub(crate) fn listen<I: Incoming>(&self, backlog: u32, handler: Arc<I>) -> Result {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        if self.installed.get().is_some() {
            return Err(EBUSY);
        }
        // Before it listens, so that the first child is told of.
        self.installed
            .set(callback::install_incoming(&self.base, handler));
        // SAFETY: The socket is ours.
        to_result(unsafe { bindings::kernel_listen(self.base.as_ptr(), backlog) })
            .inspect_err(|_| self.uninstall())
    }

    /// Takes a connection that has come in, if there is one. It has no handler yet.
    ///
    /// # Errors
    ///
    /// What became of the connection before it was accepted; the listening socket goes on.
    pub(crate) fn accept(&self) -> Result<Option<Socket>> {
        let mut child = ptr::null_mut();
        // SAFETY: The socket is ours; `child` is writable.
        let result = to_result(unsafe {
            bindings::kernel_accept(self.base.as_ptr(), &mut child, bindings::RSIW_O_NONBLOCK)
        });
        match result {
            Err(EAGAIN) => return Ok(None),
            other => other?,
        }
        let child = NonNull::new(child).ok_or(ENOMEM)?;
        // SAFETY: This socket has accepted it, with a `struct sock`; it is ours now.
        let base = unsafe { Base::from_child(child, *self.base.original()) };
        Socket::from_base(base).map(Some)
    }

    /// Takes the handler out and lets go of it.
    fn uninstall(&self) {
        let installed = self.installed.replace(Installed::NONE);
        if !installed.is_some() {
            return;
        }
        callback::uninstall(&self.base);
        // SAFETY: Process context. A child may be telling of itself without the socket's lock.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: The handler was taken out, and who found it before is through.
        unsafe { installed.release() };
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

    #[test]
    fn unaccepted_children_are_reset() -> Result {
        testing::loopback_up()?;
        let net = NetNs::init().ok_or(ENODEV)?;
        let seen = Seen::new()?;
        let listener = ListenSocket::create(&net, Family::V4)?;
        listener.bind(&SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)))?;
        listener.listen(4, seen.clone())?;
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
}
