// SPDX-License-Identifier: GPL-2.0

//! The attributes of a queue pair: at creation, their changes, and `query_qp`.
//!
//! iWARP supports a subset of InfiniBand's transitions. Only the connection manager changes the
//! state to `RTS`, unless the owner names a [`peer`](super::peer). `SQD` disconnects
//! ([`Close::Disconnect`](crate::stream::Close)) and `ERR` aborts, as `iw_cm` and `librdmacm` use
//! them. A request with an invalid part changes nothing.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    peer::Connector,
    rnr,
    Qp,
    QpInner,
    QpState, //
};
pub(crate) use crate::sys::rdma::attr::{
    Attributes,
    Cap,
    Change,
    IbState, //
};
use crate::{
    sys::rdma::ring::Owner,
    verbs::{
        limits,
        wq::wqe::{
            MAX_INLINE,
            MAX_SGE, //
        }, //
    }, //
};

/// The number of the only port.
const PORT: u32 = 1;

impl Cap {
    /// Checks the requested capabilities. Those of a process are rounded up to the size of the
    /// rings.
    ///
    /// The capacity of a kernel user stays as requested. The user would use more elements if the
    /// capacity were larger, and its completion queues are sized for the request. A queue has at
    /// least one element, since a process can not map an empty ring.
    ///
    /// `EINVAL`: a capability exceeds the limits of the device.
    pub(crate) fn checked(self, shared_rq: bool, owner: Owner) -> Result<Self> {
        let too_much = self.max_send_wr > limits::MAX_QP_WR
            || (!shared_rq && self.max_recv_wr > limits::MAX_QP_WR)
            || self.max_send_sge as usize > MAX_SGE
            || (!shared_rq && self.max_recv_sge as usize > MAX_SGE)
            || self.max_inline as usize > MAX_INLINE;
        if too_much {
            return Err(EINVAL);
        }
        let depth = |n: u32| match owner {
            Owner::Kernel(_) => Ok(n.max(1)),
            Owner::User => n.max(1).checked_next_power_of_two().ok_or(EINVAL),
        };
        Ok(Self {
            max_send_wr: depth(self.max_send_wr)?,
            max_recv_wr: if shared_rq {
                0
            } else {
                depth(self.max_recv_wr)?
            },
            max_send_sge: self.max_send_sge.max(1),
            max_recv_sge: if shared_rq {
                0
            } else {
                self.max_recv_sge.max(1)
            },
            // Each element of the ring has space for the maximum.
            max_inline: MAX_INLINE as u32,
        })
    }

    /// The number of elements of the send queue, a power of two.
    pub(crate) fn send_depth(&self) -> Result<u32> {
        self.max_send_wr.checked_next_power_of_two().ok_or(EINVAL)
    }

    /// The number of elements of the receive queue, a power of two.
    pub(crate) fn recv_depth(&self) -> Result<u32> {
        self.max_recv_wr.checked_next_power_of_two().ok_or(EINVAL)
    }

    /// The maximum number of scatter-gather elements of a send work request.
    pub(crate) fn max_send_sge(&self) -> u8 {
        self.max_send_sge.min(MAX_SGE as u32) as u8
    }

    /// The maximum number of scatter-gather elements of a receive work request.
    pub(crate) fn max_recv_sge(&self) -> u8 {
        self.max_recv_sge.min(MAX_SGE as u32) as u8
    }
}

/// The attributes that the queue pair keeps between calls of `modify_qp`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptAttributes {
    /// Access rights of the peer, as the owner has set them (`enum ib_access_flags`).
    access: u32,
    /// The number of RDMA Reads that this end may have outstanding (ORD).
    ord: u8,
    /// The number of RDMA Reads that the peer may have outstanding (IRD).
    pub(super) ird: u8,
    /// The number of retries of a message for which there is no receive, 0 to 7; 7: no limit.
    pub(super) rnr_retry: Option<u8>,
    /// The time until a retry, as a code, 0 to 31.
    pub(super) min_rnr_timer: Option<u8>,
}

impl KeptAttributes {
    /// Stores the attributes that `change` sets.
    fn keep(&mut self, change: &Change) {
        self.access = change.access.unwrap_or(self.access);
        self.ord = change.max_rd_atomic.unwrap_or(self.ord);
        self.ird = change.max_dest_rd_atomic.unwrap_or(self.ird);
        self.rnr_retry = change.rnr_retry.or(self.rnr_retry);
        self.min_rnr_timer = change.min_rnr_timer.or(self.min_rnr_timer);
    }
}

impl Default for KeptAttributes {
    fn default() -> Self {
        Self {
            access: 0,
            ord: limits::MAX_RD_ATOM as u8,
            ird: limits::MAX_RD_ATOM as u8,
            rnr_retry: None,
            min_rnr_timer: None,
        }
    }
}

/// The effect of a change of state.
enum Step {
    /// Stores the attributes and this state.
    Note(QpState),
    /// Disconnects.
    Close,
    /// Aborts the connection.
    Fail,
}

impl Qp {
    /// Stores the attributes that `change` sets, and updates the RNR limit of the data path.
    pub(super) fn keep(&self, attrs: &mut KeptAttributes, change: &Change) {
        attrs.keep(change);
        self.queues.set_rnr_limit(rnr::limit(attrs));
    }

    /// The state in terms of the verbs.
    fn ib_state(inner: &QpInner) -> IbState {
        match (inner.state, &inner.peer) {
            (QpState::Idle, _) if inner.initialised => IbState::Init,
            (QpState::Idle, _) => IbState::Reset,
            (QpState::Error, _) => IbState::Err,
            (_, Some(peer)) => peer.ib_state(),
            (QpState::Rtr, None) => IbState::Rtr,
            (QpState::Rts | QpState::Waiting | QpState::Left, None) => IbState::Rts,
            (QpState::Closing, None) => IbState::Sqd,
        }
    }

    /// The effect of a change to `to`; `None` if it is not allowed.
    fn step(inner: &QpInner, to: IbState) -> Option<Step> {
        Some(match (inner.state, to) {
            (_, IbState::Err) => Step::Fail,
            (QpState::Idle, IbState::Init) => Step::Note(QpState::Idle),
            (QpState::Idle, IbState::Rtr) if inner.initialised => Step::Note(QpState::Rtr),
            (QpState::Rtr, IbState::Rtr) => Step::Note(QpState::Rtr),
            (QpState::Rts, IbState::Rts) => Step::Note(QpState::Rts),
            (_, IbState::Sqd) => Step::Close,
            _ => return None,
        })
    }

    /// Changes attributes. Process context; sleeps, but does not wait for the peer.
    ///
    /// `EINVAL`: an attribute or a transition is not allowed; nothing has changed. Other errors
    /// are those of [`reset`](Self::reset) and [`Connector::begin`].
    pub(crate) fn modify(self: &Arc<Self>, change: &Change, connector: &dyn Connector) -> Result {
        let depth_ok = |n: Option<u8>| n.is_none_or(|n| u16::from(n) <= limits::MAX_RD_ATOM);
        if change.unsupported
            || change.port.is_some_and(|port| port != PORT)
            || change.pkey_index.is_some_and(|index| index != 0)
            || !depth_ok(change.max_rd_atomic)
            || !depth_ok(change.max_dest_rd_atomic)
            || !change.is_in_range()
        {
            return Err(EINVAL);
        }
        let _one_at_a_time = self.changing.lock();
        let (now, peer) = {
            let inner = self.inner.lock();
            (Self::ib_state(&inner), inner.peer.is_some())
        };
        let told = self.attributes().state;
        if change
            .current
            .is_some_and(|current| current != now && current != told)
        {
            return Err(EINVAL);
        }
        if change.state == Some(IbState::Reset) {
            self.reset()
        } else if peer {
            self.modify_named(now, change)
        } else if change.names_peer() {
            if !change.is_transition_from(now) {
                return Err(EINVAL);
            }
            self.begin_rendezvous(connector, change.peer()?, change)
        } else {
            self.modify_connected(change)
        }
    }

    /// Changes attributes of a queue pair without a named peer, which the connection manager
    /// connects.
    fn modify_connected(self: &Arc<Self>, change: &Change) -> Result {
        let mut inner = self.inner.lock();
        let step = match change.state {
            Some(to) => Some(Self::step(&inner, to).ok_or(EINVAL)?),
            None => None,
        };
        match step {
            Some(Step::Fail) => {
                self.keep(&mut inner.attrs, change);
                drop(inner);
                self.tell_owner_closes();
                self.fail();
                Ok(())
            }
            Some(Step::Close) => {
                drop(inner);
                self.tell_owner_closes();
                self.close()?;
                self.inner.lock().attrs.keep(change);
                Ok(())
            }
            Some(Step::Note(state)) => {
                self.keep(&mut inner.attrs, change);
                inner.initialised = true;
                self.set_state(&mut inner, state);
                Ok(())
            }
            None => {
                self.keep(&mut inner.attrs, change);
                Ok(())
            }
        }
    }

    /// Sets the access rights of the peer in the data path.
    ///
    /// The rights of the owner apply only with a named peer. A connection manager grants all
    /// rights, but may set none (`rdma_init_qp_attr()`). So all are set without a named peer, and
    /// the rights of regions decide.
    pub(super) fn set_rights(&self, inner: &QpInner) {
        let rights = match inner.peer {
            Some(_) => inner.attrs.access,
            None => u32::MAX,
        };
        self.queues.set_rights(rights);
    }

    /// The attributes for `query_qp`. Process context.
    ///
    /// A new queue pair is reported in `INIT`, as is usual for RNICs: their idle state is both
    /// `RESET` and `INIT`. The tests of rdma-core require this.
    pub(crate) fn attributes(&self) -> Attributes {
        let inner = self.inner.lock();
        let state = match Self::ib_state(&inner) {
            IbState::Reset if !inner.was_reset => IbState::Init,
            state => state,
        };
        Attributes {
            state,
            access: inner.attrs.access,
            max_rd_atomic: inner.attrs.ord,
            max_dest_rd_atomic: inner.attrs.ird,
            cap: self.cap,
            signal_all: self.signal_all,
            peer: inner.peer.as_ref().map(|peer| peer.told),
        }
    }

    /// Stores the agreed depths (IRD and ORD) for `query_qp`. Any context.
    pub(crate) fn set_depths(&self, ird: u16, ord: u16) {
        let mut inner = self.inner.lock();
        inner.attrs.ird = ird.min(limits::MAX_RD_ATOM) as u8;
        inner.attrs.ord = ord.min(limits::MAX_RD_ATOM) as u8;
    }
}
