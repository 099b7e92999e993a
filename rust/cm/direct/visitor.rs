// SPDX-License-Identifier: GPL-2.0

//! One who has connected and said which queue pair he wants.

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

use super::{
    super::{
        accept::without_data,
        frame::{
            has_more,
            FrameWriter, //
        },
    },
    hello::Hello, //
};
use crate::{
    params,
    sys::socket::Socket,
    verbs::{
        direct::{
            Reach,
            Terms, //
        },
        limits::MAX_RD_ATOM,
        Qpn, //
    },
};

/// What is known of a visitor's claim to be the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// He is.
    Peer,
    /// He may be: neither end knows a number of its own yet that the other one expects.
    Unproven,
    /// He is not.
    Stranger,
}

/// What this end does in the MPA start-up, with room for `ird` of the peer's Reads.
///
/// Reads of our own are limited by what the peer has room for, not by us: their number is not
/// known before `RTS`.
pub(super) fn policy(ird: u16) -> Policy {
    Policy {
        revision: iwarp_wire::mpa::startup::Revision::Two,
        crc: params::crc(),
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

/// What this end says of itself.
pub(super) fn hello(terms: &Terms, qpn: Qpn) -> Hello {
    Hello {
        from: qpn.get(),
        to: terms.remote,
        psn: terms.local_psn,
        expects: terms.remote_psn,
        local: terms.reach == Reach::Local,
    }
}

/// What `hello`, which came over the right path, is worth.
pub(super) fn judge(hello: &Hello, terms: &Terms, qpn: Qpn) -> Verdict {
    let meant = hello.to == qpn.get()
        && hello.from == terms.remote
        && hello.local == (terms.reach == Reach::Local);
    let theirs = hello.psn.map(|psn| psn == terms.remote_psn);
    let ours = terms.local_psn.map(|psn| psn == hello.expects);
    match (theirs, ours) {
        _ if !meant => Verdict::Stranger,
        (Some(false), _) | (_, Some(false)) => Verdict::Stranger,
        (None, None) => Verdict::Unproven,
        _ => Verdict::Peer,
    }
}

/// A peer that has connected.
pub(super) struct Visitor {
    /// The socket.
    pub(super) socket: Socket,
    /// What he says.
    pub(super) hello: Hello,
    /// His Request, without that.
    request: Frame<'static>,
    /// The addresses of the connection.
    ends: (SocketAddr, SocketAddr),
}

impl Visitor {
    /// Makes sense of a Request. Ends the connection if it is of no use.
    pub(super) fn new(socket: Socket, request: &Frame<'_>) -> Option<Self> {
        let ends = socket.local_addr().ok().zip(socket.peer_addr().ok());
        let enhanced = request
            .enhanced
            .is_some_and(|word| word.peer_to_peer && word.rtr.write);
        match (Hello::parse(request.private_data), ends) {
            (Some(hello), Some(ends)) if enhanced && !has_more(&socket) => Some(Self {
                socket,
                hello,
                request: without_data(request),
                ends,
            }),
            _ => {
                socket.set_linger_abort();
                None
            }
        }
    }

    /// Whether he has gone, or says more than he may.
    pub(super) fn is_gone(&self) -> bool {
        has_more(&self.socket)
    }

    /// Whether he came the way the peer has to come: on interface `ifindex`, if the addresses mean
    /// something there only.
    fn came_by(&self, reach: &Reach, ifindex: u32) -> bool {
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

    /// What his claim to be the peer of queue pair `qpn` is worth.
    pub(super) fn verdict(&self, terms: &Terms, qpn: Qpn, ifindex: u32) -> Verdict {
        match self.came_by(&terms.reach, ifindex) {
            true => judge(&self.hello, terms, qpn),
            false => Verdict::Stranger,
        }
    }

    /// The address to which a wrong packet sequence number is counted as a guess: the hello names
    /// queue pair `qpn` and its peer, and the connection came the peer's way. `None`: no guess.
    pub(super) fn guesser(&self, terms: &Terms, qpn: Qpn, ifindex: u32) -> Option<IpAddr> {
        let hello = &self.hello;
        let guesses = hello.to == qpn.get()
            && hello.from == terms.remote
            && self.came_by(&terms.reach, ifindex);
        guesses.then_some(match terms.reach {
            Reach::Ip { remote, .. } => remote,
            // All addresses of the loopback interface are this host's.
            Reach::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        })
    }

    /// Closes the connection by a reset without an answer: the initiator tries again.
    pub(super) fn dismiss(self) {
        self.socket.set_linger_abort();
    }

    /// The Reply that accepts the connection, and what is agreed on.
    pub(super) fn accept(&self, terms: &Terms, qpn: Qpn) -> Result<(FrameWriter, Parameters)> {
        let hello = hello(terms, qpn).encode();
        let (reply, agreed) = policy(terms.ird).accept(&self.request, &hello);
        Ok((FrameWriter::new(&reply)?, agreed))
    }

    /// Refuses the connection for good by a Reply without private data.
    pub(super) fn refuse(self) {
        let reply = policy(0).reject(&self.request, &[]);
        if let Ok(mut frame) = FrameWriter::new(&reply) {
            // TCP's buffer is empty, so there is room; else he will try again.
            let _ = frame.send(&self.socket);
        }
        // Nothing of it stays, whatever becomes of the answer: it would keep the namespace.
        self.socket.set_linger_abort();
    }
}

/// Whether an address means something on one link only.
pub(super) fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[kunit_tests(rsiw_cm_visitor)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        reach: Reach::Local,
        role: crate::verbs::direct::Role::Responder,
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
            assert!(verdict(hello, TERMS) == Verdict::Stranger);
        }
        // What can not be checked proves nothing.
        let hello = Hello {
            expects: 2223,
            ..HELLO
        };
        assert!(verdict(hello, early) == Verdict::Peer);
    }
}
