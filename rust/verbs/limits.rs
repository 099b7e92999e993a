// SPDX-License-Identifier: GPL-2.0

//! What a device can do, as `query_device` tells it.
//!
//! Not less than the in-tree soft-iWARP offers, since scripts and users are sized for that.

/// Queue pairs of a device.
pub(crate) const MAX_QP: u32 = 102_400;
/// Work requests in a send or receive queue.
pub(crate) const MAX_QP_WR: u32 = 32_768;
/// Completion queues of a device.
pub(crate) const MAX_CQ: u32 = 102_400;
/// Entries of a completion queue.
pub(crate) const MAX_CQE: u32 = 3_276_800;
/// Memory regions of a device.
pub(crate) const MAX_MR: u32 = 1_024_000;
/// Protection domains of a device.
pub(crate) const MAX_PD: u32 = 102_400;
/// Shared receive queues of a device.
pub(crate) const MAX_SRQ: u32 = 102_400;
/// Work requests in a shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = 327_680;
/// Reads outstanding in either direction (IRD, ORD).
pub(crate) const MAX_RD_ATOM: u16 = 128;
/// Pieces of a fast-registration region.
pub(crate) const MAX_FAST_REG: u32 = 512;
/// Scatter-gather elements of a Read that goes out as one; several are split.
///
/// Kernel users take a larger value for a promise that a Read needs no registration.
pub(crate) const MAX_SGE_RD: u32 = 1;
/// Entries of the GID table of a port; constant while the device lives.
pub(crate) const GID_TABLE: u32 = 32;
/// Octets of a message.
pub(crate) const MAX_MESSAGE: u32 = u32::MAX;
