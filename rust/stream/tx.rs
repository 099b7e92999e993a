// SPDX-License-Identifier: GPL-2.0

//! The transmit direction: from work requests to bursts of FPDUs.
//!
//! A burst is what one call hands to TCP: one GSO skb of whole FPDUs.
//!
//! - [`transmit`]: builds bursts and hands them over
//! - [`send_queue`]: which message goes next
//! - [`encode`]: one FPDU, [`alignment`]: its size
//! - [`owner`]: one context transmits at a time
//! - [`doorbell_batch`]: doorbell batching, [`adaptive_delay`]: for how long

mod adaptive_delay;
pub(super) mod alignment;
pub(super) mod doorbell_batch;
pub(super) mod encode;
pub(super) mod owner;
pub(super) mod send_queue;
pub(super) mod transmit;
