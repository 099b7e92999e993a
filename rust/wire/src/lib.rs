// SPDX-License-Identifier: GPL-2.0

//! The iWARP protocols without input or output: MPA, DDP and RDMAP.
//!
//! The crate implements MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040, RFC 7306).
//! It has functions and state machines: octets and lengths are the input, decisions the output.
//! No function reads a socket, accesses a memory region, allocates, sleeps, logs or reads a
//! clock. The caller moves octets and executes decisions. Every function may be called in any
//! context.
//!
//! No input makes a function panic. Octets of a peer that are in error become the
//! [`TerminateReason`] that the RFCs prescribe.
//!
//! # Data path
//!
//! | step | module |
//! | --- | --- |
//! | connection set-up: frames, negotiation | [`mpa::startup`], [`mpa::negotiate`] |
//! | receive: find an FPDU, verify its CRC | [`mpa::fpdu::Framer`], [`crc::Digest`] |
//! | receive: read DDP and RDMAP headers, decide | [`rx::Receiver`], [`reads`] |
//! | transmit: number a message, cut it | [`tx::Msns`], [`tx::Segmenter`], [`mpa::mulpdu()`] |
//! | transmit: lay a segment out as an FPDU | [`mpa::fpdu::FpduWriter`] |
//! | all steps of one end | [`stream::Startup`], [`stream::Stream`] |
//!
//! The kernel driver uses the parts. A user-space end or a test peer uses [`stream`], as
//! `examples/tcp_ends.rs` does over a TCP socket.
//!
//! # Examples
//!
//! A Send of three octets, from one end to the other, by the parts:
//!
//! ```
//! use iwarp_wire::{
//!     crc::Table,
//!     mpa::fpdu::{FpduWriter, Framer, Next},
//!     rdmap::SendKind,
//!     reads::{Inbound, Irq, Orq, Outstanding},
//!     rx::{Config, Decision, Receiver},
//!     tx::{Message, Msns, Segmenter},
//! };
//!
//! // One end.
//! let mut msns = Msns::new();
//! let message = Message::Send { msn: msns.send(), kind: SendKind::default() };
//! let mut segmenter = Segmenter::new(message, 3);
//! let mut writer = FpduWriter::new(false, true);
//! let mut wire = [0; 64];
//! let step = segmenter.next(1442).expect("the message has one segment");
//! let len = writer
//!     .write::<Table, ()>(&mut wire, &step.header, step.len.into(), |to| {
//!         to.copy_from_slice(b"abc");
//!         Ok(())
//!     })
//!     .expect("there is room");
//!
//! // The other end.
//! let mut framer = Framer::new(false, true);
//! let Next::Fpdu(fpdu) = framer.next(&wire[..len]) else { panic!("it is whole") };
//! assert_eq!(fpdu.wire_len(), len);
//! fpdu.check::<Table>(&wire[..len]).expect("the CRC is right");
//! framer.advance(&fpdu);
//!
//! let mut receiver = Receiver::new(Config::default());
//! let mut orq = Orq::new([None::<Outstanding<()>>; 4], 4);
//! let mut irq = Irq::new([None::<Inbound>; 4], 4);
//! let ulpdu = &wire[2..2 + usize::from(fpdu.ulpdu_len())];
//! let decision = receiver.receive(ulpdu, fpdu.ulpdu_len(), &mut orq, &mut irq);
//! let Decision::Send(segment) = decision else { panic!("it is a Send") };
//! assert!(segment.first && segment.last && segment.len == 3);
//! assert_eq!(&ulpdu[18..], b"abc");
//! ```

// The kernel build passes `no_std` itself.
#![cfg_attr(not(CONFIG_RUST), no_std)]
#![crate_name = "iwarp_wire"]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod bytes;
pub mod crc;
pub mod ddp;
mod ids;
pub mod mpa;
pub mod rdmap;
pub mod reads;
pub mod rx;
pub mod stream;
pub mod tx;

pub use crate::ids::{
    Mo,
    Msn,
    QueueNumber,
    Stag,
    TaggedOffset,
    UnknownQueue, //
};
pub use crate::mpa::startup::{
    RtrKind,
    RtrKinds, //
};
pub use crate::rdmap::terminate::TerminateReason;
