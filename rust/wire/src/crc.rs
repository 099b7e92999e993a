// SPDX-License-Identifier: GPL-2.0

//! CRC-32C as MPA uses it (RFC 5044 section 4.4, RFC 3385).
//!
//! Reflected polynomial 0x82F63B78, initial and final inversion, and, unlike every other field of
//! the protocols, the least significant octet first on the wire. An implementation of [`Crc32c`]
//! computes the sum: the kernel's uses processor instructions, [`Table`] is portable.

/// An implementation of CRC-32C.
pub trait Crc32c {
    /// Continues the register `seed` over `data`: reflected, not inverted, by the convention of
    /// `crc32c()` in the kernel's `include/linux/crc32.h`.
    fn update(seed: u32, data: &[u8]) -> u32;
}

/// [`Crc32c`] with a table of 256 entries: portable, one octet a step.
#[derive(Clone, Copy, Debug)]
pub struct Table;

impl Crc32c for Table {
    fn update(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |crc, &octet| {
            let [low, ..] = crc.to_le_bytes();
            // An octet is below 256.
            (crc >> 8) ^ TABLE[usize::from(low ^ octet)]
        })
    }
}

/// The CRC-32C of one FPDU, octets added in order.
///
/// ```
/// use iwarp_wire::crc::{Digest, Table};
///
/// let mut digest = Digest::new();
/// digest.update::<Table>(b"1234");
/// digest.update::<Table>(b"56789");
/// assert_eq!(digest.octets(), 0xe306_9283_u32.to_le_bytes());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The register, not inverted.
    raw: u32,
}

impl Digest {
    /// The digest of no octets: the register is all ones.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { raw: u32::MAX }
    }

    /// The digest whose register, not inverted, was computed elsewhere.
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self { raw }
    }

    /// The register, not inverted.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.raw
    }

    /// Adds `data`.
    #[inline]
    pub fn update<C: Crc32c>(&mut self, data: &[u8]) {
        self.raw = C::update(self.raw, data);
    }

    /// The CRC field as on the wire.
    #[inline]
    #[must_use]
    pub const fn octets(self) -> [u8; 4] {
        (!self.raw).to_le_bytes()
    }

    /// Tells whether a received CRC field equals this CRC.
    #[inline]
    #[must_use]
    pub fn matches(self, field: [u8; 4]) -> bool {
        self.octets() == field
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

/// The CRC-32C polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The remainder of each octet.
const TABLE: [u32; 256] = table();

/// Computes [`TABLE`].
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut octet = 0u32;
    while octet < 256 {
        let mut crc = octet;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[octet as usize] = crc;
        octet += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRC of `data` as a number.
    fn crc(data: &[u8]) -> u32 {
        let mut digest = Digest::new();
        digest.update::<Table>(data);
        u32::from_le_bytes(digest.octets())
    }

    /// MPA-06: the check values of RFC 3720 appendix B.4 and the usual "123456789".
    #[test]
    fn check_values() {
        let rising: std::vec::Vec<u8> = (0..32).collect();
        let falling: std::vec::Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(&rising), 0x46dd_794e);
        assert_eq!(crc(&falling), 0x113f_db5c);
    }

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let data = b"an octet string of no particular length";
        for cut in 0..=data.len() {
            let (front, back) = data.split_at(cut);
            let mut digest = Digest::new();
            digest.update::<Table>(front);
            let mut rest = Digest::from_raw(digest.raw());
            rest.update::<Table>(back);
            assert_eq!(u32::from_le_bytes(rest.octets()), crc(data), "cut at {cut}");
            assert!(rest.matches(rest.octets()));
            assert!(!rest.matches([0; 4]));
        }
    }
}
