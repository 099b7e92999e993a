// SPDX-License-Identifier: GPL-2.0

//! The state machine of a rendezvous, in an endpoint of the connection manager.
//!
//! The initiator connects, and retries until the time-out of the queue pair. The responder starts
//! its stream when the first FPDU of the initiator has arrived. Before that either end can drop
//! the connection and begin again. The initiator does so when its packet sequence number becomes
//! known after its hello.
//!
//! - [`initiator`]: steps of the initiator only
//! - [`responder`]: steps of the responder only
//!
//! Stages are moved by value. `#[inline(never)]` keeps their stack frames apart, since TCP needs
//! the stack below them. The endpoint's lock protects the state machine.

mod initiator;
mod responder;

use core::any::Any;

use iwarp_wire::mpa::{
    negotiate::Parameters,
    startup::FrameKind, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    hello::Hello,
    request::ConnRequest,
    Resources, //
};
use crate::{
    cm::{
        endpoint::{
            Attachment,
            Driven,
            DrivenStep,
            StepContext, //
        },
        mpa_frame::{
            terminate_set_up,
            FrameReader,
            FrameWriter, //
        },
        registry::AttemptSlot,
        timer::Limit,
        CmDevice, //
    },
    qp::peer::{
        PeerEndpoint,
        RendezvousRole,
        Terms, //
    },
    stream::{
        Close,
        Config,
        Stream, //
    },
    sys::{
        errno::EPROTO,
        net::socket::{
            Socket,
            TcpState, //
        },
        random,
        rdma::iwcm::Handle,
        trace, //
    },
    verbs::counters::ConnFailure, //
};

/// The maximum time that an initiator waits for its own packet sequence number, in milliseconds.
/// The number usually follows at once; after the limit the initiator connects without it.
const HOLD_MS: u32 = 20;

/// The maximum pause before the second attempt, in milliseconds. Each further pause is twice as
/// long.
const FIRST_PAUSE_MS: u32 = 10;

/// The maximum pause between attempts, in milliseconds.
const MAX_PAUSE_MS: u32 = 2_000;

/// The time between the close of the peer and its report to the owner, in milliseconds.
const LEFT_MS: u32 = 3_000;

/// The stage of a rendezvous.
///
/// | stage | event | next |
/// | --- | --- | --- |
/// | Hold | `RTS`, or 20 ms after `RTR` | Tcp |
/// | Tcp | established | Request |
/// | Request | sent | Reply |
/// | Request, Reply | the hello is out of date | Tcp |
/// | Reply | accepted | Running |
/// | Reply | refused | given up |
/// | Tcp, Request, Reply | failure, time-out | Pause |
/// | Pause | time over | Tcp |
/// | Await | request of the peer (responder) | PendingReply |
/// | PendingReply | sent | Answered |
/// | Answered | first FPDU | Running |
/// | Await, PendingReply, Answered | a matching request replaces the earlier one | Await |
/// | PendingReply, Answered | failure, time-out | Await |
/// | Hold, Tcp, Request, Reply, Pause | time-out of posted work | given up |
/// | Await, PendingReply, Answered | time-out of posted work | given up |
/// | Running | stream ended | over |
/// | Running | an idle peer has closed, not yet reported to the owner | Left |
/// | Left | 3 s | over |
/// | any | the owner ends or destroys the queue pair | over |
enum Stage {
    /// The initiator waits for its packet sequence number, at most [`HOLD_MS`].
    Hold(Limit),
    /// The initiator waits for its next attempt.
    Pause(Limit),
    /// TCP connects.
    Tcp(Limit),
    /// The Request is being sent, with this hello.
    Request(FrameWriter, Limit, Hello),
    /// The Reply is being received.
    Reply(FrameReader, Limit, Hello),
    /// The responder waits for a request, or for the proof that this request is the peer's.
    Await(Option<ConnRequest>),
    /// The Reply to the peer is being sent.
    PendingReply(FrameWriter, PendingReply),
    /// The responder waits for the peer's first FPDU.
    Answered(PendingReply),
    /// The stream runs.
    Running(Arc<Stream>),
    /// The peer has closed, which is not reported to the owner yet.
    Left(Limit),
}

/// An accepted connection, until its stream starts.
struct PendingReply {
    socket: Socket,
    /// The parameters.
    agreed: Parameters,
    /// The packet sequence number of this end that the peer expects.
    claim: u32,
    /// The time limit for the peer.
    limit: Limit,
}

impl PendingReply {
    /// Closes the connection, which this end gives up after its Reply, with a Terminate.
    fn terminate(self) {
        terminate_set_up(&self.socket, &self.agreed);
    }
}

/// The stage of the receiving end if the peer is the queue pair itself.
enum Mirror {
    /// No receiving end.
    None,
    /// The Reply is being sent.
    PendingReply(FrameWriter, PendingReply),
    /// The receiving end waits for the first FPDU.
    Answered(PendingReply),
}

/// The outcome of a stage.
enum Outcome {
    /// The next stage can run now.
    Go(Stage),
    /// The next step follows a note, or the end of a time limit.
    Wait(Stage),
    /// This attempt failed; another one follows.
    Retry,
    /// The rendezvous fails.
    Fail,
}

/// The endpoint of a rendezvous, with the interfaces to the connection manager and to the queue
/// pair.
#[pin_data]
pub(super) struct RendezvousEndpoint {
    device: Arc<CmDevice>,
    /// The number of the connection manager's endpoint.
    handle: Handle,
    /// The rendezvous, until its end. Locked under the endpoint's lock.
    #[pin]
    rendezvous: Mutex<Option<Rendezvous>>,
}

impl RendezvousEndpoint {
    /// Makes the endpoint of a rendezvous that begins. May sleep.
    pub(super) fn new(ctx: &StepContext<'_>, rendezvous: Rendezvous) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device: ctx.device.clone(),
                handle: ctx.endpoint.handle(),
                rendezvous <- new_mutex!(Some(rendezvous), "rsiw_rendezvous"),
            }),
            GFP_KERNEL,
        )
    }

    /// Passes a connection request to the rendezvous, or refuses the request. Process context;
    /// sleeps.
    pub(super) fn dispatch(&self, request: ConnRequest) {
        let mut request = Some(request);
        if let Some(endpoint) = self.device.registry().endpoint(self.handle) {
            // An endpoint that has ended returns an error; the request is refused below then.
            let _ = endpoint.change_and_leave(|phase, ctx| {
                if let Some(rendezvous) = (*self.rendezvous.lock()).as_mut() {
                    if let Some(request) = request.take() {
                        rendezvous.handle_request(ctx, request);
                    }
                }
                Ok(phase)
            });
        }
        if let Some(request) = request {
            request.refuse();
        }
    }
}

impl PeerEndpoint for RendezvousEndpoint {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Driven for RendezvousEndpoint {
    #[inline(never)]
    fn step(&self, ctx: &mut StepContext<'_>) -> DrivenStep {
        let mut guard = self.rendezvous.lock();
        let Some(rendezvous) = (*guard).as_mut() else {
            return DrivenStep::Over;
        };
        let step = rendezvous.advance(ctx);
        if let DrivenStep::Over = step {
            rendezvous.abort();
            let ended = (*guard).take();
            drop(guard);
            drop(ended);
        }
        step
    }
}

/// The state machine that connects one queue pair to its peer.
pub(crate) struct Rendezvous {
    /// The queue pair.
    qp: Attachment,
    /// The sockets and the share of the listener.
    resources: Resources,
    /// The stage; `None` before the first step and within a step.
    stage: Option<Stage>,
    /// The current attempt of the initiator.
    attempt: Option<AttemptSlot>,
    /// The maximum pause before the next attempt, in milliseconds.
    pause_ms: u32,
    /// The time limit of posted work requests; `None` without such work or without a limit.
    patience: Option<Limit>,
    /// The other end, if the peer is the queue pair itself.
    mirror: Mirror,
    /// The stream is ending.
    closing: bool,
    /// The stream has received its time limit for the peer.
    timed: bool,
}

impl Rendezvous {
    /// Makes a rendezvous before its first step.
    pub(super) fn new(qp: Attachment, resources: Resources) -> Self {
        Self {
            qp,
            resources,
            stage: None,
            attempt: None,
            pause_ms: FIRST_PAUSE_MS,
            patience: None,
            mirror: Mirror::None,
            closing: false,
            timed: false,
        }
    }

    /// Makes the release of the sockets reset their connections.
    fn abort(&self) {
        let accepted = self.stage.as_ref().and_then(Stage::socket);
        let own = self.resources.socket.as_ref();
        for socket in [accepted, own].into_iter().flatten() {
            socket.set_linger_abort();
        }
    }

    /// Makes a step.
    fn advance(&mut self, ctx: &mut StepContext<'_>) -> DrivenStep {
        let Some(terms) = self.qp.qp().terms() else {
            return DrivenStep::Over;
        };
        let notes = ctx.notes;
        self.advance_mirror(ctx, &terms);
        match &self.stage {
            None => self.stage = Some(Stage::first(&terms)),
            Some(Stage::Running(stream)) => {
                let stream = stream.clone();
                match notes.ended {
                    None => return self.run(ctx, &terms, &stream),
                    Some(_) if self.qp.qp().was_left() => {
                        self.stage = Some(Stage::Left(Limit::new(LEFT_MS)));
                    }
                    Some(_) => return DrivenStep::Over,
                }
            }
            Some(_) => {}
        }
        if notes.quit {
            self.qp.qp().fail();
            return DrivenStep::Over;
        }
        if let Some(Stage::Left(limit)) = &self.stage {
            if limit.is_over() {
                self.qp.qp().left_behind();
                return DrivenStep::Over;
            }
            ctx.timer.set(limit.remaining());
            return DrivenStep::Wait;
        }
        if terms.work_waits && self.patience.is_none() {
            self.patience = terms.patience_ms.map(Limit::new);
        }
        if self.patience.is_some_and(|limit| limit.is_over()) {
            return self.fail(ctx, ETIMEDOUT);
        }
        let Some(stage) = self.stage.take() else {
            return DrivenStep::Over;
        };
        match self.go_on(ctx, &terms, stage) {
            Outcome::Go(stage) => {
                self.stage = Some(stage);
                DrivenStep::Go
            }
            Outcome::Wait(stage) => {
                self.set_timer(ctx, &stage);
                self.stage = Some(stage);
                DrivenStep::Wait
            }
            Outcome::Retry => {
                self.stage = Some(self.again(&terms));
                DrivenStep::Go
            }
            Outcome::Fail => self.fail(ctx, EPROTO),
        }
    }

    /// Makes a step while the stream runs.
    fn run(
        &mut self,
        ctx: &mut StepContext<'_>,
        terms: &Terms,
        stream: &Arc<Stream>,
    ) -> DrivenStep {
        if ctx.notes.quit && !self.closing {
            self.closing = true;
            stream.close(Close::Abort);
        }
        // The time-out may not have been known at the start.
        if terms.local_psn.is_some() && !self.timed {
            self.timed = true;
            stream.set_patience(terms.patience_ms.unwrap_or(0), terms.waits_for_receives);
        }
        ctx.timer.clear();
        DrivenStep::Wait
    }

    /// Arms the endpoint's timer for the next time limit.
    fn set_timer(&self, ctx: &mut StepContext<'_>, stage: &Stage) {
        let limits = [stage.limit(), self.patience];
        match limits.iter().flatten().map(Limit::remaining).min() {
            Some(millis) => ctx.timer.set(millis),
            None => ctx.timer.clear(),
        }
    }

    /// The stage at which the next attempt begins.
    fn again(&mut self, terms: &Terms) -> Stage {
        if terms.role == RendezvousRole::Responder {
            return Stage::Await(None);
        }
        self.attempt = None;
        if let Some(socket) = &self.resources.socket {
            // A failure here fails the next attempt.
            let _ = socket.disconnect();
        }
        // A random pause of half to all of `pause_ms`: initiators that failed together retry at
        // different times.
        let half = self.pause_ms / 2;
        let pause = half.saturating_add(random::u32() % half.saturating_add(1));
        self.pause_ms = self.pause_ms.saturating_mul(2).min(MAX_PAUSE_MS);
        Stage::Pause(Limit::new(pause))
    }

    /// Ends the rendezvous without a connection.
    fn fail(&mut self, ctx: &mut StepContext<'_>, error: Error) -> DrivenStep {
        self.stage = match self.stage.take() {
            Some(Stage::Answered(answer)) => {
                answer.terminate();
                None
            }
            stage => stage,
        };
        let counters = ctx.device.counters();
        counters.connection_failed(ConnFailure::Error(error));
        let unknown = &trace::UNKNOWN;
        trace::connect(self.qp.qp().qpn().get(), unknown, unknown, Err(error));
        self.qp.qp().give_up();
        DrivenStep::Over
    }

    /// Makes a step in a stage before the stream.
    #[inline(never)]
    fn go_on(&mut self, ctx: &mut StepContext<'_>, terms: &Terms, stage: Stage) -> Outcome {
        match stage {
            Stage::Hold(_) if terms.local_psn.is_some() => self.connect(ctx, terms),
            Stage::Hold(limit) | Stage::Pause(limit) if limit.is_over() => self.connect(ctx, terms),
            Stage::Tcp(limit) => match self.tcp_state() {
                // A peer may have closed its half before this check.
                TcpState::Established | TcpState::CloseWait => self.greet(terms),
                TcpState::SynSent | TcpState::SynRecv if !limit.is_over() => {
                    Outcome::Wait(Stage::Tcp(limit))
                }
                _ => Outcome::Retry,
            },
            // The hello is out of date.
            Stage::Request(_, _, said) | Stage::Reply(_, _, said)
                if said.psn != terms.local_psn =>
            {
                if let Some(socket) = &self.resources.socket {
                    let _ = socket.disconnect();
                }
                self.connect(ctx, terms)
            }
            Stage::Request(mut frame, limit, said) => match self.send(&mut frame) {
                Ok(true) => match FrameReader::new(FrameKind::Reply) {
                    Ok(frame) => Outcome::Go(Stage::Reply(frame, limit, said)),
                    Err(_) => Outcome::Retry,
                },
                Ok(false) if !limit.is_over() => Outcome::Wait(Stage::Request(frame, limit, said)),
                _ => Outcome::Retry,
            },
            Stage::Reply(frame, limit, said) => self.conclude(ctx, terms, (frame, limit, said)),
            Stage::Await(Some(request)) => self.judge_request(ctx, terms, request),
            Stage::PendingReply(frame, answer) => self.answer(frame, answer),
            Stage::Answered(answer) => self.begin(ctx, terms, answer),
            waiting => Outcome::Wait(waiting),
        }
    }

    /// The state of the initiator's connection.
    fn tcp_state(&self) -> TcpState {
        match &self.resources.socket {
            Some(socket) => socket.tcp_state(),
            None => TcpState::Close,
        }
    }

    /// Sends as much of the Request as TCP accepts; returns whether it is complete.
    fn send(&self, frame: &mut FrameWriter) -> Result<bool> {
        frame.send(self.resources.socket.as_ref().ok_or(EPIPE)?)
    }

    /// Starts the stream. On failure the connection is closed with a Terminate.
    #[inline(never)]
    fn start(
        &self,
        ctx: &mut StepContext<'_>,
        socket: Socket,
        agreed: &Parameters,
        config: Config,
        claim: u32,
    ) -> Outcome {
        let user = match config.mirror {
            true => self.qp.mirror_user(),
            false => Ok(self.qp.user()),
        };
        let started = match user {
            Ok(user) => self.qp.qp().start_stream(socket, config, user),
            Err(error) => Err((error, socket)),
        };
        match started {
            Ok(stream) => {
                ctx.started(&stream);
                self.qp.qp().rendezvous_connected(claim);
                Outcome::Go(Stage::Running(stream))
            }
            Err((_, socket)) => {
                terminate_set_up(&socket, agreed);
                Outcome::Fail
            }
        }
    }
}

impl Stage {
    /// The first stage.
    fn first(terms: &Terms) -> Self {
        match terms.role {
            RendezvousRole::Responder => Self::Await(None),
            RendezvousRole::Initiator | RendezvousRole::Both => Self::Hold(Limit::new(HOLD_MS)),
        }
    }

    /// The time limit of the stage, if any.
    fn limit(&self) -> Option<Limit> {
        match self {
            Self::Hold(limit)
            | Self::Pause(limit)
            | Self::Tcp(limit)
            | Self::Request(_, limit, _)
            | Self::Reply(_, limit, _)
            | Self::Left(limit) => Some(*limit),
            Self::PendingReply(_, answer) | Self::Answered(answer) => Some(answer.limit),
            Self::Await(_) | Self::Running(_) => None,
        }
    }

    /// The accepted socket, if any.
    fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Await(Some(request)) => Some(&request.socket),
            Self::PendingReply(_, answer) | Self::Answered(answer) => Some(&answer.socket),
            Self::Hold(_)
            | Self::Pause(_)
            | Self::Tcp(_)
            | Self::Request(..)
            | Self::Reply(..)
            | Self::Await(None)
            | Self::Running(_)
            | Self::Left(_) => None,
        }
    }
}
