// SPDX-License-Identifier: GPL-2.0

//! The regions, work requests and events of an end.

use iwarp_wire::mpa::startup::RtrKind;
use iwarp_wire::rdmap::terminate::{
    AccessError,
    Terminate,
    TerminateReason, //
};
use iwarp_wire::rdmap::SendKind;
use iwarp_wire::{
    Stag,
    TaggedOffset, //
};

/// Octets of each region.
pub(crate) const REGION: usize = 8192;

/// The region that a peer may write to; Atomics change its first words.
pub(crate) const TARGET: Stag = Stag::new(0x100);
/// The region that a peer may read.
pub(crate) const SOURCE: Stag = Stag::new(0x200);
/// The sink of the end's own Reads.
pub(crate) const SINK: Stag = Stag::new(0x300);

/// A work request.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Writes to the peer's [`TARGET`].
    Write { to: u64, data: Vec<u8> },
    /// Sends.
    Send { kind: SendKind, data: Vec<u8> },
    /// Reads from the peer's [`SOURCE`] at the same offset of [`SINK`].
    Read { at: u64, len: u32 },
    /// Sends Immediate Data.
    Immediate { data: [u8; 8], solicited: bool },
    /// Adds to the word at `to` of the peer's [`TARGET`].
    Add { to: u64, add: u64 },
}

/// An event of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A Send arrived; the target region as it was then.
    Received {
        data: Vec<u8>,
        kind: SendKind,
        target: Vec<u8>,
    },
    /// Immediate Data arrived; the target region as it was then.
    Immediate {
        data: [u8; 8],
        solicited: bool,
        target: Vec<u8>,
    },
    /// The Read or Atomic with this number is done.
    Done(usize),
    /// The peer ended the stream.
    Terminated(Terminate),
    /// This end found an error in that ULPDU; it is empty for an error of its FPDU.
    Failed {
        reason: TerminateReason,
        ulpdu: Vec<u8>,
    },
}

/// The parameters of a connection for one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) crc: bool,
    pub(crate) rx_markers: bool,
    pub(crate) tx_markers: bool,
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    pub(crate) responder: bool,
    pub(crate) rtr: Option<RtrKind>,
}

/// The octets of region `of` at an offset and length of the peer.
pub(super) fn place(
    stag: Stag,
    of: Stag,
    to: TaggedOffset,
    len: usize,
) -> Result<std::ops::Range<usize>, AccessError> {
    if stag != of {
        return Err(AccessError::InvalidStag);
    }
    let start = usize::try_from(to.get()).map_err(|_| AccessError::Bounds)?;
    let end = start.checked_add(len).ok_or(AccessError::Wrap)?;
    if end > REGION {
        return Err(AccessError::Bounds);
    }
    Ok(start..end)
}
