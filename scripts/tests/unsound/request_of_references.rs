// SPDX-License-Identifier: GPL-2.0
//! Octets of a process become values only of types for which any octets are valid.
// in: sys/rdma.rs
// error: E0277
// text: FromBytes

use super::udata::Udata;
use kernel::prelude::*;

pub(crate) fn case(udata: Udata<'_>) -> Result<u64> {
    #[cfg(unsound)]
    let _ = udata.request::<Option<&'static u64>>()?;
    Ok(udata.request::<u64>()?.unwrap_or(0))
}
