// SPDX-License-Identifier: GPL-2.0

//! The layout of work and completion queue elements, for kernel users as for processes.
//!
//! Source: [`include/uapi/rdma/siw-abi.h`](srctree/include/uapi/rdma/siw-abi.h). An element is an
//! array of 64-bit words. Fields are listed from the low bits on, with their width in bits. A
//! scatter-gather element (SGE) is two words: the address; the length (32) and the key (32).
//!
//! | element | words | word 0 | word 1 | word 2 | word 3 |
//! | --- | --- | --- | --- | --- | --- |
//! | send | 15 | id | flags 16, num_sge 8, opcode 8, rkey 32 | tagged offset | the SGEs |
//! | receive | 14 | id | flags 16, num_sge 8 | the SGEs | |
//! | completion | 4 | id | flags 8, opcode 8, status 16, bytes 32 | invalidated STag | queue pair |

use crate::verbs::{
    wq::wqe::{
        Sge,
        Sgl,
        MAX_INLINE,
        MAX_SGE, //
    },
    Stag, //
};

/// Words of a send queue element.
pub(crate) const SQE_WORDS: usize = 3 + 2 * MAX_SGE;
/// Words of a receive queue element.
pub(crate) const RQE_WORDS: usize = 2 + 2 * MAX_SGE;
/// Words of a completion queue element.
pub(crate) const CQE_WORDS: usize = 4;

/// The first word of the scatter-gather elements of a send queue element.
pub(super) const SQE_SGES: usize = 3;
/// The first word of the scatter-gather elements of a receive queue element.
pub(super) const RQE_SGES: usize = 2;
/// The first word of inline data: that of the second scatter-gather element.
const INLINE: usize = SQE_SGES + 2;

const _: () = assert!(SQE_WORDS * 8 == size_of::<crate::sys::bindings::siw_sqe>());
const _: () = assert!(RQE_WORDS * 8 == size_of::<crate::sys::bindings::siw_rqe>());
const _: () = assert!(CQE_WORDS * 8 == size_of::<crate::sys::bindings::siw_cqe>());
const _: () = assert!((SQE_WORDS - INLINE) * 8 == MAX_INLINE);

/// Flags of elements (`enum siw_wqe_flags`).
pub(crate) mod flag {
    /// The element holds a work request or completion.
    pub(crate) const VALID: u16 = 1;
    /// The data is in the element.
    pub(crate) const INLINE: u16 = 1 << 1;
    /// The owner requests a completion.
    pub(crate) const SIGNALLED: u16 = 1 << 2;
    /// The message requests a solicited event at the peer.
    pub(crate) const SOLICITED: u16 = 1 << 3;
    /// The work request waits for earlier Reads.
    pub(crate) const READ_FENCE: u16 = 1 << 4;
    /// The completion names an invalidated STag. Only in completions for kernel users.
    pub(crate) const REM_INVAL: u16 = 1 << 5;
}

/// Opcodes of elements (`enum siw_opcode`).
pub(crate) mod opcode {
    /// RDMA Write.
    pub(crate) const WRITE: u8 = 0;
    /// RDMA Read.
    pub(crate) const READ: u8 = 1;
    /// RDMA Read, then invalidation of the sink.
    pub(crate) const READ_LOCAL_INV: u8 = 2;
    /// Send.
    pub(crate) const SEND: u8 = 3;
    /// Send with Invalidate.
    pub(crate) const SEND_REMOTE_INV: u8 = 5;
    /// Receive.
    pub(crate) const RECEIVE: u8 = 8;
    /// Local invalidation. Only for kernel users.
    pub(crate) const INVAL_STAG: u8 = 10;
    /// Fast registration. Only for kernel users.
    pub(crate) const REG_MR: u8 = 11;
}

/// The header word of a work queue element.
#[derive(Clone, Copy)]
pub(crate) struct WqeHeader(pub(crate) u64);

impl WqeHeader {
    /// Makes a header word from the fields.
    pub(super) fn new(flags: u16, num_sge: u8, opcode: u8, rkey: Stag) -> Self {
        Self(
            u64::from(flags)
                | u64::from(num_sge) << 16
                | u64::from(opcode) << 24
                | u64::from(rkey.get()) << 32,
        )
    }

    /// Whether `flag` is set.
    #[inline]
    pub(crate) fn has(self, flag: u16) -> bool {
        self.0 as u16 & flag != 0
    }

    /// The number of scatter-gather elements. Unchecked: any 8-bit value.
    #[inline]
    pub(super) fn num_sge(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// The opcode. Unchecked: any 8-bit value.
    #[inline]
    pub(super) fn opcode(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// The remote key.
    #[inline]
    pub(super) fn rkey(self) -> Stag {
        Stag::new((self.0 >> 32) as u32)
    }
}

/// Decodes `n` scatter-gather elements from word `first` on. `None` when `n` exceeds `max`, or the
/// sum of the lengths exceeds 32 bits.
#[inline]
pub(super) fn decode_sgl(words: &[u64], first: usize, n: u8, max: u8) -> Option<Sgl> {
    let mut sgl = Sgl::EMPTY;
    if n > max {
        return None;
    }
    let pairs = words.get(first..)?.chunks_exact(2);
    for pair in pairs.take(usize::from(n)) {
        let [addr, rest] = *pair else {
            return None;
        };
        let sge = Sge {
            addr,
            len: rest as u32,
            lkey: Stag::new((rest >> 32) as u32),
        };
        if !sgl.push(sge) {
            return None;
        }
    }
    Some(sgl)
}

/// Writes scatter-gather elements from word `first` on.
pub(super) fn encode_sgl(words: &mut [u64], first: usize, sgl: &Sgl) {
    let pairs = words
        .get_mut(first..)
        .unwrap_or(&mut [])
        .chunks_exact_mut(2);
    for (pair, sge) in pairs.zip(sgl.as_slice()) {
        if let [addr, rest] = pair {
            *addr = sge.addr;
            *rest = u64::from(sge.len) | u64::from(sge.lkey.get()) << 32;
        }
    }
}

/// The inline data of a send queue element: all octets of the field.
#[inline]
pub(super) fn decode_inline(words: &[u64; SQE_WORDS]) -> [u8; MAX_INLINE] {
    let mut data = [0; MAX_INLINE];
    let source = words.get(INLINE..).unwrap_or(&[]);
    for (octets, word) in data.chunks_exact_mut(8).zip(source) {
        octets.copy_from_slice(&word.to_le_bytes());
    }
    data
}

/// Writes inline data and its length of `len` octets.
pub(super) fn encode_inline(words: &mut [u64; SQE_WORDS], data: &[u8; MAX_INLINE], len: u32) {
    if let Some(word) = words.get_mut(SQE_SGES + 1) {
        *word = u64::from(len);
    }
    let room = words.get_mut(INLINE..).unwrap_or(&mut []);
    for (word, octets) in room.iter_mut().zip(data.chunks_exact(8)) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(octets);
        *word = u64::from_le_bytes(bytes);
    }
}
