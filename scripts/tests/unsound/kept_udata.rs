// SPDX-License-Identifier: GPL-2.0
//! The data of a verbs call is not used after the call.
// in: sys/rdma.rs
// error: E0521
// text: borrowed data escapes outside of function

use super::udata::Udata;
use kernel::prelude::*;

#[cfg(unsound)]
fn keep<T: 'static>(_: T) {}

pub(crate) fn case(udata: Udata<'_>) -> Result<Option<u32>> {
    #[cfg(unsound)]
    {
        keep(udata);
        return Ok(None);
    }
    #[cfg(not(unsound))]
    udata.request()
}
