// SPDX-License-Identifier: GPL-2.0

//! Memory: burst buffers that TCP references, and octets with concurrent writers.

pub(crate) mod blocks;
pub(crate) mod octets;
pub(crate) mod pages;
