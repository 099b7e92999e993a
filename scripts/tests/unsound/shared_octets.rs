// SPDX-License-Identifier: GPL-2.0
//! Received octets, whose pages a local sender may share, are no slice.
// error: E0308
// text: mismatched types

use crate::sys::{
    mm::octets::Octets,
    net::socket::Locked, //
};

pub(crate) fn case(locked: &mut Locked) -> usize {
    locked.receive_walk(0, |view| {
        #[cfg(unsound)]
        let first: &[u8] = view.chunk(0, 8);
        #[cfg(not(unsound))]
        let first: Octets<'_> = view.chunk(0, 8);
        first.len()
    })
}
