// SPDX-License-Identifier: GPL-2.0

//! Tests of the public interface of `iwarp_wire`.
//!
//! Each test names the rows it checks. MPA-nn (RFC 5044), DDP-nn (RFC 5041), RDMAP-nn (RFC 5040),
//! EMC-nn (RFC 6581) and EXT-nn (RFC 7306) are rows of the project's requirements. V1 to V24 are
//! test vectors that other implementations confirm.

mod corpus;
mod endpoint;
mod fpdu;
mod input;
mod negotiate;
mod pair;
mod reads;
mod receive;
mod resync;
mod start;
mod startup;
mod stream;
mod support;
mod tables;
mod terminate;
mod vectors;
