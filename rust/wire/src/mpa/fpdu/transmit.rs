// SPDX-License-Identifier: GPL-2.0

//! FPDUs laid out for transmission (RFC 5044 sections 4 and 5).

use core::error::Error;
use core::fmt;

use super::layout::{
    index,
    pad_len,
    Layout, //
};
use super::{
    CRC_LEN,
    LENGTH_LEN, //
};
use crate::bytes::copy;
use crate::crc::{
    Crc32c,
    Digest, //
};
use crate::mpa::marker::{
    self,
    Markers, //
};

/// Lays out the FPDUs of one direction of a stream, in order.
///
/// ```
/// use iwarp_wire::{crc::Table, mpa::fpdu::FpduWriter};
///
/// let mut writer = FpduWriter::new(true, true);
/// let mut out = [0; 32];
/// let len = writer
///     .write::<Table, ()>(&mut out, b"header", 3, |to| {
///         to.copy_from_slice(b"abc");
///         Ok(())
///     })
///     .expect("there is room");
/// // The marker of the first FPDU, length, header, payload, pad; the CRC is behind them.
/// assert_eq!(out[..16], *b"\0\0\0\0\0\x09headerabc\0");
/// assert_eq!(len, 20);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FpduWriter {
    /// The position: octets since full operation phase began, modulo 2^32.
    pos: u32,
    /// The peer has requested markers.
    markers: bool,
    /// CRCs are generated.
    crc: bool,
}

/// The reason why [`FpduWriter::write`] wrote no FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError<E> {
    /// The ULPDU exceeds 65535 octets.
    TooLong,
    /// The FPDU does not fit into the buffer.
    NoRoom,
    /// The caller's `fill` failed.
    Payload(E),
}

impl<E: fmt::Display> fmt::Display for WriteError<E> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the ULPDU exceeds 65535 octets"),
            Self::NoRoom => f.write_str("the FPDU does not fit into the buffer"),
            Self::Payload(error) => write!(f, "no payload: {error}"),
        }
    }
}

impl<E: Error + 'static> Error for WriteError<E> {
    #[inline]
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Payload(error) => Some(error),
            Self::TooLong | Self::NoRoom => None,
        }
    }
}

impl FpduWriter {
    /// A writer at the first octet of full operation phase.
    #[inline]
    #[must_use]
    pub const fn new(markers: bool, crc: bool) -> Self {
        Self {
            pos: 0,
            markers,
            crc,
        }
    }

    /// Markers are inserted in this direction.
    #[inline]
    #[must_use]
    pub const fn markers(&self) -> bool {
        self.markers
    }

    /// Octets on the wire of the next FPDU, if its ULPDU has `ulpdu_len` octets: 8 to 66064.
    #[inline]
    #[must_use]
    pub fn wire_len(&self, ulpdu_len: u16) -> usize {
        index(self.layout(ulpdu_len).wire_len())
    }

    /// Octets of the longest ULPDU whose FPDU fits into the next `room` octets; `None` if none
    /// fits.
    #[inline]
    #[must_use]
    pub fn ulpdu_for(&self, room: usize) -> Option<u16> {
        let layout = self.layout(u16::MAX);
        let room = u32::try_from(room)
            .unwrap_or(u32::MAX)
            .min(layout.wire_len())
            & !3;
        let markers = layout.markers.within(room).wrapping_mul(marker::LEN);
        let ulpdu = room.checked_sub(markers)?.checked_sub(6)?;
        Some(u16::try_from(ulpdu).unwrap_or(u16::MAX))
    }

    /// Lays the next FPDU out at the front of `out` and returns its length in octets.
    ///
    /// The ULPDU is `header`, the headers of DDP and RDMAP, and `payload_len` octets of payload.
    /// `fill` writes the payload: it is called with consecutive parts of `out`, altogether
    /// `payload_len` octets. Without markers there is one part, and without payload none. The CRC
    /// is computed over `out`, so the payload's source may change at any time. With CRCs off the
    /// CRC field is zero.
    ///
    /// # Errors
    ///
    /// [`WriteError`]. The position is unchanged then, and the octets of `out` are undefined.
    #[inline]
    pub fn write<C: Crc32c, E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload_len: usize,
        fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, WriteError<E>> {
        let ulpdu_len = header
            .len()
            .checked_add(payload_len)
            .and_then(|len| u16::try_from(len).ok())
            .ok_or(WriteError::TooLong)?;
        let layout = self.layout(ulpdu_len);
        let wire_len = index(layout.wire_len());
        let out = out.get_mut(..wire_len).ok_or(WriteError::NoRoom)?;
        let (covered, field) = out
            .split_last_chunk_mut::<CRC_LEN>()
            .ok_or(WriteError::NoRoom)?;

        if self.markers {
            marked(covered, &layout, header, fill)?;
        } else {
            plain(covered, ulpdu_len, header, payload_len, fill)?;
        }
        *field = if self.crc {
            let mut digest = Digest::new();
            digest.update::<C>(covered);
            digest.octets()
        } else {
            [0; CRC_LEN]
        };

        self.pos = self.pos.wrapping_add(layout.wire_len());
        Ok(wire_len)
    }

    /// The offsets of the parts of the next FPDU.
    #[inline]
    fn layout(&self, ulpdu_len: u16) -> Layout {
        Layout {
            ulpdu_len,
            markers: if self.markers {
                Markers::at(self.pos)
            } else {
                Markers::NONE
            },
        }
    }
}

/// Octets of the tagged header that most FPDUs have (RFC 5041 section 4.2).
const FREQUENT_LEN: usize = 14;

/// Copies a header as [`copy`] does, and the frequent one field by field. Its fields were stored
/// just before, and a load that covers parts of two stores waits for both.
#[inline]
fn copy_header(to: &mut [u8], header: &[u8]) -> bool {
    if header.len() != FREQUENT_LEN || to.len() != FREQUENT_LEN {
        return copy(to, header);
    }
    copy_first::<2>(to, header)
        .and_then(|(to, header)| copy_first::<4>(to, header))
        .and_then(|(to, header)| copy_first::<8>(to, header))
        .is_some()
}

/// Copies the first `N` octets; returns the octets after them. `None`: one of both is shorter.
#[inline]
fn copy_first<'t, 'f, const N: usize>(
    to: &'t mut [u8],
    from: &'f [u8],
) -> Option<(&'t mut [u8], &'f [u8])> {
    let (to, to_rest) = to.split_first_chunk_mut::<N>()?;
    let (from, from_rest) = from.split_first_chunk::<N>()?;
    *to = *from;
    Some((to_rest, from_rest))
}

/// Fills all octets before the CRC, without markers.
#[inline]
fn plain<E>(
    out: &mut [u8],
    ulpdu_len: u16,
    header: &[u8],
    payload_len: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<(), WriteError<E>> {
    let (length, rest) = out
        .split_first_chunk_mut::<LENGTH_LEN>()
        .ok_or(WriteError::NoRoom)?;
    let (head, rest) = rest
        .split_at_mut_checked(header.len())
        .ok_or(WriteError::NoRoom)?;
    let (payload, pad) = rest
        .split_at_mut_checked(payload_len)
        .ok_or(WriteError::NoRoom)?;
    *length = ulpdu_len.to_be_bytes();
    if !copy_header(head, header) {
        return Err(WriteError::NoRoom);
    }
    if !payload.is_empty() {
        fill(payload).map_err(WriteError::Payload)?;
    }
    debug_assert_eq!(pad.len(), pad_len(ulpdu_len));
    // A full segment has no pad, and needs no call.
    if !pad.is_empty() {
        pad.fill(0);
    }
    Ok(())
}

/// Fills all octets before the CRC, with markers.
fn marked<E>(
    out: &mut [u8],
    layout: &Layout,
    header: &[u8],
    mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<(), WriteError<E>> {
    for marker in 0..layout.marker_count() {
        let at = index(layout.markers.offset(marker));
        let place = at.wrapping_add(index(marker::LEN));
        let [high, low] = layout.markers.pointer(marker).to_be_bytes();
        out.get_mut(at..place)
            .and_then(|place| place.first_chunk_mut())
            .map(|place| *place = [0, 0, high, low])
            .ok_or(WriteError::NoRoom)?;
    }

    let at = index(layout.markers.position(0));
    let length = out
        .get_mut(at..)
        .and_then(|rest| rest.first_chunk_mut::<LENGTH_LEN>())
        .ok_or(WriteError::NoRoom)?;
    *length = layout.ulpdu_len.to_be_bytes();

    let ulpdu_len = u32::from(layout.ulpdu_len);
    let header_len = u32::try_from(header.len()).map_err(|_| WriteError::TooLong)?;
    let mut header = header;
    for piece in layout.pieces(0..header_len) {
        let (now, rest) = header
            .split_at_checked(piece.end.wrapping_sub(piece.start))
            .ok_or(WriteError::NoRoom)?;
        let to = out.get_mut(piece).ok_or(WriteError::NoRoom)?;
        if !copy(to, now) {
            return Err(WriteError::NoRoom);
        }
        header = rest;
    }
    for piece in layout.pieces(header_len..ulpdu_len) {
        let to = out.get_mut(piece).ok_or(WriteError::NoRoom)?;
        fill(to).map_err(WriteError::Payload)?;
    }
    let pad = u32::try_from(pad_len(layout.ulpdu_len)).unwrap_or(0);
    for piece in layout.pieces(ulpdu_len..ulpdu_len.wrapping_add(pad)) {
        out.get_mut(piece).ok_or(WriteError::NoRoom)?.fill(0);
    }
    Ok(())
}
