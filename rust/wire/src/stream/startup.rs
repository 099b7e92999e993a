// SPDX-License-Identifier: GPL-2.0

//! MPA start-up of one end, from the TCP connection to full operation phase (RFC 5044 section 7.1,
//! RFC 6581).

use core::error::Error;
use core::fmt;
use core::ops::Range;

use super::Role;
use crate::crc::Crc32c;
use crate::mpa::fpdu::FpduWriter;
use crate::mpa::negotiate::{
    Parameters,
    Policy,
    Refusal, //
};
use crate::mpa::startup::{
    parse,
    EncodeError,
    Frame,
    FrameKind,
    Progress,
    StartupError,
    MAX_FRAME_LEN, //
};
use crate::rdmap::terminate::Terminate;

/// The state of a [`Startup`].
///
/// | state | event | next |
/// | --- | --- | --- |
/// | `SendRequest` | the Request is written | `AwaitReply` |
/// | `AwaitReply` | the Reply is incomplete | `AwaitReply` |
/// | `AwaitReply` | the Reply suits the policy | `Agreed` |
/// | `AwaitReply` | the Reply is refused | `Failed` |
/// | `AwaitReply` | the octets are no Reply | `Failed` |
/// | `AwaitRequest` | the Request is incomplete | `AwaitRequest` |
/// | `AwaitRequest` | the Request is whole, the Reply is written | `Agreed` |
/// | `AwaitRequest` | the octets are no Request | `Failed` |
///
/// An initiator begins in `SendRequest`, a responder in `AwaitRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupState {
    /// The Request is to be sent.
    SendRequest,
    /// The Request was sent.
    AwaitReply,
    /// No whole Request arrived.
    AwaitRequest,
    /// Full operation phase begins.
    Agreed(Parameters),
    /// The TCP connection is to be closed.
    Failed(StartupFailure),
}

/// The action of the caller before the next call of [`Startup::next_step`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum StartupStep {
    /// Read these octets of the buffer from the TCP connection, all of them.
    Receive(Range<usize>),
    /// Write this many octets from the front of the buffer to the TCP connection.
    Transmit(usize),
    /// No action: full operation phase begins.
    Agreed(Parameters),
}

/// The reason why a start-up failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupFailure {
    /// The peer's octets are no valid frame.
    Frame(StartupError),
    /// This end's private data does not fit into its frame.
    Encode(EncodeError),
    /// The Reply does not suit the policy.
    Refused(Refusal),
}

impl fmt::Display for StartupFailure {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MPA start-up failed")
    }
}

impl Error for StartupFailure {
    #[inline]
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Frame(error) => error,
            Self::Encode(error) => error,
            Self::Refused(error) => error,
        })
    }
}

/// MPA start-up of one end.
///
/// A responder accepts every valid Request. One that decides by the Request's private data uses
/// [`parse`] and [`Policy`] directly.
///
/// ```
/// use std::io::{Read, Write};
///
/// use iwarp_wire::{
///     crc::Table,
///     mpa::{negotiate::{Parameters, Policy}, startup::MAX_FRAME_LEN},
///     stream::{Role, Startup, StartupStep},
/// };
///
/// type Outcome = Result<Parameters, Box<dyn std::error::Error>>;
///
/// fn start<S: Read + Write>(tcp: &mut S, role: Role) -> Outcome {
///     let mut startup = Startup::new(role, Policy::default(), b"private data");
///     let mut buffer = [0; MAX_FRAME_LEN];
///     loop {
///         match startup.next_step::<Table>(&mut buffer)? {
///             StartupStep::Receive(range) => tcp.read_exact(&mut buffer[range])?,
///             StartupStep::Transmit(len) => tcp.write_all(&buffer[..len])?,
///             StartupStep::Agreed(parameters) => return Ok(parameters),
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Startup<'a> {
    /// The policy of this end.
    policy: Policy,
    /// The private data of this end's frame.
    private_data: &'a [u8],
    /// The state of the start-up.
    state: StartupState,
    /// Octets of the peer's frame in the buffer, once the caller has read them.
    have: usize,
}

impl<'a> Startup<'a> {
    /// Starts on a TCP connection on which the peer's first octet was not read yet.
    ///
    /// `private_data` has at most 512 octets, 508 with revision 2.
    #[inline]
    #[must_use]
    pub const fn new(role: Role, policy: Policy, private_data: &'a [u8]) -> Self {
        Self {
            policy,
            private_data,
            state: match role {
                Role::Initiator => StartupState::SendRequest,
                Role::Responder => StartupState::AwaitRequest,
            },
            have: 0,
        }
    }

    /// The state of the start-up.
    #[inline]
    #[must_use]
    pub const fn state(&self) -> StartupState {
        self.state
    }

    /// Returns the next action of the caller. A call implies that the previous action is done.
    ///
    /// `buffer` is the same in all calls. No octet after the peer's frame is read. If a refusal
    /// requires a Terminate ([`Refusal::terminate`]), it is transmitted before the failure is
    /// returned; `C` computes its CRC.
    ///
    /// # Errors
    ///
    /// [`StartupFailure`]: the caller closes the TCP connection.
    pub fn next_step<C: Crc32c>(
        &mut self,
        buffer: &mut [u8; MAX_FRAME_LEN],
    ) -> Result<StartupStep, StartupFailure> {
        let step = match self.state {
            StartupState::SendRequest => {
                let request = self.policy.request(self.private_data);
                let sent = request.encode(buffer).map_err(StartupFailure::Encode);
                sent.map(|len| (StartupStep::Transmit(len), StartupState::AwaitReply))
            }
            StartupState::AwaitReply => self.reply::<C>(buffer),
            StartupState::AwaitRequest => self.request(buffer),
            StartupState::Agreed(parameters) => Ok((StartupStep::Agreed(parameters), self.state)),
            StartupState::Failed(failure) => Err(failure),
        };
        match step {
            Ok((step, state)) => {
                if let StartupStep::Receive(range) = &step {
                    self.have = range.end;
                }
                self.state = state;
                Ok(step)
            }
            Err(failure) => {
                self.state = StartupState::Failed(failure);
                Err(failure)
            }
        }
    }

    /// Processes the Reply.
    fn reply<C: Crc32c>(
        &self,
        buffer: &mut [u8; MAX_FRAME_LEN],
    ) -> Result<(StartupStep, StartupState), StartupFailure> {
        let reply = match self.frame(buffer, FrameKind::Reply)? {
            Ok(reply) => reply,
            Err(missing) => return Ok((StartupStep::Receive(missing), self.state)),
        };
        let refusal = match self.policy.conclude(&reply) {
            Ok(parameters) => {
                let agreed = StartupState::Agreed(parameters);
                return Ok((StartupStep::Agreed(parameters), agreed));
            }
            Err(refusal) => refusal,
        };
        let failure = StartupFailure::Refused(refusal);
        let Some(reason) = refusal.terminate() else {
            return Err(failure);
        };
        let mut writer = FpduWriter::new(reply.markers, self.policy.crc || reply.crc);
        let ulpdu = Terminate::bare(reason).ulpdu();
        let len = writer
            .write::<C, ()>(buffer, &ulpdu, 0, |_| Ok(()))
            .map_err(|_| failure)?;
        Ok((StartupStep::Transmit(len), StartupState::Failed(failure)))
    }

    /// Processes the Request, and writes the Reply.
    // Inlined, so that an object without a caller does not contain the function.
    #[inline]
    fn request(
        &self,
        buffer: &mut [u8; MAX_FRAME_LEN],
    ) -> Result<(StartupStep, StartupState), StartupFailure> {
        let (reply, parameters) = match self.frame(buffer, FrameKind::Request)? {
            Ok(request) => self.policy.accept(&request, self.private_data),
            Err(missing) => return Ok((StartupStep::Receive(missing), self.state)),
        };
        let len = reply.encode(buffer).map_err(StartupFailure::Encode)?;
        Ok((StartupStep::Transmit(len), StartupState::Agreed(parameters)))
    }

    /// The peer's frame, or the octets that are missing.
    #[inline]
    fn frame<'b>(
        &self,
        buffer: &'b [u8; MAX_FRAME_LEN],
        kind: FrameKind,
    ) -> Result<Result<Frame<'b>, Range<usize>>, StartupFailure> {
        let octets = buffer.get(..self.have).unwrap_or(buffer);
        match parse(octets, kind).map_err(StartupFailure::Frame)? {
            Progress::Need { total } => Ok(Err(self.have..total)),
            Progress::Frame { frame, .. } => Ok(Ok(frame)),
        }
    }
}
