// SPDX-License-Identifier: GPL-2.0

//! The peer that the owner of a queue pair has named (docs/rendezvous.md).
//!
//! `modify_qp` to `RTR` with an address vector and the number of a queue pair begins a rendezvous,
//! which sets the connection up. Meanwhile the queue pair is in the states that the owner sets,
//! and work requests wait in the queue.

use core::{
    any::Any,
    net::IpAddr, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    modify::KeptAttributes,
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

/// The path to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// IP between two addresses.
    Ip {
        /// The address of this end.
        local: IpAddr,
        /// The address of the peer.
        remote: IpAddr,
    },
    /// This host, in the same network namespace. The ends have no addresses, or none to which
    /// packets can be sent.
    Local,
}

/// The roles of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RendezvousRole {
    /// This end is the initiator.
    Initiator,
    /// The peer is the initiator.
    Responder,
    /// The peer is the same queue pair.
    Both,
}

/// The destination of a connection request to a queue pair.
pub(crate) enum Expects {
    /// The endpoint of the rendezvous of the queue pair.
    Endpoint(Arc<dyn PeerEndpoint>),
    /// No endpoint yet: the owner may still name a peer.
    Later,
    /// No endpoint: the queue pair has no rendezvous.
    None,
}

/// The attributes of the connection that the owner has set so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The path to the peer.
    pub(crate) reach: Reach,
    /// The roles of the two ends.
    pub(crate) role: RendezvousRole,
    /// The number of the peer's queue pair.
    pub(crate) remote: u32,
    /// The first packet sequence number of the peer (`rq_psn`).
    pub(crate) remote_psn: u32,
    /// The first packet sequence number of this end (`sq_psn`); `None` before `RTS`.
    pub(crate) local_psn: Option<u32>,
    /// The number of RDMA Reads that the peer may have outstanding (IRD).
    pub(crate) ird: u16,
    /// The traffic class of the path; 0 without a global route.
    pub(crate) traffic_class: u8,
    /// The time that work requests may wait for the connection, in milliseconds; `None`: no limit.
    pub(crate) patience_ms: Option<u32>,
    /// Posted work requests wait for the connection.
    pub(crate) work_waits: bool,
    /// A message waits for a receive of the peer without a time limit (`rnr_retry` is 7).
    pub(crate) waits_for_receives: bool,
}

/// The named peer of a queue pair.
pub(super) struct NamedPeer {
    /// The owner's attributes, for `query_qp`.
    pub(super) told: PeerAttributes,
    /// The path to the peer.
    reach: Reach,
    /// The roles of the two ends.
    role: RendezvousRole,
    /// The owner has set `RTS`: `sq_psn` is known, and work requests may be sent.
    pub(super) rts: bool,
    /// The owner has set `SQD`.
    pub(super) closing: bool,
    /// The first packet sequence number of this end that the peer expects; `None` until connected.
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

    /// Stores the attributes that the owner sets with `RTS`.
    fn set_rts(&mut self, change: &Change) {
        let told = &mut self.told;
        told.sq_psn = change.sq_psn.unwrap_or(told.sq_psn);
        told.timeout = change.timeout.unwrap_or(told.timeout);
        told.retry_count = change.retry_count.unwrap_or(told.retry_count);
        told.rnr_retry = change.rnr_retry.unwrap_or(told.rnr_retry);
        told.min_rnr_timer = change.min_rnr_timer.unwrap_or(told.min_rnr_timer);
        self.rts = true;
    }

    /// The attributes of the connection. `attrs` are those of the queue pair; `posted`: work
    /// requests are in the send queue.
    fn terms(&self, attrs: &KeptAttributes, posted: impl FnOnce() -> bool) -> Terms {
        Terms {
            reach: self.reach,
            role: self.role,
            remote: self.told.dest_qpn,
            remote_psn: self.told.rq_psn,
            local_psn: self.rts.then_some(self.told.sq_psn),
            ird: attrs.ird.into(),
            traffic_class: self.told.path.route.map_or(0, |route| route.traffic_class),
            patience_ms: self.patience_ms(),
            work_waits: self.rts && posted(),
            waits_for_receives: rnr::is_for_ever(attrs.rnr_retry),
        }
    }

    /// Whether the peer expects another first packet sequence number of this end than `sq_psn`.
    fn is_contradicted(&self) -> bool {
        self.rts && self.claim.is_some_and(|claim| claim != self.told.sq_psn)
    }

    /// The time that work requests may wait for the connection, in milliseconds; `None`: no limit.
    ///
    /// This is the time for which InfiniBand would retry, and at least the time-out of the
    /// rendezvous, in which TCP finds a peer.
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

/// The values that a rendezvous passes to the queue pair when it begins.
pub(crate) struct ConnectorStart {
    /// The path to the peer.
    pub(crate) reach: Reach,
    /// The role of this end.
    pub(crate) role: RendezvousRole,
    /// The endpoint that connects.
    pub(crate) endpoint: Arc<dyn PeerEndpoint>,
}

/// The interface to the rendezvous, an argument of [`Qp::modify`].
pub(crate) trait Connector {
    /// Begins to connect a queue pair to a peer. Process context; sleeps, but does not wait for the
    /// peer.
    ///
    /// Calls `commit` at most once, which stores the peer in the queue pair. After an error of
    /// `commit` nothing has begun.
    fn begin(
        &self,
        qp: &Arc<Qp>,
        peer: &PeerAttributes,
        commit: &mut dyn FnMut(ConnectorStart) -> Result,
    ) -> Result;
}

/// The endpoint that connects a queue pair to its peer.
pub(crate) trait PeerEndpoint: Send + Sync {
    /// The object as [`Any`], which the rendezvous downcasts to its own type.
    fn as_any(&self) -> &dyn Any;
}

impl Qp {
    /// Changes the state to `RTR` with a named peer, and begins the rendezvous. Process context;
    /// sleeps, but does not wait for the peer.
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

    /// Changes attributes of a queue pair with a named peer. `now` is the state in terms of the
    /// verbs.
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
            // A closed stream can not be opened again.
            _ => Err(EINVAL),
        }
    }

    /// Changes the state to `RTS`, or other attributes in `RTS`.
    fn named_rts(self: &Arc<Self>, change: &Change) -> Result {
        let (attached, contradicted) = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let Some(peer) = &mut inner.peer else {
                return Err(EINVAL);
            };
            match inner.state {
                QpState::Rtr | QpState::Waiting | QpState::Rts | QpState::Left => {}
                // The connection broke after the last query of the owner; an event reports that.
                _ => return Err(EINVAL),
            }
            peer.set_rts(change);
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

    /// Changes the state to `SQD`, the graceful disconnect, or other attributes in `SQD`.
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

    /// The attributes of the connection that the owner has set so far; `None` without a named
    /// peer.
    pub(crate) fn terms(&self) -> Option<Terms> {
        let inner = self.inner.lock();
        let posted = || self.queues.sq().is_pending();
        Some(inner.peer.as_ref()?.terms(&inner.attrs, posted))
    }

    /// The destination of a connection request to this queue pair. Any context.
    pub(crate) fn expects(&self) -> Expects {
        let inner = self.inner.lock();
        match (&inner.peer, inner.state) {
            (Some(peer), _) => Expects::Endpoint(peer.endpoint.clone()),
            // `attached` is no criterion: it is set before the peer is named.
            (None, QpState::Idle) => Expects::Later,
            (None, _) => Expects::None,
        }
    }

    /// Handles the start of the stream. `claim` is the first packet sequence number of this end
    /// that the peer expects. Process context.
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

    /// Fails the rendezvous: enters the error state, and reports `QP_FATAL` to the owner. Process
    /// context.
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

    /// Whether the peer has closed gracefully, without a report to the owner yet.
    pub(crate) fn was_left(&self) -> bool {
        self.state() == QpState::Left
    }

    /// Reports the close of the peer to the owner: enters the error state, which flushes posted
    /// work requests. Process context.
    pub(crate) fn left_behind(self: &Arc<Self>) {
        self.fail();
    }
}
