// SPDX-License-Identifier: GPL-2.0
//! A queue pair of `ib_core` is used only while its destruction waits for the user.
// error: E0624
// text: method `value` is private

use crate::sys::rdma::{
    core_ref::CoreRef,
    event::{
        CoreQp,
        QpEvent, //
    }, //
};
use kernel::sync::Arc;

pub(crate) fn case(core: Arc<CoreRef<CoreQp>>) {
    core.retire();
    #[cfg(unsound)]
    core.value().dispatch(QpEvent::Fatal);
    core.with(|core| core.dispatch(QpEvent::Fatal));
}
