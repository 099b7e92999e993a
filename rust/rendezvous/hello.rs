// SPDX-License-Identifier: GPL-2.0

//! The private data of the MPA start-up (docs/rendezvous.md, section "Hello").

/// Octets of a hello.
pub(super) const LEN: usize = 24;

/// The first octets.
const MAGIC: [u8; 4] = *b"QPQP";

/// The version of the protocol of docs/rendezvous.md.
const VERSION: u8 = 1;

/// The sender's packet sequence number is present.
const FLAG_PSN: u8 = 0x01;

/// The two ends are on one host and have no addresses.
const FLAG_LOCAL: u8 = 0x02;

/// The largest queue pair number, and the largest packet sequence number.
const MAX: u32 = 0x00ff_ffff;

/// A hello: sender, addressee, and their packet sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The sender's queue pair.
    pub(super) from: u32,
    /// The addressed queue pair.
    pub(super) to: u32,
    /// The sender's first packet sequence number, if known yet.
    pub(super) psn: Option<u32>,
    /// The packet sequence number that the sender expects of the addressee.
    pub(super) expects: u32,
    /// The two ends are on one host and have no addresses.
    pub(super) local: bool,
}

impl Hello {
    /// Encodes the hello.
    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut flags = 0;
        if self.psn.is_some() {
            flags |= FLAG_PSN;
        }
        if self.local {
            flags |= FLAG_LOCAL;
        }
        let [m0, m1, m2, m3] = MAGIC;
        let [a0, a1, a2, a3] = self.from.to_be_bytes();
        let [b0, b1, b2, b3] = self.to.to_be_bytes();
        let [c0, c1, c2, c3] = self.psn.unwrap_or(0).to_be_bytes();
        let [d0, d1, d2, d3] = self.expects.to_be_bytes();
        [
            m0, m1, m2, m3, VERSION, flags, 0, 0, // head
            a0, a1, a2, a3, b0, b1, b2, b3, // queue pairs
            c0, c1, c2, c3, d0, d1, d2, d3, // packet sequence numbers
        ]
    }

    /// Decodes a hello; `None` if the octets are not a hello of this version.
    pub(super) fn parse(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; LEN] = octets.try_into().ok()?;
        let &[
            m0, m1, m2, m3, version, flags, r0, r1, // head
            a0, a1, a2, a3, b0, b1, b2, b3, // queue pairs
            c0, c1, c2, c3, d0, d1, d2, d3, // packet sequence numbers
        ] = octets;
        let known = FLAG_PSN | FLAG_LOCAL;
        if [m0, m1, m2, m3] != MAGIC || version != VERSION || flags & !known != 0 || r0 | r1 != 0 {
            return None;
        }
        let psn = u32::from_be_bytes([c0, c1, c2, c3]);
        let hello = Self {
            from: u32::from_be_bytes([a0, a1, a2, a3]),
            to: u32::from_be_bytes([b0, b1, b2, b3]),
            psn: (flags & FLAG_PSN != 0).then_some(psn),
            expects: u32::from_be_bytes([d0, d1, d2, d3]),
            local: flags & FLAG_LOCAL != 0,
        };
        let fits = hello.from <= MAX && hello.to <= MAX && psn <= MAX && hello.expects <= MAX;
        let tidy = hello.psn.is_some() || psn == 0;
        (fits && tidy).then_some(hello)
    }
}

#[kernel::prelude::kunit_tests(rsiw_rendezvous_hello)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        from: 0x01_0203,
        to: 0xff_ffff,
        psn: Some(0x0a_0b0c),
        expects: 7,
        local: true,
    };

    #[test]
    fn survives_the_wire() {
        for psn in [None, Some(0), HELLO.psn] {
            for local in [false, true] {
                let hello = Hello {
                    psn,
                    local,
                    ..HELLO
                };
                assert!(Hello::parse(&hello.encode()) == Some(hello));
            }
        }
    }

    #[test]
    fn lies_as_documented() {
        let octets = [
            b'Q', b'P', b'Q', b'P', 1, 3, 0, 0, 0, 1, 2, 3, 0, 0xff, 0xff, 0xff, 0, 10, 11, 12, 0,
            0, 0, 7,
        ];
        assert_eq!(HELLO.encode(), octets);
    }

    #[test]
    fn anything_else_is_refused() {
        let good = HELLO.encode();
        // Every octet but those of numbers is fixed, and the first of each number is 0.
        for at in [0, 1, 2, 3, 4, 6, 7, 8, 12, 16, 20] {
            let mut bad = good;
            if let Some(octet) = bad.get_mut(at) {
                *octet = octet.wrapping_add(1);
            }
            assert!(Hello::parse(&bad).is_none());
        }
        for flag in [0x04, 0x08, 0x10, 0x20, 0x40, 0x80] {
            let mut bad = good;
            let [_, _, _, _, _, flags, ..] = &mut bad;
            *flags |= flag;
            assert!(Hello::parse(&bad).is_none());
        }
        // A number whose flag says that it is absent.
        let mut bad = good;
        let [_, _, _, _, _, flags, ..] = &mut bad;
        *flags &= !FLAG_PSN;
        assert!(Hello::parse(&bad).is_none());
        assert!(Hello::parse(&[]).is_none());
        assert!(Hello::parse(good.get(1..).unwrap_or_default()).is_none());
    }
}
