// SPDX-License-Identifier: GPL-2.0
//! The network namespace of an interface comes with a reference, or not at all.
//!
//! The interface may move meanwhile, and the namespace that it has left may end.
// in: sys/rdma.rs
// error: E0133
// text: call to unsafe function

use super::netdev::Netdev;
use crate::sys::net::NetNs;

pub(crate) fn case(netdev: &Netdev<'_>) -> Option<NetNs> {
    #[cfg(unsound)]
    return core::ptr::NonNull::new(netdev.net_id() as *mut _).map(|net| NetNs::from_owned(net));
    #[cfg(not(unsound))]
    netdev.netns()
}
