// SPDX-License-Identifier: GPL-2.0
//! Pages are pinned for the device of a verbs call, and for no other pointer.
// in: sys/rdma.rs
// error: E0133
// text: call to unsafe function

use super::memory::UserPages;
use crate::sys::bindings;
use kernel::prelude::*;

pub(crate) fn case(device: *mut bindings::ib_device) -> Result<UserPages> {
    #[cfg(unsound)]
    return UserPages::pin(device, 0, 4096, 0);
    // SAFETY: Compiled only.
    #[cfg(not(unsound))]
    unsafe {
        UserPages::pin(device, 0, 4096, 0)
    }
}
