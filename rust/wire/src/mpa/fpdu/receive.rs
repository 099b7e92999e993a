// SPDX-License-Identifier: GPL-2.0

//! Finding FPDUs in a stream, and checking them (RFC 5044 sections 4 and 5, errors 2 and 3 of
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

/// Finds the FPDUs of one direction of a stream, in order.
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
#[derive(Clone, Copy, Debug)]
pub struct Framer {
    /// Octets since full operation phase began, modulo 2^32.
    pos: u32,
    /// The peer inserts markers.
    markers: bool,
    /// CRCs are verified.
    crc: bool,
}

/// What [`Framer::next`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The length field is not there yet: ask again with this many octets in all.
    Need(usize),
    /// The extent of the FPDU is known; its octets may still be on their way.
    Fpdu(Fpdu),
}

impl Framer {
    /// Starts with the first octet of full operation phase.
    #[inline]
    pub const fn new(markers: bool, crc: bool) -> Self {
        Self {
            pos: 0,
            markers,
            crc,
        }
    }

    /// The peer inserts markers in this direction.
    #[inline]
    pub const fn markers(&self) -> bool {
        self.markers
    }

    /// CRCs are verified in this direction.
    #[inline]
    pub const fn crc(&self) -> bool {
        self.crc
    }

    /// Tells the extent of the FPDU at the current position.
    ///
    /// `octets` is what is at hand from there; six octets are always enough.
    #[inline]
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

    /// Goes on behind `fpdu`, the one that [`Framer::next`] returned last.
    #[inline]
    pub fn advance(&mut self, fpdu: &Fpdu) {
        self.pos = self.pos.wrapping_add(fpdu.layout.wire_len());
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

/// The extent of one received FPDU. "Raw" octets are those of the FPDU from its first octet on
/// the wire, which may be a marker, through its CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fpdu {
    /// Where everything lies.
    layout: Layout,
    /// The CRC counts.
    crc: bool,
}

impl Fpdu {
    /// Octets of the FPDU on the wire, markers, pad and CRC included: 8 to 66064.
    #[inline]
    pub fn wire_len(&self) -> usize {
        index(self.layout.wire_len())
    }

    /// Octets of the ULPDU; any value, the peer chooses it.
    #[inline]
    pub fn ulpdu_len(&self) -> u16 {
        self.layout.ulpdu_len
    }

    /// Octets of pad: 0 to 3.
    #[inline]
    pub fn pad_len(&self) -> usize {
        pad_len(self.layout.ulpdu_len)
    }

    /// Whether there is no marker in it: the ULPDU is one piece behind the length field, and there
    /// is nothing to check but the CRC.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.layout.marker_count() == 0
    }

    /// The places of the ULPDU's octets in the raw FPDU, in order; none are empty.
    #[inline]
    pub fn pieces(&self) -> Pieces {
        Pieces(self.layout.pieces(0..u32::from(self.layout.ulpdu_len)))
    }

    /// Octets that the CRC covers, from the first raw octet; its field is the four octets behind.
    #[inline]
    pub fn crc_len(&self) -> usize {
        self.wire_len().wrapping_sub(CRC_LEN)
    }

    /// Compares the CRC computed over the first [`Fpdu::crc_len`] raw octets with its field.
    ///
    /// Always `Ok` when CRCs are off: then the field may hold anything.
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
    /// The reserved bits of a marker and the low two bits of its FPDUPTR are not looked at.
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

    /// Checks CRC and markers of the whole raw FPDU.
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

    /// Checks the markers of the whole raw FPDU, moves the ULPDU together in place and returns it.
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
            // Places overlap, so they are copied octet by octet, front to back.
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

    /// Octets in front of the ULPDU's first octet, which shares a word with the length field.
    #[inline]
    pub fn head_len(&self) -> usize {
        if self.layout.markers.leading() {
            LENGTH_LEN.wrapping_add(index(marker::LEN))
        } else {
            LENGTH_LEN
        }
    }
}

/// The places of a ULPDU's octets in the raw FPDU: made by [`Fpdu::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces(PlainPieces);

impl Iterator for Pieces {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        self.0.next()
    }
}
