// SPDX-License-Identifier: GPL-2.0

//! The common part of connections and listening sockets.
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

/// A TCP socket with its original callbacks. Process context; all functions may sleep.
///
/// # Invariants
///
/// `sock` is a TCP socket with a `struct sock`, which the value owns. `original` holds the
/// callbacks that TCP has set.
pub(crate) struct Base {
    /// The C object.
    sock: NonNull<bindings::socket>,
    /// TCP's own callbacks.
    original: bindings::rsiw_sock_callbacks,
}

// SAFETY: A socket belongs to no thread; its functions lock it.
unsafe impl Send for Base {}

impl Base {
    /// Makes a TCP socket of the current process, with its security label, control groups and
    /// memory cgroup. For a kernel thread the socket is a kernel socket. Either socket holds a
    /// reference to its namespace.
    ///
    /// # Errors
    ///
    /// - `EPERM`, `EACCES` and others: a security module, or a BPF program of the control group,
    ///   refuses the socket
    /// - `ENODEV`: the namespace is being removed
    pub(super) fn create(net: &NetNs, family: Family) -> Result<Self> {
        let mut sock = ptr::null_mut();
        // SAFETY: The namespace is held during the call; `sock` is writable.
        to_result(unsafe { bindings::rsiw_sock_create(net.as_ptr(), family.as_raw(), &mut sock) })?;
        // SAFETY: The call above has made the socket for this caller.
        let base = unsafe { Self::new(sock)? };
        // A kernel socket has no reference yet.
        base.hold_net()?;
        Ok(base)
    }

    /// Takes a reference to the socket's namespace, unless the socket has one. `ENODEV`: the
    /// namespace is being removed.
    pub(super) fn hold_net(&self) -> Result {
        // SAFETY: By the type invariant this is a TCP socket that the value owns; process context.
        match unsafe { bindings::rsiw_sk_hold_net(self.sk()) } {
            true => Ok(()),
            false => Err(ENODEV),
        }
    }

    /// Makes a TCP socket of the kernel, which belongs to no process, and holds no reference to its
    /// namespace.
    pub(super) fn create_shared(net: &NetNs, family: Family) -> Result<Self> {
        let mut sock = ptr::null_mut();
        // SAFETY: The namespace is held during the call; `sock` is writable.
        to_result(unsafe {
            bindings::rsiw_sock_create_shared(net.as_ptr(), family.as_raw(), &mut sock)
        })?;
        // SAFETY: The call above has made the socket for this caller.
        unsafe { Self::new(sock) }
    }

    /// Wraps a socket.
    ///
    /// # Safety
    ///
    /// `sock` is null, or a new TCP socket with a `struct sock`, which the caller owns.
    unsafe fn new(sock: *mut bindings::socket) -> Result<Self> {
        let sock = NonNull::new(sock).ok_or(ENOMEM)?;
        let mut original = bindings::rsiw_sock_callbacks::default();
        // SAFETY: By this function's contract.
        unsafe {
            bindings::rsiw_sk_callbacks(bindings::rsiw_sock_sk(sock.as_ptr()), &mut original);
        }
        // INVARIANT: The socket is new, so its callbacks are those of TCP.
        Ok(Self { sock, original })
    }

    /// Wraps the child of a listening socket, and replaces the callbacks that it inherited.
    ///
    /// # Safety
    ///
    /// The caller owns `sock`, a TCP socket with a `struct sock`, accepted by a socket whose
    /// original callbacks are `original`.
    pub(super) unsafe fn from_child(
        sock: NonNull<bindings::socket>,
        original: bindings::rsiw_sock_callbacks,
    ) -> Self {
        // INVARIANT: As this function's contract says.
        let base = Self { sock, original };
        // SAFETY: `base` owns the socket; process context.
        unsafe { bindings::rsiw_sk_take_child(base.sk(), &base.original) };
        base
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut bindings::socket {
        self.sock.as_ptr()
    }

    /// The `struct sock` of the socket.
    pub(super) fn sk(&self) -> *mut bindings::sock {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sock_sk(self.sock.as_ptr()) }
    }

    /// TCP's own callbacks.
    pub(super) fn original(&self) -> &bindings::rsiw_sock_callbacks {
        &self.original
    }

    /// Sets SO_REUSEADDR: another socket may have the same address while neither listens.
    pub(crate) fn set_reuse(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::sock_set_reuseaddr(self.sk()) }
    }

    /// Sets IPV6_V6ONLY of an IPv6 socket; the default is `net.ipv6.bindv6only`. The socket is not
    /// bound yet.
    pub(crate) fn set_v6only(&self, only: bool) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_set_v6only(self.sk(), only) }
    }

    /// Sets the type of service (IPv4) or traffic class (IPv6), without the ECN bits.
    pub(crate) fn set_tos(&self, tos: u8) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_set_tos(self.sk(), tos) }
    }

    /// Binds the socket to an address; TCP chooses the port at connect (IP_BIND_ADDRESS_NO_PORT).
    /// Sockets with other peers may share that port. The port of `addr` is 0.
    pub(crate) fn bind_address(&self, addr: &SocketAddr) -> Result {
        // SAFETY: By the type invariant; the flag is set atomically.
        unsafe { bindings::rsiw_sk_bind_later(self.sk()) };
        self.bind(addr)
    }

    /// Binds the socket to an address; with port 0 TCP chooses a port.
    pub(crate) fn bind(&self, addr: &SocketAddr) -> Result {
        let mut storage = to_storage(addr);
        // SAFETY: By the type invariant; the length is that of the address.
        to_result(unsafe {
            bindings::kernel_bind(self.as_ptr(), (&raw mut storage).cast(), storage_len(addr))
        })
    }

    /// Whether the port is in the range of ephemeral ports (`net.ipv4.ip_local_port_range`).
    pub(crate) fn gives_out(&self, port: u16) -> bool {
        let (mut low, mut high): (c_int, c_int) = (0, 0);
        // SAFETY: By the type invariant; both results are local variables.
        unsafe { bindings::inet_sk_get_local_port_range(self.sk(), &mut low, &mut high) };
        (low..=high).contains(&c_int::from(port))
    }

    /// Binds the socket to an interface (SO_BINDTOIFINDEX).
    pub(crate) fn bind_to_device(&self, ifindex: u32) -> Result {
        let ifindex = c_int::try_from(ifindex).map_err(|_| EINVAL)?;
        // SAFETY: By the type invariant; with `true` the function locks the socket.
        to_result(unsafe { bindings::sock_bindtoindex(self.sk(), ifindex, true) })
    }

    /// The local address.
    pub(crate) fn local_addr(&self) -> Result<SocketAddr> {
        let mut storage = Storage::default();
        // SAFETY: By the type invariant; the storage holds any address.
        let len = unsafe { bindings::kernel_getsockname(self.as_ptr(), (&raw mut storage).cast()) };
        if len < 0 {
            return Err(Error::from_errno(len));
        }
        from_storage(&storage)
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the value owns the socket, which is not used after this.
        // The original callbacks have been restored.
        unsafe { bindings::sock_release(self.as_ptr()) }
    }
}
