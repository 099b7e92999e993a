// SPDX-License-Identifier: GPL-2.0

//! The enhanced word of revision 2 (RFC 6581 sections 5 and 9).
//!
//! `A B IRD(14) | C D ORD(14)`: A stands for peer-to-peer mode. B, C and D name RTR frames: a
//! zero-length FPDU, a zero-length RDMA Write, a zero-length RDMA Read.

/// Octets of the enhanced word.
pub(super) const LEN: usize = 4;

const FLAG_HIGH: u16 = 0x8000;
const FLAG_LOW: u16 = 0x4000;
const DEPTH_MASK: u16 = 0x3fff;

/// An IRD or ORD on the wire: 0 to 0x3ffe, or "not negotiated", which is 0x3fff.
///
/// ```
/// use iwarp_wire::mpa::startup::Depth;
///
/// assert_eq!(Depth::new(16).get(), Some(16));
/// assert_eq!(Depth::new(65535).get(), Some(0x3ffe));
/// assert_eq!(Depth::UNNEGOTIATED.get(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(u16);

impl Depth {
    /// Not negotiated: the value is left to the upper layer.
    pub const UNNEGOTIATED: Self = Self(DEPTH_MASK);

    /// Makes a depth of a number of Read Requests; 0x3ffe if that is exceeded.
    #[inline]
    #[must_use]
    pub const fn new(depth: u16) -> Self {
        if depth < DEPTH_MASK {
            Self(depth)
        } else {
            Self(DEPTH_MASK - 1)
        }
    }

    /// The number of Read Requests; `None` if it is not negotiated.
    #[inline]
    #[must_use]
    pub const fn get(self) -> Option<u16> {
        match self.0 {
            DEPTH_MASK => None,
            depth => Some(depth),
        }
    }
}

/// IRD and ORD of one end, in Read Requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Read Requests of the peer that this end can hold.
    pub ird: u16,
    /// The ORD that this end requests: its own outstanding Read Requests.
    pub ord: u16,
}

/// A ready-to-receive frame: the initiator's first FPDU, after which the responder may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtrKind {
    /// An FPDU with a ULPDU of no octets (bit B).
    Fpdu,
    /// A zero-length RDMA Write (bit C).
    Write,
    /// A zero-length RDMA Read (bit D).
    Read,
}

/// A set of RTR frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrKinds {
    /// The set contains [`RtrKind::Fpdu`].
    pub fpdu: bool,
    /// The set contains [`RtrKind::Write`].
    pub write: bool,
    /// The set contains [`RtrKind::Read`].
    pub read: bool,
}

impl RtrKinds {
    /// The empty set.
    pub const NONE: Self = Self {
        fpdu: false,
        write: false,
        read: false,
    };

    /// Every RTR frame.
    pub const ALL: Self = Self {
        fpdu: true,
        write: true,
        read: true,
    };

    /// The set of `kind` alone; the empty set if there is none.
    #[inline]
    #[must_use]
    pub const fn only(kind: Option<RtrKind>) -> Self {
        Self {
            fpdu: matches!(kind, Some(RtrKind::Fpdu)),
            write: matches!(kind, Some(RtrKind::Write)),
            read: matches!(kind, Some(RtrKind::Read)),
        }
    }

    /// Tells whether `kind` is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, kind: RtrKind) -> bool {
        match kind {
            RtrKind::Fpdu => self.fpdu,
            RtrKind::Write => self.write,
            RtrKind::Read => self.read,
        }
    }

    /// The frames that are in both sets.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self {
            fpdu: self.fpdu && other.fpdu,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// The preferred frame of the set: Write, then Read, then FPDU; `None` for the empty set.
    ///
    /// A Write needs no resource of either end. A Read needs an entry of both read queues. Some
    /// peers process the zero-length FPDU as a Send.
    #[inline]
    #[must_use]
    pub const fn preferred(self) -> Option<RtrKind> {
        match self {
            Self { write: true, .. } => Some(RtrKind::Write),
            Self { read: true, .. } => Some(RtrKind::Read),
            Self { fpdu: true, .. } => Some(RtrKind::Fpdu),
            _ => None,
        }
    }
}

/// The enhanced word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// Peer-to-peer mode is requested in a Request, granted in a Reply (bit A).
    pub peer_to_peer: bool,
    /// The RTR frames offered in a Request, accepted in a Reply.
    pub rtr: RtrKinds,
    /// The IRD of the frame's sender.
    pub ird: Depth,
    /// The ORD of the frame's sender.
    pub ord: Depth,
}

impl Enhanced {
    /// Reads the word.
    pub(super) fn decode(word: [u8; LEN]) -> Self {
        let [i0, i1, o0, o1] = word;
        let (ird, ord) = (u16::from_be_bytes([i0, i1]), u16::from_be_bytes([o0, o1]));
        Self {
            peer_to_peer: ird & FLAG_HIGH != 0,
            rtr: RtrKinds {
                fpdu: ird & FLAG_LOW != 0,
                write: ord & FLAG_HIGH != 0,
                read: ord & FLAG_LOW != 0,
            },
            ird: Depth(ird & DEPTH_MASK),
            ord: Depth(ord & DEPTH_MASK),
        }
    }

    /// Writes the word.
    pub(super) fn encode(self) -> [u8; LEN] {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let ird = self.ird.0 | flag(self.peer_to_peer, FLAG_HIGH) | flag(self.rtr.fpdu, FLAG_LOW);
        let ord = self.ord.0 | flag(self.rtr.write, FLAG_HIGH) | flag(self.rtr.read, FLAG_LOW);
        let ([i0, i1], [o0, o1]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [i0, i1, o0, o1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each bit of the word is decoded and encoded.
    #[test]
    fn every_word_survives() {
        for high in (0..=u16::MAX).step_by(257) {
            for low in (0..=u16::MAX).step_by(509) {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                assert_eq!(Enhanced::decode([a, b, c, d]).encode(), [a, b, c, d]);
            }
        }
        let word = Enhanced::decode([0x80, 0x10, 0xc0, 0x11]);
        assert!(word.peer_to_peer && word.rtr.write && word.rtr.read && !word.rtr.fpdu);
        assert_eq!((word.ird.get(), word.ord.get()), (Some(16), Some(17)));
        assert!(Enhanced::decode([0x40, 0, 0, 0]).rtr.fpdu);
    }

    #[test]
    fn sets_of_rtr_frames() {
        for kind in [RtrKind::Fpdu, RtrKind::Write, RtrKind::Read] {
            let only = RtrKinds::only(Some(kind));
            for other in [RtrKind::Fpdu, RtrKind::Write, RtrKind::Read] {
                assert_eq!(only.contains(other), other == kind);
            }
            assert_eq!(only.preferred(), Some(kind));
            assert_eq!(only.intersection(RtrKinds::ALL), only);
            assert_eq!(only.intersection(RtrKinds::NONE).preferred(), None);
        }
        assert_eq!(RtrKinds::ALL.preferred(), Some(RtrKind::Write));
        assert_eq!(RtrKinds::only(None), RtrKinds::NONE);
    }
}
