// SPDX-License-Identifier: GPL-2.0
//! Two locked sockets are not exchanged behind their guards.
//!
//! The guard of `a` would then release `a` while its lock token still opens the cell of `a`.
// error: E0277
// text: the size for values of type `[()]` cannot be known at compilation time

use crate::sys::net::{
    sockcell::SockCell,
    socket::SockRef, //
};

pub(crate) fn case(a: &SockRef, b: &SockRef, of_a: &SockCell<u64>) {
    let mut x = a.lock();
    let mut y = b.lock();
    #[cfg(unsound)]
    core::mem::swap(&mut *x, &mut *y);
    #[cfg(not(unsound))]
    core::mem::swap(&mut x, &mut y);
    drop(x);
    if let Ok(mut open) = of_a.open(&mut y) {
        *open = 1;
    };
}
