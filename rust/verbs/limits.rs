// SPDX-License-Identifier: GPL-2.0

//! The limits of a device, which `query_device` reports.
//!
//! No limit is below that of the in-tree soft-iWARP driver, on which scripts and users rely.

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
/// Outstanding RDMA Reads in either direction (IRD, ORD).
pub(crate) const MAX_RD_ATOM: u16 = 128;
/// Pieces of a fast-registration region.
pub(crate) const MAX_FAST_REG: u32 = 512;
/// Scatter-gather elements of one RDMA Read Request; a Read with more elements is split.
///
/// With a larger value, kernel users assume that the sink of a Read needs no registration.
pub(crate) const MAX_SGE_RD: u32 = 1;
/// Entries of the GID table of a port; constant for the lifetime of a device.
pub(crate) const GID_TABLE: u32 = 32;
/// Octets of a message.
pub(crate) const MAX_MESSAGE: u32 = u32::MAX;
