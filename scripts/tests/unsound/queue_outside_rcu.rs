// SPDX-License-Identifier: GPL-2.0
//! A work queue, which the end of the module destroys, is used inside of an RCU section only.
// in: sys/sync/work.rs
// error: E0505
// text: cannot move out of `guard` because it is borrowed

use super::Queue;
use kernel::sync::rcu;

pub(crate) fn case(queue: &Queue) -> bool {
    let guard = rcu::read_lock();
    let found = queue.get(&guard);
    #[cfg(unsound)]
    drop(guard);
    found.is_some()
}
