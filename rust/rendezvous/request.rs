// SPDX-License-Identifier: GPL-2.0

//! A connection request: a connection whose Request names a queue pair.

use core::net::{
    IpAddr,
    Ipv4Addr,
    SocketAddr, //
};

use iwarp_wire::mpa::{
    negotiate::{
        Parameters,
        Policy, //
    },
    startup::{
        Frame,
        RtrKinds, //
    },
};
use kernel::prelude::*;

use super::hello::Hello;
use crate::{
    cm::{
        accept::without_data,
        mpa_frame::{
            has_more,
            FrameWriter, //
        }, //
    },
    params,
    qp::{
        peer::{
            Reach,
            Terms, //
        },
        Qp, //
    },
    sys::net::socket::Socket,
    verbs::{
        limits::MAX_RD_ATOM,
        Qpn, //
    }, //
};

/// The verdict on a request: whether it is from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The request is the peer's.
    Peer,
    /// Unknown: neither end has its own packet sequence number yet, which the other end could
    /// check.
    Unproven,
    /// The request is not the peer's.
    Mismatch,
}

/// The negotiation policy of this end; the peer may have `ird` RDMA Reads outstanding.
///
/// The peer's IRD limits the RDMA Reads of this end, since their number is not known before `RTS`.
/// `crc`: this end requests CRCs.
pub(super) fn policy(crc: bool, ird: u16) -> Policy {
    Policy {
        revision: iwarp_wire::mpa::startup::Revision::Two,
        crc,
        markers: params::markers(),
        ird,
        ord: MAX_RD_ATOM,
        max_ird: ird,
        peer_to_peer: true,
        rtr: RtrKinds {
            fpdu: false,
            write: true,
            read: false,
        },
    }
}

/// The hello of this end.
pub(super) fn hello(terms: &Terms, qpn: Qpn) -> Hello {
    Hello {
        from: qpn.get(),
        to: terms.remote,
        psn: terms.local_psn,
        expects: terms.remote_psn,
        local: terms.reach == Reach::Local,
    }
}

/// The verdict on `hello`, which arrived over the peer's path.
pub(super) fn judge(hello: &Hello, terms: &Terms, qpn: Qpn) -> Verdict {
    let meant = hello.to == qpn.get()
        && hello.from == terms.remote
        && hello.local == (terms.reach == Reach::Local);
    let theirs = hello.psn.map(|psn| psn == terms.remote_psn);
    let ours = terms.local_psn.map(|psn| psn == hello.expects);
    match (theirs, ours) {
        _ if !meant => Verdict::Mismatch,
        (Some(false), _) | (_, Some(false)) => Verdict::Mismatch,
        (None, None) => Verdict::Unproven,
        _ => Verdict::Peer,
    }
}

/// A connection request.
pub(super) struct ConnRequest {
    pub(super) socket: Socket,
    pub(super) hello: Hello,
    /// The MPA Request, without private data.
    mpa_request: Frame<'static>,
    /// The addresses of the connection.
    ends: (SocketAddr, SocketAddr),
}

impl ConnRequest {
    /// Parses a Request. Resets the connection if the Request is not one of a rendezvous.
    pub(super) fn new(socket: Socket, request: &Frame<'_>) -> Option<Self> {
        let ends = socket.local_addr().ok().zip(socket.peer_addr().ok());
        let enhanced = request
            .enhanced
            .is_some_and(|word| word.peer_to_peer && word.rtr.write);
        match (Hello::parse(request.private_data), ends) {
            (Some(hello), Some(ends)) if enhanced && !has_more(&socket) => Some(Self {
                socket,
                hello,
                mpa_request: without_data(request),
                ends,
            }),
            _ => {
                socket.set_linger_abort();
                None
            }
        }
    }

    /// Whether the peer has closed, or sent more than a Request.
    pub(super) fn is_closed(&self) -> bool {
        has_more(&self.socket)
    }

    /// Whether the connection came over the peer's path: on interface `ifindex`, for link-local
    /// addresses.
    fn arrived_by(&self, reach: &Reach, ifindex: u32) -> bool {
        let (here, there) = &self.ends;
        let ips = (here.ip().to_canonical(), there.ip().to_canonical());
        match reach {
            Reach::Local => ips.0.is_loopback() && ips.1.is_loopback(),
            Reach::Ip { local, remote } => {
                let scoped = |addr: &SocketAddr| match addr {
                    SocketAddr::V6(v6) if is_link_local(remote) => v6.scope_id() == ifindex,
                    _ => true,
                };
                ips == (*local, *remote) && scoped(there)
            }
        }
    }

    /// The verdict for queue pair `qpn`.
    pub(super) fn verdict(&self, terms: &Terms, qpn: Qpn, ifindex: u32) -> Verdict {
        match self.arrived_by(&terms.reach, ifindex) {
            true => judge(&self.hello, terms, qpn),
            false => Verdict::Mismatch,
        }
    }

    /// The address to which a wrong packet sequence number is counted as a guess; `None`: no
    /// guess. A wrong number is a guess if the hello names queue pair `qpn` and its peer, and the
    /// connection came over the peer's path.
    pub(super) fn guesser(&self, terms: &Terms, qpn: Qpn, ifindex: u32) -> Option<IpAddr> {
        let hello = &self.hello;
        let guesses = hello.to == qpn.get()
            && hello.from == terms.remote
            && self.arrived_by(&terms.reach, ifindex);
        guesses.then_some(match terms.reach {
            Reach::Ip { remote, .. } => remote,
            // The loopback interface has only addresses of this host.
            Reach::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        })
    }

    /// Resets the connection without a Reply: the initiator retries.
    pub(super) fn reset(self) {
        self.socket.set_linger_abort();
    }

    /// The Reply that accepts the connection, and the agreed parameters.
    pub(super) fn accept(&self, terms: &Terms, qp: &Qp) -> Result<(FrameWriter, Parameters)> {
        let hello = hello(terms, qp.qpn()).encode();
        let policy = policy(qp.device().settings().crc(), terms.ird);
        let (reply, agreed) = policy.accept(&self.mpa_request, &hello);
        Ok((FrameWriter::new(&reply)?, agreed))
    }

    /// Refuses the connection permanently, by a Reply without private data.
    pub(super) fn refuse(self) {
        let reply = policy(params::crc(), 0).reject(&self.mpa_request, &[]);
        if let Ok(mut frame) = FrameWriter::new(&reply) {
            // The send buffer is empty, so the Reply fits; otherwise the peer retries.
            let _ = frame.send(&self.socket);
        }
        // The socket is freed at once, even if the Reply is lost: otherwise it would hold the
        // namespace.
        self.socket.set_linger_abort();
    }
}

/// Whether an address is link-local.
pub(super) fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[kunit_tests(rsiw_rendezvous_request)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        reach: Reach::Local,
        role: crate::qp::peer::RendezvousRole::Responder,
        remote: 11,
        remote_psn: 1111,
        local_psn: Some(2222),
        ird: 1,
        traffic_class: 0,
        patience_ms: None,
        work_waits: false,
        waits_for_receives: false,
    };

    const HELLO: Hello = Hello {
        from: 11,
        to: 22,
        psn: Some(1111),
        expects: 2222,
        local: true,
    };

    fn verdict(hello: Hello, terms: Terms) -> Verdict {
        judge(&hello, &terms, Qpn::new(22))
    }

    #[test]
    fn either_number_proves_and_a_wrong_one_disproves() {
        let silent = Hello { psn: None, ..HELLO };
        let early = Terms {
            local_psn: None,
            ..TERMS
        };
        assert!(verdict(HELLO, TERMS) == Verdict::Peer);
        assert!(verdict(silent, TERMS) == Verdict::Peer);
        assert!(verdict(HELLO, early) == Verdict::Peer);
        assert!(verdict(silent, early) == Verdict::Unproven);
        for hello in [
            Hello { from: 12, ..HELLO },
            Hello { to: 23, ..HELLO },
            Hello {
                psn: Some(1112),
                ..HELLO
            },
            Hello {
                expects: 2223,
                ..HELLO
            },
            Hello {
                local: false,
                ..HELLO
            },
        ] {
            assert!(verdict(hello, TERMS) == Verdict::Mismatch);
        }
        // A number that can not be checked proves nothing.
        let hello = Hello {
            expects: 2223,
            ..HELLO
        };
        assert!(verdict(hello, early) == Verdict::Peer);
    }
}
