// SPDX-License-Identifier: GPL-2.0

//! The GID table of the port.
//!
//! iWARP has no use for GIDs, but tools and `rdma_cm` want a table: entry 0 always, non-zero, for
//! the interface (siw-facts: `rdma_cm` uses no other). It is the link-local IPv6 address that the
//! interface's hardware address makes.

/// A GID.
pub(super) type Gid = [u8; 16];

/// The modified EUI-64 of a 48-bit address (RFC 4291 appendix A).
pub(super) fn eui64(address: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = address;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// The link-local GID of an interface identifier.
pub(super) fn link_local(id: [u8; 8]) -> Gid {
    let [a, b, c, d, e, f, g, h] = id;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
}
