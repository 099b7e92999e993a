// SPDX-License-Identifier: GPL-2.0

//! This module as the C side knows it.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::types::Opaque;

use super::bindings;

/// `THIS_MODULE`, which the `kernel` crate spells in another way in each release.
pub(crate) const fn this_module() -> *mut bindings::module {
    extern "C" {
        static __this_module: Opaque<u8>;
    }
    // SAFETY: The loader makes it, and it lives as long as the module's code; only its address
    // is taken.
    unsafe { __this_module.get().cast() }
}
