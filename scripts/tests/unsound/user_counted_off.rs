// SPDX-License-Identifier: GPL-2.0
//! A user of an object of `ib_core` is counted off once, by what has counted it.
// error: E0624
// text: method `put` is private

use crate::sys::rdma::{
    core_ref::CoreRef,
    event::CoreCq, //
};
use kernel::sync::Arc;

pub(crate) fn case(core: Arc<CoreRef<CoreCq>>) {
    let hold = core.hold();
    #[cfg(unsound)]
    core.put();
    drop(hold);
}
