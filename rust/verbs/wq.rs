// SPDX-License-Identifier: GPL-2.0

//! Work queues: rings in untrusted memory, and the checked work requests decoded from them.
//!
//! - [`wqe`]: the checked work requests
//! - [`abi`]: the layout of the rings (`rdma/siw-abi.h`)
//! - [`send`], [`recv`]: the queues

pub(crate) mod abi;
pub(crate) mod recv;
pub(crate) mod send;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
pub(crate) mod wqe;
