// SPDX-License-Identifier: GPL-2.0

//! What two ends agree on during start-up (RFC 5044 section 7.1, RFC 6581 section 9).
//!
//! CRCs are used when either end wants them. Markers are asked for by whoever receives them, each
//! direction for itself. IRD and ORD, the depths of the Read queues, are agreed on by revision 2:
//! nobody's ORD may exceed the other's IRD. In peer-to-peer mode the responder names the RTR frames
//! that suit both ends, and the initiator picks the one that it sends first.

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

/// What one end wants and can do.
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
    /// CRCs are wanted; off only where an administrator says so.
    pub crc: bool,
    /// Markers are wanted in what this end receives.
    pub markers: bool,
    /// Read Requests this end is ready to hold.
    pub ird: u16,
    /// Read Requests this end wants to have outstanding.
    pub ord: u16,
    /// What `ird` can be raised to when the peer wants more.
    pub max_ird: u16,
    /// Peer-to-peer mode is asked for; a responder grants it whenever it is asked for.
    pub peer_to_peer: bool,
    /// The RTR frames this end can send as initiator or understands as responder.
    pub rtr: RtrKinds,
}

/// What both ends agreed on, as one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The revision spoken.
    pub revision: Revision,
    /// CRCs are generated and verified, in both directions.
    pub crc: bool,
    /// The peer inserts markers.
    pub rx_markers: bool,
    /// This end inserts markers.
    pub tx_markers: bool,
    /// Read Requests the peer may have outstanding here; 0 is legal.
    pub ird: u16,
    /// Read Requests this end may have outstanding; 0 is legal.
    pub ord: u16,
    /// The RTR frames: at the initiator the one that it sends before anything else, at the
    /// responder those of which one comes. Empty without peer-to-peer mode.
    pub rtr: RtrKinds,
}

/// Why an initiator cannot go on with a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer refused the connection (R).
    Rejected,
    /// The Reply is of another revision than the Request. A new connection may try the Reply's
    /// (RFC 6581 section 4.1).
    Revision,
    /// The peer's ORD is more than this end can hold.
    InsufficientIrd,
    /// Peer-to-peer mode was asked for and no RTR frame suits both ends.
    NoMatchingRtr,
}

impl Refusal {
    /// The Terminate to send before the connection is closed.
    pub fn terminate(self) -> Option<TerminateReason> {
        match self {
            Self::Rejected | Self::Revision => None,
            Self::InsufficientIrd => Some(TerminateReason::Mpa(MpaError::InsufficientIrd)),
            Self::NoMatchingRtr => Some(TerminateReason::Mpa(MpaError::NoMatchingRtr)),
        }
    }
}

impl Policy {
    /// The Request of an initiator.
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

    /// The Reply of a responder that accepts `request`, and what is agreed on.
    ///
    /// The Reply names every offered RTR frame that this end understands. Where it understands
    /// none, the Reply names those that it does understand: an initiator that can send none of
    /// them answers with a Terminate ("no matching RTR", RFC 6581 section 9.2).
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
                // The Read needs a place, whether or not the upper layer reads (section 9.1).
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

    /// The Reply of a responder that refuses `request`.
    pub fn reject<'a>(&self, request: &Frame<'_>, private_data: &'a [u8]) -> Frame<'a> {
        let (reply, _) = self.accept(request, private_data);
        Frame {
            rejected: true,
            ..reply
        }
    }

    /// What an initiator that sent [`Policy::request`] makes of the Reply.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
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
            // Without A the other flags mean nothing (section 9.2).
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

    /// The RTR frames an initiator offers: those it can send, but not the zero-length FPDU, which
    /// some peers take for a Send that lacks its receive.
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

/// What a Reply says of a depth: `depth`, or that it is left to the upper layer if the Request said
/// so of `counterpart`, the depth of the initiator that it faces (RFC 6581 section 9.1).
fn in_kind(counterpart: Depth, depth: u16) -> Depth {
    match counterpart.get() {
        Some(_) => Depth::new(depth),
        None => Depth::UNNEGOTIATED,
    }
}
