// SPDX-License-Identifier: GPL-2.0

//! The entry points for `ib_core` and `iw_cm`, and the lifetime of devices.
//!
//! - [`ops`], [`cm_ops`]: the verbs and the operations of the connection manager; each calls a
//!   function of its object
//! - [`device`]: a device, which joins verbs, queue pairs, connections and rendezvous
//! - [`link`]: `rdma link add`, the list of devices, the removal of devices at module unload

mod cm_ops;
mod device;
mod link;
mod ops;

pub(crate) use self::link::Registration;
use self::{
    device::RsiwDevice,
    ops::Rsiw, //
};
