// SPDX-License-Identifier: GPL-2.0

//! The device and its objects, as `ib_core` and processes see them (design.md, Rooms, and The two
//! inputs that lie).
//!
//! - [`device`], [`link`], [`gid`], [`counters`], [`limits`]: the device, one port on an interface
//! - [`qp`], [`cq`], [`srq`], [`queue`]: queues, and the rings behind them
//! - [`region`], [`mr`]: registered memory
//! - [`driver`]: what `ib_core` calls
//!
//! Connections are the business of `cm`, what travels over them that of `stream`; both use the
//! types re-exported here.

pub(crate) mod counters;
pub(crate) mod cq;
pub(crate) mod device;
mod driver;
mod gid;
mod ids;
pub(crate) mod limits;
mod link;
mod mr;
pub(crate) mod qp;
pub(crate) mod queue;
pub(crate) mod region;
pub(crate) mod srq;

pub(crate) use self::{
    device::Device,
    driver::Rsiw,
    ids::{
        Association,
        PdId,
        Qpn,
        Stag,
        StreamId, //
    },
    link::{
        qp_in,
        Registration, //
    },
    qp::{
        peer,
        Attached,
        DestroyNotify, //
        Leaving,
        Qp,
        QpState,
    },
};
