// SPDX-License-Identifier: GPL-2.0

//! The peer that the owner of a queue pair has named (docs/rendezvous.md).
//!
//! `modify_qp` to `RTR` with an address vector and the number of a queue pair selects this. The
//! connection manager then sets the connection up. Meanwhile the states are those that the owner
//! has set, and work requests wait in the queue.

use core::{
    any::Any,
    net::IpAddr, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    named::CheckedPeer,
    rnr,
    Qp,
    QpEvent,
    QpState, //
};
use crate::{
    params,
    stream::Close,
    sys::rdma::attr::{
        Change,
        IbState,
        PeerAttributes, //
    }, //
};

/// How the peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From one address to another.
    Ip {
        /// Our own.
        local: IpAddr,
        /// The peer's.
        remote: IpAddr,
    },
    /// On this host, in this network namespace; there are no addresses, or none that packets can
    /// be sent to.
    Local,
}

/// The roles of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RendezvousRole {
    /// The initiator is this end.
    Initiator,
    /// The peer.
    Responder,
    /// The peer is this very queue pair.
    Both,
}

/// The destination of a connection request to a queue pair.
pub(crate) enum Expects {
    /// The endpoint of its rendezvous.
    Endpoint(Arc<dyn PeerEndpoint>),
    /// None yet: its owner may still name a peer.
    Later,
    /// None: it has no rendezvous.
    None,
}

/// What the owner has told of the connection up to now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How the peer is reached.
    pub(crate) reach: Reach,
    /// The roles of the two ends.
    pub(crate) role: RendezvousRole,
    /// The number of the peer's queue pair.
    pub(crate) remote: u32,
    /// The packet sequence number that the peer begins with.
    pub(crate) remote_psn: u32,
    /// This end's first packet sequence number; known in `RTS`.
    pub(crate) local_psn: Option<u32>,
    /// Reads the peer may have outstanding here.
    pub(crate) ird: u16,
    /// Traffic class.
    pub(crate) traffic_class: u8,
    /// Milliseconds that work requests may wait for the connection; `None`: for ever.
    pub(crate) patience_ms: Option<u32>,
    /// Work requests wait for the connection.
    pub(crate) work_waits: bool,
    /// A message is to wait without end for a receive of the peer.
    pub(crate) waits_for_receives: bool,
}

/// The peer as the queue pair stores it.
pub(super) struct NamedPeer {
    /// The owner's attributes, for `query_qp`.
    pub(super) told: PeerAttributes,
    /// How the peer is reached.
    reach: Reach,
    /// The roles of the two ends.
    role: RendezvousRole,
    /// `RTS` has been reached: `sq_psn` was told, and work requests may go out.
    pub(super) rts: bool,
    /// The owner has asked for `SQD`.
    pub(super) closing: bool,
    /// Our first packet sequence number as the peer expects it, once connected.
    claim: Option<u32>,
    /// The endpoint of the connection.
    endpoint: Arc<dyn PeerEndpoint>,
}

impl NamedPeer {
    /// The state that `query_qp` reports while the rendezvous lasts.
    pub(super) fn ib_state(&self) -> IbState {
        match (self.rts, self.closing) {
            (false, _) => IbState::Rtr,
            (true, false) => IbState::Rts,
            (true, true) => IbState::Sqd,
        }
    }

    /// Whether the peer expects other numbers than this end has.
    fn is_contradicted(&self) -> bool {
        self.rts && self.claim.is_some_and(|claim| claim != self.told.sq_psn)
    }

    /// Milliseconds that work requests may wait for the connection; `None`: for ever.
    ///
    /// As long as InfiniBand would try, but no less than it takes TCP to find a peer.
    fn patience_ms(&self) -> Option<u32> {
        if self.told.timeout == 0 {
            return None;
        }
        let nanoseconds = 4096u64.checked_shl(self.told.timeout.into())?;
        let tries = u64::from(self.told.retry_count).saturating_add(1);
        let millis = (nanoseconds / 1_000_000).saturating_mul(tries);
        let millis = u32::try_from(millis).unwrap_or(u32::MAX);
        Some(millis.max(params::rendezvous_timeout_ms()))
    }
}

/// What a rendezvous needs of the queue pair that it begins for.
pub(crate) struct ConnectorStart {
    /// How the peer is reached.
    pub(crate) reach: Reach,
    /// The role of this end.
    pub(crate) role: RendezvousRole,
    /// The endpoint that connects.
    pub(crate) endpoint: Arc<dyn PeerEndpoint>,
}

/// The rendezvous, as queue pairs know it; handed in at `RTR`.
pub(crate) trait Connector {
    /// Begins to connect a queue pair to a peer. Process context; sleeps, but does not wait for the
    /// peer.
    ///
    /// `commit` makes the peer known to the queue pair, once; when it returns an error nothing has
    /// begun.
    fn begin(
        &self,
        qp: &Arc<Qp>,
        peer: &PeerAttributes,
        commit: &mut dyn FnMut(ConnectorStart) -> Result,
    ) -> Result;
}

/// The endpoint that connects a queue pair to its peer.
pub(crate) trait PeerEndpoint: Send + Sync {
    /// Itself, for the rendezvous that has made it.
    fn as_any(&self) -> &dyn Any;
}

impl Qp {
    /// To `RTR`, with a peer. Process context; sleeps, but does not wait for the peer.
    pub(super) fn begin_rendezvous(
        self: &Arc<Self>,
        connector: &dyn Connector,
        peer: CheckedPeer,
        change: &Change,
    ) -> Result {
        let told = peer.told;
        connector.begin(self, &told, &mut |start| {
            let mut inner = self.inner.lock();
            if inner.state != QpState::Idle || !inner.initialised {
                return Err(EINVAL);
            }
            let inner = &mut *inner;
            self.keep(&mut inner.attrs, change);
            inner.peer = Some(NamedPeer {
                told,
                reach: start.reach,
                role: start.role,
                rts: false,
                closing: false,
                claim: None,
                endpoint: start.endpoint,
            });
            self.set_rights(inner);
            self.set_state(inner, QpState::Rtr);
            Ok(())
        })
    }

    /// A change of attributes once there is a peer. `now` is the state the owner knows.
    pub(super) fn modify_named(self: &Arc<Self>, now: IbState, change: &Change) -> Result {
        if !change.is_transition_from(now) {
            return Err(EINVAL);
        }
        match change.state.unwrap_or(now) {
            IbState::Err => {
                self.fail();
                Ok(())
            }
            IbState::Rts if matches!(now, IbState::Rtr | IbState::Rts) => self.named_rts(change),
            IbState::Sqd if matches!(now, IbState::Rts | IbState::Sqd) => self.named_sqd(change),
            // A stream that was closed can not be opened again.
            _ => Err(EINVAL),
        }
    }

    /// To `RTS`, or other attributes there.
    fn named_rts(self: &Arc<Self>, change: &Change) -> Result {
        let (attached, contradicted) = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let Some(peer) = &mut inner.peer else {
                return Err(EINVAL);
            };
            match inner.state {
                QpState::Rtr | QpState::Waiting | QpState::Rts | QpState::Left => {}
                // The connection broke since the owner's last query; an event reports that.
                _ => return Err(EINVAL),
            }
            let told = &mut peer.told;
            told.sq_psn = change.sq_psn.unwrap_or(told.sq_psn);
            told.timeout = change.timeout.unwrap_or(told.timeout);
            told.retry_count = change.retry_count.unwrap_or(told.retry_count);
            told.rnr_retry = change.rnr_retry.unwrap_or(told.rnr_retry);
            told.min_rnr_timer = change.min_rnr_timer.unwrap_or(told.min_rnr_timer);
            peer.rts = true;
            let contradicted = peer.is_contradicted();
            self.keep(&mut inner.attrs, change);
            self.set_rights(inner);
            if inner.state == QpState::Rtr {
                self.set_state(inner, QpState::Waiting);
            }
            (inner.attached.clone(), contradicted)
        };
        if contradicted {
            self.give_up();
            return Ok(());
        }
        if let Some(attached) = attached {
            attached.qp_news();
        }
        self.kick();
        Ok(())
    }

    /// To `SQD`, the graceful disconnect, or other attributes there.
    fn named_sqd(self: &Arc<Self>, change: &Change) -> Result {
        let mut inner = self.inner.lock();
        let Some(peer) = &mut inner.peer else {
            return Err(EINVAL);
        };
        peer.closing = true;
        self.keep(&mut inner.attrs, change);
        self.set_rights(&inner);
        if inner.state == QpState::Rts {
            self.set_state(&mut inner, QpState::Closing);
        }
        let stream = inner.stream.clone();
        drop(inner);
        match stream {
            Some(stream) => stream.close(Close::Graceful),
            // Nothing was sent yet, or the stream has ended.
            None => self.fail(),
        }
        Ok(())
    }

    /// What the owner has told of the connection up to now; `None` without a named peer.
    pub(crate) fn terms(&self) -> Option<Terms> {
        let inner = self.inner.lock();
        let peer = inner.peer.as_ref()?;
        Some(Terms {
            reach: peer.reach,
            role: peer.role,
            remote: peer.told.dest_qpn,
            remote_psn: peer.told.rq_psn,
            local_psn: peer.rts.then_some(peer.told.sq_psn),
            ird: inner.attrs.ird.into(),
            traffic_class: peer.told.path.route.map_or(0, |route| route.traffic_class),
            patience_ms: peer.patience_ms(),
            work_waits: peer.rts && self.queues.sq().is_pending(),
            waits_for_receives: rnr::is_for_ever(inner.attrs.rnr_retry),
        })
    }

    /// The destination of a connection request to it.
    pub(crate) fn expects(&self) -> Expects {
        let inner = self.inner.lock();
        match (&inner.peer, inner.state) {
            (Some(peer), _) => Expects::Endpoint(peer.endpoint.clone()),
            // `attached` says nothing: it is set before the peer is named.
            (None, QpState::Idle) => Expects::Later,
            (None, _) => Expects::None,
        }
    }

    /// The stream has begun. The peer expects `claim` as our first packet sequence number. Process
    /// context.
    pub(crate) fn rendezvous_connected(self: &Arc<Self>, claim: u32) {
        let contradicted = {
            let mut inner = self.inner.lock();
            inner.peer.as_mut().is_some_and(|peer| {
                peer.claim = Some(claim);
                peer.is_contradicted()
            })
        };
        if contradicted {
            self.give_up();
        }
    }

    /// Enters the error state without a connection, and tells the owner. Process context.
    pub(crate) fn give_up(self: &Arc<Self>) {
        if self.state() == QpState::Error {
            return;
        }
        let first = self.fail_quietly();
        if self.inner.lock().resetting {
            return;
        }
        self.fatal(QpEvent::Fatal);
        if first {
            self.tell_last_wqe();
        }
    }

    /// Whether the peer has closed in order, which the owner was not told yet.
    pub(crate) fn was_left(&self) -> bool {
        self.state() == QpState::Left
    }

    /// Reports to the owner that the peer has closed: what is posted is flushed. Process context.
    pub(crate) fn left_behind(self: &Arc<Self>) {
        self.fail();
    }
}
