// SPDX-License-Identifier: GPL-2.0
//! A pointer alone does not make an object of `ib_core`, whose functions would be called.
// in: sys/rdma.rs
// error: E0133
// text: call to unsafe function

use super::{core_ref::CoreRef, event::CoreCq};
use crate::sys::bindings;
use core::ptr::NonNull;
use kernel::{prelude::*, sync::Arc};

pub(crate) fn case(cq: NonNull<bindings::ib_cq>) -> Result<Arc<CoreRef<CoreCq>>> {
    #[cfg(unsound)]
    let core = CoreCq::new(cq);
    // SAFETY: Compiled only.
    #[cfg(not(unsound))]
    let core = unsafe { CoreCq::new(cq) };
    CoreRef::new(core)
}
