// SPDX-License-Identifier: GPL-2.0

//! The GID table of the port.
//!
//! iWARP does not use GIDs, but tools and `rdma_cm` need a table. Entry 0 is the link-local IPv6
//! address formed from the hardware address of the interface. Entry 0 always exists and is never
//! zero, since `rdma_cm` uses no other entry. The other entries are the IP addresses of the
//! interface, IPv4 as `::ffff:a.b.c.d`. An address keeps its entry while the interface has it.

use core::net::{
    IpAddr,
    Ipv6Addr, //
};

use kernel::prelude::*;

use crate::verbs::limits;

/// The octets of a GID, in network order.
pub(crate) type Gid = [u8; 16];

/// The GID of an empty entry.
pub(crate) const NONE: Gid = [0; 16];

/// The number of entries.
const LEN: usize = limits::GID_TABLE as usize;

/// The modified EUI-64 of a 48-bit address (RFC 4291 appendix A).
pub(crate) fn eui64(address: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = address;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// The link-local GID of an interface identifier.
fn link_local(id: [u8; 8]) -> Gid {
    let [a, b, c, d, e, f, g, h] = id;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// The IP address of a GID; `None` for the unspecified, multicast and broadcast addresses.
pub(crate) fn ip_of(gid: &Gid) -> Option<IpAddr> {
    let ip = Ipv6Addr::from(*gid).to_canonical();
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    (!ip.is_unspecified() && !ip.is_multicast() && !broadcast).then_some(ip)
}

/// The relation of a GID to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// An address of the device's interface.
    Address,
    /// Entry 0, while the interface does not have that link-local address: no packet can reach it.
    NameOnly,
    /// A GID that is not in the table.
    Foreign,
}

/// The GID table of a port.
pub(crate) struct GidTable {
    entries: [Gid; LEN],
    /// Entry 0 is an address of the interface.
    first_is_address: bool,
}

impl GidTable {
    /// The table of an interface without IP addresses; `id` is the interface identifier.
    pub(crate) fn new(id: [u8; 8]) -> Self {
        let mut entries = [NONE; LEN];
        let [first, ..] = &mut entries;
        *first = link_local(id);
        Self {
            entries,
            first_is_address: false,
        }
    }

    /// The entry at `index`; all zero for an empty entry, or an index beyond the table.
    pub(crate) fn get(&self, index: u32) -> Gid {
        self.entries.get(index as usize).copied().unwrap_or(NONE)
    }

    /// The standing of `gid` with the device of the table.
    pub(crate) fn standing(&self, gid: &Gid) -> Standing {
        let [first, others @ ..] = &self.entries;
        if *gid == NONE {
            Standing::Foreign
        } else if others.contains(gid) || (gid == first && self.first_is_address) {
            Standing::Address
        } else if gid == first {
            Standing::NameOnly
        } else {
            Standing::Foreign
        }
    }

    /// Changes the interface identifier; returns whether it differs from the old one. The caller
    /// then calls [`update`](Self::update).
    pub(crate) fn set_id(&mut self, id: [u8; 8]) -> bool {
        let [first, ..] = &mut self.entries;
        let before = core::mem::replace(first, link_local(id));
        if before == *first {
            return false;
        }
        self.first_is_address = false;
        true
    }

    /// Replaces the addresses of the interface; returns whether an entry other than 0 has changed.
    ///
    /// Addresses beyond the size of the table are left out.
    pub(crate) fn update(&mut self, addresses: &[Gid]) -> bool {
        let [first, others @ ..] = &mut self.entries;
        self.first_is_address = addresses.contains(first);
        let mut changed = false;
        for entry in others.iter_mut() {
            if *entry != NONE && (!addresses.contains(entry) || entry == first) {
                *entry = NONE;
                changed = true;
            }
        }
        for address in addresses {
            if *address == NONE || address == first || others.contains(address) {
                continue;
            }
            if let Some(free) = others.iter_mut().find(|entry| **entry == NONE) {
                *free = *address;
                changed = true;
            }
        }
        changed
    }
}

#[kunit_tests(rsiw_verbs_gid)]
mod tests {
    use super::*;

    /// The GID of the IPv4 address 0.0.0.`n`.
    fn address(n: u8) -> Gid {
        let mut gid = NONE;
        let [.., ff0, ff1, _, _, _, last] = &mut gid;
        (*ff0, *ff1, *last) = (0xff, 0xff, n);
        gid
    }

    #[test]
    fn the_first_entry_stays() {
        let mut table = GidTable::new(eui64([2, 0, 0x5e, 0x10, 0, 7]));
        let own = [
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xff, 0xfe, 0x10, 0, 7,
        ];
        assert_eq!(table.get(0), own);
        assert!(!table.update(&[own]));
        assert_eq!(table.get(1), NONE);
        assert!(table.update(&[address(1)]));
        assert_eq!(table.get(0), own);
        assert_eq!(table.get(1), address(1));
        assert_eq!(table.get(u32::MAX), NONE);
    }

    #[test]
    fn names_and_addresses_are_told_apart() {
        let mut table = GidTable::new([1; 8]);
        let first = table.get(0);
        assert_eq!(table.standing(&first), Standing::NameOnly);
        assert_eq!(table.standing(&NONE), Standing::Foreign);
        assert!(table.update(&[first, address(1)]));
        assert_eq!(table.standing(&first), Standing::Address);
        assert_eq!(table.standing(&address(1)), Standing::Address);
        assert_eq!(table.standing(&address(2)), Standing::Foreign);
        assert!(table.set_id([2; 8]));
        assert!(!table.set_id([2; 8]));
        assert_eq!(table.standing(&first), Standing::Foreign);
        assert_eq!(table.standing(&table.get(0)), Standing::NameOnly);
        assert!(table.update(&[first, address(1)]));
        assert_eq!(table.standing(&first), Standing::Address);
    }

    #[test]
    fn hosts_have_one_address() {
        let mapped =
            |a, b, c, d| Ipv6Addr::from(core::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped());
        let ip = |addr: Ipv6Addr| ip_of(&addr.octets());
        assert!(ip(mapped(192, 0, 2, 1)).is_some_and(|ip| ip.is_ipv4()));
        assert!(ip(mapped(0, 0, 0, 0)).is_none());
        assert!(ip(mapped(224, 0, 0, 1)).is_none());
        assert!(ip(mapped(255, 255, 255, 255)).is_none());
        assert!(ip(Ipv6Addr::UNSPECIFIED).is_none());
        assert!(ip(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)).is_none());
        let host = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        assert!(ip(host) == Some(IpAddr::V6(host)));
    }

    #[test]
    fn addresses_keep_their_places() {
        let mut table = GidTable::new([1; 8]);
        assert!(table.update(&[address(1), address(2), address(3)]));
        assert!(!table.update(&[address(3), address(2), address(1)]));
        assert!(table.update(&[address(3), address(1)]));
        assert_eq!(table.get(1), address(1));
        assert_eq!(table.get(2), NONE);
        assert_eq!(table.get(3), address(3));
        assert!(table.update(&[address(4), address(3), address(1), address(4)]));
        assert_eq!(table.get(2), address(4));
        assert_eq!(table.get(4), NONE);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut table = GidTable::new([1; 8]);
        let many: [Gid; 2 * LEN] = core::array::from_fn(|i| address(i as u8 + 1));
        assert!(table.update(&many));
        assert_eq!(table.get(LEN as u32 - 1), address(LEN as u8 - 1));
        assert!(!table.update(&many));
        assert!(table.update(&[]));
        assert_eq!(table.get(1), NONE);
    }
}
