// SPDX-License-Identifier: GPL-2.0

//! MPA: framing over TCP (RFC 5044) and enhanced connection set-up (RFC 6581).
//!
//! - [`startup`]: the Request and Reply frames; [`negotiate`]: what they agree on
//! - [`fpdu`]: FPDUs, received and sent, with markers and CRC
//! - [`mulpdu()`]: how long a ULPDU may be

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
