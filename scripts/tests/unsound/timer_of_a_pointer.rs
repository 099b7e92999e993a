// SPDX-License-Identifier: GPL-2.0
//! The timer is the field itself, not the target of its dereference.
//!
//! A field that dereferences to one of two timers would be queued twice, and freed with one of them.
// at: sys/sync/timer.rs
// error: E0308
// text: mismatched types

use crate::sys::sync::timer::{
    impl_has_soft_timer,
    SoftTimer,
    Timed, //
};
use kernel::{prelude::*, sync::Arc};

#[cfg(unsound)]
pub(crate) struct Clock {
    timer: Pin<KBox<SoftTimer<Clock>>>,
}

#[cfg(not(unsound))]
#[pin_data]
pub(crate) struct Clock {
    #[pin]
    timer: SoftTimer<Clock>,
}

impl Timed for Clock {
    fn time_is_up(_: Arc<Self>) {}
}

impl_has_soft_timer! {
    impl HasSoftTimer for Clock { self.timer }
}
