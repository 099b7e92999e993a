// SPDX-License-Identifier: GPL-2.0

//! Memory: pages whose references TCP takes, and octets that others may write to.

pub(crate) mod blocks;
pub(crate) mod octets;
pub(crate) mod pages;
