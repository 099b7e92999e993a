// SPDX-License-Identifier: GPL-2.0

//! Random numbers that can not be predicted. Any context.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use super::bindings;

/// Returns a random number.
#[inline]
pub(crate) fn u32() -> u32 {
    // SAFETY: Callable from any context.
    unsafe { bindings::get_random_u32() }
}
