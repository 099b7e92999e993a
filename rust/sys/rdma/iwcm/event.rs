// SPDX-License-Identifier: GPL-2.0

//! The states of a connection of `iw_cm`, and the events between them.
//!
//! `iw_cm` demands these events (drivers/infiniband/core/iwcm.c):
//!
//! - One CONNECT_REPLY answers a committed connect.
//! - One ESTABLISHED answers a committed accept. It may carry an error, but is required in any
//!   case.
//! - One CLOSE ends a connection. It is valid only after a successful CONNECT_REPLY or an
//!   ESTABLISHED.
//!
//! The destruction of the identifier waits for CONNECT_REPLY or ESTABLISHED. `iw_cm` allocates work
//! entries in advance: four for a connect and three for an accept. So only the copy of private data
//! can fail.

use core::{
    cell::Cell,
    net::SocketAddr, //
};

use kernel::prelude::*;

use super::{
    id::CmId,
    Handle, //
};
use crate::sys::{
    bindings,
    errno::ECONNABORTED,
    net::to_storage, //
};

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peers {
    /// The address of this end.
    pub(crate) local: SocketAddr,
    /// The address of the peer.
    pub(crate) remote: SocketAddr,
}

/// The depths of the Read queues (IRD and ORD) as events carry them: 8 bits. A larger depth becomes
/// 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    ird: u8,
    ord: u8,
}

impl Depths {
    /// Unknown depths: 0.
    pub(crate) const NONE: Self = Self { ird: 0, ord: 0 };

    /// Makes depths from the agreed ones, or from those of the peer; clamps each to 255.
    pub(crate) fn new(ird: u16, ord: u16) -> Self {
        let clamp = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
        Self {
            ird: clamp(ird),
            ord: clamp(ord),
        }
    }
}

/// The peer's private data, 0 to 255 octets: the limit of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrivateData<'a> {
    /// The data.
    octets: &'a [u8],
    /// The length in octets.
    len: u8,
}

impl<'a> PrivateData<'a> {
    /// Empty private data.
    pub(crate) const NONE: Self = Self {
        octets: &[],
        len: 0,
    };

    /// Wraps `octets`; `None` if they are longer than an event can carry.
    pub(crate) fn new(octets: &'a [u8]) -> Option<Self> {
        let len = u8::try_from(octets.len()).ok()?;
        Some(Self { octets, len })
    }
}

/// Makes an event of type `kind` with status 0, and without addresses and data.
fn event(kind: bindings::iw_cm_event_type) -> bindings::iw_cm_event {
    bindings::iw_cm_event {
        event: kind,
        ..pin_init::zeroed()
    }
}

/// The status of an event: 0 or a negative errno.
fn status(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// Adds the addresses to an event.
fn add_peers(event: &mut bindings::iw_cm_event, peers: &Peers) {
    event.local_addr = to_storage(&peers.local);
    event.remote_addr = to_storage(&peers.remote);
}

/// Adds the depths to an event.
fn add_depths(event: &mut bindings::iw_cm_event, depths: Depths) {
    event.ird = depths.ird;
    event.ord = depths.ord;
}

/// Adds the peer's private data to an event. The event is valid as long as `data`.
fn add_private_data(event: &mut bindings::iw_cm_event, data: PrivateData<'_>) {
    event.private_data = data.octets.as_ptr().cast_mut().cast();
    event.private_data_len = data.len;
}

/// Whether a running callback has committed its call. Events follow a commitment, so the callback
/// then returns success.
pub(super) struct Commitment(Cell<bool>);

impl Commitment {
    /// A call that is not committed yet.
    pub(super) fn new() -> Self {
        Self(Cell::new(false))
    }

    /// The result of the callback, whatever the driver has returned. `ECONNABORTED`: the driver
    /// reports success, but has not committed the call.
    pub(super) fn result(&self, returned: Result) -> Result {
        match self.0.get() {
            true => Ok(()),
            false => Err(returned.err().unwrap_or(ECONNABORTED)),
        }
    }
}

/// A connect call of `iw_cm` that may still fail. It cannot outlive its callback.
pub(crate) struct ConnectCall<'call> {
    /// Whether the callback has committed the call.
    commitment: &'call Commitment,
    /// The identifier of the connection.
    id: CmId,
    /// The local and the remote address.
    peers: Peers,
    /// The IP type of service, if requested.
    tos: Option<u8>,
}

impl<'call> ConnectCall<'call> {
    /// Makes the value for the `iw_connect` callback.
    pub(super) fn new(
        commitment: &'call Commitment,
        id: CmId,
        peers: Peers,
        tos: Option<u8>,
    ) -> Self {
        Self {
            commitment,
            id,
            peers,
            tos,
        }
    }

    /// The local and the remote address. The local one may have port 0, or be unspecified.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The IP type of service, if requested.
    pub(crate) fn tos(&self) -> Option<u8> {
        self.tos
    }

    /// Commits the call, whose callback returns success afterwards. `connection` is the driver's
    /// handle.
    pub(crate) fn commit(self, connection: Handle) -> Connecting {
        self.commitment.0.set(true);
        self.id.set_handle(connection);
        Connecting {
            id: Some(self.id),
            peers: self.peers,
        }
    }
}

/// A committed connect: `iw_cm` waits for CONNECT_REPLY.
pub(crate) struct Connecting {
    /// The identifier; `None` once the event is delivered.
    id: Option<CmId>,
    /// The requested addresses.
    peers: Peers,
}

impl Connecting {
    /// Reports an established connection with CONNECT_REPLY. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: `iw_cm` has no memory for the private data. A CONNECT_REPLY with this error was
    /// delivered instead.
    pub(crate) fn connected(
        mut self,
        peers: &Peers,
        depths: Depths,
        private_data: PrivateData<'_>,
    ) -> Result<Connected> {
        let mut reply = event(bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY);
        add_peers(&mut reply, peers);
        add_depths(&mut reply, depths);
        add_private_data(&mut reply, private_data);
        let id = self.id.take().ok_or(EINVAL)?;
        // SAFETY: CONNECT_REPLY is the valid event after a committed connect. The private data is
        // valid during the call.
        match unsafe { id.deliver(&mut reply) } {
            Ok(()) => Ok(Connected { id: Some(id) }),
            Err(error) => {
                self.id = Some(id);
                self.fail(error, Depths::NONE, PrivateData::NONE);
                Err(error)
            }
        }
    }

    /// Reports a failure with CONNECT_REPLY. Any context.
    ///
    /// `rdma_cm` reports `ECONNREFUSED` and `ECONNRESET` as a rejection, `ETIMEDOUT` as an
    /// unreachable peer, and other errors as a connection error.
    ///
    /// `said` and `private_data` are those of the peer's MPA Reply, if any. For a rejection,
    /// rdma_cm of Linux 7.2 and 7.3 passes no depths on to its users.
    pub(crate) fn failed(mut self, error: Error, said: Depths, private_data: PrivateData<'_>) {
        self.fail(error, said, private_data);
    }

    /// Delivers a CONNECT_REPLY with `error`, unless the event was delivered.
    fn fail(&mut self, error: Error, said: Depths, private_data: PrivateData<'_>) {
        let Some(id) = self.id.take() else {
            return;
        };
        let mut reply = event(bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY);
        reply.status = error.to_errno();
        add_peers(&mut reply, &self.peers);
        add_depths(&mut reply, said);
        add_private_data(&mut reply, private_data);
        // SAFETY: CONNECT_REPLY is the valid event after a committed connect. The private data is
        // valid during the call.
        if unsafe { id.deliver(&mut reply) }.is_err() {
            add_private_data(&mut reply, PrivateData::NONE);
            // SAFETY: `iw_cm` has not queued the event above, so CONNECT_REPLY is still the valid
            // event. Without private data it needs no memory.
            if unsafe { id.deliver(&mut reply) }.is_err() {
                kernel::pr_err_once!("iw_cm does not take the end of a connect\n");
            }
        }
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.fail(ECONNABORTED, Depths::NONE, PrivateData::NONE);
    }
}

/// An accept call of `iw_cm` that may still fail. It cannot outlive its callback.
pub(crate) struct AcceptCall<'call> {
    /// Whether the callback has committed the call.
    commitment: &'call Commitment,
    /// The identifier of the connection.
    id: CmId,
}

impl<'call> AcceptCall<'call> {
    /// Makes the value for the `iw_accept` callback.
    pub(super) fn new(commitment: &'call Commitment, id: CmId) -> Self {
        Self { commitment, id }
    }

    /// Commits the call, whose callback returns success afterwards.
    pub(crate) fn commit(self, peers: Peers) -> Accepting {
        self.commitment.0.set(true);
        Accepting {
            id: Some(self.id),
            peers,
        }
    }
}

/// A committed accept: `iw_cm` waits for ESTABLISHED.
pub(crate) struct Accepting {
    /// The identifier; `None` once the event is delivered.
    id: Option<CmId>,
    /// The addresses of the connection.
    peers: Peers,
}

impl Accepting {
    /// Reports an established connection with ESTABLISHED. Any context.
    pub(crate) fn connected(mut self, depths: Depths) -> Connected {
        Connected {
            id: self.establish(depths, Ok(())),
        }
    }

    /// Reports a connection that was lost before it was established. Any context.
    ///
    /// `iw_cm` requires ESTABLISHED and CLOSE in this case, too. So the user sees a connection and
    /// its end.
    pub(crate) fn failed(mut self, error: Error) {
        self.fail(error);
    }

    /// Delivers ESTABLISHED with the status `result`, unless it was delivered. `None` if no CLOSE
    /// may follow.
    fn establish(&mut self, depths: Depths, result: Result) -> Option<CmId> {
        let id = self.id.take()?;
        let mut established = event(bindings::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED);
        established.status = status(result);
        add_peers(&mut established, &self.peers);
        add_depths(&mut established, depths);
        // SAFETY: ESTABLISHED is the valid event after a committed accept.
        if unsafe { id.deliver(&mut established) }.is_err() {
            // Without ESTABLISHED, CLOSE is not valid.
            kernel::pr_err_once!("iw_cm does not take the end of an accept\n");
            return None;
        }
        Some(id)
    }

    /// Delivers ESTABLISHED with `error`, DISCONNECT and CLOSE, unless they were delivered.
    fn fail(&mut self, error: Error) {
        let id = self.establish(Depths::new(0, 0), Err(error));
        Connected { id }.closed(Err(error));
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.fail(ECONNABORTED);
    }
}

/// An established connection of `iw_cm`.
pub(crate) struct Connected {
    /// The identifier; `None` once CLOSE is delivered.
    id: Option<CmId>,
}

impl Connected {
    /// Reports the end of the connection with DISCONNECT and CLOSE. Any context. `Ok` is an orderly
    /// end.
    pub(crate) fn closed(mut self, result: Result) {
        self.close(result);
    }

    /// Delivers DISCONNECT and CLOSE, unless they were delivered.
    fn close(&mut self, result: Result) {
        let Some(id) = self.id.take() else {
            return;
        };
        for kind in [
            bindings::iw_cm_event_type_IW_CM_EVENT_DISCONNECT,
            bindings::iw_cm_event_type_IW_CM_EVENT_CLOSE,
        ] {
            let mut close = event(kind);
            close.status = status(result);
            // SAFETY: DISCONNECT, then CLOSE are the last valid events of an established
            // connection.
            if unsafe { id.deliver(&mut close) }.is_err() {
                kernel::pr_err_once!("iw_cm does not take the end of a connection\n");
            }
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.close(Err(ECONNABORTED));
    }
}

/// A listen call of `iw_cm` that may still fail.
pub(crate) struct ListenCall {
    /// The identifier of the listener.
    id: CmId,
    /// The local address.
    local: SocketAddr,
    /// Whether an IPv6 listener refuses IPv4 connections (`afonly`).
    v6_only: bool,
    /// The IP type of service of accepted connections, if requested.
    tos: Option<u8>,
}

impl ListenCall {
    /// Makes the value for the `iw_create_listen` callback.
    pub(super) fn new(id: CmId, local: SocketAddr, v6_only: bool, tos: Option<u8>) -> Self {
        Self {
            id,
            local,
            v6_only,
            tos,
        }
    }

    /// The local address.
    pub(crate) fn local(&self) -> &SocketAddr {
        &self.local
    }

    /// Whether an IPv6 listener refuses IPv4 connections (`afonly`).
    pub(crate) fn v6_only(&self) -> bool {
        self.v6_only
    }

    /// The IP type of service, if requested.
    pub(crate) fn tos(&self) -> Option<u8> {
        self.tos
    }

    /// Commits the call, whose callback returns success afterwards.
    pub(crate) fn commit(self) -> Listening {
        Listening(self.id)
    }
}

/// A listener of `iw_cm`. It may be dropped without an event.
pub(crate) struct Listening(CmId);

impl Listening {
    /// Announces a connection request of a peer with CONNECT_REQUEST. `iw_cm` accepts or rejects
    /// the connection by its handle `connection`. Any context.
    ///
    /// `depths` are those of the peer's MPA Request. While the listener is being destroyed, `iw_cm`
    /// may drop the event without an answer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the backlog of `iw_cm` is full, or there is no memory for the private data.
    pub(crate) fn request(
        &self,
        connection: Handle,
        peers: &Peers,
        depths: Depths,
        private_data: PrivateData<'_>,
    ) -> Result {
        let mut request = event(bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REQUEST);
        request.provider_data = connection.to_provider_data();
        add_peers(&mut request, peers);
        add_depths(&mut request, depths);
        add_private_data(&mut request, private_data);
        // SAFETY: CONNECT_REQUEST is valid for a listener at any time. The private data is valid
        // during the call.
        unsafe { self.0.deliver(&mut request) }
    }
}
