// SPDX-License-Identifier: GPL-2.0

//! Finding FPDUs in a stream, and checking them (RFC 5044 sections 4 and 6, errors 2 and 3 of
//! section 8).

use core::cell::Cell;
use core::ops::Range;

use super::layout::{
    index,
    pad_len,
    Layout,
    PlainPieces, //
};
use super::{
    CRC_LEN,
    LENGTH_LEN, //
};
use crate::crc::{
    Crc32c,
    Digest, //
};
use crate::mpa::marker::{
    self,
    Markers, //
};
use crate::rdmap::terminate::{
    MpaError,
    TerminateReason, //
};

/// Finds the FPDUs of one direction of a stream, in order (RFC 5044 section 6, methods 1 and 3).
///
/// The state is a position in the stream, always that of an FPDU's first octet:
///
/// | state | event | next |
/// | --- | --- | --- |
/// | boundary | [`next`](Self::next), length field incomplete | boundary, [`Next::Need`] |
/// | boundary | [`next`](Self::next), length field at hand | extent known, [`Next::Fpdu`] |
/// | extent known | [`advance`](Self::advance) | boundary of the FPDU behind |
/// | boundary unknown | [`resync`](Self::resync), no marker leads to an FPDU | boundary unknown |
/// | boundary unknown | [`resync`](Self::resync), a marker leads to an FPDU | boundary |
///
/// ```
/// use iwarp_wire::mpa::fpdu::{Framer, Next};
///
/// let mut framer = Framer::new(false, true);
/// assert_eq!(framer.next(&[0]), Next::Need(2));
/// let Next::Fpdu(fpdu) = framer.next(&[0, 14, 0xc1]) else { panic!("the length is there") };
/// assert_eq!(fpdu.wire_len(), 20);
/// framer.advance(&fpdu);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framer {
    /// The position: octets since full operation phase began, modulo 2^32.
    pos: u32,
    /// The peer inserts markers.
    markers: bool,
    /// CRCs are verified.
    crc: bool,
}

/// The result of [`Framer::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The length field is incomplete: call again with this many octets in all.
    Need(usize),
    /// The extent of the FPDU, whose octets may not have arrived.
    Fpdu(Fpdu),
}

/// The result of [`Framer::resync`] and [`Framer::search`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resync {
    /// The stream carries no markers: only the chain of length fields leads to FPDUs.
    NoMarkers,
    /// No marker in the octets leads to an FPDU: call again with this many octets in all, from the
    /// same first octet on. Always more than were given.
    Need(usize),
    /// The first octet of an FPDU.
    Found {
        /// The offset of the FPDU in the given octets.
        at: usize,
        /// A framer at that FPDU.
        framer: Framer,
    },
}

impl Framer {
    /// A framer at the first octet of full operation phase.
    #[inline]
    #[must_use]
    pub const fn new(markers: bool, crc: bool) -> Self {
        Self {
            pos: 0,
            markers,
            crc,
        }
    }

    /// The peer inserts markers in this direction.
    #[inline]
    #[must_use]
    pub const fn markers(&self) -> bool {
        self.markers
    }

    /// CRCs are verified in this direction.
    #[inline]
    #[must_use]
    pub const fn crc(&self) -> bool {
        self.crc
    }

    /// The extent of the FPDU at the current position.
    ///
    /// `octets` are the received ones from the position on; six are always enough.
    #[inline]
    #[must_use]
    pub fn next(&self, octets: &[u8]) -> Next {
        let markers = self.layout();
        let lead = if markers.leading() {
            index(marker::LEN)
        } else {
            0
        };
        let behind = octets.get(lead..).unwrap_or(&[]);
        match behind.first_chunk::<LENGTH_LEN>() {
            None => Next::Need(lead.wrapping_add(LENGTH_LEN)),
            Some(length) => Next::Fpdu(Fpdu {
                layout: Layout {
                    ulpdu_len: u16::from_be_bytes(*length),
                    markers,
                },
                crc: self.crc,
            }),
        }
    }

    /// Moves the position to the end of `fpdu`, the result of the last [`Framer::next`].
    #[inline]
    pub fn advance(&mut self, fpdu: &Fpdu) {
        self.pos = self.pos.wrapping_add(fpdu.layout.wire_len());
    }

    /// Finds an FPDU by its marker, after octets that are missing (RFC 5044 section 6, method 2).
    ///
    /// `ahead` is the distance in octets, modulo 2^32, from the framer's position to `octets`. A
    /// framer made by [`Framer::new`] is at the first octet of full operation phase. The result is
    /// the FPDU of the first marker in `octets` whose FPDU begins in `octets`.
    ///
    /// A marker is trusted only as far as the CRC of its FPDU confirms it: see [`Fpdu::check`].
    /// After a failed check the search continues four octets after the FPDU's first octet. The
    /// markers of an FPDU whose ULPDU exceeds [`MAX_MULPDU`](crate::mpa::MAX_MULPDU) may lead
    /// 65536 octets too far, since FPDUPTR has 16 bits.
    ///
    /// ```
    /// use iwarp_wire::{crc::Table, mpa::fpdu::{FpduWriter, Framer, Next, Resync}};
    ///
    /// // FPDUs of 520 and 516 octets, of which the first 100 octets were lost.
    /// let mut writer = FpduWriter::new(true, true);
    /// let mut wire = [0; 1036];
    /// for out in wire.chunks_mut(520) {
    ///     let len = writer.write::<Table, ()>(out, &[], 504, |to| Ok(to.fill(7)));
    ///     assert_eq!(len, Ok(out.len()));
    /// }
    /// let framer = Framer::new(true, true);
    /// // The marker at octet 512 lies in the first FPDU, whose first octet is lost.
    /// assert_eq!(framer.resync(100, &wire[100..1000]), Resync::Need(1024 + 4 - 100));
    /// // The marker at octet 1024 leads to the second FPDU.
    /// let Resync::Found { at, framer } = framer.resync(100, &wire[100..]) else { panic!() };
    /// assert_eq!(at, 520 - 100);
    /// let Next::Fpdu(fpdu) = framer.next(&wire[520..]) else { panic!() };
    /// assert_eq!(fpdu.check::<Table>(&wire[520..]), Ok(()));
    /// ```
    #[inline]
    pub fn resync(&self, ahead: u32, octets: &[u8]) -> Resync {
        if !self.markers {
            return Resync::NoMarkers;
        }
        let start = self.pos.wrapping_add(ahead);
        let mut at = index(start.wrapping_neg() % marker::SPACING);
        while let Some(octets) = octets.get(at..).and_then(<[u8]>::first_chunk) {
            if let Some(back) = marker::distance_to_fpdu(*octets) {
                let back = index(back);
                if let Some(fpdu_at) = at.checked_sub(back) {
                    // Positions are kept modulo 2^32.
                    #[expect(clippy::cast_possible_truncation)]
                    let pos = start.wrapping_add(fpdu_at as u32);
                    return Resync::Found {
                        at: fpdu_at,
                        framer: Self { pos, ..*self },
                    };
                }
            }
            // `at` is within a slice, so the sum does not wrap.
            at = at.wrapping_add(index(marker::SPACING));
        }
        Resync::Need(at.saturating_add(index(marker::LEN)))
    }

    /// Finds an FPDU in the middle of a stream whose position is not known, as an analyser does.
    ///
    /// Any four octets may be a marker. The search takes the first ones that lead to a whole FPDU
    /// in `octets` whose other markers and CRC agree. The stream must have markers and CRCs.
    /// Senders that set a marker's reserved bits are not found.
    ///
    /// A payload that repeats a stream of FPDUs is found as well: an analyser that has to exclude
    /// it requires several FPDUs in a row. The CRC is computed at most once for each octet of
    /// `octets`, over one FPDU.
    #[inline]
    pub fn search<C: Crc32c>(octets: &[u8]) -> Resync {
        let mut at = 0usize;
        while let Some(candidate) = octets.get(at..).and_then(<[u8]>::first_chunk) {
            if let Some(found) = Self::whole_fpdu::<C>(octets, at, *candidate) {
                return found;
            }
            at = at.wrapping_add(1);
        }
        Resync::Need(octets.len().saturating_add(index(marker::SPACING)))
    }

    /// The FPDU to which `candidate`, the octets at `at`, leads, if the FPDU is complete and
    /// valid.
    #[inline]
    fn whole_fpdu<C: Crc32c>(octets: &[u8], at: usize, candidate: [u8; 4]) -> Option<Resync> {
        let back =
            marker::distance_to_fpdu(candidate).filter(|_| candidate.starts_with(&[0, 0]))?;
        let fpdu_at = at.checked_sub(index(back))?;
        let rest = octets.get(fpdu_at..)?;
        let framer = Self {
            // The marker is at a multiple of their spacing.
            pos: back.wrapping_neg(),
            markers: true,
            crc: true,
        };
        let Next::Fpdu(fpdu) = framer.next(rest) else {
            return None;
        };
        let raw = rest.get(..fpdu.wire_len())?;
        let right = index(back) < raw.len()
            && fpdu.check_markers(raw).is_ok()
            && fpdu.check::<C>(raw).is_ok();
        right.then_some(Resync::Found {
            at: fpdu_at,
            framer,
        })
    }

    /// The markers of an FPDU at the current position.
    #[inline]
    fn layout(&self) -> Markers {
        if self.markers {
            Markers::at(self.pos)
        } else {
            Markers::NONE
        }
    }
}

/// The extent of one received FPDU.
///
/// Its raw octets are those on the wire, from the first one, which may be a marker, through the
/// CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fpdu {
    /// The offsets of its parts.
    layout: Layout,
    /// The CRC is verified.
    crc: bool,
}

impl Fpdu {
    /// Octets of the FPDU on the wire, markers, pad and CRC included: 8 to 66064.
    #[inline]
    #[must_use]
    pub fn wire_len(&self) -> usize {
        index(self.layout.wire_len())
    }

    /// Octets of the ULPDU: 0 to 65535, chosen by the peer.
    #[inline]
    #[must_use]
    pub fn ulpdu_len(&self) -> u16 {
        self.layout.ulpdu_len
    }

    /// Octets of pad: 0 to 3.
    #[inline]
    #[must_use]
    pub fn pad_len(&self) -> usize {
        pad_len(self.layout.ulpdu_len)
    }

    /// Tells whether the FPDU has no marker: the ULPDU is contiguous after the length field, and
    /// only the CRC needs to be checked.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.layout.marker_count() == 0
    }

    /// The ranges of the ULPDU in the raw octets, in order, without empty ones.
    #[inline]
    #[must_use]
    pub fn pieces(&self) -> Pieces {
        Pieces(self.layout.pieces(0..u32::from(self.layout.ulpdu_len)))
    }

    /// Octets that the CRC covers, from the first raw octet on. The CRC field is after them.
    #[inline]
    #[must_use]
    pub fn crc_len(&self) -> usize {
        self.wire_len().wrapping_sub(CRC_LEN)
    }

    /// Compares the CRC computed over the first [`Fpdu::crc_len`] raw octets with its field.
    ///
    /// Always `Ok` where CRCs are off: the field is ignored (RFC 5044 section 4.4).
    ///
    /// # Errors
    ///
    /// MPA error 2, CRC mismatch: [`MpaError::Crc`].
    #[inline]
    pub fn check_crc(&self, computed: Digest, field: [u8; CRC_LEN]) -> Result<(), TerminateReason> {
        if !self.crc || computed.matches(field) {
            Ok(())
        } else {
            Err(TerminateReason::Mpa(MpaError::Crc))
        }
    }

    /// Checks that each marker points to this FPDU's length field.
    ///
    /// The reserved bits of a marker and the low two bits of its FPDUPTR are ignored.
    ///
    /// # Errors
    ///
    /// MPA error 3, marker and ULPDU_Length disagree: [`MpaError::Marker`]; also when `raw` is not
    /// as long as the FPDU.
    pub fn check_markers(&self, raw: &[u8]) -> Result<(), TerminateReason> {
        let wrong = TerminateReason::Mpa(MpaError::Marker);
        for marker in 0..self.layout.marker_count() {
            let at = index(self.layout.markers.offset(marker));
            match raw.get(at..) {
                Some(&[_, _, high, low, ..]) => {
                    let pointer = u16::from_be_bytes([high, low]) & !3;
                    if pointer != self.layout.markers.pointer(marker) {
                        return Err(wrong);
                    }
                }
                _ => return Err(wrong),
            }
        }
        Ok(())
    }

    /// Checks CRC and markers. `raw` are all raw octets.
    ///
    /// # Errors
    ///
    /// Those of [`Fpdu::check_crc`] and [`Fpdu::check_markers`], in this order; the latter also
    /// when `raw` is not as long as the FPDU.
    pub fn check<C: Crc32c>(&self, raw: &[u8]) -> Result<(), TerminateReason> {
        let wrong = TerminateReason::Mpa(MpaError::Marker);
        if raw.len() != self.wire_len() {
            return Err(wrong);
        }
        let (covered, field) = raw.split_last_chunk::<CRC_LEN>().ok_or(wrong)?;
        if self.crc {
            let mut digest = Digest::new();
            digest.update::<C>(covered);
            self.check_crc(digest, *field)?;
        }
        self.check_markers(raw)
    }

    /// Checks the markers, moves the ULPDU together within `raw`, all raw octets, and returns it.
    ///
    /// The octets of `raw` outside of the ULPDU are undefined afterwards, so check the CRC first.
    ///
    /// # Errors
    ///
    /// Those of [`Fpdu::check_markers`], also when `raw` is not as long as the FPDU.
    pub fn strip<'a>(&self, raw: &'a mut [u8]) -> Result<&'a [u8], TerminateReason> {
        let wrong = TerminateReason::Mpa(MpaError::Marker);
        if raw.len() != self.wire_len() {
            return Err(wrong);
        }
        self.check_markers(raw)?;
        // The ULPDU begins in the word of the length field.
        let start = self.head_len();
        let mut end = start;
        {
            // Source and destination may overlap: the copy goes octet by octet, front to back.
            let cells = Cell::from_mut(&mut *raw).as_slice_of_cells();
            for piece in self.pieces() {
                let to = cells.get(end..).unwrap_or(&[]);
                end = end.wrapping_add(piece.end.wrapping_sub(piece.start));
                let from = cells.get(piece).ok_or(wrong)?;
                for (to, from) in to.iter().zip(from) {
                    to.set(from.get());
                }
            }
        }
        raw.get(start..end).ok_or(wrong)
    }

    /// Octets before the ULPDU: 2, or 6 with a leading marker.
    #[inline]
    #[must_use]
    pub fn head_len(&self) -> usize {
        if self.layout.markers.leading() {
            LENGTH_LEN.wrapping_add(index(marker::LEN))
        } else {
            LENGTH_LEN
        }
    }
}

/// The ranges of a ULPDU in the raw octets of its FPDU ([`Fpdu::pieces`]).
#[derive(Clone, Debug)]
pub struct Pieces(PlainPieces);

impl Iterator for Pieces {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        self.0.next()
    }
}
