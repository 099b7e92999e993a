// SPDX-License-Identifier: GPL-2.0

//! Common parts of the KUnit suites: loopback interface, connected sockets, waiting with a limit.

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        ArcBorrow, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use super::{
    bindings,
    net::{
        Family,
        Ipv4Addr,
        NetNs,
        SocketAddr,
        SocketAddrV4, //
    }, //
};
use crate::sys::net::socket::{
    CallbackSock,
    Handler,
    Incoming,
    ListenSocket,
    Socket,
    TcpState, //
};

/// The limit of [`eventually`], in milliseconds.
const LIMIT_MS: u32 = 10_000;

/// Calls `condition` every millisecond until it returns `true`; `false` after ten seconds.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..LIMIT_MS {
        if condition() {
            return true;
        }
        fsleep(Delta::from_millis(1));
    }
    false
}

/// Brings up the loopback interface of the initial network namespace.
pub(crate) fn loopback_up() -> Result {
    // SAFETY: Process context.
    to_result(unsafe { bindings::rsiw_test_loopback_up() })
}

/// Calls `f` while TCP's memory is short for all sockets: [`Locked::memory_is_plenty`] is `false`.
pub(crate) fn with_short_tcp_memory<T>(socket: &Socket, f: impl FnOnce() -> T) -> T {
    let sock = socket.sock();
    // SAFETY: The socket is alive. The value is one that the administrator may set at any time.
    let before = unsafe { bindings::rsiw_test_set_tcp_mem(sock.lock().as_ptr(), 0) };
    let value = f();
    // SAFETY: As above.
    unsafe { bindings::rsiw_test_set_tcp_mem(sock.lock().as_ptr(), before) };
    value
}

/// Two sockets that are connected with each other over loopback.
pub(crate) fn connected() -> Result<(Socket, Socket)> {
    loopback_up()?;
    let net = NetNs::init().ok_or(ENODEV)?;
    let listener = ListenSocket::create(&net, Family::V4)?;
    listener.bind(&SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)))?;
    listener.listen(1, Seen::new()?)?;
    let client = Socket::create(&net, Family::V4)?;
    client.connect_nonblocking(&listener.local_addr()?)?;
    let mut server = None;
    eventually(|| {
        if server.is_none() {
            server = listener.accept().ok().flatten();
        }
        server.is_some() && client.tcp_state() == TcpState::Established
    });
    Ok((client, server.ok_or(ETIMEDOUT)?))
}

/// A handler that counts its calls.
#[derive(Default)]
#[repr(align(8))]
pub(crate) struct Seen {
    /// Calls of `data_ready`.
    data: Counter,
    /// Calls of `write_space`.
    space: Counter,
    /// Calls of `error_report`.
    errors: Counter,
    /// Calls of `incoming`.
    incoming: Counter,
}

/// A number of calls.
struct Counter(Atomic<u32>);

impl Default for Counter {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

impl Counter {
    /// Counts a call.
    fn count(&self) {
        self.0.fetch_add(1, Full);
    }

    /// The number of calls so far.
    fn get(&self) -> u32 {
        self.0.load(Acquire)
    }
}

impl Seen {
    /// Makes a handler without calls.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self::default(), GFP_KERNEL)?)
    }

    /// Calls of `data_ready`.
    pub(crate) fn data(&self) -> u32 {
        self.data.get()
    }

    /// Calls of `error_report`.
    pub(crate) fn errors(&self) -> u32 {
        self.errors.get()
    }

    /// Calls of `incoming`.
    pub(crate) fn incoming(&self) -> u32 {
        self.incoming.get()
    }
}

impl Handler for Seen {
    fn data_ready(this: ArcBorrow<'_, Self>, _sock: CallbackSock<'_>) {
        this.data.count();
    }

    fn write_space(this: ArcBorrow<'_, Self>, _sock: CallbackSock<'_>) {
        this.space.count();
    }

    fn state_change(_this: ArcBorrow<'_, Self>, _sock: CallbackSock<'_>) {}

    fn error_report(this: ArcBorrow<'_, Self>, _sock: CallbackSock<'_>) {
        this.errors.count();
    }
}

impl Incoming for Seen {
    fn incoming(this: ArcBorrow<'_, Self>) {
        this.incoming.count();
    }
}
