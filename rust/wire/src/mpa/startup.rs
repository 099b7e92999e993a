// SPDX-License-Identifier: GPL-2.0

//! The start-up frames: MPA Request and Reply (RFC 5044 section 7.1.1, RFC 6581 section 5).
//!
//! A frame is 20 octets and private data, sent before the first FPDU. Revision 2 puts an
//! enhanced word before the private data: IRD, ORD and the choice of a ready-to-receive (RTR)
//! frame.

mod enhanced;
mod frame;

pub use self::enhanced::{
    Depth,
    Depths,
    Enhanced,
    RtrKind,
    RtrKinds, //
};
pub use self::frame::{
    parse,
    EncodeError,
    Frame,
    FrameKind,
    Progress,
    Revision,
    StartupError, //
};

/// Octets of a frame without private data.
pub const HEADER_LEN: usize = 20;

/// The most octets of private data, the enhanced word included (RFC 5044 section 7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;

/// The most octets of a frame, private data included.
pub const MAX_FRAME_LEN: usize = HEADER_LEN + MAX_PRIVATE_DATA;
