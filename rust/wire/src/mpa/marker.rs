// SPDX-License-Identifier: GPL-2.0

//! Where markers fall (RFC 5044 sections 4.2 and 4.3).
//!
//! A marker is four octets: 16 reserved bits and FPDUPTR, the distance from the ULPDU_Length
//! field of the FPDU it lies in. The first four octets of full operation phase are one, then each
//! 512th octet counted with markers and CRCs begins one. FPDUs are whole 32-bit words, so a
//! marker never splits a word. One that falls between two FPDUs belongs to the second, with
//! FPDUPTR 0; one that falls between pad and CRC belongs to the first.

/// Octets from one marker to the next.
pub(super) const SPACING: u32 = 512;

/// Octets of a marker.
pub(super) const LEN: u32 = 4;

/// Octets between two markers.
const BETWEEN: u32 = SPACING - LEN;

/// How the markers fall into one FPDU, or that there are none.
///
/// # Invariants
///
/// `first` is a multiple of four below [`SPACING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Markers {
    /// Octets of the FPDU in front of its first possible marker; `None`: no markers at all.
    first: Option<u16>,
}

impl Markers {
    /// No markers in this direction.
    pub(super) const NONE: Self = Self { first: None };

    /// The markers of an FPDU that begins `pos` octets into full operation phase.
    ///
    /// `pos` may be reduced modulo 2^32, of which [`SPACING`] is a divisor.
    #[inline]
    pub(super) fn at(pos: u32) -> Self {
        let first = (pos.wrapping_neg() % SPACING) & !3;
        Self {
            first: u16::try_from(first).ok(),
        }
    }

    /// Tells whether a marker stands in front of the ULPDU_Length field.
    #[inline]
    pub(super) fn leading(self) -> bool {
        self.first == Some(0)
    }

    /// How many markers there are in an FPDU of `len` octets without them, CRC included.
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

    /// How many markers begin within the first `room` octets on the wire.
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

    /// Where octet `at` of the FPDU without markers lies in the FPDU with them.
    #[inline]
    pub(super) fn position(self, at: u32) -> u32 {
        // The markers in front of an octet are those of an FPDU that ends with it.
        at.wrapping_add(self.count(at.wrapping_add(1)).wrapping_mul(LEN))
    }

    /// How many octets follow octet `at` of the FPDU without markers, itself included, before
    /// the next marker.
    #[inline]
    pub(super) fn run(self, at: u32) -> u32 {
        match self.first.map(u32::from) {
            None => u32::MAX,
            Some(first) => match at.checked_sub(first) {
                None => first.wrapping_sub(at),
                Some(behind) => BETWEEN.wrapping_sub(behind % BETWEEN),
            },
        }
    }

    /// Where marker `index` lies in the FPDU with markers.
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
        // The longest FPDU with its markers exceeds 16 bits by a little: the field wraps.
        let [_, _, high, low] = distance.to_be_bytes();
        u16::from_be_bytes([high, low])
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

    /// MPA-33: the arithmetic agrees with laying words out one by one, for each length of FPDU at
    /// each place it can begin.
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
                    markers.run(at) % 508,
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
