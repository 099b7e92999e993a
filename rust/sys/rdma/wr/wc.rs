// SPDX-License-Identifier: GPL-2.0

//! Completions of kernel users (`struct ib_wc`).

use core::ptr::NonNull;

use kernel::prelude::*;

use crate::sys::bindings;

/// The status of a completion (`enum ib_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum IbWcStatus {
    /// Success.
    Success = bindings::ib_wc_status_IB_WC_SUCCESS,
    /// A local buffer was too short.
    LocLen = bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
    /// A local buffer was not accessible.
    LocProt = bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
    /// The queue pair does not support the operation.
    LocQpOp = bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
    /// The work request was flushed: the queue pair is in the Error state.
    WrFlush = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
    /// The peer's response was invalid.
    BadResp = bindings::ib_wc_status_IB_WC_BAD_RESP_ERR,
    /// The access rights of a local region did not cover the access.
    LocAccess = bindings::ib_wc_status_IB_WC_LOC_ACCESS_ERR,
    /// The peer refused the access.
    RemAccess = bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
    /// The peer refused the request.
    RemInvReq = bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR,
    /// The peer posted no receive for a Send in time.
    RnrRetryExceeded = bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
    /// Any other error.
    General = bindings::ib_wc_status_IB_WC_GENERAL_ERR,
}

/// The operation of a completed work request (`enum ib_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum IbWcOpcode {
    Send = bindings::ib_wc_opcode_IB_WC_SEND,
    Write = bindings::ib_wc_opcode_IB_WC_RDMA_WRITE,
    Read = bindings::ib_wc_opcode_IB_WC_RDMA_READ,
    /// A local invalidation.
    LocalInv = bindings::ib_wc_opcode_IB_WC_LOCAL_INV,
    /// A fast registration.
    RegMr = bindings::ib_wc_opcode_IB_WC_REG_MR,
    /// A receive.
    Recv = bindings::ib_wc_opcode_IB_WC_RECV,
}

/// A pointer to an `ib_qp`, without a counted reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct QpPtr(pub(in crate::sys::rdma) NonNull<bindings::ib_qp>);

impl QpPtr {
    pub(crate) fn as_ptr(self) -> *mut bindings::ib_qp {
        self.0.as_ptr()
    }
}

/// A completion for a kernel user.
pub(crate) struct Wc {
    /// The user's identifier of the work request (`wr_id`).
    pub(crate) id: u64,
    pub(crate) status: IbWcStatus,
    pub(crate) opcode: IbWcOpcode,
    /// Octets received or read.
    pub(crate) bytes: u32,
    pub(crate) qp: QpPtr,
    /// The local STag that the message has invalidated, if any.
    pub(crate) invalidated: Option<u32>,
}

/// An array of `ib_wc` that a poll fills from the front.
pub(crate) struct WcRoom<'a> {
    /// The array.
    room: &'a mut [core::mem::MaybeUninit<bindings::ib_wc>],
    /// The number of completions in the array.
    used: usize,
}

impl WcRoom<'_> {
    /// Wraps an array for `n` completions at `wc`; empty if `n` is not positive.
    ///
    /// # Safety
    ///
    /// `wc` is an array of `n` elements that only the caller uses during the poll, or `n` is not
    /// positive.
    pub(in crate::sys::rdma) unsafe fn new(wc: *mut bindings::ib_wc, n: c_int) -> Self {
        let n = usize::try_from(n).unwrap_or(0);
        let room = if n == 0 || wc.is_null() {
            &mut []
        } else {
            // SAFETY: By this function's contract the array has `n` elements for exclusive use.
            // They may be uninitialized (`MaybeUninit`).
            unsafe { core::slice::from_raw_parts_mut(wc.cast(), n) }
        };
        Self { room, used: 0 }
    }

    /// Whether the array is full.
    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.room.len()
    }

    /// The number of completions in the array.
    pub(in crate::sys::rdma) fn used(&self) -> usize {
        self.used
    }

    /// Adds a completion; ignored when the array is full.
    pub(crate) fn push(&mut self, wc: &Wc) {
        let Some(slot) = self.room.get_mut(self.used) else {
            return;
        };
        let mut out: bindings::ib_wc = pin_init::zeroed();
        out.__bindgen_anon_1.wr_id = wc.id;
        out.status = wc.status as u32;
        out.opcode = wc.opcode as u32;
        out.byte_len = wc.bytes;
        out.qp = wc.qp.as_ptr();
        if let Some(key) = wc.invalidated {
            out.ex.invalidate_rkey = key;
            out.wc_flags = bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as c_int;
        }
        slot.write(out);
        self.used = self.used.wrapping_add(1);
    }
}
