// SPDX-License-Identifier: GPL-2.0

//! Work requests as the transmit and receive engines see them: read once, checked, in our memory.
//!
//! A value of these types never changes under the engine, whatever the owner of the ring does.

use crate::verbs::{
    cq::{
        WcOpcode,
        WcStatus, //
    },
    mr::RegMr,
    Stag, //
};

/// Scatter-gather elements in a work request (`SIW_MAX_SGE`).
pub(crate) const MAX_SGE: usize = 6;

/// Octets of inline data in a work request (`SIW_MAX_INLINE`).
pub(crate) const MAX_INLINE: usize = 80;

/// One piece of local memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sge {
    /// Where it starts: in the address space of its region, or a kernel address with key 0.
    pub(crate) addr: u64,
    /// The length in octets.
    pub(crate) len: u32,
    /// The local key of its region.
    pub(crate) lkey: Stag,
}

impl Sge {
    /// Nothing.
    pub(super) const EMPTY: Self = Self {
        addr: 0,
        len: 0,
        lkey: Stag::new(0),
    };
}

/// The local memory of a work request, in order.
///
/// # Invariants
///
/// `n <= MAX_SGE`, and `total` is the sum of the lengths, which does not wrap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sgl {
    /// How many elements are used.
    n: u8,
    /// The elements.
    sge: [Sge; MAX_SGE],
    /// Octets in all.
    total: u32,
}

impl Sgl {
    /// No memory at all.
    pub(crate) const EMPTY: Self = Self {
        n: 0,
        sge: [Sge::EMPTY; MAX_SGE],
        total: 0,
    };

    /// Appends an element; `false` when the list is full or its length leaves 32 bits.
    pub(crate) fn push(&mut self, sge: Sge) -> bool {
        let Some(total) = self.total.checked_add(sge.len) else {
            return false;
        };
        let Some(slot) = self.sge.get_mut(usize::from(self.n)) else {
            return false;
        };
        // INVARIANT: There was a free slot, so `n` was below `MAX_SGE`; the sum did not wrap.
        *slot = sge;
        self.n = self.n.wrapping_add(1);
        self.total = total;
        true
    }

    /// The elements in order.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[Sge] {
        self.sge.get(..usize::from(self.n)).unwrap_or(&[])
    }

    /// Octets in all.
    #[inline]
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
}

/// Data that came inside the work request.
///
/// # Invariants
///
/// `len <= MAX_INLINE`.
#[derive(Clone, Copy)]
pub(crate) struct InlineData {
    /// How many octets are used.
    len: u8,
    /// The octets.
    data: [u8; MAX_INLINE],
}

impl InlineData {
    /// The first `len` octets of `data`; `None` when there are not so many.
    pub(super) fn new(data: [u8; MAX_INLINE], len: u32) -> Option<Self> {
        if len as usize > MAX_INLINE {
            return None;
        }
        // INVARIANT: Checked above.
        Some(Self {
            len: len as u8,
            data,
        })
    }

    /// The octets.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.data.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

/// What a Send or Write carries.
pub(crate) enum Payload {
    /// The payload is in registered memory.
    Sgl(Sgl),
    /// The payload is in the work request.
    Inline(InlineData),
}

impl Payload {
    /// Octets in all.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Sgl(sgl) => sgl.total(),
            Self::Inline(data) => u32::from(data.len),
        }
    }
}

/// What a work request of the send queue asks for.
pub(crate) enum SendOp {
    /// RDMA Write to `remote` at `to`.
    Write {
        /// The source.
        local: Payload,
        /// The peer's region.
        remote: Stag,
        /// The tagged offset in it.
        to: u64,
    },
    /// Send, also with invalidation of one of the peer's regions.
    Send {
        /// The source.
        local: Payload,
        /// What the peer shall invalidate.
        invalidate: Option<Stag>,
    },
    /// RDMA Read from `remote` at `to` into `sink`.
    ///
    /// One Read Request goes out for each element of the sink.
    Read {
        /// Where the data goes; no element has key 0, and with `local_inv` there is one at most.
        sink: Sgl,
        /// The peer's region.
        remote: Stag,
        /// The tagged offset in it.
        to: u64,
        /// The sink's region is invalidated when the data is there.
        local_inv: bool,
    },
    /// Invalidates a region of our own.
    LocalInv {
        /// The key of the region.
        stag: Stag,
    },
    /// Makes a fast-registration region valid.
    RegMr(RegMr),
}

/// A work request of the send queue.
pub(crate) struct SendWqe {
    /// The owner's name for it.
    pub(crate) id: u64,
    /// A completion is wanted on success too.
    pub(crate) signaled: bool,
    /// The peer shall get a solicited event.
    pub(crate) solicited: bool,
    /// Starts only after all earlier Reads are done.
    pub(crate) fence: bool,
    /// What to do.
    pub(crate) op: SendOp,
}

impl SendWqe {
    /// The operation as its completion names it.
    #[inline]
    pub(crate) fn opcode(&self) -> WcOpcode {
        match self.op {
            SendOp::Write { .. } => WcOpcode::Write,
            SendOp::Send { .. } => WcOpcode::Send,
            SendOp::Read { .. } => WcOpcode::Read,
            SendOp::LocalInv { .. } => WcOpcode::LocalInv,
            SendOp::RegMr(_) => WcOpcode::RegMr,
        }
    }
}

/// A work request of a receive queue.
pub(crate) struct RecvWqe {
    /// The owner's name for it.
    pub(crate) id: u64,
    /// Where the message goes.
    pub(crate) sgl: Sgl,
}

/// A work request that made no sense.
///
/// It is completed with `status`, and the queue pair goes to the error state.
pub(crate) struct BadWqe {
    /// The owner's name for it.
    pub(crate) id: u64,
    /// The operation as its completion names it, as far as it can be told.
    pub(crate) opcode: WcOpcode,
    /// Why.
    pub(crate) status: WcStatus,
}
