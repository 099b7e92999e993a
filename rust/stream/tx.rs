// SPDX-License-Identifier: GPL-2.0

//! The transmit direction: from work requests to bursts of FPDUs.
//!
//! A burst is the data that one call passes to TCP: one GSO skb of whole FPDUs.
//!
//! - [`transmit`]: builds bursts and passes them to TCP
//! - [`send_queue`]: the choice of the next message
//! - [`encode`]: the encoding of one FPDU; [`alignment`]: its size
//! - [`owner`]: transmit ownership of one context at a time
//! - [`doorbell_batch`]: doorbell batching; [`adaptive_delay`]: the length of its delays

mod adaptive_delay;
pub(super) mod alignment;
pub(super) mod doorbell_batch;
pub(super) mod encode;
pub(super) mod owner;
pub(super) mod send_queue;
pub(super) mod transmit;
