// SPDX-License-Identifier: GPL-2.0

//! The positions of markers (RFC 5044 sections 4.2 and 4.3).
//!
//! A marker is four octets: 16 reserved bits and FPDUPTR, the distance from the ULPDU_Length
//! field of its FPDU. The first four octets of full operation phase are a marker; then every 512th
//! octet, counted with markers and CRCs, begins one. FPDUs are whole 32-bit words, so a marker
//! never splits a word. A marker between two FPDUs belongs to the second one, with FPDUPTR 0. A
//! marker between pad and CRC belongs to the FPDU of that CRC.

/// Octets from one marker to the next.
pub(super) const SPACING: u32 = 512;

/// Octets of a marker.
pub(super) const LEN: u32 = 4;

/// Octets between two markers.
const BETWEEN: u32 = SPACING - LEN;

/// The markers of one FPDU.
///
/// # Invariants
///
/// `first` is a multiple of four below [`SPACING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Markers {
    /// The offset of the FPDU's first possible marker; `None` if the direction has no markers.
    first: Option<u16>,
}

impl Markers {
    /// No markers in this direction.
    pub(super) const NONE: Self = Self { first: None };

    /// The markers of an FPDU that begins `pos` octets into full operation phase.
    ///
    /// `pos` may be reduced modulo 2^32, a multiple of [`SPACING`].
    #[inline]
    pub(super) fn at(pos: u32) -> Self {
        let first = (pos.wrapping_neg() % SPACING) & !3;
        Self {
            first: u16::try_from(first).ok(),
        }
    }

    /// Tells whether a marker precedes the ULPDU_Length field.
    #[inline]
    pub(super) fn leading(self) -> bool {
        self.first == Some(0)
    }

    /// The number of markers in an FPDU of `len` octets, counted without markers, CRC included.
    #[inline]
    pub(super) fn count(self, len: u32) -> u32 {
        match self.first.map(u32::from) {
            Some(first) if len > first => len
                .wrapping_sub(first)
                .wrapping_sub(1)
                .wrapping_div(BETWEEN)
                .wrapping_add(1),
            _ => 0,
        }
    }

    /// The number of markers that begin within the first `room` octets on the wire.
    #[inline]
    pub(super) fn within(self, room: u32) -> u32 {
        match self.first.map(u32::from) {
            Some(first) if room > first => room
                .wrapping_sub(first)
                .wrapping_sub(1)
                .wrapping_div(SPACING)
                .wrapping_add(1),
            _ => 0,
        }
    }

    /// The offset on the wire of octet `at`, counted without markers.
    #[inline]
    pub(super) fn position(self, at: u32) -> u32 {
        // The markers before an octet are those of an FPDU that ends with that octet.
        at.wrapping_add(self.count(at.wrapping_add(1)).wrapping_mul(LEN))
    }

    /// Octets from octet `at`, counted without markers, to the next marker.
    #[inline]
    pub(super) fn until_next(self, at: u32) -> u32 {
        match self.first.map(u32::from) {
            None => u32::MAX,
            Some(first) => match at.checked_sub(first) {
                None => first.wrapping_sub(at),
                Some(behind) => BETWEEN.wrapping_sub(behind % BETWEEN),
            },
        }
    }

    /// The offset on the wire of marker `index`.
    #[inline]
    pub(super) fn offset(self, index: u32) -> u32 {
        let first = u32::from(self.first.unwrap_or(0));
        first.wrapping_add(index.wrapping_mul(SPACING))
    }

    /// FPDUPTR of marker `index`.
    #[inline]
    pub(super) fn pointer(self, index: u32) -> u16 {
        let length_at = if self.leading() { LEN } else { 0 };
        let distance = self.offset(index).saturating_sub(length_at);
        // The longest FPDU with its markers exceeds 65535 octets: the field wraps.
        let [_, _, high, low] = distance.to_be_bytes();
        u16::from_be_bytes([high, low])
    }
}

/// Octets from the first octet of an FPDU to a `marker` in it; `None` if no FPDU can have it.
///
/// The distance is FPDUPTR, and four more if the FPDU begins with a marker of its own. The reserved
/// bits and the low two bits of FPDUPTR are ignored.
#[inline]
pub(super) fn distance_to_fpdu([_, _, high, low]: [u8; 4]) -> Option<u32> {
    let pointer = u32::from(u16::from_be_bytes([high, low])) & !3;
    match (pointer, pointer % SPACING) {
        (0, _) => Some(0),
        // A marker would lie where the length field is.
        (_, 0) => None,
        // A marker lies directly before the length field.
        (_, BETWEEN) => Some(pointer.wrapping_add(LEN)),
        _ => Some(pointer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MPA-25: TCP sequence numbers 11, 523, 1035 when full operation phase begins at 11.
    #[test]
    fn every_512th_octet_counted_from_the_first() {
        let markers = Markers::at(0);
        for (index, seq) in [(0, 11), (1, 523), (2, 1035)] {
            assert_eq!(11 + markers.offset(index), seq);
        }
    }

    /// MPA-33: the arithmetic agrees with a layout word by word, for each length of an FPDU at each
    /// position where it can begin.
    #[test]
    fn agrees_with_laying_out_word_by_word() {
        for start in (0..512).step_by(4) {
            let markers = Markers::at(start);
            let (mut pos, mut found) = (start, 0);
            for word in 0..280 {
                if pos % 512 == 0 {
                    assert_eq!(markers.offset(found), pos - start);
                    pos += 4;
                    found += 1;
                }
                let at = word * 4;
                assert_eq!(
                    markers.position(at),
                    pos - start,
                    "word {word} from {start}"
                );
                assert_eq!(markers.position(at + 3), pos - start + 3);
                let to_next = 512 - pos % 512;
                assert_eq!(
                    markers.until_next(at) % 508,
                    to_next % 508,
                    "word {word} from {start}"
                );
                pos += 4;
                assert_eq!(markers.count(at + 4), found, "{word} words from {start}");
            }
        }
    }

    /// MPA-25: the position survives the wrap of a 32-bit counter.
    #[test]
    fn survives_the_wrap_of_the_position() {
        assert_eq!(Markers::at(0u32.wrapping_sub(8)).first, Some(8));
        assert_eq!(Markers::at(0), Markers::at(0u32.wrapping_sub(512)));
        assert!(Markers::at(512).leading());
        assert_eq!(Markers::NONE.count(u32::MAX), 0);
    }
}
