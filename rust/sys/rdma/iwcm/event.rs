// SPDX-License-Identifier: GPL-2.0

//! The states of a connection for `iw_cm`, and the events that lead from one to the next.
//!
//! `iw_cm` demands (drivers/infiniband/core/iwcm.c) that one CONNECT_REPLY answers a committed
//! connect, and one ESTABLISHED a committed accept. ESTABLISHED may carry an error, but is needed
//! nevertheless. CLOSE comes once, and only after a successful CONNECT_REPLY or an ESTABLISHED.
//! Destroying the identifier waits for these. `iw_cm` sets memory for four events of a connect and
//! three of an accept aside, so that only copying private data can fail.

use core::net::SocketAddr;

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

/// The depths of the Read queues as `iw_cm` has them: 8 bits, more is told as 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depths {
    ird: u8,
    ord: u8,
}

impl Depths {
    /// Unknown depths.
    pub(crate) const NONE: Self = Self { ird: 0, ord: 0 };

    /// Clamps agreed depths, or those of the peer.
    pub(crate) fn new(ird: u16, ord: u16) -> Self {
        let clamp = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
        Self {
            ird: clamp(ird),
            ord: clamp(ord),
        }
    }
}

/// The peer's private data; at most 255 octets, which is what an event can carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrivateData<'a> {
    /// The octets.
    octets: &'a [u8],
    /// The number of octets.
    len: u8,
}

impl<'a> PrivateData<'a> {
    /// No octets.
    pub(crate) const NONE: Self = Self {
        octets: &[],
        len: 0,
    };

    /// Takes octets; `None` if an event can not carry all of them.
    pub(crate) fn new(octets: &'a [u8]) -> Option<Self> {
        let len = u8::try_from(octets.len()).ok()?;
        Some(Self { octets, len })
    }
}

/// A successful event of that kind without particulars.
fn event(kind: bindings::iw_cm_event_type) -> bindings::iw_cm_event {
    bindings::iw_cm_event {
        event: kind,
        ..pin_init::zeroed()
    }
}

/// The status of an event.
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

/// Adds the peer's private data to an event, which is valid as long as the octets are.
fn add_private_data(event: &mut bindings::iw_cm_event, data: PrivateData<'_>) {
    event.private_data = data.octets.as_ptr().cast_mut().cast();
    event.private_data_len = data.len;
}

/// A request to connect that may still be refused.
pub(crate) struct ConnectCall {
    /// The connection.
    id: CmId,
    /// The addresses to connect.
    peers: Peers,
    /// The type of service.
    tos: Option<u8>,
}

impl ConnectCall {
    /// For the callback.
    pub(super) fn new(id: CmId, peers: Peers, tos: Option<u8>) -> Self {
        Self { id, peers, tos }
    }

    /// The addresses to connect; the local one may lack a port or be unspecified.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The type of service that was asked for.
    pub(crate) fn tos(&self) -> Option<u8> {
        self.tos
    }

    /// From here on the call is going to succeed. `connection` is the driver's name of it.
    pub(crate) fn commit(self, connection: Handle) -> Connecting {
        self.id.set_handle(connection);
        Connecting {
            id: Some(self.id),
            peers: self.peers,
        }
    }
}

/// `iw_cm` waits for the end of connecting.
pub(crate) struct Connecting {
    /// Taken by the answer.
    id: Option<CmId>,
    /// The addresses that were asked for.
    peers: Peers,
}

impl Connecting {
    /// The connection is there.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: it could not be told; `iw_cm` has been told of a failure.
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
        // SAFETY: The first event after a committed connect. The octets outlive the call.
        match unsafe { id.deliver(&mut reply) } {
            Ok(()) => Ok(Connected { id: Some(id) }),
            Err(error) => {
                self.id = Some(id);
                self.fail(error, Depths::NONE, PrivateData::NONE);
                Err(error)
            }
        }
    }

    /// Connecting has failed. `ECONNREFUSED` and `ECONNRESET` make a rejection for the user,
    /// `ETIMEDOUT` an unreachable peer, others an error.
    ///
    /// `said` and `private_data` are those of the peer's Reply, if any. For a rejection, rdma_cm of
    /// Linux 7.2 and 7.3 passes no depths on to its users.
    pub(crate) fn failed(mut self, error: Error, said: Depths, private_data: PrivateData<'_>) {
        self.fail(error, said, private_data);
    }

    /// Sends the answer, unless that was done.
    fn fail(&mut self, error: Error, said: Depths, private_data: PrivateData<'_>) {
        let Some(id) = self.id.take() else {
            return;
        };
        let mut reply = event(bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY);
        reply.status = error.to_errno();
        add_peers(&mut reply, &self.peers);
        add_depths(&mut reply, said);
        add_private_data(&mut reply, private_data);
        // SAFETY: The first event after a committed connect. The octets outlive the call.
        if unsafe { id.deliver(&mut reply) }.is_err() {
            add_private_data(&mut reply, PrivateData::NONE);
            // SAFETY: The event has not happened yet. Without private data it needs no memory.
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

/// A request to accept that may still be refused.
pub(crate) struct AcceptCall(CmId);

impl AcceptCall {
    /// For the callback.
    pub(super) fn new(id: CmId) -> Self {
        Self(id)
    }

    /// From here on the call is going to succeed.
    pub(crate) fn commit(self, peers: Peers) -> Accepting {
        Accepting {
            id: Some(self.0),
            peers,
        }
    }
}

/// `iw_cm` waits for the end of accepting.
pub(crate) struct Accepting {
    /// Taken by the answer.
    id: Option<CmId>,
    /// The addresses of the connection.
    peers: Peers,
}

impl Accepting {
    /// The connection is there.
    pub(crate) fn connected(mut self, depths: Depths) -> Connected {
        Connected {
            id: self.establish(depths, Ok(())),
        }
    }

    /// The connection was lost before it was established.
    ///
    /// `iw_cm` wants both events nevertheless: the user gets a connection and its end.
    pub(crate) fn failed(mut self, error: Error) {
        self.fail(error);
    }

    /// Sends ESTABLISHED, unless that was done.
    fn establish(&mut self, depths: Depths, result: Result) -> Option<CmId> {
        let id = self.id.take()?;
        let mut established = event(bindings::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED);
        established.status = status(result);
        add_peers(&mut established, &self.peers);
        add_depths(&mut established, depths);
        // SAFETY: The first event after a committed accept.
        if unsafe { id.deliver(&mut established) }.is_err() {
            // Then CLOSE must not come either.
            kernel::pr_err_once!("iw_cm does not take the end of an accept\n");
            return None;
        }
        Some(id)
    }

    /// Sends both events, unless that was done.
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

/// `iw_cm` takes the connection for established.
pub(crate) struct Connected {
    /// Taken by the end.
    id: Option<CmId>,
}

impl Connected {
    /// The connection is over.
    pub(crate) fn closed(mut self, result: Result) {
        self.close(result);
    }

    /// Sends DISCONNECT and CLOSE, unless that was done.
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
            // SAFETY: The last two events of an established connection.
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

/// A request to listen that may still be refused.
pub(crate) struct ListenCall {
    /// The listener.
    id: CmId,
    /// Where to listen.
    local: SocketAddr,
    /// An IPv6 listener does not want IPv4.
    v6_only: bool,
    /// The type of service for its connections.
    tos: Option<u8>,
}

impl ListenCall {
    /// For the callback.
    pub(super) fn new(id: CmId, local: SocketAddr, v6_only: bool, tos: Option<u8>) -> Self {
        Self {
            id,
            local,
            v6_only,
            tos,
        }
    }

    /// Where to listen.
    pub(crate) fn local(&self) -> &SocketAddr {
        &self.local
    }

    /// Whether an IPv6 listener does not want IPv4.
    pub(crate) fn v6_only(&self) -> bool {
        self.v6_only
    }

    /// The type of service that was asked for.
    pub(crate) fn tos(&self) -> Option<u8> {
        self.tos
    }

    /// From here on the call is going to succeed.
    pub(crate) fn commit(self) -> Listening {
        Listening(self.id)
    }
}

/// `iw_cm` listens. Dropping it needs no event.
pub(crate) struct Listening(CmId);

impl Listening {
    /// A peer asks to connect; `iw_cm` accepts or refuses by `connection`.
    ///
    /// `depths` are the peer's own. While the listener is being destroyed `iw_cm` drops such events
    /// without an answer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: too many are waiting for `iw_cm` already, or there is no memory.
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
        // SAFETY: A listener takes requests at any time. The octets outlive the call.
        unsafe { self.0.deliver(&mut request) }
    }
}
