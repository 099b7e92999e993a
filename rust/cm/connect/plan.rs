// SPDX-License-Identifier: GPL-2.0

//! The plan of an initiator: socket, Request, depths.

use core::net::SocketAddr;

use iwarp_wire::mpa::negotiate::Policy;
use kernel::prelude::*;

use crate::{
    cm::{
        endpoint::StepContext,
        mpa_frame::FrameWriter,
        policy, //
    },
    params,
    sys::{
        errno::{
            EADDRINUSE,
            EADDRNOTAVAIL, //
        },
        net::{
            socket::Socket, //
            Family,
        }, //
        rdma::iwcm::{
            ConnParam,
            ConnectCall,
            Peers, //
        },
    },
    verbs::settings::Settings, //
};

/// The parameters of an initiator.
pub(super) struct Plan {
    /// The addresses.
    pub(super) peers: Peers,
    /// The type of service.
    tos: Option<u8>,
    /// The negotiation policy.
    pub(super) policy: Policy,
    /// The user's private data.
    private_data: KVec<u8>,
}

impl Plan {
    /// Makes the plan for a connect call on a device with these settings.
    pub(super) fn new(
        call: &ConnectCall<'_>,
        param: &ConnParam<'_>,
        settings: &Settings,
    ) -> Result<Self> {
        let mut private_data = KVec::new();
        private_data.extend_from_slice(param.private_data, GFP_KERNEL)?;
        Ok(Self {
            peers: *call.peers(),
            tos: call.tos(),
            policy: policy(settings.crc(), param.ird, param.ord),
            private_data,
        })
    }

    /// The Request; `EINVAL` if it can not carry the private data.
    pub(super) fn request(&self) -> Result<FrameWriter> {
        FrameWriter::new(&self.policy.request(&self.private_data))
    }

    /// Makes a socket in the context of the current process, begins to connect it, and sets the
    /// time limit.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: the port that the user has chosen is in use, or is connected to that peer. Or no
    /// port is left for that peer.
    pub(super) fn open(&self, ctx: &mut StepContext<'_>) -> Result<Socket> {
        let local = &self.peers.local;
        let mut socket = self.prepare(local, ctx)?;
        let mut result = self.connect(&socket, ctx);
        if result == Err(EADDRNOTAVAIL) && local.port() != 0 && socket.gives_out(local.port()) {
            let mut any = *local;
            any.set_port(0);
            socket = self.prepare(&any, ctx)?;
            result = self.connect(&socket, ctx);
        }
        match result {
            // The socket has its own address, so a connection between these two addresses exists
            // already, or TCP has no port left for the peer.
            Err(EADDRNOTAVAIL) => Err(EADDRINUSE),
            result => result.map(|()| socket),
        }
    }

    /// Makes a socket that is bound to `local`.
    fn prepare(&self, local: &SocketAddr, ctx: &StepContext<'_>) -> Result<Socket> {
        let remote = &self.peers.remote;
        let socket = Socket::create(&ctx.device.netns().ok_or(ENODEV)?, Family::of(remote))?;
        socket.ask_to_connect(remote)?;
        if let Some(tos) = self.tos {
            socket.set_tos(tos);
        }
        // A VRF has its own addresses and routes.
        let l3mdev = ctx.device.l3mdev();
        if l3mdev != 0 {
            socket.bind_to_device(l3mdev)?;
        }
        if local.port() != 0 || !local.ip().is_unspecified() {
            socket.set_reuse();
            Self::bind(&socket, local)?;
        }
        socket.install(ctx.endpoint.clone());
        Ok(socket)
    }

    /// Begins to connect the socket from its address, possibly again, and sets the time limit.
    pub(super) fn connect(&self, socket: &Socket, ctx: &mut StepContext<'_>) -> Result {
        socket.connect_nonblocking(&self.peers.remote)?;
        ctx.timer.set(params::connect_timeout_ms());
        Ok(())
    }

    /// Binds the socket to `local`.
    ///
    /// `rdma_cm` chooses an ephemeral port without a check for TCP sockets that have this port. If
    /// there is one, TCP chooses a new port. A port that the user has chosen is usually outside
    /// that range.
    fn bind(socket: &Socket, local: &SocketAddr) -> Result {
        match socket.bind(local) {
            Err(EADDRINUSE) if socket.gives_out(local.port()) => {
                let mut any = *local;
                any.set_port(0);
                socket.bind(&any)
            }
            bound => bound,
        }
    }
}
