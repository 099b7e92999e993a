// SPDX-License-Identifier: GPL-2.0

//! Cryptographically secure random numbers. Any context.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use super::bindings;

/// A random number of 32 bits.
#[inline]
pub(crate) fn u32() -> u32 {
    // SAFETY: The function has no requirements.
    unsafe { bindings::get_random_u32() }
}
