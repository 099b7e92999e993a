// SPDX-License-Identifier: GPL-2.0

//! The maximum length of a ULPDU, MULPDU (RFC 5044 section 5.1, appendix A of the early drafts).

use super::marker::SPACING;

/// The least MULPDU in octets, however short TCP's segments are.
pub const MIN_MULPDU: u16 = 128;

/// The greatest MULPDU in octets; a longer ULPDU is never sent.
pub const MAX_MULPDU: u16 = 64768;

/// The effective maximum segment size in octets where the real one is not known.
pub const DEFAULT_EMSS: u32 = 1460;

/// Octets around a ULPDU that needs no pad: length field and CRC.
const FRAMING: u32 = 6;

/// The longest ULPDU whose FPDU fits into a TCP segment, in octets.
///
/// `emss` is the effective maximum segment size in octets, `markers` tells whether markers are
/// inserted in this direction. The result is within [`MIN_MULPDU`]..=[`MAX_MULPDU`]. It limits new
/// ULPDUs only: an FPDU that is laid out does not change with the segment size.
///
/// ```
/// assert_eq!(iwarp_wire::mpa::mulpdu(1460, false), 1454);
/// assert_eq!(iwarp_wire::mpa::mulpdu(1460, true), 1442);
/// ```
#[inline]
#[must_use]
pub fn mulpdu(emss: u32, markers: bool) -> u16 {
    unclamped(emss, markers).clamp(MIN_MULPDU, MAX_MULPDU)
}

/// [`mulpdu()`] for an FPDU that shares its TCP segment with earlier ones.
///
/// `used` octets of the segment are taken. The FPDU of a ULPDU as long as the result ends with the
/// segment. Where fewer than [`MIN_MULPDU`] octets of ULPDU fit, the result is that of
/// [`mulpdu()`], for the next segment.
#[inline]
#[must_use]
pub fn packed(emss: u32, used: u32, markers: bool) -> u16 {
    match emss.checked_sub(used).map(|left| unclamped(left, markers)) {
        Some(limit) if limit >= MIN_MULPDU => limit.min(MAX_MULPDU),
        _ => mulpdu(emss, markers),
    }
}

/// The formula of the RFC without its limits, saturated to 16 bits.
#[inline]
fn unclamped(emss: u32, markers: bool) -> u16 {
    let markers = if markers {
        emss.div_ceil(SPACING).saturating_mul(4)
    } else {
        0
    };
    let around = FRAMING.saturating_add(markers).saturating_add(emss % 4);
    u16::try_from(emss.saturating_sub(around)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MPA-40, MPA-41, MPA-42, MPA-45: the sizes of requirements vector M.
    #[test]
    fn the_sizes_of_the_documents() {
        for (emss, plain, marked) in [
            (100, 128, 128),
            (536, 530, 522),
            (1448, 1442, 1430),
            (1459, 1450, 1438),
            (DEFAULT_EMSS, 1454, 1442),
            (8948, 8942, 8870),
            (8960, 8954, 8882),
            (65483, 64768, 64768),
            (0, 128, 128),
            (u32::MAX, 64768, 64768),
        ] {
            assert_eq!(mulpdu(emss, false), plain, "EMSS {emss}");
            assert_eq!(mulpdu(emss, true), marked, "EMSS {emss} with markers");
        }
    }

    /// MPA-47: packing shrinks the MULPDU to what is left, never below 128.
    #[test]
    fn packing_fills_the_segment() {
        for used in (0..=1460).step_by(4) {
            let limit = packed(1460, used, false);
            let wire = u32::from(limit) + 6;
            if used <= 1460 - 134 {
                assert_eq!(used + wire, 1460, "the FPDU ends with the segment");
            } else {
                assert_eq!(limit, 1454, "too little is left behind {used} octets");
            }
            assert!(packed(1460, used, true) >= MIN_MULPDU);
        }
        assert_eq!(packed(1460, 1461, false), 1454);
        assert_eq!(packed(u32::MAX, 4, false), MAX_MULPDU);
    }
}
