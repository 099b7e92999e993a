// SPDX-License-Identifier: GPL-2.0

//! One RDMAP stream, both directions of a connection joined (RFC 5040 sections 5 to 7, RFC 5044
//! sections 6 to 8, RFC 6581).
//!
//! [`Startup`] exchanges the start-up frames. [`Stream`] is full operation phase. It owns a
//! [`Framer`], an [`FpduWriter`], a [`Receiver`], the two read queues and the message numbers,
//! and keeps them consistent. It contains no octets and no memory regions: the caller reads and
//! writes the transport, looks STags up and places payload. `examples/tcp_ends.rs` is a
//! user-space end over a TCP socket.
//!
//! A driver that does not copy an FPDU to contiguous memory uses the parts directly.

mod error;
mod receive;
mod startup;
mod transmit;

use core::borrow::BorrowMut;
use core::marker::PhantomData;

use crate::ids::Msn;
use crate::mpa::fpdu::{
    FpduWriter,
    Framer, //
};
use crate::mpa::negotiate::Parameters;
use crate::mpa::startup::{
    RtrKind,
    RtrKinds, //
};
use crate::mpa::{
    mulpdu,
    DEFAULT_EMSS, //
};
use crate::rdmap::terminate::{
    Terminate,
    TerminateReason, //
};
use crate::rdmap::ReadRequest;
use crate::reads::{
    Inbound,
    Irq,
    Orq,
    Outstanding, //
};
use crate::rx::{
    Config,
    Receiver, //
};
use crate::tx::Msns;

pub use self::error::TransmitError;
pub use self::receive::Delivery;
pub use self::startup::{
    Startup,
    StartupFailure,
    StartupState,
    StartupStep, //
};

/// The role of this end of the connection (RFC 5044 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that sent the MPA Request.
    Initiator,
    /// The end that answered with the MPA Reply.
    Responder,
}

/// The parameters of a [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The role of this end.
    pub role: Role,
    /// The result of the start-up: see [`Policy`](crate::mpa::negotiate::Policy).
    pub parameters: Parameters,
    /// TCP's effective maximum segment size in octets;
    /// [`DEFAULT_EMSS`] where it is not known.
    pub emss: u32,
    /// Immediate Data is accepted from the peer (RFC 7306 section 6).
    pub immediate: bool,
    /// Atomics are accepted from the peer (RFC 7306 section 5).
    pub atomics: bool,
}

impl Setup {
    /// A stream of TCP's default segment size without the extensions of RFC 7306.
    #[inline]
    #[must_use]
    pub const fn new(role: Role, parameters: Parameters) -> Self {
        Self {
            role,
            parameters,
            emss: DEFAULT_EMSS,
            immediate: false,
            atomics: false,
        }
    }
}

/// The transmit state of a [`Stream`]: the messages that this end may send.
///
/// An initiator starts in `RtrDue` if an RTR frame was agreed on, else in `Open`. A responder
/// starts in `AwaitFirst` (RFC 5044 section 7.1.2, RFC 6581 section 9).
///
/// | state | event | next |
/// | --- | --- | --- |
/// | `RtrDue` | the RTR frame is written | `Open` |
/// | `AwaitFirst` | a valid first FPDU arrives | `Open` |
/// | `Open` | an FPDU is valid | `Open` |
/// | `AwaitFirst` | an FPDU is in error | `TerminateDue` |
/// | `Open` | an FPDU is in error | `TerminateDue` |
/// | `Open` | the caller reports an error | `TerminateDue` |
/// | `Open` | the peer's Terminate arrives | `Ended` |
/// | `TerminateDue` | anything arrives | `TerminateDue` |
/// | `TerminateDue` | the Terminate is written | `Ended` |
/// | `Ended` | anything arrives | `Ended` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Only the RTR frame.
    RtrDue(RtrKind),
    /// No message, until the initiator's first FPDU arrives.
    AwaitFirst,
    /// All messages.
    Open,
    /// Only the Terminate that is due.
    TerminateDue(Terminate),
    /// No message any more.
    Ended,
}

/// One end of an RDMAP stream.
///
/// `C` computes CRCs. `T` is the cookie that identifies a completed Read or Atomic of this end. `O`
/// and `I` are the storage of the read queues: any type that can be borrowed as a slice of options.
/// ORD and IRD are those of the start-up, or the number of entries where that is less.
///
/// ```
/// use iwarp_wire::{
///     crc::Table,
///     mpa::negotiate::Parameters,
///     mpa::startup::{Revision, RtrKind, RtrKinds},
///     rdmap::SendKind,
///     rx::Decision,
///     stream::{ArrayStream, Role, Setup, Stream},
/// };
///
/// let parameters = Parameters {
///     revision: Revision::Two, crc: true, rx_markers: false, tx_markers: false, ird: 4, ord: 4,
///     rtr: RtrKinds::only(Some(RtrKind::Write)),
/// };
/// let end = |role| -> ArrayStream<Table, (), 4, 4> {
///     Stream::new(Setup::new(role, parameters), [None; 4], [None; 4])
/// };
/// let (mut initiator, mut responder) = (end(Role::Initiator), end(Role::Responder));
/// let mut wire = [0; 1500];
///
/// // The RTR frame opens the responder's direction.
/// let len = initiator.next_control(&mut wire).expect("it fits").expect("it is due");
/// assert!(!responder.may_transmit());
/// let rtr = responder.receive(&mut wire[..len]).expect("it is whole");
/// assert_eq!(rtr.decision, Decision::Nothing);
/// assert!(responder.may_transmit());
///
/// let mut send = responder.start_send(SendKind::default(), 5).expect("it is open");
/// let len = responder.next_segment(&mut send, b"hello", &mut wire).expect("it fits");
/// let fpdu = initiator.receive(&mut wire[..len.expect("one segment")]).expect("it is whole");
/// assert_eq!(fpdu.payload(), b"hello");
/// ```
#[derive(Debug)]
pub struct Stream<C, T, O, I>
where
    T: Copy,
    O: BorrowMut<[Option<Outstanding<Option<T>>>]>,
    I: BorrowMut<[Option<Inbound>]>,
{
    /// Finds the peer's FPDUs.
    framer: Framer,
    /// Lays out this end's FPDUs.
    writer: FpduWriter,
    /// Decides on the peer's segments.
    receiver: Receiver,
    /// Numbers this end's messages.
    msns: Msns,
    /// This end's requests; the RTR Read, which has no cookie, has `None`.
    orq: Orq<Option<T>, O>,
    /// The peer's requests.
    irq: Irq<I>,
    /// The most octets of a ULPDU.
    mulpdu: u16,
    /// The transmit state.
    state: State,
    /// Computes CRCs.
    crc: PhantomData<fn() -> C>,
}

/// A [`Stream`] whose read queues are arrays: `ORD` and `IRD` are the most entries.
pub type ArrayStream<C, T, const ORD: usize, const IRD: usize> =
    Stream<C, T, [Option<Outstanding<Option<T>>>; ORD], [Option<Inbound>; IRD]>;

impl<C, T, O, I> Stream<C, T, O, I>
where
    T: Copy,
    O: BorrowMut<[Option<Outstanding<Option<T>>>]>,
    I: BorrowMut<[Option<Inbound>]>,
{
    /// Starts with the first octet of full operation phase in both directions.
    #[must_use]
    pub fn new(setup: Setup, orq: O, irq: I) -> Self {
        let Parameters {
            crc,
            rx_markers,
            tx_markers,
            ird,
            ord,
            rtr,
            ..
        } = setup.parameters;
        let responder = setup.role == Role::Responder;
        let state = match rtr.preferred() {
            _ if responder => State::AwaitFirst,
            Some(kind) => State::RtrDue(kind),
            None => State::Open,
        };
        Self {
            framer: Framer::new(rx_markers, crc),
            writer: FpduWriter::new(tx_markers, crc),
            receiver: Receiver::new(Config {
                responder,
                rtr: if responder { rtr } else { RtrKinds::NONE },
                immediate: setup.immediate,
                atomics: setup.atomics,
            }),
            msns: Msns::new(),
            orq: Orq::new(orq, ord),
            irq: Irq::new(irq, ird),
            mulpdu: mulpdu(setup.emss, tx_markers),
            state,
            crc: PhantomData,
        }
    }

    /// The transmit state of this end.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Tells whether messages may be transmitted: the state is [`State::Open`].
    #[must_use]
    pub fn may_transmit(&self) -> bool {
        self.state == State::Open
    }

    /// Sets the effective maximum segment size in octets, for segments that are not written yet.
    pub fn set_emss(&mut self, emss: u32) {
        self.mulpdu = mulpdu(emss, self.writer.markers());
    }

    /// The requests of this end that are not answered.
    #[must_use]
    pub fn outbound(&self) -> &Orq<Option<T>, O> {
        &self.orq
    }

    /// The requests of the peer that are not answered.
    #[must_use]
    pub fn inbound(&self) -> &Irq<I> {
        &self.irq
    }

    /// Reports an error that the caller found in the segment `ulpdu`, the last one received: an
    /// access that is refused, a message without a receive buffer. A [`Terminate`] that copies the
    /// segment's headers becomes due, and later segments are dropped.
    ///
    /// An empty `ulpdu` stands for an error without a segment. Nothing changes if the stream has
    /// failed or ended before.
    pub fn fail(&mut self, reason: TerminateReason, ulpdu: &[u8]) {
        let len = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX);
        self.end_with(Terminate::for_segment(reason, ulpdu, len));
    }

    /// Removes the oldest request of this end that was not answered, after the end of the stream.
    pub fn flush(&mut self) -> Option<T> {
        while let Some(cookie) = self.orq.pop() {
            if cookie.is_some() {
                return cookie;
            }
        }
        None
    }

    /// Fails with a Terminate for a Read Request of the peer, with `remaining` octets left.
    fn fail_read(&mut self, reason: TerminateReason, msn: Msn, remaining: &ReadRequest) {
        self.end_with(Terminate::for_read(reason, msn, remaining));
    }

    /// Makes a Terminate due, unless the stream has failed or ended before.
    fn end_with(&mut self, terminate: Terminate) {
        self.receiver.fail();
        if !matches!(self.state, State::TerminateDue(_) | State::Ended) {
            self.state = State::TerminateDue(terminate);
        }
    }
}
