// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs, ports and devices, between C structures and the driver.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use kernel::prelude::*;

use crate::sys::{
    bindings,
    module, //
    rdma::path::AddressVector,
};

/// States as the verbs name them (`enum ib_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IbState {
    /// As made.
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

/// What a queue pair can hold (`struct ib_qp_cap`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cap {
    /// Send work requests.
    pub(crate) max_send_wr: u32,
    /// Receive work requests.
    pub(crate) max_recv_wr: u32,
    /// Scatter-gather elements of a send work request.
    pub(crate) max_send_sge: u32,
    /// Scatter-gather elements of a receive work request.
    pub(crate) max_recv_sge: u32,
    /// Octets of inline data.
    pub(crate) max_inline: u32,
}

impl IbState {
    /// From `enum ib_qp_state`.
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

    /// To `enum ib_qp_state`.
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
    /// From the C structure.
    pub(super) fn from_raw(cap: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline: cap.max_inline_data,
        }
    }

    /// Into the C structure.
    pub(super) fn fill(&self, cap: &mut bindings::ib_qp_cap) {
        cap.max_send_wr = self.max_send_wr;
        cap.max_recv_wr = self.max_recv_wr;
        cap.max_send_sge = self.max_send_sge;
        cap.max_recv_sge = self.max_recv_sge;
        cap.max_inline_data = self.max_inline;
    }
}

/// A request to change attributes; `None` is what the mask leaves out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    /// The state to go to.
    pub(crate) state: Option<IbState>,
    /// The state which the owner takes it to be in.
    pub(crate) current: Option<IbState>,
    /// `enum ib_access_flags`.
    pub(crate) access: Option<u32>,
    /// The port.
    pub(crate) port: Option<u32>,
    /// The partition key index.
    pub(crate) pkey_index: Option<u16>,
    /// Reads we may have outstanding (ORD).
    pub(crate) max_rd_atomic: Option<u8>,
    /// Reads the peer may have outstanding (IRD).
    pub(crate) max_dest_rd_atomic: Option<u8>,
    /// The path to the peer.
    pub(crate) path: Option<AddressVector>,
    /// The peer's queue pair.
    pub(crate) dest_qpn: Option<u32>,
    /// The peer's first packet sequence number.
    pub(crate) rq_psn: Option<u32>,
    /// Our first packet sequence number.
    pub(crate) sq_psn: Option<u32>,
    /// `enum ib_mtu`.
    pub(crate) path_mtu: Option<u32>,
    /// How long to wait for an answer: 4.096 us times two to the power of this; 0 for ever.
    pub(crate) timeout: Option<u8>,
    /// How often to try again.
    pub(crate) retry_count: Option<u8>,
    /// How often to try again when the peer has no receive posted.
    pub(crate) rnr_retry: Option<u8>,
    /// How long the peer is to wait then, as a code.
    pub(crate) min_rnr_timer: Option<u8>,
    /// The whole mask.
    mask: u32,
    /// The mask or a value has something that an RNIC has not.
    pub(crate) unsupported: bool,
}

/// What an RNIC understands of `enum ib_qp_attr_mask`, or takes note of without effect: those that
/// the connection manager and scripts made for InfiniBand give along.
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
    | bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY;

impl Change {
    /// What of `attr` the mask selects.
    ///
    /// # Safety
    ///
    /// `ib_core` has prepared `attr` for `modify_qp`.
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
                // SAFETY: The core has filled in what belongs to the address vector.
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

    /// Whether InfiniBand has this transition of an RC queue pair in state `now`, with these
    /// attributes and no other (InfiniBand specification, volume 1, section 11.2.5.2).
    pub(crate) fn is_transition_from(&self, now: IbState) -> bool {
        let to = self.state.unwrap_or(now);
        // SAFETY: Looks up a table.
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

/// What `query_qp` tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The state.
    pub(crate) state: IbState,
    /// `enum ib_access_flags`.
    pub(crate) access: u32,
    /// Reads we may have outstanding (ORD).
    pub(crate) max_rd_atomic: u8,
    /// Reads the peer may have outstanding (IRD).
    pub(crate) max_dest_rd_atomic: u8,
    /// What it holds.
    pub(crate) cap: Cap,
    /// Every send work request asks for a completion.
    pub(crate) signal_all: bool,
    /// The peer that its owner has named, if it was connected without rdma_cm.
    pub(crate) peer: Option<PeerAttributes>,
}

/// What `query_qp` tells of a peer that the owner of the queue pair has named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAttributes {
    /// The path to it.
    pub(crate) path: AddressVector,
    /// The peer's queue pair number.
    pub(crate) dest_qpn: u32,
    /// The peer's first packet sequence number.
    pub(crate) rq_psn: u32,
    /// Ours; 0 as long as it was not told.
    pub(crate) sq_psn: u32,
    /// `enum ib_mtu`.
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
    /// Into the C structure.
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
    /// Into the C structures.
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

/// A number of `struct ib_device_attr`, which not every kernel holds for signed.
#[cfg(not(rsiw_linux_7_3))]
type Count = c_int;
/// A number of `struct ib_device_attr`.
#[cfg(rsiw_linux_7_3)]
type Count = u32;

/// A limit as the C structure has it; all of them are far below 2^31.
const fn count(n: u32) -> Count {
    n as Count
}

/// What a device can do, in numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Queue pairs.
    pub(crate) qp: u32,
    /// Work requests in a queue.
    pub(crate) qp_wr: u32,
    /// Scatter-gather elements of a work request.
    pub(crate) sge: u32,
    /// The most pieces of an unsplit Read.
    pub(crate) sge_rd: u32,
    /// Completion queues.
    pub(crate) cq: u32,
    /// Entries of one.
    pub(crate) cqe: u32,
    /// Memory regions.
    pub(crate) mr: u32,
    /// Pieces of a fast-registration region.
    pub(crate) fast_reg: u32,
    /// Protection domains.
    pub(crate) pd: u32,
    /// Reads outstanding in each direction.
    pub(crate) rd_atom: u16,
    /// Shared receive queues.
    pub(crate) srq: u32,
    /// Work requests in one.
    pub(crate) srq_wr: u32,
    /// Entries of the GID table.
    pub(crate) gids: u32,
    /// Octets of a message.
    pub(crate) message: u32,
}

impl Limits {
    /// Into the C structure, which is zeroed first.
    pub(super) fn fill(&self, guid: u64, attr: &mut bindings::ib_device_attr) {
        *attr = pin_init::zeroed();
        attr.sys_image_guid = guid;
        attr.fw_ver = module::FW_VER;
        attr.max_mr_size = u64::MAX;
        attr.page_size_cap = kernel::page::PAGE_SIZE as u64;
        // The identity that users know from the in-tree soft-iWARP.
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
