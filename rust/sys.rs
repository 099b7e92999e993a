// SPDX-License-Identifier: GPL-2.0

//! The kernel's C interfaces, one file each (design.md, section 2).
//!
//! Every raw pointer and nearly every `unsafe` of the module lives below here, and here only do
//! kernel releases differ. `sys` knows no type of the driver: where C calls back, a trait stands
//! for the driver's side.

pub(crate) mod bindings;
pub(crate) mod module;
