// SPDX-License-Identifier: GPL-2.0

//! The receive state machine of one stream.

use core::borrow::BorrowMut;

use super::{
    decision::{
        Decision,
        SendSegment,
        TaggedSegment, //
    },
    untagged::send_kind, //
};
use crate::ddp::{
    Header,
    TaggedHeader,
    TAGGED_LEN,
    UNTAGGED_LEN, //
};
use crate::ids::Msn;
use crate::mpa::startup::RtrKinds;
use crate::rdmap::terminate::{
    MpaError,
    RemoteOperation,
    TerminateReason, //
};
use crate::rdmap::{
    Opcode,
    SendKind, //
};
use crate::reads::{
    Inbound,
    Irq,
    Orq,
    Outstanding,
    Request, //
};

/// The receiver's part of the start-up's result.
///
/// The default is an initiator without the extensions of RFC 7306.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// This end answered the MPA Request.
    pub responder: bool,
    /// The RTR frames, one of which the initiator sends first; empty without peer-to-peer mode.
    pub rtr: RtrKinds,
    /// Immediate Data is accepted.
    pub immediate: bool,
    /// Atomics are accepted.
    pub atomics: bool,
}

/// The receive state machine of one stream: a [`Decision`] for each segment.
///
/// Its input is every FPDU with a valid CRC, in the order of the stream. The caller reports its own
/// errors, a wrong CRC or a refused access, with [`Receiver::fail`]: all later segments are
/// dropped.
///
/// ```
/// use iwarp_wire::{
///     mpa::startup::{RtrKind, RtrKinds},
///     reads::{Inbound, Irq, Orq, Outstanding},
///     rx::{Config, Decision, Receiver},
///     tx::{self, Msns},
/// };
///
/// let mut receiver = Receiver::new(Config {
///     responder: true,
///     rtr: RtrKinds::only(Some(RtrKind::Write)),
///     ..Config::default()
/// });
/// let mut orq = Orq::new([None::<Outstanding<()>>; 1], 1);
/// let mut irq = Irq::new([None::<Inbound>; 1], 1);
///
/// let rtr = tx::rtr(RtrKind::Write, &mut Msns::new());
/// assert!(!receiver.started());
/// assert_eq!(receiver.receive(&rtr, 14, &mut orq, &mut irq), Decision::Nothing);
/// assert!(receiver.started());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    /// The start-up's result.
    pub(super) config: Config,
    /// The state of the receiving direction.
    phase: Phase,
    /// The number of the next Send or Immediate Data, or of the Send in progress.
    pub(super) send_msn: Msn,
    /// The Send in progress; `None` between messages.
    pub(super) send: Option<SendInProgress>,
    /// The number of the next Read Request or Atomic Request.
    pub(super) request_msn: Msn,
    /// The number of the next Atomic Response.
    pub(super) response_msn: Msn,
}

/// A Send, some of whose segments were received.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendInProgress {
    /// Octets received.
    pub(super) received: u32,
    /// The variant of the Send, equal in all segments.
    pub(super) kind: SendKind,
}

/// The state of the receiving direction (RFC 5044 section 7.1.2, RFC 5040 section 4.8).
///
/// | state | event | next |
/// | --- | --- | --- |
/// | `Fresh` | a valid first FPDU | `Open` |
/// | `Fresh` | an FPDU in error, or another than the agreed RTR frame | `Closed` |
/// | `Fresh` | a Terminate | `Closed` |
/// | `Fresh` | [`Receiver::fail`] | `Closed` |
/// | `Open` | a valid FPDU | `Open` |
/// | `Open` | an FPDU in error | `Closed` |
/// | `Open` | a Terminate | `Closed` |
/// | `Open` | [`Receiver::fail`] | `Closed` |
/// | `Closed` | any FPDU | `Closed` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No FPDU was received.
    Fresh,
    /// A valid FPDU was received.
    Open,
    /// An error was found, or the peer terminated the stream.
    Closed,
}

/// The error of a message that is not permitted here.
pub(super) const UNEXPECTED: TerminateReason =
    TerminateReason::RemoteOperation(RemoteOperation::UnexpectedOpcode);

impl Receiver {
    /// Makes a receiver for the stream's first FPDU.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            phase: Phase::Fresh,
            send_msn: Msn::FIRST,
            send: None,
            request_msn: Msn::FIRST,
            response_msn: Msn::FIRST,
        }
    }

    /// Tells whether a valid first FPDU was received, which is the RTR frame if one was agreed
    /// on. From then on a responder may send (RFC 5044 section 7.1.2, RFC 6581 section 4.4).
    #[inline]
    #[must_use]
    pub fn started(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Tells whether segments are dropped, after an error or Terminate.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Reports an error found by the caller: all further segments are [`Decision::Dropped`].
    #[inline]
    pub fn fail(&mut self) {
        self.phase = Phase::Closed;
    }

    /// Decides on the next segment.
    ///
    /// `head` is the front of the ULPDU: [`HEAD_LEN`](super::HEAD_LEN) octets, or all of it.
    /// `ulpdu_len` is the ULPDU's length in octets. `orq` and `irq` are the stream's read queues:
    /// responses are matched with the one, requests are appended to the other.
    #[inline]
    pub fn receive<T, O, I>(
        &mut self,
        head: &[u8],
        ulpdu_len: u16,
        orq: &mut Orq<T, O>,
        irq: &mut Irq<I>,
    ) -> Decision
    where
        T: Copy,
        O: BorrowMut<[Option<Outstanding<T>>]>,
        I: BorrowMut<[Option<Inbound>]>,
    {
        let decided = match self.phase {
            Phase::Open => self.segment(head, ulpdu_len, orq, irq),
            Phase::Fresh => self.first(head, ulpdu_len, orq, irq),
            Phase::Closed => return Decision::Dropped,
        };
        self.note(decided)
    }

    /// Decides on the next segment, if the stream has started and the segment carries data: that of
    /// a Write, a Read Response or a Send. Otherwise the result is `None`, no state has changed,
    /// and the caller calls [`Receiver::receive`].
    ///
    /// Arguments and decision are those of [`Receiver::receive`]. A caller on a hot path calls this
    /// function first and executes its decision there, from registers.
    // Inlined: a call returns the decision through memory. Fields stored one by one and loaded in
    // other widths defeat store forwarding and stall behind the payload copy.
    #[inline(always)]
    pub fn receive_data<T, O>(
        &mut self,
        head: &[u8],
        ulpdu_len: u16,
        orq: &mut Orq<T, O>,
    ) -> Option<Decision>
    where
        T: Copy,
        O: BorrowMut<[Option<Outstanding<T>>]>,
    {
        if self.phase != Phase::Open {
            return None;
        }
        let head = head.get(..usize::from(ulpdu_len)).unwrap_or(head);
        let decided = match Header::parse(head).ok()? {
            Header::Tagged(header) => {
                payload_len(ulpdu_len, TAGGED_LEN).and_then(|len| tagged(&header, len, orq))
            }
            Header::Untagged(header) => {
                let kind = send_kind(&header)?;
                payload_len(ulpdu_len, UNTAGGED_LEN).and_then(|len| self.send(kind, &header, len))
            }
        };
        Some(self.note(decided))
    }

    /// Changes the state as the decision requires.
    #[inline(always)]
    fn note(&mut self, decided: Result<Decision, TerminateReason>) -> Decision {
        let decision = decided.unwrap_or_else(Decision::Fail);
        self.phase = match decision {
            Decision::Terminated(_) | Decision::Fail(_) => Phase::Closed,
            _ => Phase::Open,
        };
        decision
    }

    /// Decides on the first FPDU: in peer-to-peer mode one of the agreed RTR frames.
    ///
    /// The zero-length FULPDU of RFC 6581 section 9 has two readings, and both are accepted: a
    /// ULPDU of no octets, and a Send of no octets. Such a Send is numbered but takes no receive
    /// buffer: RTR frames complete nothing at the upper layer (section 5).
    #[cold]
    #[inline(never)]
    fn first<T, O, I>(
        &mut self,
        head: &[u8],
        ulpdu_len: u16,
        orq: &mut Orq<T, O>,
        irq: &mut Irq<I>,
    ) -> Result<Decision, TerminateReason>
    where
        T: Copy,
        O: BorrowMut<[Option<Outstanding<T>>]>,
        I: BorrowMut<[Option<Inbound>]>,
    {
        let agreed = if self.config.responder {
            self.config.rtr
        } else {
            RtrKinds::NONE
        };
        let any = agreed == RtrKinds::NONE;
        // The zero-length FULPDU: without peer-to-peer mode it is accepted from every initiator.
        if ulpdu_len == 0 && self.config.responder {
            return if any || agreed.fpdu {
                Ok(Decision::Nothing)
            } else {
                Err(TerminateReason::Mpa(MpaError::NoMatchingRtr))
            };
        }
        let decision = self.segment(head, ulpdu_len, orq, irq)?;
        match decision {
            Decision::Terminated(_) => Ok(decision),
            _ if any => Ok(decision),
            Decision::Nothing if agreed.write => Ok(decision),
            Decision::Send(SendSegment {
                len: 0,
                last: true,
                invalidate: None,
                ..
            }) if agreed.fpdu => Ok(Decision::Nothing),
            Decision::ReadRequest if agreed.read => match irq.head().map(Inbound::request) {
                Some(Request::Read(request)) if request.size == 0 => Ok(decision),
                _ => Err(TerminateReason::Mpa(MpaError::NoMatchingRtr)),
            },
            _ => Err(TerminateReason::Mpa(MpaError::NoMatchingRtr)),
        }
    }

    /// Decides on a segment in any phase.
    #[inline(always)]
    fn segment<T, O, I>(
        &mut self,
        head: &[u8],
        ulpdu_len: u16,
        orq: &mut Orq<T, O>,
        irq: &mut Irq<I>,
    ) -> Result<Decision, TerminateReason>
    where
        T: Copy,
        O: BorrowMut<[Option<Outstanding<T>>]>,
        I: BorrowMut<[Option<Inbound>]>,
    {
        // Octets after the ULPDU are ignored.
        let head = head.get(..usize::from(ulpdu_len)).unwrap_or(head);
        match Header::parse(head)? {
            Header::Tagged(header) => {
                let len = payload_len(ulpdu_len, TAGGED_LEN)?;
                tagged(&header, len, orq)
            }
            Header::Untagged(header) => {
                let len = payload_len(ulpdu_len, UNTAGGED_LEN)?;
                let message = head.get(UNTAGGED_LEN..).unwrap_or(&[]);
                self.untagged(&header, len, message, orq, irq)
            }
        }
    }
}

/// Octets after a header of `header_len` octets.
#[inline]
fn payload_len(ulpdu_len: u16, header_len: usize) -> Result<u32, TerminateReason> {
    u32::try_from(header_len)
        .ok()
        .and_then(|header_len| u32::from(ulpdu_len).checked_sub(header_len))
        .ok_or(TerminateReason::Mpa(MpaError::Marker))
}

/// Decides on a tagged segment with `len` octets of payload.
#[inline]
fn tagged<T, O>(
    header: &TaggedHeader,
    len: u32,
    orq: &mut Orq<T, O>,
) -> Result<Decision, TerminateReason>
where
    T: Copy,
    O: BorrowMut<[Option<Outstanding<T>>]>,
{
    match Opcode::parse(header.ulp)? {
        // Without payload no buffer is accessed.
        Opcode::Write if len == 0 => Ok(Decision::Nothing),
        Opcode::Write => Ok(Decision::Write(TaggedSegment {
            stag: header.stag,
            to: header.to,
            len,
            last: header.last,
        })),
        Opcode::ReadResponse => orq.response(header, len).map(Decision::ReadResponse),
        _ => Err(UNEXPECTED),
    }
}
