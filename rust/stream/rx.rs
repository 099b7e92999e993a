// SPDX-License-Identifier: GPL-2.0

//! The receive direction: from TCP's queue to placed payload.
//!
//! - [`receive`]: whole, verified FPDUs out of socket buffers
//! - [`reassembly`]: the buffer for an FPDU that comes in parts
//! - [`placement`]: what an FPDU asks for, carried out
//! - [`rnr_hold`]: a Send for which no receive is posted
//! - [`ack_batch`]: deferred `tcp_read_done`, so that a burst is acknowledged once
//! - [`source`]: octets that arrived and can be read again

pub(super) mod ack_batch;
mod placement;
pub(super) mod reassembly;
pub(super) mod receive;
mod rnr_hold;
mod source;
