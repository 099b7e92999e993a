// SPDX-License-Identifier: GPL-2.0

//! Queue pairs that connect themselves: their owners swap numbers by whatever way they have, and
//! `modify_qp` names the peer. The protocol is that of docs/direct-mode.md.
//!
//! Of the two ends the one with the smaller name connects to the port that all hosts agree on;
//! there a [`door`] lets [`stranger`]s in, who become a [`visitor`] when they have said which
//! queue pair they want. [`hello`] is what is said, and [`link`] what an endpoint does.

mod door;
mod hello;
mod link;
mod stranger;
mod visitor;

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

pub(crate) use self::door::Doors;
pub(super) use self::link::Direct;
use self::{
    door::Entry,
    visitor::{
        is_link_local,
        Visitor, //
    }, //
};
use super::endpoint::{
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
        direct::{
            Expects,
            Reach,
            Role, //
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
/// `ENODEV` when the device goes. `EADDRINUSE`: somebody else has the port. `EINVAL`: the
/// connection manager works for the queue pair already. `EACCES`, `EPERM`…: the current process may
/// not connect or have a socket.
pub(crate) fn begin(
    qp: &Arc<Qp>,
    reach: Reach,
    role: Role,
    commit: impl FnOnce(Handle) -> Result,
) -> Result {
    let device = qp.device();
    if device.going() {
        return Err(ENODEV);
    }
    let mut means = Some(Means::new(device, reach, role)?);
    let door = means
        .as_ref()
        .and_then(|means| means.entry.as_ref())
        .map(|entry| entry.door().clone());
    let endpoint = Endpoint::new(device)?;
    endpoint.change_and_leave(|_, turn| {
        let begun = || {
            let means = means.take().ok_or(EINVAL)?;
            let attachment = Attachment::new(qp.clone(), turn.endpoint)?;
            if let Some(socket) = &means.socket {
                socket.install(turn.endpoint.clone());
            }
            let direct = KBox::new(Direct::new(attachment, means), GFP_KERNEL)?;
            commit(turn.endpoint.handle())?;
            Ok(direct)
        };
        begun()
            .map(Phase::Direct)
            .map_err(|error| (error, Phase::Over))
    })?;
    // Those who came too early.
    if let Some(door) = door {
        while let Some(visitor) = door.waiting_for(qp.qpn().get()) {
            let _ = receive(door.net(), visitor);
        }
    }
    Ok(())
}

/// What a queue pair connects with, from the context of the process that names its peer.
struct Means {
    /// The initiator's socket, for all attempts.
    socket: Option<Socket>,
    /// On whose behalf the responder accepts.
    owner: Option<OwnerSock>,
    /// The responder's part in the listener.
    entry: Option<Entry>,
}

impl Means {
    /// Gathers what a queue pair of that role needs. Process context; sleeps.
    fn new(device: &Arc<Device>, reach: Reach, role: Role) -> Result<Self> {
        let net = device.netns().ok_or(ENODEV)?;
        // The loopback addresses of this host are in no VRF.
        let l3mdev = match reach {
            Reach::Ip { .. } => device.l3mdev(),
            Reach::Local => 0,
        };
        let (_, remote) = addresses(reach, device.ifindex());
        let family = Family::of(&remote);
        let connects = role != Role::Responder;
        let accepts = role != Role::Initiator;
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
            entry: accepts
                .then(|| device.doors().enter(device, l3mdev))
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
    let port = params::direct_port();
    match reach {
        Reach::Ip { local, remote } => (at(local, 0), at(remote, port)),
        Reach::Local => {
            let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
            (at(host, 0), at(host, port))
        }
    }
}

/// What becomes of a visitor.
enum Welcome {
    /// He was led to his queue pair, or sent away.
    Done,
    /// His queue pair has not been told of its peer yet.
    Later(Visitor),
}

/// Leads a visitor to his queue pair in a network namespace. Process context; sleeps.
fn receive(net: usize, visitor: Visitor) -> Welcome {
    let Some(qp) = qp_in(net, visitor.hello.to) else {
        visitor.refuse();
        return Welcome::Done;
    };
    let handle = match qp.expects() {
        Expects::Endpoint(handle) => handle,
        Expects::Later => return Welcome::Later(visitor),
        Expects::Nobody => {
            visitor.refuse();
            return Welcome::Done;
        }
    };
    let mut visitor = Some(visitor);
    if let Some(endpoint) = qp.device().cm_state().endpoint(handle) {
        // Without a device there is no endpoint any more.
        let _ = endpoint.change_and_leave(|mut phase, turn| {
            if let Phase::Direct(direct) = &mut phase {
                if let Some(visitor) = visitor.take() {
                    direct.visit(turn, visitor);
                }
            }
            Ok(phase)
        });
    }
    if let Some(visitor) = visitor {
        visitor.refuse();
    }
    Welcome::Done
}

/// Whether a queue pair has been told of its peer.
fn is_expecting(net: usize, number: u32) -> bool {
    qp_in(net, number).is_some_and(|qp| qp.expects() != Expects::Later)
}
