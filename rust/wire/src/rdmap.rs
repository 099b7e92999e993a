// SPDX-License-Identifier: GPL-2.0

//! RDMAP messages (RFC 5040 section 4, RFC 7306 sections 4 to 6).
//!
//! Each DDP segment carries RDMAP's control octet; the opcode in it fixes whether the segment is
//! tagged and which queue it goes to. Some messages have a header of their own behind DDP's.

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
