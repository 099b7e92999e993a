// SPDX-License-Identifier: GPL-2.0

//! The receive direction: from TCP's receive queue to placed payload.
//!
//! - [`receive`]: whole, verified FPDUs from socket buffers
//! - [`reassembly`]: the buffer for an FPDU that arrives in parts
//! - [`placement`]: the execution of a verified FPDU
//! - [`rnr_hold`]: a Send for which no receive is posted
//! - [`ack_batch`]: deferred `tcp_read_done()`, for one acknowledgment of several bursts
//! - [`source`]: received octets that can be read again

pub(super) mod ack_batch;
mod placement;
pub(super) mod reassembly;
pub(super) mod receive;
mod rnr_hold;
mod source;
