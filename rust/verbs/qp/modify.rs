// SPDX-License-Identifier: GPL-2.0

//! The attributes of a queue pair: what it is made with, what changes them, what is told.
//!
//! Of the transitions of InfiniBand an RNIC has its own: the connection manager alone takes a
//! queue pair to `RTS`; `SQD` is a graceful disconnect, `ERR` an abortive one (siw-facts: what
//! `iw_cm` and `librdmacm` ask for). A request that is wrong in any part changes nothing.

use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(crate) use crate::sys::ib::attr::{
    Attributes,
    Cap,
    Change,
    IbState, //
};
use crate::verbs::{
    limits,
    qp::{
        Qp,
        QpState, //
    },
    queue::wqe::{
        MAX_INLINE,
        MAX_SGE, //
    }, //
};

/// The one port.
const PORT: u32 = 1;

impl Cap {
    /// Checks what was asked for, and rounds it up to what the queues really hold.
    ///
    /// A queue has at least one element: without one a process could not map it.
    pub(in crate::verbs) fn checked(self, shared_rq: bool) -> Result<Self> {
        let too_much = self.max_send_wr > limits::MAX_QP_WR
            || (!shared_rq && self.max_recv_wr > limits::MAX_QP_WR)
            || self.max_send_sge as usize > MAX_SGE
            || (!shared_rq && self.max_recv_sge as usize > MAX_SGE)
            || self.max_inline as usize > MAX_INLINE;
        if too_much {
            return Err(EINVAL);
        }
        let depth = |n: u32| n.max(1).checked_next_power_of_two().ok_or(EINVAL);
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
            // The ring has the room anyway.
            max_inline: MAX_INLINE as u32,
        })
    }

    /// Elements of the send queue.
    pub(in crate::verbs) fn send_depth(&self) -> Result<u32> {
        self.max_send_wr.checked_next_power_of_two().ok_or(EINVAL)
    }

    /// Scatter-gather elements of a send work request.
    pub(in crate::verbs) fn max_send_sge(&self) -> u8 {
        self.max_send_sge.min(MAX_SGE as u32) as u8
    }

    /// Scatter-gather elements of a receive work request.
    pub(in crate::verbs) fn max_recv_sge(&self) -> u8 {
        self.max_recv_sge.min(MAX_SGE as u32) as u8
    }
}

/// The attributes that are kept for the owner.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct Kept {
    /// Rights of the peer, as the owner has set them.
    access: u32,
    /// Reads we may have outstanding (ORD).
    ord: u8,
    /// Reads the peer may have outstanding (IRD).
    ird: u8,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            access: 0,
            ord: limits::MAX_RD_ATOM as u8,
            ird: limits::MAX_RD_ATOM as u8,
        }
    }
}

/// What a change of state comes to.
enum Step {
    /// Nothing but taking notes.
    Note(QpState),
    /// The graceful end.
    Close,
    /// The abortive end.
    Fail,
}

impl Qp {
    /// The state as the verbs name it.
    fn ib_state(state: QpState, initialised: bool) -> IbState {
        match state {
            QpState::Idle if initialised => IbState::Init,
            QpState::Idle => IbState::Reset,
            QpState::Rtr => IbState::Rtr,
            QpState::Rts => IbState::Rts,
            QpState::Closing => IbState::Sqd,
            QpState::Terminate => IbState::Sqe,
            QpState::Error => IbState::Err,
        }
    }

    /// Where `change` leads from `now`; `None` if that can not be.
    fn step(now: QpState, to: IbState) -> Option<Step> {
        Some(match (now, to) {
            (_, IbState::Err) => Step::Fail,
            (QpState::Idle, IbState::Reset | IbState::Init) => Step::Note(QpState::Idle),
            (QpState::Idle | QpState::Rtr, IbState::Rtr) => Step::Note(QpState::Rtr),
            (QpState::Rts, IbState::Rts) => Step::Note(QpState::Rts),
            (_, IbState::Sqd) => Step::Close,
            _ => return None,
        })
    }

    /// Changes attributes. Process context; does not wait for the peer.
    ///
    /// `EINVAL` for anything that can not be, and nothing is changed then.
    pub(in crate::verbs) fn modify(self: &Arc<Self>, change: &Change) -> Result {
        let depth_ok = |n: Option<u8>| n.is_none_or(|n| u16::from(n) <= limits::MAX_RD_ATOM);
        if change.unsupported
            || change.port.is_some_and(|port| port != PORT)
            || change.pkey_index.is_some_and(|index| index != 0)
            || !depth_ok(change.max_rd_atomic)
            || !depth_ok(change.max_dest_rd_atomic)
        {
            return Err(EINVAL);
        }
        let mut inner = self.inner.lock();
        let now = Self::ib_state(inner.state, inner.initialised);
        if change.current.is_some_and(|current| current != now) {
            return Err(EINVAL);
        }
        let step = match change.state {
            Some(to) => Some(Self::step(inner.state, to).ok_or(EINVAL)?),
            None => None,
        };
        let keep = |inner: &mut super::QpInner| {
            if let Some(access) = change.access {
                inner.attrs.access = access;
            }
            if let Some(ord) = change.max_rd_atomic {
                inner.attrs.ord = ord;
            }
            if let Some(ird) = change.max_dest_rd_atomic {
                inner.attrs.ird = ird;
            }
        };
        match step {
            Some(Step::Fail) => {
                keep(&mut inner);
                drop(inner);
                self.tell_owner_closes();
                self.fail();
                Ok(())
            }
            Some(Step::Close) => {
                drop(inner);
                self.tell_owner_closes();
                self.close()?;
                keep(&mut self.inner.lock());
                Ok(())
            }
            Some(Step::Note(state)) => {
                keep(&mut inner);
                inner.initialised = change.state != Some(IbState::Reset);
                self.set_state(&mut inner, state);
                Ok(())
            }
            None => {
                keep(&mut inner);
                Ok(())
            }
        }
    }

    /// Tells the attributes. Process context.
    pub(in crate::verbs) fn attributes(&self) -> Attributes {
        let inner = self.inner.lock();
        Attributes {
            state: Self::ib_state(inner.state, inner.initialised),
            access: inner.attrs.access,
            max_rd_atomic: inner.attrs.ord,
            max_dest_rd_atomic: inner.attrs.ird,
            cap: self.cap,
            signal_all: self.signal_all,
        }
    }

    /// Notes the depths which the connection has got, for `query_qp`.
    pub(crate) fn set_depths(&self, ird: u16, ord: u16) {
        let mut inner = self.inner.lock();
        inner.attrs.ird = ird.min(limits::MAX_RD_ATOM) as u8;
        inner.attrs.ord = ord.min(limits::MAX_RD_ATOM) as u8;
    }
}
