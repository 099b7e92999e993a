// SPDX-License-Identifier: GPL-2.0

//! MPA: framing over TCP (RFC 5044) and enhanced connection set-up (RFC 6581).
//!
//! - [`startup`]: the Request and Reply frames; [`negotiate`]: the parameters that they negotiate
//! - [`fpdu`]: FPDUs, received and sent, with markers and CRC
//! - [`mulpdu()`]: the maximum length of a ULPDU

pub mod fpdu;
mod marker;
mod mulpdu;
pub mod negotiate;
pub mod startup;

pub use self::mulpdu::{
    mulpdu,
    packed,
    DEFAULT_EMSS,
    MAX_MULPDU,
    MIN_MULPDU, //
};
