// SPDX-License-Identifier: GPL-2.0
//! No exclusive reference is made to a device, which notifiers see and `ib_core` changes.
// in: sys/rdma/objects.rs
// error: E0308
// text: mismatched types

use super::{bindings, Object};

pub(crate) fn case(device: &mut Object<bindings::ib_device, ()>) -> *mut bindings::ib_device {
    #[cfg(unsound)]
    let _: &mut bindings::ib_device = &mut device.base;
    device.base.get()
}
