// SPDX-License-Identifier: GPL-2.0
//! The right to write to kernel memory comes with a kernel user's call, and from nowhere else.
// error: E0423
// text: cannot initialize a tuple struct which contains private fields

use crate::sys::rdma::ring::{
    KernelUser,
    Owner,
    Ring, //
};
use kernel::prelude::*;

pub(crate) fn case(owner: Owner, addr: u64) -> Result {
    #[cfg(unsound)]
    let owner = Owner::Kernel(KernelUser(()));
    let ring = Ring::new(1, 4, false, owner)?;
    ring.kernel_memory()
        .ok_or(EINVAL)?
        .write(addr, (&[0u8; 8][..]).into())
}
