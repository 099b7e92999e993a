// SPDX-License-Identifier: GPL-2.0

//! The read queues of a stream (RFC 5040 section 5.5): outstanding Reads of this end (ORQ), and
//! Read Requests of the peer (IRQ).
//!
//! Both directions use them: `tx` makes requests and answers, `rx` takes requests and responses. They
//! belong to the holder of the socket.

use iwarp_wire::reads::{
    Inbound,
    Irq,
    Orq,
    Outstanding, //
};
use kernel::prelude::*;

use super::{
    config::Config,
    inflight::Slot, //
};
use crate::verbs::Stag;

/// What an outstanding Read belongs to.
#[derive(Clone, Copy)]
pub(super) struct ReadCookie {
    /// The work request; none for a ready-to-receive frame.
    pub(super) slot: Option<Slot>,
    /// This is the last of the work request's Reads.
    pub(super) last: bool,
    /// The sink to invalidate when the data is there.
    pub(super) invalidate: Option<Stag>,
}

/// The read queues.
pub(super) struct ReadQueues {
    /// Our outstanding Reads.
    pub(super) orq: Orq<ReadCookie, KVec<Option<Outstanding<ReadCookie>>>>,
    /// The peer's Read Requests.
    pub(super) irq: Irq<KVec<Option<Inbound>>>,
}

impl ReadQueues {
    /// Empty queues of the depths agreed on. May sleep.
    pub(super) fn new(config: &Config) -> Result<Self> {
        let outgoing = KVec::from_elem(None, usize::from(config.ord), GFP_KERNEL)?;
        let incoming = KVec::from_elem(None, usize::from(config.ird), GFP_KERNEL)?;
        Ok(Self {
            orq: Orq::new(outgoing, config.ord),
            irq: Irq::new(incoming, config.ird),
        })
    }

    /// What the oldest outstanding Read belongs to.
    pub(super) fn front(&self) -> Option<ReadCookie> {
        self.orq.head().map(|read| read.cookie)
    }
}
