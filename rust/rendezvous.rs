// SPDX-License-Identifier: GPL-2.0

//! Rendezvous: queue pairs that connect without rdma_cm.
//!
//! Two programs exchange queue pair numbers by any means, and `modify_qp` names the peer. The
//! protocol is that of docs/rendezvous.md. The end with the smaller pair of GID and number
//! connects to the port that all hosts agree on.
//!
//! - [`listener`]: the port of a network namespace
//! - [`pending`]: a connection whose queue pair is not known yet
//! - [`request`]: a connection request, whose queue pair is known
//! - [`hello`]: the private data of the start-up frames
//! - [`endpoint`]: the state machine, for the initiator and the responder

mod endpoint;
mod hello;
mod listener;
mod pending;
mod request;

use core::{
    cmp::Ordering,
    net::{
        IpAddr,
        Ipv4Addr,
        SocketAddr,
        SocketAddrV6, //
    },
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) use self::listener::RendezvousListeners;
use self::{
    endpoint::{
        Rendezvous,
        RendezvousEndpoint, //
    },
    listener::{
        ListenerShare,
        RendezvousListener, //
    },
    request::{
        is_link_local,
        ConnRequest, //
    }, //
};
use crate::{
    cm::{
        endpoint::{
            Attachment,
            Endpoint,
            Phase, //
        },
        CmDevice, //
    },
    params,
    qp::{
        peer::{
            ConnectorStart,
            Expects,
            Reach,
            RendezvousRole, //
        },
        Qp, //
    },
    sys::{
        errno::{
            EADDRNOTAVAIL,
            EHOSTUNREACH,
            EOPNOTSUPP, //
        },
        net::{
            socket::{
                OwnerSock,
                Socket, //
            }, //
            Family,
        }, //
        rdma::{
            attr::PeerAttributes,
            path::AddressVector, //
        },
        sync::context::Caller,
    },
    verbs::gid::{
        self,
        Gid,
        Standing, //
    }, //
};

/// Context of a rendezvous besides the queue pair.
pub(crate) struct Host<'a> {
    /// The device of the queue pair.
    pub(crate) device: &'a Arc<CmDevice>,
    /// The listeners of the host.
    pub(crate) listeners: &'a Arc<RendezvousListeners>,
    /// The standing of a GID among the devices of the device's network namespace.
    pub(crate) standing: &'a dyn Fn(&Gid) -> Standing,
}

/// The role of one of two ends: the one with the smaller pair of GID and number connects.
fn role(local: (Gid, u32), remote: (Gid, u32)) -> RendezvousRole {
    match local.cmp(&remote) {
        Ordering::Less => RendezvousRole::Initiator,
        Ordering::Equal => RendezvousRole::Both,
        Ordering::Greater => RendezvousRole::Responder,
    }
}

impl Host<'_> {
    /// The path from queue pair `qpn` to the peer `number`, and the role of this end.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a GID is no unicast IP address. `EADDRNOTAVAIL`: packets can not be sent from the
    /// local address. `EHOSTUNREACH`: there is no address, and no such queue pair in the network
    /// namespace.
    fn find_peer(
        &self,
        qpn: u32,
        path: &AddressVector,
        number: u32,
    ) -> Result<(Reach, RendezvousRole)> {
        let Some(route) = &path.route else {
            let role = role((gid::NONE, qpn), (gid::NONE, number));
            self.listeners
                .qps()
                .in_net(self.device.net_id(), number)
                .ok_or(EHOSTUNREACH)?;
            return Ok((Reach::Local, role));
        };
        let role = role((route.local, qpn), (route.remote, number));
        let local = gid::ip_of(&route.local).ok_or(EINVAL)?;
        let remote = gid::ip_of(&route.remote).ok_or(EINVAL)?;
        // Both ends must reach the same result.
        let reach = match (
            (self.standing)(&route.local),
            (self.standing)(&route.remote),
        ) {
            (Standing::Address, Standing::Address) => Reach::Ip { local, remote },
            (_, Standing::NameOnly) | (Standing::NameOnly, Standing::Address) => Reach::Local,
            (Standing::Address, Standing::Foreign) => Reach::Ip { local, remote },
            (_, Standing::Foreign) | (Standing::Foreign, _) => return Err(EADDRNOTAVAIL),
        };
        Ok((reach, role))
    }
}

/// Begins to connect a queue pair. Process context; sleeps, but does not wait for the peer.
///
/// Calls `commit` at most once, which stores the peer in the queue pair. After an error of
/// `commit` nothing has begun.
///
/// # Errors
///
/// `EOPNOTSUPP`: the parameter `rendezvous_port` is 0. `EADDRNOTAVAIL`: the process is not in the
/// network namespace of the interface. `ENODEV`: the device is being removed. `EADDRINUSE`: the
/// port is in use. `EINVAL`: a connection manager is attached to the queue pair already. A
/// security module may return errors such as `EACCES` or `EPERM`: the current process may not
/// connect or have a socket. Other errors are those of [`Host::find_peer`].
pub(crate) fn begin(
    host: &Host<'_>,
    qp: &Arc<Qp>,
    peer: &PeerAttributes,
    commit: &mut dyn FnMut(ConnectorStart) -> Result,
) -> Result {
    if params::rendezvous_port() == 0 {
        return Err(EOPNOTSUPP);
    }
    let device = host.device;
    // Only processes of an interface's network namespace use its addresses.
    if !Caller::is_in_net(device.net_id()) {
        return Err(EADDRNOTAVAIL);
    }
    let (reach, role) = host.find_peer(qp.qpn().get(), &peer.path, peer.dest_qpn)?;
    if device.going() {
        return Err(ENODEV);
    }
    let mut resources = Some(Resources::new(host, reach, role)?);
    let listener = resources
        .as_ref()
        .and_then(|resources| resources.share.as_ref())
        .map(|share| share.listener().clone());
    let endpoint = Endpoint::new(device)?;
    endpoint.change_and_leave(|_, ctx| {
        let mut begun = || {
            let resources = resources.take().ok_or(EINVAL)?;
            let attachment = Attachment::new(qp.clone(), ctx.endpoint)?;
            if let Some(socket) = &resources.socket {
                socket.install(ctx.endpoint.clone());
            }
            let rendezvous = Rendezvous::new(attachment, resources);
            let endpoint = RendezvousEndpoint::new(ctx, rendezvous)?;
            commit(ConnectorStart {
                reach,
                role,
                endpoint: endpoint.clone(),
            })?;
            Ok(endpoint)
        };
        begun()
            .map(|endpoint| Phase::Driven(endpoint))
            .map_err(|error| (error, Phase::Over))
    })?;
    // Dispatches connection requests that arrived before the queue pair had a peer.
    if let Some(listener) = listener {
        while let Some(request) = listener.take_parked(qp.qpn().get()) {
            let _ = dispatch(&listener, request);
        }
    }
    Ok(())
}

/// Resources of a rendezvous, made in the context of the process that names the peer.
struct Resources {
    /// The initiator's socket, for all attempts.
    socket: Option<Socket>,
    /// The owner of the sockets that the responder accepts.
    owner: Option<OwnerSock>,
    /// The responder's share of the listener.
    share: Option<ListenerShare>,
}

impl Resources {
    /// Makes the resources for this role. Process context; sleeps.
    fn new(host: &Host<'_>, reach: Reach, role: RendezvousRole) -> Result<Self> {
        let device = host.device;
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
                .then(|| host.listeners.share(device, l3mdev))
                .transpose()?,
        })
    }
}

/// The local and the remote address of an initiator. `ifindex` is the scope of link-local
/// addresses.
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
    /// The request was passed to its queue pair, or refused.
    Done,
    /// The queue pair has no peer yet.
    Later(ConnRequest),
}

/// Passes a connection request to its queue pair in the listener's network namespace. Process
/// context; sleeps.
fn dispatch(listener: &RendezvousListener, request: ConnRequest) -> Dispatch {
    let Some(qp) = listener.qp(request.hello.to) else {
        request.refuse();
        return Dispatch::Done;
    };
    match qp.expects() {
        Expects::Endpoint(endpoint) => {
            match endpoint.as_any().downcast_ref::<RendezvousEndpoint>() {
                Some(endpoint) => endpoint.dispatch(request),
                None => request.refuse(),
            }
            Dispatch::Done
        }
        Expects::Later => Dispatch::Later(request),
        Expects::None => {
            request.refuse();
            Dispatch::Done
        }
    }
}

/// Whether a queue pair has a peer, or can not have one any more.
fn is_expecting(listener: &RendezvousListener, number: u32) -> bool {
    listener
        .qp(number)
        .is_some_and(|qp| !matches!(qp.expects(), Expects::Later))
}

#[kunit_tests(rsiw_rendezvous_role)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_connects() {
        let (a, b) = (([1; 16], 9), ([2; 16], 3));
        assert_eq!(role(a, b), RendezvousRole::Initiator);
        assert_eq!(role(b, a), RendezvousRole::Responder);
        assert_eq!(role(a, a), RendezvousRole::Both);
        assert_eq!(role((a.0, 8), a), RendezvousRole::Initiator);
    }
}
