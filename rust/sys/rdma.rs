// SPDX-License-Identifier: GPL-2.0

//! Bindings to `ib_core` and `iw_cm`: the kernel's RDMA core and its iWARP connection manager.
//!
//! `ib_core` calls the C functions in [`vtable`]. These convert their arguments to safe types, and
//! call a [`driver::Driver`]. A driver never sees a raw pointer.
//!
//! Traits that a driver implements:
//!
//! - [`driver`]: the verbs, and the callbacks about devices and network interfaces
//! - [`iwcm`]: the callbacks of `iw_cm`, and the states of a connection as types
//!
//! Arguments of these traits:
//!
//! - [`attr`]: attributes of queue pairs, ports and devices
//! - [`path`]: address vectors of `modify_qp`
//! - [`wr`]: work requests and completions of kernel users
//! - [`event`]: completion handlers and asynchronous events
//!
//! C callbacks (`struct ib_device_ops`):
//!
//! - [`vtable`]: the table, and the verbs of devices, ports and protection domains
//! - [`queue_verbs`]: the verbs of completion queues and queue pairs
//! - [`srq_verbs`]: the verbs of shared receive queues
//! - [`memory_verbs`]: the verbs of memory regions
//! - [`res`]: driver attributes of `rdma resource show`
//! - [`settings`]: sysfs files of a device
//!
//! Verbs objects:
//!
//! - [`objects`]: driver objects inside the structures that `ib_core` allocates
//! - [`core_ref`]: counted use of structures that `ib_core` frees
//!
//! Registered memory:
//!
//! - [`memory`]: the memory behind regions and local keys
//! - [`pin`]: revocable values that readers pin
//!
//! Memory and data shared with a process:
//!
//! - [`ring`]: queues in memory that a process maps
//! - [`mmap`]: mappings of rings
//! - [`udata`]: driver data in verbs calls
//!
//! Devices:
//!
//! - [`device`]: allocation, registration and removal of devices
//! - [`link`]: types of `rdma link add`
//! - [`netdev`]: network interfaces and notifiers of their events

pub(crate) mod attr;
pub(crate) mod core_ref;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod event;
pub(crate) mod iwcm;
pub(crate) mod link;
pub(crate) mod memory;
mod memory_verbs;
mod mmap;
pub(crate) mod netdev;
pub(crate) mod objects;
pub(crate) mod path;
pub(crate) mod pin;
mod queue_verbs;
pub(crate) mod res;
pub(crate) mod ring;
pub(crate) mod settings;
mod srq_verbs;
mod udata;
mod vtable;
pub(crate) mod wr;
