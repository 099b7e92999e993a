// SPDX-License-Identifier: GPL-2.0
//! Memory of a region, which its owner may write to meanwhile, is no slice.
// in: sys/rdma/memory/mover.rs
// error: E0308
// text: mismatched types

use super::Octets;

pub(crate) fn case(of_region: Octets<'_>) -> usize {
    #[cfg(unsound)]
    let seen: &[u8] = of_region;
    #[cfg(not(unsound))]
    let seen = of_region;
    seen.len()
}
