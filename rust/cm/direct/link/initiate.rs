// SPDX-License-Identifier: GPL-2.0

//! The initiator of a connection (docs/direct-mode.md, section 3).

use core::net::{
    IpAddr,
    Ipv4Addr,
    SocketAddr,
    SocketAddrV6, //
};

use iwarp_wire::{
    mpa::negotiate::Refusal,
    RtrKind, //
};
use kernel::prelude::*;

use super::{
    Direct,
    Outcome,
    Stage, //
};
use crate::{
    cm::{
        direct::{
            hello::Hello,
            visitor::{
                hello,
                is_link_local,
                judge,
                policy,
                Verdict, //
            },
        },
        endpoint::Turn,
        frame::{
            FrameReader,
            FrameWriter,
            ReadError, //
        },
        stream_config,
        timer::Limit, //
    },
    params,
    stream::Role as StreamRole,
    sys::{
        net::Family,
        socket::Socket, //
    },
    verbs::{
        counters::Counter,
        direct::{
            Reach,
            Terms, //
        }, //
    },
};

impl Direct {
    /// Makes a socket that connects.
    #[inline(never)]
    pub(super) fn connect(&self, turn: &mut Turn<'_>, terms: &Terms) -> Outcome {
        let port = params::direct_port();
        let ifindex = turn.device.ifindex();
        let at = |ip: IpAddr, port| match ip {
            IpAddr::V6(v6) if is_link_local(&ip) => {
                SocketAddr::V6(SocketAddrV6::new(v6, port, 0, ifindex))
            }
            ip => SocketAddr::new(ip, port),
        };
        let (local, remote) = match terms.reach {
            Reach::Ip { local, remote } => (at(local, 0), at(remote, port)),
            Reach::Local => {
                let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
                (at(host, 0), at(host, port))
            }
        };
        let open = || {
            let socket = Socket::create(&turn.device.netns().ok_or(ENODEV)?, Family::of(&remote))?;
            if terms.traffic_class != 0 {
                socket.set_tos(terms.traffic_class);
            }
            socket.bind_address(&local)?;
            socket.install(turn.endpoint.clone());
            socket.connect_nonblocking(&remote)?;
            Ok::<_, Error>(socket)
        };
        match open() {
            Ok(socket) => Outcome::Go(Stage::Tcp(socket, Limit::new(params::connect_timeout_ms()))),
            // The address may come, and a route.
            Err(_) => Outcome::Retry,
        }
    }

    /// Prepares the Request.
    #[inline(never)]
    pub(super) fn greet(&self, terms: &Terms, socket: Socket) -> Outcome {
        let said = hello(terms, self.qp.qp().qpn());
        let request = policy(terms.ird);
        match FrameWriter::new(&request.request(&said.encode())) {
            Ok(frame) => {
                let limit = Limit::new(params::mpa_reply_timeout_ms());
                Outcome::Go(Stage::Request(frame, socket, limit, said))
            }
            Err(_) => Outcome::Retry,
        }
    }

    /// Reads the Reply, and starts the stream.
    #[inline(never)]
    pub(super) fn conclude(
        &self,
        turn: &mut Turn<'_>,
        terms: &Terms,
        (mut reader, socket, limit, said): (FrameReader, Socket, Limit, Hello),
    ) -> Outcome {
        let frame = match reader.read(&socket) {
            Ok(Some(frame)) => frame,
            Ok(None) if limit.is_over() => return Outcome::Retry,
            Ok(None) => return Outcome::Wait(Stage::Reply(reader, socket, limit, said)),
            // Somebody else has the port over there.
            Err(ReadError::Malformed(_)) => return Outcome::Fail,
            Err(ReadError::Closed | ReadError::Broken(_)) => return Outcome::Retry,
        };
        let agreed = match policy(terms.ird).conclude(&frame) {
            Ok(agreed) => agreed,
            Err(
                Refusal::Rejected
                | Refusal::Revision
                | Refusal::InsufficientIrd
                | Refusal::NoMatchingRtr,
            ) => return Outcome::Fail,
        };
        let qpn = self.qp.qp().qpn();
        let Some(theirs) = Hello::parse(frame.private_data) else {
            return Outcome::Fail;
        };
        if judge(&theirs, terms, qpn) == Verdict::Stranger {
            return Outcome::Fail;
        }
        let role = StreamRole::Initiator {
            rtr: Some(RtrKind::Write),
        };
        turn.device.counters().add(Counter::Connects, 1);
        let config = stream_config(&agreed, role);
        self.start(turn, socket, config, theirs.expects)
    }
}
