// SPDX-License-Identifier: GPL-2.0

//! Negotiation during start-up (RFC 5044 section 7.1, RFC 6581 section 9).
//!
//! - CRCs are used if either end requests them.
//! - Markers are negotiated for each direction: the receiving end requests them.
//! - Revision 2 negotiates IRD and ORD, the depths of the read queues. The ORD of an end may not
//!   exceed the IRD of its peer.
//! - In peer-to-peer mode the responder names the RTR frames that suit both ends. The initiator
//!   sends one of them before anything else.
//!
//! [`Policy`] holds no state. The sequence of the frames is the table of
//! [`StartupState`](crate::stream::StartupState).

use core::error::Error;
use core::fmt;

use super::startup::{
    Depth,
    Enhanced,
    Frame,
    FrameKind,
    Revision,
    RtrKinds, //
};
use crate::rdmap::terminate::{
    MpaError,
    TerminateReason, //
};

/// The policy of one end: the parameters that it requests, and its limits.
///
/// ```
/// use iwarp_wire::mpa::{negotiate::Policy, startup::{Revision, RtrKind, RtrKinds}};
///
/// let policy = Policy {
///     revision: Revision::Two,
///     crc: true,
///     markers: false,
///     ird: 16,
///     ord: 8,
///     max_ird: 128,
///     peer_to_peer: true,
///     rtr: RtrKinds { fpdu: false, write: true, read: true },
/// };
/// let request = policy.request(b"hello");
/// let (reply, responder) = policy.accept(&request, b"");
/// let initiator = policy.conclude(&reply).expect("they suit each other");
/// assert_eq!((initiator.ord, responder.ird), (8, 16));
/// assert_eq!(initiator.rtr.preferred(), Some(RtrKind::Write));
/// assert_eq!(initiator.rtr.intersection(responder.rtr), initiator.rtr);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The revision to request; a responder answers with the requester's.
    pub revision: Revision,
    /// This end requests CRCs; off only by an administrator's setting (RFC 5044 section 4.4).
    pub crc: bool,
    /// This end requests markers in the direction that it receives.
    pub markers: bool,
    /// Read Requests of the peer that this end offers to hold; 0 to 16382.
    pub ird: u16,
    /// The ORD that this end requests: its own outstanding Read Requests; 0 to 16382.
    pub ord: u16,
    /// The limit to which `ird` is raised where the peer's ORD is greater.
    pub max_ird: u16,
    /// An initiator requests peer-to-peer mode; a responder always grants it.
    pub peer_to_peer: bool,
    /// The RTR frames that this end can send as initiator, or accepts as responder.
    pub rtr: RtrKinds,
}

impl Default for Policy {
    /// Revision 2 with CRCs, every RTR frame, without markers and without peer-to-peer mode. 16
    /// Read Requests in each direction, up to 128 inbound if the peer requests more.
    #[inline]
    fn default() -> Self {
        Self {
            revision: Revision::Two,
            crc: true,
            markers: false,
            ird: 16,
            ord: 16,
            max_ird: 128,
            peer_to_peer: false,
            rtr: RtrKinds::ALL,
        }
    }
}

/// The result of the negotiation for one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The revision of both frames.
    pub revision: Revision,
    /// CRCs are generated and verified, in both directions.
    pub crc: bool,
    /// The peer inserts markers.
    pub rx_markers: bool,
    /// This end inserts markers.
    pub tx_markers: bool,
    /// Read Requests that the peer may have outstanding; 0 is legal.
    pub ird: u16,
    /// Read Requests that this end may have outstanding; 0 is legal.
    pub ord: u16,
    /// At the initiator the RTR frame that it sends before anything else; at the responder the
    /// frames, one of which arrives first. Empty without peer-to-peer mode.
    pub rtr: RtrKinds,
}

/// The reason why an initiator refuses a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer rejected the connection (R).
    Rejected,
    /// The Reply's revision differs from the Request's. A new connection may use the Reply's
    /// (RFC 6581 section 4.1).
    Revision,
    /// The peer's ORD is more than this end can hold.
    InsufficientIrd,
    /// Peer-to-peer mode was requested, and no RTR frame suits both ends.
    NoMatchingRtr,
}

impl Refusal {
    /// The reason of the Terminate to send before the connection is closed; `None` if none is sent.
    #[must_use]
    pub fn terminate(self) -> Option<TerminateReason> {
        match self {
            Self::Rejected | Self::Revision => None,
            Self::InsufficientIrd => Some(TerminateReason::Mpa(MpaError::InsufficientIrd)),
            Self::NoMatchingRtr => Some(TerminateReason::Mpa(MpaError::NoMatchingRtr)),
        }
    }
}

impl fmt::Display for Refusal {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rejected => "the peer rejected the connection",
            Self::Revision => "the Reply is of another MPA revision than the Request",
            Self::InsufficientIrd => "the peer's ORD exceeds this end's IRD",
            Self::NoMatchingRtr => "no RTR frame suits both ends",
        })
    }
}

impl Error for Refusal {}

impl Policy {
    /// The Request of an initiator.
    #[must_use]
    pub fn request<'a>(&self, private_data: &'a [u8]) -> Frame<'a> {
        Frame {
            kind: FrameKind::Request,
            revision: self.revision,
            markers: self.markers,
            crc: self.crc,
            rejected: false,
            enhanced: match self.revision {
                Revision::One => None,
                Revision::Two => Some(Enhanced {
                    peer_to_peer: self.peer_to_peer,
                    rtr: self.offer(),
                    ird: Depth::new(self.ird),
                    ord: Depth::new(self.ord),
                }),
            },
            private_data,
        }
    }

    /// The Reply of a responder that accepts `request`, and the result.
    ///
    /// The Reply names every offered RTR frame that this end accepts. Where it accepts none of
    /// those, the Reply names the frames that it accepts. An initiator that can send none of them
    /// answers with a Terminate ("no matching RTR", RFC 6581 section 9.2).
    #[must_use]
    pub fn accept<'a>(
        &self,
        request: &Frame<'_>,
        private_data: &'a [u8],
    ) -> (Frame<'a>, Parameters) {
        let asked = match request.revision {
            Revision::One => None,
            Revision::Two => request.enhanced,
        };
        let crc = self.crc || request.crc;
        let (mut ird, mut ord) = (self.ird, self.ord);
        let mut rtr = RtrKinds::NONE;
        if let Some(asked) = asked {
            if let Some(wanted) = asked.ord.get() {
                ird = ird.max(wanted.min(self.max_ird));
            }
            if let Some(limit) = asked.ird.get() {
                ord = ord.min(limit);
            }
            if asked.peer_to_peer {
                // The RTR Read takes an entry of the inbound read queue (section 9.1).
                if asked.rtr.read && self.rtr.read && asked.ord.get().is_some() {
                    ird = ird.max(self.max_ird.min(1));
                }
                let held = RtrKinds {
                    read: self.rtr.read && ird > 0,
                    ..self.rtr
                };
                let suits_both = asked.rtr.intersection(held);
                rtr = [suits_both, held, self.rtr]
                    .into_iter()
                    .find(|kinds| *kinds != RtrKinds::NONE)
                    .unwrap_or_default();
            }
        }
        let reply = Frame {
            kind: FrameKind::Reply,
            revision: request.revision,
            markers: self.markers,
            crc,
            rejected: false,
            enhanced: asked.map(|asked| Enhanced {
                peer_to_peer: asked.peer_to_peer,
                rtr,
                ird: in_kind(asked.ord, ird),
                ord: in_kind(asked.ird, ord),
            }),
            private_data,
        };
        let parameters = Parameters {
            revision: request.revision,
            crc,
            rx_markers: self.markers,
            tx_markers: request.markers,
            ird,
            ord,
            rtr,
        };
        (reply, parameters)
    }

    /// The Reply of a responder that rejects `request`.
    #[must_use]
    pub fn reject<'a>(&self, request: &Frame<'_>, private_data: &'a [u8]) -> Frame<'a> {
        let (reply, _) = self.accept(request, private_data);
        Frame {
            rejected: true,
            ..reply
        }
    }

    /// The result at an initiator, which sent [`Policy::request`].
    ///
    /// # Errors
    ///
    /// [`Refusal`]: the caller closes the connection, after its [`Refusal::terminate`] if any.
    pub fn conclude(&self, reply: &Frame<'_>) -> Result<Parameters, Refusal> {
        if reply.rejected {
            return Err(Refusal::Rejected);
        }
        if reply.revision != self.revision {
            return Err(Refusal::Revision);
        }
        let said = match reply.revision {
            Revision::One => None,
            Revision::Two => reply.enhanced,
        };
        let (mut ird, mut ord) = (self.ird, self.ord);
        if let Some(said) = said {
            if let Some(limit) = said.ird.get() {
                ord = ord.min(limit);
            }
            match said.ord.get() {
                Some(wanted) if wanted > ird.max(self.max_ird) => {
                    return Err(Refusal::InsufficientIrd)
                }
                Some(wanted) => ird = ird.max(wanted),
                None => {}
            }
        }
        let mut rtr = RtrKinds::NONE;
        if self.revision == Revision::Two && self.peer_to_peer {
            // Without A the other flags are void (section 9.2).
            let named = said
                .filter(|said| said.peer_to_peer)
                .map_or(RtrKinds::NONE, |said| said.rtr);
            let mut usable = named.intersection(self.offer());
            usable.read &= ord > 0;
            let picked = usable.preferred().ok_or(Refusal::NoMatchingRtr)?;
            rtr = RtrKinds::only(Some(picked));
        }
        Ok(Parameters {
            revision: reply.revision,
            crc: self.crc || reply.crc,
            rx_markers: self.markers,
            tx_markers: reply.markers,
            ird,
            ord,
            rtr,
        })
    }

    /// The RTR frames that an initiator offers: all that it can send except the zero-length FPDU.
    /// Some peers process that FPDU as a Send, which requires a receive buffer.
    fn offer(&self) -> RtrKinds {
        if !self.peer_to_peer {
            return RtrKinds::NONE;
        }
        RtrKinds {
            fpdu: false,
            write: self.rtr.write,
            read: self.rtr.read && self.ord > 0,
        }
    }
}

/// A Reply's depth: `depth`, or "not negotiated" if the Request's `counterpart` is not negotiated
/// (RFC 6581 section 9.1).
fn in_kind(counterpart: Depth, depth: u16) -> Depth {
    match counterpart.get() {
        Some(_) => Depth::new(depth),
        None => Depth::UNNEGOTIATED,
    }
}
