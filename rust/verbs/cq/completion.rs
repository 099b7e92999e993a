// SPDX-License-Identifier: GPL-2.0

//! Completions: opcode, status and the fields common to kernel users and processes.

use crate::{
    sys::rdma::wr::{
        IbWcOpcode,
        IbWcStatus, //
    },
    verbs::{
        wq::abi::opcode,
        Stag, //
    }, //
};

/// The operation of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WcOpcode {
    /// A Send, with or without Invalidate.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read, with or without Local Invalidate.
    Read,
    /// A local invalidation.
    LocalInv,
    /// A fast registration.
    RegMr,
    /// A receive.
    Recv,
}

impl WcOpcode {
    /// The number in the ring (`enum siw_opcode`).
    pub(super) const fn to_ring(self) -> u8 {
        match self {
            Self::Send => opcode::SEND,
            Self::Write => opcode::WRITE,
            Self::Read => opcode::READ,
            Self::LocalInv => opcode::INVAL_STAG,
            Self::RegMr => opcode::REG_MR,
            Self::Recv => opcode::RECEIVE,
        }
    }

    /// The opcode for kernel users, from the number in the ring.
    pub(super) const fn to_ib(ring: u8) -> IbWcOpcode {
        match ring {
            opcode::WRITE => IbWcOpcode::Write,
            opcode::READ => IbWcOpcode::Read,
            opcode::INVAL_STAG => IbWcOpcode::LocalInv,
            opcode::REG_MR => IbWcOpcode::RegMr,
            opcode::RECEIVE => IbWcOpcode::Recv,
            _ => IbWcOpcode::Send,
        }
    }
}

/// The completion status. The values are those of `enum siw_wc_status`, except the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum WcStatus {
    /// Success.
    Success = 0,
    /// A local buffer was too short, or a request too long.
    LocLen = 1,
    /// A local key named no valid memory for the range.
    LocProt = 2,
    /// The queue pair does not support the operation.
    LocQpOp = 3,
    /// Flushed because the queue pair is in error. The work request may or may not have been
    /// executed.
    WrFlush = 4,
    /// The peer's response was invalid.
    #[expect(dead_code, reason = "such an answer breaks the stream, which flushes")]
    BadResp = 5,
    /// The access rights of a local region did not cover the access.
    LocAccess = 6,
    /// The peer refused the access.
    RemAccess = 7,
    /// The peer refused the request.
    RemInvReq = 8,
    /// Any other error.
    General = 9,
    /// The peer posted no receive for a Send in time. `enum siw_wc_status` has no such value: a
    /// process receives [`General`](Self::General).
    RnrRetryExceeded = 10,
}

impl WcStatus {
    /// The status for a process (`enum siw_wc_status`).
    pub(super) const fn to_process(self) -> Self {
        match self {
            Self::RnrRetryExceeded => Self::General,
            other => other,
        }
    }

    /// The status for kernel users, from the number in the ring.
    pub(super) const fn to_ib(ring: u16) -> IbWcStatus {
        match ring {
            0 => IbWcStatus::Success,
            1 => IbWcStatus::LocLen,
            2 => IbWcStatus::LocProt,
            3 => IbWcStatus::LocQpOp,
            4 => IbWcStatus::WrFlush,
            5 => IbWcStatus::BadResp,
            6 => IbWcStatus::LocAccess,
            7 => IbWcStatus::RemAccess,
            8 => IbWcStatus::RemInvReq,
            10 => IbWcStatus::RnrRetryExceeded,
            _ => IbWcStatus::General,
        }
    }
}

/// The completion of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The owner's identifier of the work request (`wr_id`).
    pub(crate) id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) status: WcStatus,
    /// Octets received or read; for other work requests the octets of the payload.
    pub(crate) bytes: u32,
    /// The local STag that the received message has invalidated.
    pub(crate) invalidated: Option<Stag>,
    /// The peer requested a solicited event.
    pub(crate) solicited: bool,
}
