// SPDX-License-Identifier: GPL-2.0

//! The state machine of a rendezvous, in an endpoint of the connection manager.
//!
//! The initiator connects, and retries until the queue pair's time-out. The responder starts its
//! stream when the initiator's first FPDU has come. Before that either end can drop the connection
//! and begin anew. The initiator does so when it learns its packet sequence number after its hello.
//!
//! - [`initiator`]: steps of the initiator only
//! - [`responder`]: steps of the responder only
//!
//! Stages are moved by value. `#[inline(never)]` keeps their stack frames apart, since TCP needs the
//! stack below them. The endpoint's lock protects all of it.

mod initiator;
mod responder;

use iwarp_wire::mpa::{
    negotiate::Parameters,
    startup::FrameKind, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
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
            Next,
            Phase,
            StepContext, //
        },
        mpa_frame::{
            FrameReader,
            FrameWriter, //
        },
        registry::Attempt,
        timer::Limit, //
    },
    stream::{
        Close,
        Config,
        Stream, //
    },
    sys::{
        random,
        socket::{
            Socket,
            TcpState, //
        }, //
    },
    verbs::{
        counters::Counter,
        peer::{
            RendezvousRole,
            Terms, //
        },
    },
};

/// Milliseconds that an initiator waits for its own packet sequence number, which usually follows
/// at once, before it connects without it.
const HOLD_MS: u32 = 20;

/// Milliseconds until the second attempt at most; each further one takes twice as long.
const FIRST_PAUSE_MS: u32 = 10;

/// Milliseconds between attempts at most.
const MAX_PAUSE_MS: u32 = 2_000;

/// Milliseconds for which the owner need not notice that the peer has left.
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
/// | PendingReply, Answered | failure, time-out | Await |
/// | Hold, Tcp, Request, Reply, Pause, Await | time-out of posted work | given up |
/// | Running | stream ended | over |
/// | Running | the peer has left, the owner has not noticed | Left |
/// | Left | 3 s | over |
enum Stage {
    /// The initiator waits for its packet sequence number, but not long.
    Hold(Limit),
    /// The initiator waits until it tries again.
    Pause(Limit),
    /// TCP connects.
    Tcp(Limit),
    /// The Request goes out; it says that.
    Request(FrameWriter, Limit, Hello),
    /// The Reply comes in.
    Reply(FrameReader, Limit, Hello),
    /// The responder waits for a request, or for the proof that the one it has is the peer's.
    Await(Option<ConnRequest>),
    /// The Reply goes out to the peer.
    PendingReply(FrameWriter, PendingReply),
    /// The peer's first FPDU comes in.
    Answered(PendingReply),
    /// The stream runs.
    Running(Arc<Stream>),
    /// The peer has left, and the owner has not noticed.
    Left(Limit),
}

/// A Reply that accepts the peer, until the stream starts.
struct PendingReply {
    /// The socket.
    socket: Socket,
    /// The parameters.
    agreed: Parameters,
    /// What the peer takes our packet sequence number for.
    claim: u32,
    /// The time limit for the peer.
    limit: Limit,
}

/// The stage of the receiving end where the peer is the queue pair itself.
enum Mirror {
    /// There is none.
    None,
    /// The Reply goes out.
    PendingReply(FrameWriter, PendingReply),
    /// The first FPDU comes in.
    Answered(PendingReply),
}

/// What a step leads to.
enum StepResult {
    /// The next step can be made now.
    Go,
    /// A note has to come first, or the end of a time.
    Wait,
    /// The end.
    Over,
}

/// What a stage leads to.
enum Outcome {
    /// The next stage can go on now.
    Go(Stage),
    /// A note has to come first, or the end of a time.
    Wait(Stage),
    /// This attempt came to nothing.
    Retry,
    /// There will be no connection.
    Fail,
}

/// A rendezvous.
pub(crate) struct Rendezvous {
    /// The queue pair.
    qp: Attachment,
    /// Its sockets and its share of the listener.
    resources: Resources,
    /// The stage; none only within a step.
    stage: Option<Stage>,
    /// The attempt of the initiator that is under way.
    attempt: Option<Attempt>,
    /// Milliseconds until the next attempt.
    pause_ms: u32,
    /// How long work requests still wait, once there are some.
    patience: Option<Limit>,
    /// The other end, if the peer is the queue pair itself.
    mirror: Mirror,
    /// The stream has been told to end.
    closing: bool,
    /// The stream has been told how long it may wait for the peer.
    timed: bool,
}

impl Rendezvous {
    /// The beginning.
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

    /// Goes on as far as possible without waiting.
    #[inline(never)]
    pub(crate) fn step(mut self: KBox<Self>, ctx: &mut StepContext<'_>) -> Next {
        match self.advance(ctx) {
            StepResult::Go => Next::Go(Phase::Rendezvous(self)),
            StepResult::Wait => Next::Wait(Phase::Rendezvous(self)),
            StepResult::Over => {
                let accepted = self.stage.as_ref().and_then(Stage::socket);
                for socket in [accepted, self.resources.socket.as_ref()]
                    .into_iter()
                    .flatten()
                {
                    socket.set_linger_abort();
                }
                Next::Wait(Phase::Over)
            }
        }
    }

    /// Makes a step.
    fn advance(&mut self, ctx: &mut StepContext<'_>) -> StepResult {
        let Some(terms) = self.qp.qp().terms() else {
            return StepResult::Over;
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
                    Some(_) => return StepResult::Over,
                }
            }
            Some(_) => {}
        }
        if notes.quit {
            self.qp.qp().fail();
            return StepResult::Over;
        }
        if let Some(Stage::Left(limit)) = &self.stage {
            if limit.is_over() {
                self.qp.qp().left_behind();
                return StepResult::Over;
            }
            ctx.timer.set(limit.remaining());
            return StepResult::Wait;
        }
        if terms.work_waits && self.patience.is_none() {
            self.patience = terms.patience_ms.map(Limit::new);
        }
        if self.patience.is_some_and(|limit| limit.is_over()) {
            return self.fail(ctx);
        }
        let Some(stage) = self.stage.take() else {
            return StepResult::Over;
        };
        match self.go_on(ctx, &terms, stage) {
            Outcome::Go(stage) => {
                self.stage = Some(stage);
                StepResult::Go
            }
            Outcome::Wait(stage) => {
                self.set_timer(ctx, &stage);
                self.stage = Some(stage);
                StepResult::Wait
            }
            Outcome::Retry => {
                self.stage = Some(self.again(&terms));
                StepResult::Go
            }
            Outcome::Fail => self.fail(ctx),
        }
    }

    /// Looks after the stream.
    fn run(
        &mut self,
        ctx: &mut StepContext<'_>,
        terms: &Terms,
        stream: &Arc<Stream>,
    ) -> StepResult {
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
        StepResult::Wait
    }

    /// Sees to it that the endpoint wakes when a time is over.
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
            // Should it fail, so does the next attempt.
            let _ = socket.disconnect();
        }
        // Half of the time to all of it: initiators that failed together retry apart.
        let half = self.pause_ms / 2;
        let pause = half.saturating_add(random::u32() % half.saturating_add(1));
        self.pause_ms = self.pause_ms.saturating_mul(2).min(MAX_PAUSE_MS);
        Stage::Pause(Limit::new(pause))
    }

    /// There will be no connection.
    fn fail(&self, ctx: &mut StepContext<'_>) -> StepResult {
        ctx.device.counters().add(Counter::Rejects, 1);
        self.qp.qp().give_up();
        StepResult::Over
    }

    /// Goes on at a stage before the stream.
    #[inline(never)]
    fn go_on(&mut self, ctx: &mut StepContext<'_>, terms: &Terms, stage: Stage) -> Outcome {
        match stage {
            Stage::Hold(_) if terms.local_psn.is_some() => self.connect(ctx, terms),
            Stage::Hold(limit) | Stage::Pause(limit) if limit.is_over() => self.connect(ctx, terms),
            Stage::Tcp(limit) => match self.tcp_state() {
                // A peer may have closed its half before we look.
                TcpState::Established | TcpState::CloseWait => self.greet(terms),
                TcpState::SynSent | TcpState::SynRecv if !limit.is_over() => {
                    Outcome::Wait(Stage::Tcp(limit))
                }
                _ => Outcome::Retry,
            },
            // What it says is out of date.
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

    /// Sends of the Request what TCP takes; whether that is the rest of it.
    fn send(&self, frame: &mut FrameWriter) -> Result<bool> {
        frame.send(self.resources.socket.as_ref().ok_or(EPIPE)?)
    }

    /// Starts the stream.
    #[inline(never)]
    fn start(
        &self,
        ctx: &mut StepContext<'_>,
        socket: Socket,
        config: Config,
        claim: u32,
    ) -> Outcome {
        let owner = match config.mirror {
            true => self.qp.mirror_owner(),
            false => Ok(self.qp.owner()),
        };
        let Ok(owner) = owner else {
            return Outcome::Fail;
        };
        match Stream::start(self.qp.qp().clone(), socket, config, owner) {
            Ok(stream) => {
                ctx.started(&stream);
                self.qp.qp().rendezvous_connected(claim);
                Outcome::Go(Stage::Running(stream))
            }
            Err((_, socket)) => {
                socket.set_linger_abort();
                Outcome::Fail
            }
        }
    }
}

impl Stage {
    /// Where it begins.
    fn first(terms: &Terms) -> Self {
        match terms.role {
            RendezvousRole::Responder => Self::Await(None),
            RendezvousRole::Initiator | RendezvousRole::Both => Self::Hold(Limit::new(HOLD_MS)),
        }
    }

    /// The limit of its time.
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

    /// The accepted socket.
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
