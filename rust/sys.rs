// SPDX-License-Identifier: GPL-2.0

//! The kernel's C interfaces, one file each, grouped as the `kernel` crate would take them.
//!
//! - [`rdma`]: `ib_core` and `iw_cm`; [`net`]: sockets, socket buffers, network namespaces
//! - [`mm`]: pages, and memory that others write to
//! - [`sync`]: locks, contexts, timers, work queues, tables under RCU
//!
//! This folder has every raw pointer and nearly every `unsafe` of the module. Code for single
//! kernel releases stands here only. `sys` knows no type of the driver: where C calls back, a trait
//! stands for the driver's side.

pub(crate) mod bindings;
pub(crate) mod crc;
pub(crate) mod errno;
pub(crate) mod mm;
pub(crate) mod module;
pub(crate) mod net;
pub(crate) mod random;
pub(crate) mod rdma;
pub(crate) mod sync;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod testing;
pub(crate) mod trace;
