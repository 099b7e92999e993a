// SPDX-License-Identifier: GPL-2.0

//! `ib_core`: everything through which the RDMA stack and this driver meet.
//!
//! The vtable calls a [`driver::Driver`], which never sees a raw pointer:
//!
//! - [`driver`]: what a driver provides; [`attr`], [`path`], [`wr`], [`event`]: what it is given
//! - [`vtable`], [`objects`], [`memory_verbs`], [`queue_verbs`], [`srq_verbs`]: from C callbacks to the driver
//! - [`device`], [`link`], [`netdev`]: a device's life
//! - [`ring`], [`mmap`], [`udata`]: what is shared with a process
//! - [`memory`], [`pin`]: registered memory
//! - [`res`]: what `rdma resource show` tells; [`settings`]: files of sysfs
//! - [`core_ref`]: objects that `ib_core` frees
//!
//! [`iwcm`] is `iw_cm`, through which connections come.

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
