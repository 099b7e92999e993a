// SPDX-License-Identifier: GPL-2.0

//! The part that connections and listening sockets share.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*, //
};

use super::{
    bindings,
    from_storage,
    storage_len,
    to_storage,
    Family,
    NetNs,
    SocketAddr,
    Storage, //
};

/// A TCP socket with its original callbacks. Process context; all may sleep.
///
/// # Invariants
///
/// `sock` is a TCP socket, owned, with a `struct sock`; `original` holds the callbacks that it
/// was made with.
pub(crate) struct Base {
    /// The C object.
    sock: NonNull<bindings::socket>,
    /// TCP's own callbacks.
    original: bindings::rsiw_sock_callbacks,
}

// SAFETY: A socket belongs to no thread; its functions lock it.
unsafe impl Send for Base {}

impl Base {
    /// Makes a TCP socket of the current process: with its security label, control groups and
    /// memory cgroup. It holds its namespace then. A thread of the kernel gets one of the kernel's,
    /// which does not.
    ///
    /// # Errors
    ///
    /// `EPERM`, `EACCES`…: a security module, or a BPF program of the control group.
    pub(super) fn create(net: &NetNs, family: Family) -> Result<Self> {
        let mut sock = ptr::null_mut();
        // SAFETY: The namespace is held during the call; `sock` is writable.
        to_result(unsafe { bindings::rsiw_sock_create(net.as_ptr(), family.as_raw(), &mut sock) })?;
        // SAFETY: Just made.
        unsafe { Self::new(sock) }
    }

    /// Makes a TCP socket of the kernel, which belongs to no process, and does not hold its
    /// namespace.
    pub(super) fn create_shared(net: &NetNs, family: Family) -> Result<Self> {
        let mut sock = ptr::null_mut();
        // SAFETY: The namespace is held during the call; `sock` is writable.
        to_result(unsafe {
            bindings::rsiw_sock_create_shared(net.as_ptr(), family.as_raw(), &mut sock)
        })?;
        // SAFETY: Just made.
        unsafe { Self::new(sock) }
    }

    /// Wraps a socket.
    ///
    /// # Safety
    ///
    /// `sock` is a TCP socket with a `struct sock` that was just made, and is the caller's.
    unsafe fn new(sock: *mut bindings::socket) -> Result<Self> {
        let sock = NonNull::new(sock).ok_or(ENOMEM)?;
        let mut original = bindings::rsiw_sock_callbacks::default();
        // SAFETY: By this function's contract.
        unsafe {
            bindings::rsiw_sk_callbacks(bindings::rsiw_sock_sk(sock.as_ptr()), &mut original);
        }
        // INVARIANT: Just made, and not changed since.
        Ok(Self { sock, original })
    }

    /// Wraps the child of a listening socket, and takes back the callbacks it inherited.
    ///
    /// # Safety
    ///
    /// The caller gives a TCP socket with a `struct sock` that a socket with the callbacks
    /// `original` has accepted.
    pub(super) unsafe fn from_child(
        sock: NonNull<bindings::socket>,
        original: bindings::rsiw_sock_callbacks,
    ) -> Self {
        // INVARIANT: As this function's contract says.
        let base = Self { sock, original };
        // SAFETY: The socket is ours; process context.
        unsafe { bindings::rsiw_sk_take_child(base.sk(), &base.original) };
        base
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut bindings::socket {
        self.sock.as_ptr()
    }

    /// The protocol's half of it.
    pub(super) fn sk(&self) -> *mut bindings::sock {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sock_sk(self.sock.as_ptr()) }
    }

    /// TCP's own callbacks.
    pub(super) fn original(&self) -> &bindings::rsiw_sock_callbacks {
        &self.original
    }

    /// Lets another socket have the same address while it is not listening, as SO_REUSEADDR.
    pub(crate) fn set_reuse(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::sock_set_reuseaddr(self.sk()) }
    }

    /// Whether an IPv6 socket is to have no IPv4 peers; without this `net.ipv6.bindv6only` says so.
    /// Before it has an address.
    pub(crate) fn set_v6only(&self, only: bool) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_set_v6only(self.sk(), only) }
    }

    /// Sets the type of service (IPv4) or traffic class (IPv6), without the ECN bits.
    pub(crate) fn set_tos(&self, tos: u8) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_set_tos(self.sk(), tos) }
    }

    /// Gives the socket its own address, and when it connects a port, which sockets that connect to
    /// another peer may have, too. The port of `addr` is 0.
    pub(crate) fn bind_address(&self, addr: &SocketAddr) -> Result {
        // SAFETY: By the type invariant; the flag is set atomically.
        unsafe { bindings::rsiw_sk_bind_later(self.sk()) };
        self.bind(addr)
    }

    /// Gives the socket its own address; port 0 for any port.
    pub(crate) fn bind(&self, addr: &SocketAddr) -> Result {
        let mut storage = to_storage(addr);
        // SAFETY: By the type invariant; the address is one of as many octets.
        to_result(unsafe {
            bindings::kernel_bind(self.as_ptr(), (&raw mut storage).cast(), storage_len(addr))
        })
    }

    /// Whether the port is one that TCP chooses itself (`net.ipv4.ip_local_port_range`).
    pub(crate) fn gives_out(&self, port: u16) -> bool {
        let (mut low, mut high): (c_int, c_int) = (0, 0);
        // SAFETY: By the type invariant; the places for the answer are ours.
        unsafe { bindings::inet_sk_get_local_port_range(self.sk(), &mut low, &mut high) };
        (low..=high).contains(&c_int::from(port))
    }

    /// Restricts the socket to one interface.
    pub(crate) fn bind_to_device(&self, ifindex: u32) -> Result {
        let ifindex = c_int::try_from(ifindex).map_err(|_| EINVAL)?;
        // SAFETY: By the type invariant; `true` has it lock the socket.
        to_result(unsafe { bindings::sock_bindtoindex(self.sk(), ifindex, true) })
    }

    /// The socket's own address.
    pub(crate) fn local_addr(&self) -> Result<SocketAddr> {
        let mut storage = Storage::default();
        // SAFETY: By the type invariant; the address has room for any.
        let len = unsafe { bindings::kernel_getsockname(self.as_ptr(), (&raw mut storage).cast()) };
        if len < 0 {
            return Err(Error::from_errno(len));
        }
        from_storage(&storage)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the socket is owned; it is not used after this. Installed
        // callbacks have been restored.
        unsafe { bindings::sock_release(self.as_ptr()) }
    }
}
