// SPDX-License-Identifier: GPL-2.0

//! The module structure and the version of this module.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::types::Opaque;

use super::bindings;

/// `THIS_MODULE`. The interface of the `kernel` crate for it differs between releases.
pub(crate) const fn this_module() -> *mut bindings::module {
    extern "C" {
        static __this_module: Opaque<u8>;
    }
    // SAFETY: The linked `struct module` exists as long as the module's code; only its address is
    // taken.
    unsafe { __this_module.get().cast() }
}

/// The version of `dkms.conf`, passed by Kbuild: `MAJOR.MINOR.PATCH`.
pub(crate) const VERSION: &str = env!("RSIW_VERSION");

/// The entry that `modinfo` and `/sys/module/rsiw/version` show.
const MODINFO: &str = concat!("version=", env!("RSIW_VERSION"), "\0");

// The kernel crate's entries have the same attribute. `#[used]` alone sets another section flag
// with newer compilers (1.97), which makes a second `.modinfo`. modpost reads one of them only.
#[link_section = ".modinfo"]
#[used(compiler)]
static MODINFO_VERSION: [u8; MODINFO.len()] = {
    let mut octets = [0; MODINFO.len()];
    let mut at = 0;
    while at < octets.len() {
        octets[at] = MODINFO.as_bytes()[at];
        at += 1;
    }
    octets
};

/// [`VERSION`] for `ib_device_attr::fw_ver`, in the format of libsiw: three numbers of 16 bits, the
/// major one in the high bits. A character that is no digit fails the build.
pub(crate) const FW_VER: u64 = {
    let text = VERSION.as_bytes();
    let (mut all, mut number, mut at) = (0, 0, 0);
    while at < text.len() {
        match text[at] {
            b'.' => {
                all = (all << 16) | number;
                number = 0;
            }
            digit => number = number * 10 + (digit - b'0') as u64,
        }
        at += 1;
    }
    (all << 16) | number
};
