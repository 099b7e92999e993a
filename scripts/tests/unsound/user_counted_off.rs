// SPDX-License-Identifier: GPL-2.0
//! The reference of a user of an object of `ib_core` is dropped once, by the code that has taken it.
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
