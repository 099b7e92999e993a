// SPDX-License-Identifier: GPL-2.0

//! Decoded work requests for the transmit and receive engines: read once, checked, in driver
//! memory.
//!
//! Stores of the owner to the ring do not change a value of these types.

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

/// A scatter-gather element: a range of local memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sge {
    /// The first address: in the address space of the region, or a kernel address with key 0.
    pub(crate) addr: u64,
    /// The length in octets.
    pub(crate) len: u32,
    /// The local key (STag) of the region; 0: the local DMA key.
    pub(crate) lkey: Stag,
}

impl Sge {
    /// An element without length.
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
    /// The number of elements in use.
    n: u8,
    sge: [Sge; MAX_SGE],
    /// The sum of the lengths, in octets.
    total: u32,
}

impl Sgl {
    /// A list without elements.
    pub(crate) const EMPTY: Self = Self {
        n: 0,
        sge: [Sge::EMPTY; MAX_SGE],
        total: 0,
    };

    /// Appends an element; `false` when the list is full or the sum of lengths exceeds 32 bits.
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

    /// The sum of the lengths, in octets.
    #[inline]
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
}

/// The inline data of a work request.
///
/// # Invariants
///
/// `len <= MAX_INLINE`.
#[derive(Clone, Copy)]
pub(crate) struct InlineData {
    /// The number of octets in use.
    len: u8,
    data: [u8; MAX_INLINE],
}

impl InlineData {
    /// The first `len` octets of `data`; `None` when `len` exceeds [`MAX_INLINE`].
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

/// The payload of a Send or Write.
pub(crate) enum Payload {
    /// The payload is in registered memory.
    Sgl(Sgl),
    /// The payload is in the work request.
    Inline(InlineData),
}

impl Payload {
    /// The length in octets.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Sgl(sgl) => sgl.total(),
            Self::Inline(data) => u32::from(data.len),
        }
    }
}

/// The operation of a send work request.
pub(crate) enum SendOp {
    /// RDMA Write to `remote` at `to`.
    Write {
        /// The source.
        local: Payload,
        /// The peer's region.
        remote: Stag,
        /// The tagged offset in the peer's region.
        to: u64,
    },
    /// Send, or Send with Invalidate.
    Send {
        /// The source.
        local: Payload,
        /// The peer's STag to invalidate.
        invalidate: Option<Stag>,
    },
    /// RDMA Read from `remote` at `to` into `sink`.
    ///
    /// The driver sends a Read Request for each element of the sink.
    Read {
        /// The sink. No element of non-zero length has key 0; with `local_inv` there is one at
        /// most.
        sink: Sgl,
        /// The peer's region.
        remote: Stag,
        /// The tagged offset in the peer's region.
        to: u64,
        /// The region of the sink is invalidated after the Read Response.
        local_inv: bool,
    },
    /// Invalidates a local region.
    LocalInv {
        /// The STag of the region.
        stag: Stag,
    },
    /// Makes a fast-registration region valid.
    RegMr(RegMr),
}

/// A work request of the send queue.
pub(crate) struct SendWqe {
    /// The owner's identifier of the work request (`wr_id`).
    pub(crate) id: u64,
    /// The owner requests a completion on success too.
    pub(crate) signaled: bool,
    /// The message requests a solicited event at the peer.
    pub(crate) solicited: bool,
    /// The work request starts only after all earlier Reads have completed.
    pub(crate) fence: bool,
    /// The operation.
    pub(crate) op: SendOp,
}

impl SendWqe {
    /// The opcode of the completion.
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
    /// The owner's identifier of the work request (`wr_id`).
    pub(crate) id: u64,
    /// The buffer for the message.
    pub(crate) sgl: Sgl,
}

/// An invalid work request.
///
/// The work request is completed with `status`, and the queue pair moves to the error state.
pub(crate) struct BadWqe {
    /// The owner's identifier of the work request (`wr_id`).
    pub(crate) id: u64,
    /// The opcode of the completion, from the element; `Send` if the element's opcode is refused.
    pub(crate) opcode: WcOpcode,
    pub(crate) status: WcStatus,
}
