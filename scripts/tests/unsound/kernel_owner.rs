// SPDX-License-Identifier: GPL-2.0
//! The absence of a process's data is no proof of a kernel user's call.
// in: sys/rdma.rs
// error: E0133
// text: call to unsafe function

use super::{ring::Owner, udata::Udata};

pub(crate) fn case() -> Owner {
    #[cfg(unsound)]
    return Udata::owner(None);
    #[cfg(not(unsound))]
    Owner::User
}
