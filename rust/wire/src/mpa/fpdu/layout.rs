// SPDX-License-Identifier: GPL-2.0

//! The offsets of the parts of one FPDU (RFC 5044 section 4.1).

use core::ops::Range;

use crate::mpa::marker::{
    self,
    Markers, //
};

/// Octets of the length field and of the CRC field.
const LENGTH: u32 = 2;
const CRC: u32 = 4;

/// Octets of pad after a ULPDU of `ulpdu_len` octets: 0 to 3.
#[inline]
#[must_use]
pub const fn pad_len(ulpdu_len: u16) -> usize {
    (ulpdu_len as usize).wrapping_add(2).wrapping_neg() & 3
}

/// The offsets of the parts of one FPDU, all in octets from its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Octets of the ULPDU.
    pub(super) ulpdu_len: u16,
    pub(super) markers: Markers,
}

impl Layout {
    /// Octets from the length field through the CRC without markers.
    #[inline]
    pub(super) fn plain_len(self) -> u32 {
        let words = u32::from(self.ulpdu_len).wrapping_add(LENGTH + 3) & !3;
        words.wrapping_add(CRC)
    }

    /// Number of markers.
    #[inline]
    pub(super) fn marker_count(self) -> u32 {
        self.markers.count(self.plain_len())
    }

    /// Octets of the whole FPDU on the wire: at most 66064.
    #[inline]
    pub(super) fn wire_len(self) -> u32 {
        let markers = self.marker_count().wrapping_mul(marker::LEN);
        self.plain_len().wrapping_add(markers)
    }

    /// The offsets of the ULPDU's octets `range`, in order.
    #[inline]
    pub(super) fn pieces(self, range: Range<u32>) -> PlainPieces {
        PlainPieces {
            markers: self.markers,
            at: range.start.wrapping_add(LENGTH),
            end: range.end.wrapping_add(LENGTH),
        }
    }
}

/// A range of octets counted without markers, as the ranges between the markers.
#[derive(Clone, Debug)]
pub(super) struct PlainPieces {
    markers: Markers,
    /// The first octet that was not returned, counted without markers.
    at: u32,
    /// The end of the range, counted without markers.
    end: u32,
}

impl Iterator for PlainPieces {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let left = self.end.checked_sub(self.at).filter(|&left| left > 0)?;
        let len = left.min(self.markers.until_next(self.at));
        let start = self.markers.position(self.at);
        self.at = self.at.wrapping_add(len);
        Some(index(start)..index(start.wrapping_add(len)))
    }
}

/// A length or offset within an FPDU as an index.
#[inline]
pub(super) const fn index(value: u32) -> usize {
    // The conversion is exact.
    const { assert!(usize::BITS >= u32::BITS) };
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MPA-02, MPA-03: the pad makes the FPDU a multiple of four and is at most three octets.
    #[test]
    fn pad_completes_the_last_word() {
        for len in 0..=u16::MAX {
            let layout = Layout {
                ulpdu_len: len,
                markers: Markers::NONE,
            };
            assert!(pad_len(len) < 4);
            assert_eq!(
                index(layout.wire_len()),
                2 + usize::from(len) + pad_len(len) + 4
            );
            assert_eq!(layout.wire_len() % 4, 0);
        }
    }

    /// MPA-18: the longest ULPDU with its markers.
    #[test]
    fn the_longest_fpdu() {
        let layout = Layout {
            ulpdu_len: u16::MAX,
            markers: Markers::at(0),
        };
        assert_eq!(layout.wire_len(), 65544 + 130 * 4);
        assert_eq!(index(layout.wire_len()), crate::mpa::fpdu::MAX_FPDU_LEN);
    }
}
