// SPDX-License-Identifier: GPL-2.0

//! Callbacks of TCP.
//!
//! The socket's user data is the handler, an [`Arc`]; the socket owns one reference. Each type of
//! handler has its own C functions. Handler and functions are exchanged together.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    marker::PhantomData,
    mem::align_of,
    ops::{
        Deref,
        DerefMut, //
    },
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    }, //
};

use super::{
    bindings,
    Base,
    Locked, //
};

/// The alignment of a socket's user data: C stores flags in the low bits of the pointer.
const ALIGN: usize = 8;

/// TCP's callbacks to the user of a connection.
///
/// TCP calls all functions under the socket's lock. The context is softirq, or process context with
/// bottom halves on when the lock's owner processes the backlog. The functions must not sleep, nor
/// lock this or another socket. TCP may call them inside calls that the handler makes. The
/// handler's type needs an alignment of 8 or more.
pub(crate) trait Handler: Send + Sync + Sized + 'static {
    /// Data or FIN can be read.
    fn data_ready(this: ArcBorrow<'_, Self>, sock: CallbackSock<'_>);

    /// The send buffer may have free space again ([`Locked::stream_writable`]).
    fn write_space(this: ArcBorrow<'_, Self>, sock: CallbackSock<'_>);

    /// The state of the connection has changed.
    fn state_change(this: ArcBorrow<'_, Self>, sock: CallbackSock<'_>);

    /// The socket has a pending error.
    fn error_report(this: ArcBorrow<'_, Self>, sock: CallbackSock<'_>);
}

/// TCP's callback to the user of a listening socket.
///
/// The type needs an alignment of 8 or more.
pub(crate) trait Incoming: Send + Sync + Sized + 'static {
    /// A connection can be accepted, from process context.
    ///
    /// Softirq context; no lock is held, and several CPUs may call concurrently.
    fn incoming(this: ArcBorrow<'_, Self>);
}

/// The socket of a callback, held exclusively.
///
/// # Invariants
///
/// The lock of `sk`, a TCP socket that does not listen, is held during `'a`.
pub(crate) struct CallbackSock<'a> {
    sk: NonNull<bindings::sock>,
    _callback: PhantomData<&'a mut ()>,
}

impl Deref for CallbackSock<'_> {
    type Target = Locked;

    #[inline]
    fn deref(&self) -> &Locked {
        // SAFETY: By the type invariant.
        unsafe { Locked::from_raw(self.sk) }
    }
}

impl DerefMut for CallbackSock<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Locked {
        // SAFETY: By the type invariant; `&mut self` excludes other references.
        unsafe { Locked::from_raw_mut(self.sk) }
    }
}

/// The record of a handler in a socket, with the function that drops it.
#[derive(Clone, Copy)]
pub(super) struct Installed {
    /// Drops the reference.
    release: Option<unsafe fn(NonNull<c_void>)>,
    /// The reference.
    handler: *mut c_void,
}

// SAFETY: The value represents an `Arc` of a type that is `Send` and `Sync`.
unsafe impl Send for Installed {}
// SAFETY: A shared reference only allows copies of the value, and `release` is unsafe.
unsafe impl Sync for Installed {}

impl Installed {
    /// No handler.
    pub(super) const NONE: Self = Self {
        release: None,
        handler: ptr::null_mut(),
    };

    /// The record of the reference `handler`.
    fn of<H: Send + Sync + 'static>(handler: *const H) -> Self {
        Self {
            release: Some(release::<H>),
            handler: handler.cast_mut().cast(),
        }
    }

    /// Drops the reference.
    ///
    /// # Safety
    ///
    /// No socket has the handler, no callback uses it, and no copy of the record was released.
    pub(super) unsafe fn release(self) {
        if let (Some(release), Some(handler)) = (self.release, NonNull::new(self.handler)) {
            // SAFETY: `of` has paired the two; by this function's contract this is the only
            // release.
            unsafe { release(handler) };
        }
    }
}

/// Drops the reference of a socket.
///
/// # Safety
///
/// `handler` is from [`Arc::into_raw`] of an `Arc<H>`, and not used after this.
unsafe fn release<H>(handler: NonNull<c_void>) {
    // SAFETY: By this function's contract.
    drop(unsafe { Arc::from_raw(handler.as_ptr().cast_const().cast::<H>()) });
}

/// Installs `handler` and its functions in a connection, in place of the previous ones.
pub(super) fn install<H: Handler>(base: &Base, handler: Arc<H>) -> Installed {
    const { assert!(align_of::<H>() >= ALIGN) };
    let handler = Arc::into_raw(handler);
    let callbacks = bindings::rsiw_sock_callbacks {
        data_ready: Some(data_ready::<H>),
        write_space: Some(write_space::<H>),
        state_change: Some(state_change::<H>),
        error_report: Some(error_report::<H>),
    };
    set(base, &callbacks, handler.cast_mut().cast());
    Installed::of(handler)
}

/// Installs `handler` and its function in a socket that does not listen yet and has no handler.
pub(super) fn install_incoming<I: Incoming>(base: &Base, handler: Arc<I>) -> Installed {
    const { assert!(align_of::<I>() >= ALIGN) };
    let handler = Arc::into_raw(handler);
    let callbacks = bindings::rsiw_sock_callbacks {
        data_ready: Some(incoming::<I>),
        ..*base.original()
    };
    let data = handler.cast_mut().cast();
    // SAFETY: The socket is owned, this is process context, and the function fits the handler.
    unsafe { bindings::rsiw_sk_set_incoming(base.sk(), &callbacks, data) };
    Installed::of(handler)
}

/// Removes the handler of a socket, and restores TCP's own functions.
pub(super) fn uninstall(base: &Base) {
    set(base, base.original(), ptr::null_mut());
}

/// Exchanges functions and handler.
fn set(base: &Base, callbacks: &bindings::rsiw_sock_callbacks, handler: *mut c_void) {
    // SAFETY: The socket is owned, this is process context, and the functions fit the handler.
    unsafe { bindings::rsiw_sk_set_callbacks(base.sk(), callbacks, handler) };
}

/// Calls `f` with the handler of a connection.
///
/// # Safety
///
/// TCP calls a function of `H` with this socket: its lock is held, and a handler is an `Arc<H>`.
#[inline]
unsafe fn call<H: Handler>(
    sk: *mut bindings::sock,
    f: impl FnOnce(ArcBorrow<'_, H>, CallbackSock<'_>),
) {
    // SAFETY: By this function's contract the lock is held.
    let handler = unsafe { bindings::rsiw_sk_handler(sk) };
    let (Some(handler), Some(sk)) = (NonNull::new(handler), NonNull::new(sk)) else {
        return;
    };
    // SAFETY: Handler and functions are exchanged together under the lock, so it is an `Arc<H>`.
    // The socket's reference lasts at least until the lock is released.
    let handler = unsafe { ArcBorrow::from_raw(handler.as_ptr().cast_const().cast::<H>()) };
    // INVARIANT: By this function's contract the lock is held; the lifetime of the value ends with
    // `f`.
    let sock = CallbackSock {
        sk,
        _callback: PhantomData,
    };
    f(handler, sock);
}

/// `sk_data_ready` of a connection.
///
/// # Safety
///
/// Called by TCP with the socket it is installed in, under the socket's lock.
unsafe extern "C" fn data_ready<H: Handler>(sk: *mut bindings::sock) {
    // SAFETY: By this function's contract.
    unsafe { call::<H>(sk, H::data_ready) }
}

/// `sk_write_space` of a connection.
///
/// # Safety
///
/// Called by TCP with the socket it is installed in, under the socket's lock.
unsafe extern "C" fn write_space<H: Handler>(sk: *mut bindings::sock) {
    // SAFETY: By this function's contract.
    unsafe { call::<H>(sk, H::write_space) }
}

/// `sk_state_change` of a connection.
///
/// # Safety
///
/// Called by TCP with the socket it is installed in, under the socket's lock.
unsafe extern "C" fn state_change<H: Handler>(sk: *mut bindings::sock) {
    // SAFETY: By this function's contract.
    unsafe { call::<H>(sk, H::state_change) }
}

/// `sk_error_report` of a connection.
///
/// # Safety
///
/// Called by TCP with the socket it is installed in, under the socket's lock.
unsafe extern "C" fn error_report<H: Handler>(sk: *mut bindings::sock) {
    // SAFETY: By this function's contract.
    unsafe { call::<H>(sk, H::error_report) }
}

/// `sk_data_ready` of a listening socket. Its children inherit the function until they are
/// accepted; calls for them have no effect.
///
/// # Safety
///
/// Called by TCP with the socket it is installed in, or with a child of it.
unsafe extern "C" fn incoming<I: Incoming>(sk: *mut bindings::sock) {
    let _rcu = rcu::read_lock();
    // SAFETY: This is an RCU section.
    let handler = unsafe { bindings::rsiw_sk_incoming(sk) };
    if let Some(handler) = NonNull::new(handler) {
        // SAFETY: This function is only installed together with an `Arc<I>`, into a socket without
        // a handler. `ListenSocket` drops the socket's reference after a grace period, so the
        // reference outlasts this RCU section.
        I::incoming(unsafe { ArcBorrow::from_raw(handler.as_ptr().cast_const().cast::<I>()) });
    }
}
