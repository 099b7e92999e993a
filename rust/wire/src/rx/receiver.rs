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

/// What the start-up left for the receiver to know.
///
/// The default is an initiator, without the extensions of RFC 7306.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// This end answered the MPA Request.
    pub responder: bool,
    /// The RTR frames of which the initiator is to send one first; empty without peer-to-peer mode.
    pub rtr: RtrKinds,
    /// Immediate Data is understood.
    pub immediate: bool,
    /// Atomics are understood.
    pub atomics: bool,
}

/// Decides what to do with each segment of one stream.
///
/// It is to be fed with every FPDU in the order of the stream, after its CRC was verified and
/// nothing else: an error found elsewhere, a bad CRC or a refused access, is to be noted with
/// [`Receiver::fail`], so that nothing behind it is taken for good.
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
    /// What the start-up left.
    pub(super) config: Config,
    /// Where the stream stands.
    phase: Phase,
    /// The number of the Send or Immediate Data that is expected, or of the Send under way.
    pub(super) send_msn: Msn,
    /// Octets of the Send under way that came; `None` between messages.
    pub(super) send: Option<SendInProgress>,
    /// The number of the Read Request or Atomic Request that is expected.
    pub(super) request_msn: Msn,
    /// The number of the Atomic Response that is expected.
    pub(super) response_msn: Msn,
}

/// A Send of which not all segments came.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendInProgress {
    /// Octets that came.
    pub(super) received: u32,
    /// Its variant, the same in all segments.
    pub(super) kind: SendKind,
}

/// Where the stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing came yet.
    Fresh,
    /// A valid FPDU came.
    Open,
    /// An error was found, or the peer terminated the stream.
    Closed,
}

/// The message does not belong here.
pub(super) const UNEXPECTED: TerminateReason =
    TerminateReason::RemoteOperation(RemoteOperation::UnexpectedOpcode);

impl Receiver {
    /// Starts with the first FPDU of the stream.
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

    /// A valid FPDU came, and the RTR frame if there was to be one: a responder may send from now
    /// on (RFC 5044 section 7.1.2, RFC 6581 section 4.4).
    #[inline]
    pub fn started(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Nothing more is taken, after an error or a Terminate.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Notes an error that was found elsewhere: all that follows is [`Decision::Dropped`].
    #[inline]
    pub fn fail(&mut self) {
        self.phase = Phase::Closed;
    }

    /// Takes the next segment and decides.
    ///
    /// `head` is the front of the ULPDU: [`HEAD_LEN`](super::HEAD_LEN) octets, or all of it if it
    /// is shorter. `ulpdu_len` is its length in octets. `orq` and `irq` are the stream's read
    /// queues; Read Responses are matched with the one and requests appended to the other.
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

    /// Takes the next segment and decides, if the stream has started and the segment is one that
    /// carries data: of a Write, a Read Response or a Send. Otherwise nothing was done, and
    /// [`Receiver::receive`] is to be asked.
    ///
    /// The arguments are those of [`Receiver::receive`], which decides the same way. Whoever asks
    /// this first, and carries out either decision where it was made, has the more frequent one in
    /// registers.
    // As a call, it would have to leave its decision in memory, and what is stored field by field
    // and read in other pieces waits until all that was copied before has reached the cache.
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

    /// Notes what a decision means for the segments to come.
    #[inline(always)]
    fn note(&mut self, decided: Result<Decision, TerminateReason>) -> Decision {
        let decision = decided.unwrap_or_else(Decision::Fail);
        self.phase = match decision {
            Decision::Terminated(_) | Decision::Fail(_) => Phase::Closed,
            _ => Phase::Open,
        };
        decision
    }

    /// The first FPDU: in peer-to-peer mode it is one of the RTR frames that were agreed on.
    ///
    /// The zero-length FULPDU of RFC 6581 section 9 has two readings, and both are taken: a ULPDU
    /// of no octets, and a Send of none. Such a Send has its number but no receive: RTR frames are
    /// signalled below the upper layer, not by a completion (section 6).
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
        // An FPDU of no octets is taken from any initiator, as its first one.
        if ulpdu_len == 0 && self.config.responder && (any || agreed.fpdu) {
            return Ok(Decision::Nothing);
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

    /// Any segment.
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
        // What is behind the ULPDU is none of it.
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

/// Octets behind a header of `header_len` octets.
#[inline]
fn payload_len(ulpdu_len: u16, header_len: usize) -> Result<u32, TerminateReason> {
    u32::try_from(header_len)
        .ok()
        .and_then(|header_len| u32::from(ulpdu_len).checked_sub(header_len))
        .ok_or(TerminateReason::Mpa(MpaError::Marker))
}

/// A tagged segment with `len` octets of payload.
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
        // Nothing is written, so nothing is checked.
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
