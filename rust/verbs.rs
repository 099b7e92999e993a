// SPDX-License-Identifier: GPL-2.0

//! The data-path objects of verbs, as `ib_core` and processes see them (docs/architecture.md).
//!
//! - [`device`], [`gid`], [`counters`], [`limits`], [`settings`]: the device, one port on an
//!   interface
//! - [`cq`], [`srq`], [`wq`]: queues, and the rings behind them
//! - [`qp_queues`]: the data path of a queue pair
//! - [`mr`]: registered memory
//! - [`ids`]: identifiers of objects
//!
//! These modules do not depend on streams, queue pair states or connections.

pub(crate) mod counters;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod gid;
mod ids;
pub(crate) mod limits;
pub(crate) mod mr;
pub(crate) mod qp_queues;
pub(crate) mod settings;
pub(crate) mod srq;
pub(crate) mod wq;

pub(crate) use self::{
    device::Device,
    ids::{
        Association,
        PdId,
        Qpn,
        Stag,
        StreamId, //
    },
};
