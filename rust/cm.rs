// SPDX-License-Identifier: GPL-2.0

//! Connection management: MPA start-up over sockets, on behalf of `iw_cm` (RFC 5044 section 7.1,
//! RFC 6581).
//!
//! A connection is an [`endpoint`] with one of two sequences of phases:
//!
//! - [`connect`]: TCP, the Request of this end, the peer's Reply, the stream
//! - [`listen`], [`accept`]: the peer's Request, the decision of `iw_cm`, the Reply of this end,
//!   the stream
//!
//! then [`connected`] until the stream ends. [`crate::rendezvous`] connects queue pairs without
//! `iw_cm`.
//!
//! - [`mpa_frame`]: start-up frames on sockets
//! - [`timer`]: the time limit of a phase, [`budget`]: limits of rates
//! - [`half_open`]: the half-open backlog of a listener
//! - [`quirk_svcrdma_close`]: a workaround for `svcrdma`
//! - [`registry`]: the endpoints and listeners of a device
//!
//! Events for `iw_cm` are made by types that allow only the right order
//! ([`crate::sys::rdma::iwcm`]).

pub(crate) mod accept;
pub(crate) mod budget;
pub(crate) mod connect;
mod connected;
mod device;
pub(crate) mod endpoint;
pub(crate) mod half_open;
pub(crate) mod listen;
pub(crate) mod mpa_frame;
mod quirk_svcrdma_close;
pub(crate) mod registry;
pub(crate) mod timer;

use iwarp_wire::{
    mpa::{
        negotiate::{
            Parameters,
            Policy, //
        },
        startup::Revision, //
    },
    RtrKinds, //
};
use kernel::prelude::*;

pub(crate) use self::device::CmDevice;
use crate::{
    params,
    stream::{
        Config,
        Role, //
    },
    verbs::limits::MAX_RD_ATOM, //
};

/// The negotiation policy of this end for a connection with the requested depths.
///
/// Requested depths are limited to the maximum of the device; an event carries the agreed depths.
/// `crc`: this end requests CRCs.
fn policy(crc: bool, ird: u32, ord: u32) -> Policy {
    let depth = |wanted: u32| u16::try_from(wanted).unwrap_or(u16::MAX).min(MAX_RD_ATOM);
    let revision = match params::mpa_revision() {
        params::MpaRevision::One => Revision::One,
        params::MpaRevision::Two => Revision::Two,
    };
    Policy {
        revision,
        crc,
        markers: params::markers(),
        ird: depth(ird),
        ord: depth(ord),
        max_ird: MAX_RD_ATOM,
        peer_to_peer: params::peer_to_peer() && revision == Revision::Two,
        rtr: RtrKinds::ALL,
    }
}

/// The configuration of the stream, from the parameters that the start-up has agreed on.
pub(crate) fn stream_config(agreed: &Parameters, role: Role) -> Config {
    Config {
        crc: agreed.crc,
        rx_markers: agreed.rx_markers,
        tx_markers: agreed.tx_markers,
        ird: agreed.ird,
        ord: agreed.ord,
        role,
        initial: KVec::new(),
        mirror: false,
    }
}
