// SPDX-License-Identifier: GPL-2.0

//! Restraint in logging (design.md section 4).
//!
//! What a peer or a user can cause at will must not fill the log: such messages are guarded by
//! [`limited`], and are at debug level.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use super::bindings;

/// Whether a message may be logged now: the network stack's limit, shared with all of it
/// (net.core.message_burst and message_cost). Any context.
pub(crate) fn limited() -> bool {
    // SAFETY: Callable from any context.
    unsafe { bindings::net_ratelimit() != 0 }
}
