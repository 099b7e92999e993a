// SPDX-License-Identifier: GPL-2.0
//! Received octets are not kept beyond the walk over the receive queue.
// error: E0521
// text: borrowed data escapes outside of closure

use crate::sys::{
    mm::octets::Octets,
    net::socket::Locked, //
};

pub(crate) fn case(locked: &mut Locked) -> bool {
    let mut kept = Octets::EMPTY;
    let mut octet = [0u8];
    locked.receive_walk(0, |view| {
        #[cfg(unsound)]
        {
            kept = view.chunk(0, 1);
        }
        #[cfg(not(unsound))]
        {
            kept = Octets::EMPTY;
        }
        view.len()
    });
    kept.copy_to(&mut octet)
}
