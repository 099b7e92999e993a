// SPDX-License-Identifier: GPL-2.0
//! A call of `iw_cm` ends with its callback, and is not committed later.
//!
//! `iw_cm` is idle after an error of the callback, and calls `BUG()` on the events of a commitment.
// error: E0521
// text: borrowed data escapes outside of function

use crate::sys::rdma::iwcm::{
    ConnectCall,
    Connecting,
    Handle, //
};
use kernel::prelude::*;

#[cfg(unsound)]
fn keep<T: 'static>(_: T) {}

pub(crate) fn case(call: ConnectCall<'_>, handle: Handle) -> Option<Connecting> {
    #[cfg(unsound)]
    {
        keep((call, handle));
        return None;
    }
    #[cfg(not(unsound))]
    Some(call.commit(handle))
}
