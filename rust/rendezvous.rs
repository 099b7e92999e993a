// SPDX-License-Identifier: GPL-2.0

//! Rendezvous: queue pairs that connect without rdma_cm.
//!
//! Two programs exchange queue pair numbers by any means, and `modify_qp` names the peer. The protocol
//! is that of docs/direct-mode.md. Of the two ends the one with the smaller name connects to the port
//! that all hosts agree on.
//!
//! - [`listener`]: the port of a network namespace
//! - [`pending`]: a connection whose queue pair is not known yet
//! - [`request`]: a connection request: its queue pair is known
//! - [`hello`]: the private data of the start-up frames
//! - [`endpoint`]: the state machine, for the initiator and the responder

mod endpoint;
mod hello;
mod listener;
mod pending;
mod request;

use core::net::{
    IpAddr,
    Ipv4Addr,
    SocketAddr,
    SocketAddrV6, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(super) use self::endpoint::Rendezvous;
pub(crate) use self::listener::RendezvousListeners;
use self::{
    listener::ListenerShare,
    request::{
        is_link_local,
        ConnRequest, //
    }, //
};
use crate::cm::endpoint::{
    Attachment,
    Endpoint,
    Phase, //
};
use crate::{
    params,
    sys::{
        iwcm::Handle,
        net::Family,
        socket::{
            OwnerSock,
            Socket, //
        },
    },
    verbs::{
        peer::{
            Expects,
            Reach,
            RendezvousRole, //
        },
        qp_in,
        Device,
        Qp, //
    },
};

/// Begins to connect a queue pair. Process context; sleeps, but does not wait for the peer.
///
/// `commit` makes the peer known to the queue pair, with the number of the endpoint; when it
/// returns an error nothing has begun.
///
/// # Errors
///
/// `ENODEV` when the device goes. `EADDRINUSE`: the port is in use. `EINVAL`: the
/// connection manager works for the queue pair already. `EACCES`, `EPERM`…: the current process may
/// not connect or have a socket.
pub(crate) fn begin(
    qp: &Arc<Qp>,
    reach: Reach,
    role: RendezvousRole,
    commit: impl FnOnce(Handle) -> Result,
) -> Result {
    let device = qp.device();
    if device.going() {
        return Err(ENODEV);
    }
    let mut resources = Some(Resources::new(device, reach, role)?);
    let listener = resources
        .as_ref()
        .and_then(|resources| resources.share.as_ref())
        .map(|share| share.listener().clone());
    let endpoint = Endpoint::new(device)?;
    endpoint.change_and_leave(|_, ctx| {
        let begun = || {
            let resources = resources.take().ok_or(EINVAL)?;
            let attachment = Attachment::new(qp.clone(), ctx.endpoint)?;
            if let Some(socket) = &resources.socket {
                socket.install(ctx.endpoint.clone());
            }
            let rendezvous = KBox::new(Rendezvous::new(attachment, resources), GFP_KERNEL)?;
            commit(ctx.endpoint.handle())?;
            Ok(rendezvous)
        };
        begun()
            .map(Phase::Rendezvous)
            .map_err(|error| (error, Phase::Over))
    })?;
    // Connection requests that came before the queue pair had a peer.
    if let Some(listener) = listener {
        while let Some(request) = listener.take_parked(qp.qpn().get()) {
            let _ = receive(listener.net(), request);
        }
    }
    Ok(())
}

/// What a queue pair connects with, from the context of the process that names its peer.
struct Resources {
    /// The initiator's socket, for all attempts.
    socket: Option<Socket>,
    /// The owner of the sockets that the responder accepts.
    owner: Option<OwnerSock>,
    /// The responder's share of the listener.
    share: Option<ListenerShare>,
}

impl Resources {
    /// Gathers what a queue pair of that role needs. Process context; sleeps.
    fn new(device: &Arc<Device>, reach: Reach, role: RendezvousRole) -> Result<Self> {
        let net = device.netns().ok_or(ENODEV)?;
        // The loopback addresses of this host are in no VRF.
        let l3mdev = match reach {
            Reach::Ip { .. } => device.l3mdev(),
            Reach::Local => 0,
        };
        let (_, remote) = addresses(reach, device.ifindex());
        let family = Family::of(&remote);
        let connects = role != RendezvousRole::Responder;
        let accepts = role != RendezvousRole::Initiator;
        let socket = || {
            let socket = Socket::create(&net, family)?;
            socket.ask_to_connect(&remote)?;
            if l3mdev != 0 {
                socket.bind_to_device(l3mdev)?;
            }
            Ok::<_, Error>(socket)
        };
        Ok(Self {
            socket: connects.then(socket).transpose()?,
            owner: accepts
                .then(|| OwnerSock::create(&net, family))
                .transpose()?,
            share: accepts
                .then(|| device.rendezvous().share(device, l3mdev))
                .transpose()?,
        })
    }
}

/// The addresses that an initiator connects, on the interface of that index.
fn addresses(reach: Reach, ifindex: u32) -> (SocketAddr, SocketAddr) {
    let at = |ip: IpAddr, port| match ip {
        IpAddr::V6(v6) if is_link_local(&ip) => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, ifindex))
        }
        ip => SocketAddr::new(ip, port),
    };
    let port = params::rendezvous_port();
    match reach {
        Reach::Ip { local, remote } => (at(local, 0), at(remote, port)),
        Reach::Local => {
            let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
            (at(host, 0), at(host, port))
        }
    }
}

/// The outcome of a dispatch.
enum Dispatch {
    /// The request was handed to its queue pair, or refused.
    Done,
    /// The queue pair has no peer yet.
    Later(ConnRequest),
}

/// Hands a connection request to its queue pair in a network namespace. Process context; sleeps.
fn receive(net: usize, request: ConnRequest) -> Dispatch {
    let Some(qp) = qp_in(net, request.hello.to) else {
        request.refuse();
        return Dispatch::Done;
    };
    let handle = match qp.expects() {
        Expects::Endpoint(handle) => handle,
        Expects::Later => return Dispatch::Later(request),
        Expects::None => {
            request.refuse();
            return Dispatch::Done;
        }
    };
    let mut request = Some(request);
    if let Some(endpoint) = qp.device().cm_state().endpoint(handle) {
        // Without a device there is no endpoint any more.
        let _ = endpoint.change_and_leave(|mut phase, ctx| {
            if let Phase::Rendezvous(rendezvous) = &mut phase {
                if let Some(request) = request.take() {
                    rendezvous.handle_request(ctx, request);
                }
            }
            Ok(phase)
        });
    }
    if let Some(request) = request {
        request.refuse();
    }
    Dispatch::Done
}

/// Whether a queue pair has a peer.
fn is_expecting(net: usize, number: u32) -> bool {
    qp_in(net, number).is_some_and(|qp| qp.expects() != Expects::Later)
}
