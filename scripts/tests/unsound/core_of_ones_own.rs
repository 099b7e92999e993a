// SPDX-License-Identifier: GPL-2.0
//! The type that retires a queue pair of `ib_core` makes the count of its users.
// error: E0624
// text: associated function `new` is private

use crate::sys::rdma::{
    core_ref::CoreRef,
    event::CoreQp, //
};
use kernel::{prelude::*, sync::Arc};

#[cfg(unsound)]
pub(crate) fn case(qp: CoreQp) -> Result<Arc<CoreRef<CoreQp>>> {
    CoreRef::new(qp)
}
