// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs, ports and devices, converted between C structures and driver types.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use kernel::prelude::*;

use crate::sys::{
    bindings,
    module, //
    rdma::path::AddressVector,
};

/// The state of a queue pair in verbs calls (`enum ib_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IbState {
    /// Reset: the state of a new queue pair.
    Reset,
    /// Initialised.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue error.
    Sqe,
    /// Error.
    Err,
}

/// The capacity of a queue pair (`struct ib_qp_cap`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    /// Outstanding send work requests.
    pub(crate) max_send_wr: u32,
    /// Outstanding receive work requests.
    pub(crate) max_recv_wr: u32,
    /// Scatter-gather elements of a send work request.
    pub(crate) max_send_sge: u32,
    /// Scatter-gather elements of a receive work request.
    pub(crate) max_recv_sge: u32,
    /// Octets of inline data.
    pub(crate) max_inline: u32,
}

impl IbState {
    /// Converts a C value; `None` for an unknown value.
    fn from_raw(state: bindings::ib_qp_state) -> Option<Self> {
        Some(match state {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::Rtr,
            bindings::ib_qp_state_IB_QPS_RTS => Self::Rts,
            bindings::ib_qp_state_IB_QPS_SQD => Self::Sqd,
            bindings::ib_qp_state_IB_QPS_SQE => Self::Sqe,
            bindings::ib_qp_state_IB_QPS_ERR => Self::Err,
            _ => return None,
        })
    }

    /// The C value.
    fn to_raw(self) -> bindings::ib_qp_state {
        match self {
            Self::Reset => bindings::ib_qp_state_IB_QPS_RESET,
            Self::Init => bindings::ib_qp_state_IB_QPS_INIT,
            Self::Rtr => bindings::ib_qp_state_IB_QPS_RTR,
            Self::Rts => bindings::ib_qp_state_IB_QPS_RTS,
            Self::Sqd => bindings::ib_qp_state_IB_QPS_SQD,
            Self::Sqe => bindings::ib_qp_state_IB_QPS_SQE,
            Self::Err => bindings::ib_qp_state_IB_QPS_ERR,
        }
    }
}

impl Cap {
    /// Copies the C structure.
    pub(super) fn from_raw(cap: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline: cap.max_inline_data,
        }
    }

    /// Writes the C structure.
    pub(super) fn fill(&self, cap: &mut bindings::ib_qp_cap) {
        cap.max_send_wr = self.max_send_wr;
        cap.max_recv_wr = self.max_recv_wr;
        cap.max_send_sge = self.max_send_sge;
        cap.max_recv_sge = self.max_recv_sge;
        cap.max_inline_data = self.max_inline;
    }
}

/// The arguments of `modify_qp`. A field is `None` if the attribute mask does not select it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    /// The requested state.
    pub(crate) state: Option<IbState>,
    /// The current state according to the caller (`cur_qp_state`).
    pub(crate) current: Option<IbState>,
    /// Access flags (`enum ib_access_flags`).
    pub(crate) access: Option<u32>,
    /// The port number.
    pub(crate) port: Option<u32>,
    /// The partition key index.
    pub(crate) pkey_index: Option<u16>,
    /// The maximum number of outstanding RDMA Reads as initiator (ORD).
    pub(crate) max_rd_atomic: Option<u8>,
    /// The maximum number of outstanding RDMA Reads as responder (IRD).
    pub(crate) max_dest_rd_atomic: Option<u8>,
    /// The path to the peer.
    pub(crate) path: Option<AddressVector>,
    /// The peer's queue pair number.
    pub(crate) dest_qpn: Option<u32>,
    /// The peer's first packet sequence number.
    pub(crate) rq_psn: Option<u32>,
    /// The local first packet sequence number.
    pub(crate) sq_psn: Option<u32>,
    /// The path MTU (`enum ib_mtu`).
    pub(crate) path_mtu: Option<u32>,
    /// The timeout of a response as an exponent n: 4.096 us times 2^n. 0: no timeout.
    pub(crate) timeout: Option<u8>,
    /// The number of retries after a timeout.
    pub(crate) retry_count: Option<u8>,
    /// The number of retries when the peer has no receive posted; 7: unlimited.
    pub(crate) rnr_retry: Option<u8>,
    /// The time that the peer waits before such a retry, as a code (RNR NAK timer).
    pub(crate) min_rnr_timer: Option<u8>,
    /// The attribute mask (`enum ib_qp_attr_mask`).
    mask: u32,
    /// Whether the mask has a bit outside of `KNOWN`, or a state has an unknown value.
    pub(crate) unsupported: bool,
}

/// The bits of `enum ib_qp_attr_mask` that are accepted.
///
/// Some of these attributes have no effect on an RNIC. Connection managers and programs written for
/// InfiniBand pass them.
const KNOWN: u32 = bindings::ib_qp_attr_mask_IB_QP_STATE
    | bindings::ib_qp_attr_mask_IB_QP_CUR_STATE
    | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS
    | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
    | bindings::ib_qp_attr_mask_IB_QP_PORT
    | bindings::ib_qp_attr_mask_IB_QP_AV
    | bindings::ib_qp_attr_mask_IB_QP_PATH_MTU
    | bindings::ib_qp_attr_mask_IB_QP_TIMEOUT
    | bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT
    | bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY
    | bindings::ib_qp_attr_mask_IB_QP_RQ_PSN
    | bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC
    | bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER
    | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN
    | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
    | bindings::ib_qp_attr_mask_IB_QP_DEST_QPN
    | bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE
    | bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY;

impl Change {
    /// Copies the attributes that `mask` selects (`enum ib_qp_attr_mask`).
    ///
    /// # Safety
    ///
    /// `ib_core` has prepared `attr` for `modify_qp`, including the address vector.
    pub(super) unsafe fn from_raw(attr: &bindings::ib_qp_attr, mask: u32) -> Self {
        let on = |bit: u32| mask & bit != 0;
        let mut unsupported = mask & !KNOWN != 0;
        let mut state = |bit, value| {
            if !on(bit) {
                return None;
            }
            let state = IbState::from_raw(value);
            unsupported |= state.is_none();
            state
        };
        let to = state(bindings::ib_qp_attr_mask_IB_QP_STATE, attr.qp_state);
        let current = state(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE, attr.cur_qp_state);
        let number = |bit, value: u32| on(bit).then_some(value);
        let short = |bit, value: u8| on(bit).then_some(value);
        Self {
            state: to,
            current,
            access: on(bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS)
                .then_some(attr.qp_access_flags as u32),
            port: on(bindings::ib_qp_attr_mask_IB_QP_PORT).then_some(attr.port_num),
            pkey_index: on(bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX).then_some(attr.pkey_index),
            max_rd_atomic: on(bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC)
                .then_some(attr.max_rd_atomic),
            max_dest_rd_atomic: on(bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC)
                .then_some(attr.max_dest_rd_atomic),
            path: on(bindings::ib_qp_attr_mask_IB_QP_AV)
                // SAFETY: By this function's contract `ib_core` has filled in the address vector
                // that `IB_QP_AV` selects.
                .then(|| unsafe { AddressVector::from_raw(&attr.ah_attr) }),
            dest_qpn: number(bindings::ib_qp_attr_mask_IB_QP_DEST_QPN, attr.dest_qp_num),
            rq_psn: number(bindings::ib_qp_attr_mask_IB_QP_RQ_PSN, attr.rq_psn),
            sq_psn: number(bindings::ib_qp_attr_mask_IB_QP_SQ_PSN, attr.sq_psn),
            path_mtu: number(bindings::ib_qp_attr_mask_IB_QP_PATH_MTU, attr.path_mtu),
            timeout: short(bindings::ib_qp_attr_mask_IB_QP_TIMEOUT, attr.timeout),
            retry_count: short(bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT, attr.retry_cnt),
            rnr_retry: short(bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY, attr.rnr_retry),
            min_rnr_timer: short(
                bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
                attr.min_rnr_timer,
            ),
            mask,
            unsupported,
        }
    }

    /// Whether InfiniBand allows this transition of an RC queue pair in state `now`.
    ///
    /// The mask must have all attributes that the transition requires, and no attribute that is
    /// neither required nor optional (InfiniBand specification, volume 1, section 11.2.5.2). Any
    /// context.
    pub(crate) fn is_transition_from(&self, now: IbState) -> bool {
        let to = self.state.unwrap_or(now);
        // SAFETY: The function only reads a constant table, which has an entry for each state and
        // type.
        unsafe {
            bindings::ib_modify_qp_is_ok(
                now.to_raw(),
                to.to_raw(),
                bindings::ib_qp_type_IB_QPT_RC,
                self.mask,
            )
        }
    }
}

/// The results of `query_qp`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The current state.
    pub(crate) state: IbState,
    /// Access flags (`enum ib_access_flags`).
    pub(crate) access: u32,
    /// The maximum number of outstanding RDMA Reads as initiator (ORD).
    pub(crate) max_rd_atomic: u8,
    /// The maximum number of outstanding RDMA Reads as responder (IRD).
    pub(crate) max_dest_rd_atomic: u8,
    /// The capacity of the queue pair.
    pub(crate) cap: Cap,
    /// Whether every send work request generates a completion (`IB_SIGNAL_ALL_WR`).
    pub(crate) signal_all: bool,
    /// The peer that the owner has set; `None` unless the queue pair is connected without rdma_cm.
    pub(crate) peer: Option<PeerAttributes>,
}

/// The attributes of a peer that the owner of the queue pair has set (`query_qp`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAttributes {
    /// The path to the peer.
    pub(crate) path: AddressVector,
    /// The peer's queue pair number.
    pub(crate) dest_qpn: u32,
    /// The peer's first packet sequence number.
    pub(crate) rq_psn: u32,
    /// The local first packet sequence number; 0 if not set.
    pub(crate) sq_psn: u32,
    /// The path MTU (`enum ib_mtu`).
    pub(crate) path_mtu: u32,
    /// As of [`Change::timeout`].
    pub(crate) timeout: u8,
    /// As of [`Change::retry_count`].
    pub(crate) retry_count: u8,
    /// As of [`Change::rnr_retry`].
    pub(crate) rnr_retry: u8,
    /// As of [`Change::min_rnr_timer`].
    pub(crate) min_rnr_timer: u8,
}

impl PeerAttributes {
    /// Writes the C structure.
    fn fill(&self, attr: &mut bindings::ib_qp_attr) {
        self.path.fill(&mut attr.ah_attr);
        attr.dest_qp_num = self.dest_qpn;
        attr.rq_psn = self.rq_psn;
        attr.sq_psn = self.sq_psn;
        attr.path_mtu = self.path_mtu;
        attr.timeout = self.timeout;
        attr.retry_cnt = self.retry_count;
        attr.rnr_retry = self.rnr_retry;
        attr.min_rnr_timer = self.min_rnr_timer;
    }
}

impl Attributes {
    /// Writes the C structures. `mtu` is the path MTU unless a peer is set.
    pub(super) fn fill(
        &self,
        mtu: bindings::ib_mtu,
        attr: &mut bindings::ib_qp_attr,
        init: &mut bindings::ib_qp_init_attr,
    ) {
        attr.qp_state = self.state.to_raw();
        attr.cur_qp_state = self.state.to_raw();
        attr.path_mtu = mtu;
        attr.qp_access_flags = self.access as c_int;
        attr.port_num = 1;
        attr.max_rd_atomic = self.max_rd_atomic;
        attr.max_dest_rd_atomic = self.max_dest_rd_atomic;
        if let Some(peer) = &self.peer {
            peer.fill(attr);
        }
        self.cap.fill(&mut attr.cap);
        self.cap.fill(&mut init.cap);
        init.sq_sig_type = if self.signal_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
        init.qp_type = bindings::ib_qp_type_IB_QPT_RC;
        init.port_num = 1;
    }
}

/// The type of a limit in `struct ib_device_attr`: signed before Linux 7.3.
#[cfg(not(rsiw_linux_7_3))]
type Count = c_int;
/// The type of a limit in `struct ib_device_attr`: unsigned since Linux 7.3.
#[cfg(rsiw_linux_7_3)]
type Count = u32;

/// Converts a limit to its C type. All limits are far below 2^31, so the cast keeps the value.
const fn count(n: u32) -> Count {
    n as Count
}

/// The limits of a device (`struct ib_device_attr`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Queue pairs.
    pub(crate) qp: u32,
    /// Work requests in a send or receive queue.
    pub(crate) qp_wr: u32,
    /// Scatter-gather elements of a work request.
    pub(crate) sge: u32,
    /// Scatter-gather elements of an RDMA Read that is not split.
    pub(crate) sge_rd: u32,
    /// Completion queues.
    pub(crate) cq: u32,
    /// Entries of a completion queue.
    pub(crate) cqe: u32,
    /// Memory regions.
    pub(crate) mr: u32,
    /// Segments of a fast-registration region.
    pub(crate) fast_reg: u32,
    /// Protection domains.
    pub(crate) pd: u32,
    /// Outstanding RDMA Reads in each direction.
    pub(crate) rd_atom: u16,
    /// Shared receive queues.
    pub(crate) srq: u32,
    /// Work requests in a shared receive queue.
    pub(crate) srq_wr: u32,
    /// Entries of the GID table.
    pub(crate) gids: u32,
    /// The length of a message in octets.
    pub(crate) message: u32,
}

impl Limits {
    /// Writes the C structure: these limits, `guid`, and constants. The other fields become 0.
    pub(super) fn fill(&self, guid: u64, attr: &mut bindings::ib_device_attr) {
        *attr = pin_init::zeroed();
        attr.sys_image_guid = guid;
        attr.fw_ver = module::FW_VER;
        attr.max_mr_size = u64::MAX;
        attr.page_size_cap = kernel::page::PAGE_SIZE as u64;
        // The vendor identifier of the in-tree siw driver, which users expect.
        attr.vendor_id = 0x0062_6d74;
        attr.device_cap_flags = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
        attr.kernel_cap_flags = u64::from(
            bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG
                | bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY
                | bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG,
        );
        attr.max_qp = count(self.qp);
        attr.max_qp_wr = count(self.qp_wr);
        attr.max_send_sge = count(self.sge);
        attr.max_recv_sge = count(self.sge);
        attr.max_sge_rd = count(self.sge_rd);
        attr.max_cq = count(self.cq);
        attr.max_cqe = count(self.cqe);
        attr.max_mr = count(self.mr);
        attr.max_pd = count(self.pd);
        attr.max_qp_rd_atom = count(u32::from(self.rd_atom));
        attr.max_qp_init_rd_atom = count(u32::from(self.rd_atom));
        attr.max_res_rd_atom = count(u32::from(self.rd_atom).saturating_mul(self.qp));
        attr.max_srq = count(self.srq);
        attr.max_srq_wr = count(self.srq_wr);
        attr.max_srq_sge = count(self.sge);
        attr.max_fast_reg_page_list_len = self.fast_reg;
    }
}
