// SPDX-License-Identifier: GPL-2.0

//! FPDUs: the frames of full operation phase (RFC 5044 section 4).
//!
//! An FPDU is the 16-bit length of its ULPDU, the ULPDU, a pad up to a multiple of four octets, and
//! a CRC. Markers are inserted at fixed distances (`marker.rs`). The CRC
//! covers all octets before it, a leading marker included.
//!
//! [`Framer`] and [`Fpdu`] read one direction of a stream, [`FpduWriter`] writes one.

mod layout;
mod receive;
mod transmit;

pub use self::layout::pad_len;
pub use self::receive::{
    Fpdu,
    Framer,
    Next,
    Pieces,
    Resync, //
};
pub use self::transmit::{
    FpduWriter,
    WriteError, //
};

/// Octets of the ULPDU_Length field.
pub const LENGTH_LEN: usize = 2;

/// Octets of the CRC field.
pub const CRC_LEN: usize = 4;

/// The most octets of an FPDU: a ULPDU of 65535 octets, with markers.
///
/// No sender makes one longer than that of a ULPDU of [`MAX_MULPDU`](crate::mpa::MAX_MULPDU).
pub const MAX_FPDU_LEN: usize = 66064;
