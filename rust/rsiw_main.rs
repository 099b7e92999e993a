// SPDX-License-Identifier: GPL-2.0

//! rsiw: soft-iWARP for Linux (RFC 5040, 5041, 5044, 6581 over kernel TCP sockets).
//!
//! The crate root: the module, its parameters, and the order of start and stop. The crate has
//! these layers (rooms), each of which uses only those below it (docs/architecture.md,
//! `scripts/tests/checks/floors`):
//!
//! - [`driver`]: the callbacks of `ib_core` and `iw_cm`, `rdma link`, and the lifetime of a device
//! - [`rendezvous`]: queue pairs that connect without rdma_cm ([`rendezvous::begin`])
//! - [`cm`]: MPA start-up on behalf of `iw_cm`; a connection is an
//!   [`Endpoint`](cm::endpoint::Endpoint)
//! - [`qp`]: queue pairs ([`Qp`](qp::Qp)): states, attributes, posting, flush
//! - [`stream`]: one connection on the wire ([`Stream`](stream::Stream)). `Rx` receives from TCP,
//!   `Tx` passes bursts of FPDUs to TCP, and a `Batch` is one hold of the socket lock
//! - [`verbs`]: data-path objects: [`Device`](verbs::Device),
//!   [`QpQueues`](verbs::qp_queues::QpQueues), [`Cq`](verbs::cq::Cq), [`Srq`](verbs::srq::Srq),
//!   [`Region`](verbs::mr::Region)
//! - [`sys`]: the kernel's C interfaces, and all `unsafe` code
//!
//! The crate [`iwarp_wire`], below all of them, encodes and checks protocol data without I/O.
//!
//! Three paths through the layers:
//!
//! 1. TCP reports received octets by
//!    [`Handler::data_ready`](sys::net::socket::Handler::data_ready) of the stream. The batch
//!    receives them: `Rx::receive` verifies and places them, and generates the completion.
//! 2. A doorbell reports posted work requests by [`Qp::doorbell`](qp::Qp::doorbell).
//!    `Tx::transmit` of the batch fetches and encodes them, and passes the FPDUs to TCP.
//! 3. `iw_cm` requests a connection by [`connect`](cm::connect::connect) or
//!    [`Listener::start`](cm::listen::Listener::start). After MPA's start-up
//!    [`Qp::start_stream`](qp::Qp::start_stream) begins the full operation phase.

use kernel::prelude::*;

mod cm;
mod driver;
mod params;
mod qp;
mod rendezvous;
mod stream;
mod sys;
mod verbs;

module! {
    type: RsiwModule,
    name: "rsiw",
    authors: ["The rsiw authors"],
    description: "Soft-iWARP: RDMA over TCP on any network interface",
    license: "GPL",
    alias: ["rdma-link-rsiw", "rdma-link-siw", "siw"],
    params: {
        crc: u32 {
            default: 1,
            description: "Ask for CRC-32C on every FPDU (1, default) or not (0)",
        },
        markers: u32 {
            default: 0,
            description: "Ask the peer for MPA markers: 1 or 0 (default)",
        },
        mpa_rev: u32 {
            default: 2,
            description: "MPA revision of the device's Requests: 1 or 2 (default)",
        },
        rev1_fallback: u32 {
            default: 1,
            description: "Try MPA revision 1 after a peer refused 2: 1 (default) or 0",
        },
        peer_to_peer: u32 {
            default: 0,
            description: "Ask for peer-to-peer mode (RFC 6581) when connecting: 1 or 0 (default)",
        },
        connect_timeout_ms: u32 {
            default: 10000,
            description: "Limit of TCP connection set-up in ms (default 10000)",
        },
        mpa_request_timeout_ms: u32 {
            default: 5000,
            description: "Limit of waiting for a peer's MPA request in ms (default 5000)",
        },
        mpa_reply_timeout_ms: u32 {
            default: 10000,
            description: "Limit of waiting for a peer's MPA reply in ms (default 10000)",
        },
        rendezvous_port: u32 {
            default: 4791,
            description: "TCP port to connect queue pairs without rdma_cm (default 4791), 0: none",
        },
        rendezvous_timeout_ms: u32 {
            default: 10000,
            description: "How long their work waits for the connection in ms (default 10000)",
        },
        doorbell_coalesce_usecs: u32 {
            default: 100,
            description: "Longest doorbell delay in us (default 100), 0: none",
        },
        rnr_timeout_ms: u32 {
            default: 10000,
            description: "How long a Send waits for a receive in ms (default 10000), 0: not at all",
        },
        direct_port: u32 {
            default: 0xffff_ffff,
            description: "Old name of rendezvous_port",
        },
        direct_timeout_ms: u32 {
            default: 0xffff_ffff,
            description: "Old name of rendezvous_timeout_ms",
        },
        gather_us: u32 {
            default: 0xffff_ffff,
            description: "Old name of doorbell_coalesce_usecs",
        },
    },
}

/// The state of the loaded module. Fields are dropped in the order of their declaration.
#[pin_data]
struct RsiwModule {
    /// The registration of the driver, whose drop removes every device.
    #[pin]
    _registration: driver::Registration,
    /// The work queues, emptied when no code can queue work any more.
    _queues: sys::sync::work::Queues,
    /// The page pool, freed when no code sends any more.
    _pool: sys::mm::pages::Pool,
}

impl kernel::InPlaceModule for RsiwModule {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _: { params::check()? },
            _queues: sys::sync::work::Queues::new()?,
            _pool: sys::mm::pages::Pool::new()?,
            _registration <- driver::Registration::new(),
        })
    }
}
