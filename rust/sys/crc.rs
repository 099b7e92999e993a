// SPDX-License-Identifier: GPL-2.0

//! The kernel's CRC-32C, which uses the CPU's CRC instructions (RFC 5044 section 4.4).
//!
//! C header: [`include/linux/crc32.h`](srctree/include/linux/crc32.h)

use iwarp_wire::crc::Crc32c;
use kernel::prelude::*;

use super::bindings;

/// Continues a CRC over `data`. Neither the seed nor the result is inverted. Any context.
#[inline]
pub(crate) fn crc32c(seed: u32, data: &[u8]) -> u32 {
    // SAFETY: The pointer and the length are those of a slice.
    unsafe { bindings::crc32c(seed, data.as_ptr().cast(), data.len()) }
}

/// The implementation of [`Crc32c`] by the kernel's function.
pub(crate) struct Kernel;

impl Crc32c for Kernel {
    #[inline]
    fn update(seed: u32, data: &[u8]) -> u32 {
        crc32c(seed, data)
    }
}

#[kunit_tests(rsiw_sys_crc)]
mod tests {
    use super::*;
    use iwarp_wire::crc::Digest;

    #[test]
    fn check_value() {
        // The check value of CRC-32C, and its octet order on the wire (RFC 3720 appendix B.4).
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        let mut digest = Digest::new();
        digest.update::<Kernel>(&[0; 32]);
        assert_eq!(digest.octets(), [0xaa, 0x36, 0x91, 0x8a]);
    }

    #[test]
    fn continues() {
        assert_eq!(
            crc32c(crc32c(!0, b"1234"), b"56789"),
            crc32c(!0, b"123456789")
        );
    }
}
