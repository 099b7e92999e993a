// SPDX-License-Identifier: GPL-2.0
//! A delayed item is counted, so that its queue is not freed before the item's time has come.
// error: E0271
// text: type mismatch resolving

use crate::sys::sync::work;
use kernel::{
    impl_has_delayed_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};

#[pin_data]
pub(crate) struct Later {
    #[pin]
    work: DelayedWork<Later>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Later { self.work }
}

impl WorkItem for Later {
    #[cfg(unsound)]
    type Pointer = Arc<Self>;
    #[cfg(unsound)]
    fn run(_: Arc<Self>) {}

    #[cfg(not(unsound))]
    type Pointer = work::Delayed<Self>;
    #[cfg(not(unsound))]
    fn run(_: work::Delayed<Self>) {}
}

pub(crate) fn case(later: Arc<Later>) -> bool {
    work::process().enqueue_delayed::<_, 0>(later, 100)
}
