// SPDX-License-Identifier: GPL-2.0
//! A timer that runs is part of an object which it keeps.
//!
//! A timer that stands alone would be freed while it is queued.
// error: E0599
// text: no method named `start` found

use crate::sys::sync::timer::{
    impl_has_soft_timer,
    SoftTimer,
    Timed, //
};
use kernel::{prelude::*, sync::Arc};

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

pub(crate) fn case(clock: Arc<Clock>) -> Result {
    #[cfg(unsound)]
    {
        let timer = KBox::pin_init(SoftTimer::<Clock>::new(), GFP_KERNEL)?;
        timer.start(clock.clone(), 1_000_000_000);
    }
    SoftTimer::<_, 0>::start(clock, 1_000_000_000);
    Ok(())
}
