// SPDX-License-Identifier: GPL-2.0

//! What the end of a work request says, for kernel users and processes alike.

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

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WcOpcode {
    /// A Send, also one with invalidation.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read, also one with invalidation.
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

/// How it ended; the values are those of `enum siw_wc_status`, but for the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum WcStatus {
    /// Well.
    Success = 0,
    /// A local buffer was too short, or a request too long.
    LocLen = 1,
    /// A local key did not give the memory.
    LocProt = 2,
    /// The queue pair can not do that.
    LocQpOp = 3,
    /// Never executed, or not known to be: the queue pair is in error.
    WrFlush = 4,
    /// The peer's answer made no sense.
    #[expect(dead_code, reason = "such an answer breaks the stream, which flushes")]
    BadResp = 5,
    /// A local region did not give the right.
    LocAccess = 6,
    /// The peer refused the access.
    RemAccess = 7,
    /// The peer refused the request.
    RemInvReq = 8,
    /// Anything else.
    General = 9,
    /// The peer had no receive for a Send in time. `enum siw_wc_status` does not know it: a process is
    /// told [`General`](Self::General).
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

/// The end of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The owner's name of the work request.
    pub(crate) id: u64,
    /// What it was.
    pub(crate) opcode: WcOpcode,
    /// How it ended.
    pub(crate) status: WcStatus,
    /// Octets received or read; for other work requests what they carried.
    pub(crate) bytes: u32,
    /// The STag which the message has invalidated here.
    pub(crate) invalidated: Option<Stag>,
    /// The peer asked for a solicited event.
    pub(crate) solicited: bool,
}
