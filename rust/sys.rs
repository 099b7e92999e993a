// SPDX-License-Identifier: GPL-2.0

//! The kernel's C interfaces, one file each (docs/architecture.md).
//!
//! Every raw pointer and nearly every `unsafe` of the module lives below here, and here only do
//! kernel releases differ. `sys` knows no type of the driver: where C calls back, a trait stands
//! for the driver's side.

pub(crate) mod bindings;
pub(crate) mod context;
pub(crate) mod crc;
pub(crate) mod errno;
pub(crate) mod ib;
pub(crate) mod iwcm;
pub(crate) mod lock;
pub(crate) mod module;
pub(crate) mod net;
pub(crate) mod octets;
pub(crate) mod pages;
pub(crate) mod random;
pub(crate) mod skb;
pub(crate) mod sockcell;
pub(crate) mod socket;
pub(crate) mod table;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod testing;
pub(crate) mod timer;
pub(crate) mod trace;
pub(crate) mod work;
