// SPDX-License-Identifier: GPL-2.0
//! Safe code cannot choose the timer of an object.
// error: E0200
// text: the trait `HasSoftTimer` requires an `unsafe impl` declaration

use crate::sys::sync::timer::{
    HasSoftTimer,
    SoftTimer,
    Timed, //
};
use kernel::{prelude::*, sync::Arc};

pub(crate) struct Clock(Pin<KBox<SoftTimer<Clock>>>);

impl Timed for Clock {
    fn time_is_up(_: Arc<Self>) {}
}

#[cfg(unsound)]
impl HasSoftTimer for Clock {
    fn soft_timer(&self) -> &SoftTimer<Self> {
        &self.0
    }
}

pub(crate) fn case(clock: &Clock) -> bool {
    clock.0.cancel()
}
