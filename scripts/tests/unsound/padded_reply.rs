// SPDX-License-Identifier: GPL-2.0
//! A reply to a process has no padding, whose octets nobody has written.
// in: sys/rdma.rs
// error: E0277
// text: IntoBytes

use super::udata::Udata;
use kernel::prelude::*;

#[repr(C)]
pub(crate) struct Padded(u8, u32);

pub(crate) fn case(udata: Udata<'_>) -> Result {
    #[cfg(unsound)]
    udata.reply(&Padded(1, 2))?;
    udata.reply(&1u64)
}
