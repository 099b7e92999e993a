// SPDX-License-Identifier: GPL-2.0

//! RDMAP messages (RFC 5040 section 4, RFC 7306 sections 4 to 6).
//!
//! Each DDP segment carries RDMAP's control octet. Its opcode determines whether the segment is
//! tagged, and the queue if it is not. Some messages have an RDMAP header after that of DDP.

mod message;
mod opcode;
pub mod terminate;

pub use self::message::{
    AtomicOperation,
    AtomicRequest,
    AtomicResponse,
    ReadRequest,
    SendKind,
    ATOMIC_REQUEST_LEN,
    ATOMIC_RESPONSE_LEN,
    IMMEDIATE_LEN,
    READ_REQUEST_LEN, //
};
pub use self::opcode::Opcode;
