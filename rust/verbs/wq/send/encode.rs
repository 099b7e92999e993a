// SPDX-License-Identifier: GPL-2.0

//! The encoding of a kernel user's send work request as an element of the ring.

use kernel::prelude::*;

use super::SendQueue;
use crate::{
    sys::rdma::wr::{
        SendWr,
        WrOpcode, //
    },
    verbs::{
        mr::LOCAL_DMA_LKEY,
        wq::{
            abi::{
                self,
                flag,
                opcode,
                WqeHeader,
                SQE_SGES,
                SQE_WORDS, //
            },
            wqe::{
                Sge,
                Sgl,
                MAX_INLINE, //
            }, //
        },
        Stag, //
    }, //
};

impl SendQueue {
    /// Encodes a work request as header and words of an element. `EINVAL` for an invalid one.
    pub(super) fn encode(&self, wr: SendWr<'_>) -> Result<(WqeHeader, [u64; SQE_WORDS])> {
        let mut words = [0; SQE_WORDS];
        let mut flags = flag::VALID;
        for (set, bit) in [
            (wr.signaled(), flag::SIGNALLED),
            (wr.solicited(), flag::SOLICITED),
            (wr.fence(), flag::READ_FENCE),
        ] {
            if set {
                flags |= bit;
            }
        }
        let kind = wr.opcode().ok_or(EINVAL)?;
        let (op, max_sge) = match kind {
            WrOpcode::Write => (opcode::WRITE, self.max_sge),
            WrOpcode::Send => (opcode::SEND, self.max_sge),
            WrOpcode::SendWithInv => (opcode::SEND_REMOTE_INV, self.max_sge),
            WrOpcode::Read => (opcode::READ, self.max_sge),
            WrOpcode::ReadWithInv => (opcode::READ_LOCAL_INV, 1),
            WrOpcode::LocalInv => (opcode::INVAL_STAG, 0),
            WrOpcode::RegMr => (opcode::REG_MR, 0),
        };
        let mut rkey = Stag::new(0);
        let mut num_sge = 0;
        let mut to = 0;
        match kind {
            WrOpcode::LocalInv => rkey = Stag::new(wr.invalidate_key()),
            WrOpcode::RegMr => {
                let reg = wr.reg().ok_or(EINVAL)?;
                if Stag::new(reg.key).index() != Stag::new(reg.lkey).index() {
                    return Err(EINVAL);
                }
                rkey = Stag::new(reg.key);
                to = reg.iova;
                if let Some([access, length]) = words.get_mut(SQE_SGES..SQE_SGES + 2) {
                    *access = u64::from(reg.access);
                    *length = reg.length;
                }
            }
            _ => {
                if let Some((offset, key)) = wr.remote() {
                    to = offset;
                    rkey = Stag::new(key);
                } else if kind == WrOpcode::SendWithInv {
                    rkey = Stag::new(wr.invalidate_key());
                }
                num_sge = self.encode_local(wr, kind, max_sge, &mut words, &mut flags)?;
            }
        }
        let [id, _, offset, ..] = &mut words;
        *id = wr.id();
        *offset = to;
        Ok((WqeHeader::new(flags, num_sge, op, rkey), words))
    }

    /// Writes the local memory of a work request into an element; returns the number of
    /// scatter-gather elements.
    fn encode_local(
        &self,
        wr: SendWr<'_>,
        kind: WrOpcode,
        max_sge: u8,
        words: &mut [u64; SQE_WORDS],
        flags: &mut u16,
    ) -> Result<u8> {
        let read = matches!(kind, WrOpcode::Read | WrOpcode::ReadWithInv);
        if wr.inline() {
            let mut data = [0; MAX_INLINE];
            let len = wr.copy_inline(&mut data).ok_or(EINVAL)?;
            if read || len > self.max_inline {
                return Err(EINVAL);
            }
            *flags |= flag::INLINE;
            abi::encode_inline(words, &data, len);
            return Ok(1);
        }
        let mut sgl = Sgl::EMPTY;
        for sge in wr.sges() {
            let sge = Sge {
                addr: sge.addr,
                len: sge.len,
                lkey: Stag::new(sge.lkey),
            };
            let local_sink = read && sge.len != 0 && sge.lkey == LOCAL_DMA_LKEY;
            if local_sink || sgl.as_slice().len() >= usize::from(max_sge) || !sgl.push(sge) {
                return Err(EINVAL);
            }
        }
        abi::encode_sgl(words, SQE_SGES, &sgl);
        Ok(sgl.as_slice().len() as u8)
    }
}
