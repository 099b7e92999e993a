// SPDX-License-Identifier: GPL-2.0
//! The guard of a locked socket stays in the context that has locked it.
// error: E0277
// text: cannot be sent between threads safely

use crate::sys::net::socket::SockRef;

fn sent<T: Send>(_: T) {}

pub(crate) fn case(a: &SockRef) {
    let guard = a.lock();
    #[cfg(unsound)]
    sent(guard);
    #[cfg(not(unsound))]
    {
        drop(guard);
        sent(a.clone());
    }
}
