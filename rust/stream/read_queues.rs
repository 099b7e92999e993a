// SPDX-License-Identifier: GPL-2.0

//! The read queues of a stream (RFC 5040 section 5.5): outstanding Reads of this end (ORQ), and
//! Read Requests of the peer (IRQ).
//!
//! Both directions use the queues: `tx` sends requests and responses, `rx` receives them. The
//! socket lock guards the queues.

use iwarp_wire::reads::{
    Inbound,
    Irq,
    Orq,
    Outstanding, //
};
use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    prelude::*, //
};

use super::{
    config::Config,
    inflight::Slot, //
};
use crate::verbs::Stag;

/// The work request of an outstanding Read.
#[derive(Clone, Copy)]
pub(super) struct ReadCookie {
    /// The entry of the work request; `None` for a ready-to-receive frame.
    pub(super) slot: Option<Slot>,
    /// This is the last of the work request's Reads.
    pub(super) last: bool,
    /// The STag of the sink, if it is invalidated after the last octet was placed.
    pub(super) invalidate: Option<Stag>,
}

/// The ORQ and the IRQ of a stream. The socket lock guards both.
pub(super) struct ReadQueues {
    /// The outstanding Reads of this end.
    pub(super) orq: Orq<ReadCookie, KVec<Option<Outstanding<ReadCookie>>>>,
    /// The Read Requests of the peer.
    pub(super) irq: Irq<KVec<Option<Inbound>>>,
}

impl ReadQueues {
    /// Makes empty queues of the negotiated depths. `ENOMEM`: no memory. Process context; sleeps.
    pub(super) fn new(config: &Config) -> Result<Self> {
        let outgoing = KVec::from_elem(None, usize::from(config.ord), GFP_KERNEL_ACCOUNT)?;
        let incoming = KVec::from_elem(None, usize::from(config.ird), GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            orq: Orq::new(outgoing, config.ord),
            irq: Irq::new(incoming, config.ird),
        })
    }

    /// The cookie of the oldest outstanding Read.
    pub(super) fn front(&self) -> Option<ReadCookie> {
        self.orq.head().map(|read| read.cookie)
    }
}
