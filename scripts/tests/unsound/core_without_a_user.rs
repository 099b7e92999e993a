// SPDX-License-Identifier: GPL-2.0
//! The verbs callbacks, too, use an object of `ib_core` only as a counted user.
// in: sys/rdma.rs
// error: E0133
// text: call to unsafe function

use super::{core_ref::CoreRef, event::CoreCq};
use kernel::sync::Arc;

pub(crate) fn case(core: Arc<CoreRef<CoreCq>>) {
    core.retire();
    #[cfg(unsound)]
    core.value().call_handler();
    core.with(|core| core.call_handler());
}
