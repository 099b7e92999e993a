// SPDX-License-Identifier: GPL-2.0

//! The driver: what `ib_core` and `iw_cm` call, and the life of devices.
//!
//! - [`ops`]: the verbs, [`cm_ops`]: the connection manager's calls; each handed to its object
//! - [`device`]: a device, which joins the rooms below
//! - [`link`]: `rdma link add`, the list of devices, the end of the module

mod cm_ops;
mod device;
mod link;
mod ops;

pub(crate) use self::link::Registration;
use self::{
    device::RsiwDevice,
    ops::Rsiw, //
};
