// SPDX-License-Identifier: GPL-2.0

//! What an endpoint does for a queue pair that connects itself.
//!
//! The initiator connects, and tries again whenever that comes to nothing, until the queue pair's
//! patience ends. The responder waits, and begins its stream when the initiator's first FPDU is
//! there, not before: up to that moment either end can drop a connection and begin anew without
//! harm, as the initiator does when it learns its packet sequence number after it has sent its
//! hello.
//!
//! [`initiate`] and [`respond`] have what only one of the two does.
//!
//! Stages are moved by value. Functions that would make one large stack frame of several are kept
//! apart (`inline(never)`): below them TCP needs its room.

mod initiate;
mod respond;

use iwarp_wire::mpa::{
    negotiate::Parameters,
    startup::FrameKind, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    super::{
        endpoint::{
            Attachment,
            Next,
            Phase,
            Turn, //
        },
        frame::{
            FrameReader,
            FrameWriter, //
        },
        registry::Attempt,
        timer::Limit, //
    },
    hello::Hello,
    visitor::Visitor,
    Means, //
};
use crate::{
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
        direct::{
            Role,
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

/// How far it has got.
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
    /// The responder waits for a visitor, or for what tells whether the one it has is the peer.
    Await(Option<Visitor>),
    /// The Reply goes out to the peer.
    Answer(FrameWriter, Answer),
    /// The peer's first FPDU comes in.
    Answered(Answer),
    /// The stream runs.
    Running(Arc<Stream>),
    /// The peer has left, and the owner has not noticed.
    Left(Limit),
}

/// What has been agreed on with the peer that is let in.
struct Answer {
    /// The socket.
    socket: Socket,
    /// The parameters.
    agreed: Parameters,
    /// What the peer takes our packet sequence number for.
    claim: u32,
    /// Until when it has to go on.
    limit: Limit,
}

/// How far the receiving end has got where the peer is the queue pair itself.
enum Mirror {
    /// There is none.
    None,
    /// The Reply goes out.
    Answer(FrameWriter, Answer),
    /// The first FPDU comes in.
    Answered(Answer),
}

/// What a step leads to.
enum Progress {
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

/// A queue pair that connects itself.
pub(in crate::cm) struct Direct {
    /// The queue pair.
    qp: Attachment,
    /// What it connects with.
    means: Means,
    /// How far it has got; none only for a moment.
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

impl Direct {
    /// The beginning.
    pub(super) fn new(qp: Attachment, means: Means) -> Self {
        Self {
            qp,
            means,
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
    pub(in crate::cm) fn step(mut self: KBox<Self>, turn: &mut Turn<'_>) -> Next {
        match self.advance(turn) {
            Progress::Go => Next::Go(Phase::Direct(self)),
            Progress::Wait => Next::Wait(Phase::Direct(self)),
            Progress::Over => {
                let accepted = self.stage.as_ref().and_then(Stage::socket);
                for socket in [accepted, self.means.socket.as_ref()].into_iter().flatten() {
                    socket.set_linger_abort();
                }
                Next::Wait(Phase::Over)
            }
        }
    }

    /// Makes a step.
    fn advance(&mut self, turn: &mut Turn<'_>) -> Progress {
        let Some(terms) = self.qp.qp().terms() else {
            return Progress::Over;
        };
        let notes = turn.notes;
        self.reflect(turn, &terms);
        match &self.stage {
            None => self.stage = Some(Stage::first(&terms)),
            Some(Stage::Running(stream)) => {
                let stream = stream.clone();
                match notes.ended {
                    None => return self.run(turn, &terms, &stream),
                    Some(_) if self.qp.qp().was_left() => {
                        self.stage = Some(Stage::Left(Limit::new(LEFT_MS)));
                    }
                    Some(_) => return Progress::Over,
                }
            }
            Some(_) => {}
        }
        if notes.quit {
            self.qp.qp().fail();
            return Progress::Over;
        }
        if let Some(Stage::Left(limit)) = &self.stage {
            if limit.is_over() {
                self.qp.qp().left_behind();
                return Progress::Over;
            }
            turn.timer.set(limit.remaining());
            return Progress::Wait;
        }
        if terms.work_waits && self.patience.is_none() {
            self.patience = terms.patience_ms.map(Limit::new);
        }
        if self.patience.is_some_and(|limit| limit.is_over()) {
            return self.fail(turn);
        }
        let Some(stage) = self.stage.take() else {
            return Progress::Over;
        };
        match self.go_on(turn, &terms, stage) {
            Outcome::Go(stage) => {
                self.stage = Some(stage);
                Progress::Go
            }
            Outcome::Wait(stage) => {
                self.set_timer(turn, &stage);
                self.stage = Some(stage);
                Progress::Wait
            }
            Outcome::Retry => {
                self.stage = Some(self.again(&terms));
                Progress::Go
            }
            Outcome::Fail => self.fail(turn),
        }
    }

    /// Looks after the stream.
    fn run(&mut self, turn: &mut Turn<'_>, terms: &Terms, stream: &Arc<Stream>) -> Progress {
        if turn.notes.quit && !self.closing {
            self.closing = true;
            stream.close(Close::Abort);
        }
        // The time-out may not have been known at the start.
        if terms.local_psn.is_some() && !self.timed {
            self.timed = true;
            stream.set_patience(terms.patience_ms.unwrap_or(0), terms.waits_for_receives);
        }
        turn.timer.clear();
        Progress::Wait
    }

    /// Sees to it that the endpoint wakes when a time is over.
    fn set_timer(&self, turn: &mut Turn<'_>, stage: &Stage) {
        let limits = [stage.limit(), self.patience];
        match limits.iter().flatten().map(Limit::remaining).min() {
            Some(millis) => turn.timer.set(millis),
            None => turn.timer.clear(),
        }
    }

    /// The stage at which the next attempt begins.
    fn again(&mut self, terms: &Terms) -> Stage {
        if terms.role == Role::Responder {
            return Stage::Await(None);
        }
        self.attempt = None;
        if let Some(socket) = &self.means.socket {
            // Should it fail, so does the next attempt.
            let _ = socket.disconnect();
        }
        // Half of the time to all of it: those who failed at once do not come again at once.
        let half = self.pause_ms / 2;
        let pause = half.saturating_add(random::u32() % half.saturating_add(1));
        self.pause_ms = self.pause_ms.saturating_mul(2).min(MAX_PAUSE_MS);
        Stage::Pause(Limit::new(pause))
    }

    /// There will be no connection.
    fn fail(&self, turn: &mut Turn<'_>) -> Progress {
        turn.device.counters().add(Counter::Rejects, 1);
        self.qp.qp().give_up();
        Progress::Over
    }

    /// Goes on at a stage before the stream.
    #[inline(never)]
    fn go_on(&mut self, turn: &mut Turn<'_>, terms: &Terms, stage: Stage) -> Outcome {
        match stage {
            Stage::Hold(_) if terms.local_psn.is_some() => self.connect(turn, terms),
            Stage::Hold(limit) | Stage::Pause(limit) if limit.is_over() => {
                self.connect(turn, terms)
            }
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
                if let Some(socket) = &self.means.socket {
                    let _ = socket.disconnect();
                }
                self.connect(turn, terms)
            }
            Stage::Request(mut frame, limit, said) => match self.send(&mut frame) {
                Ok(true) => match FrameReader::new(FrameKind::Reply) {
                    Ok(frame) => Outcome::Go(Stage::Reply(frame, limit, said)),
                    Err(_) => Outcome::Retry,
                },
                Ok(false) if !limit.is_over() => Outcome::Wait(Stage::Request(frame, limit, said)),
                _ => Outcome::Retry,
            },
            Stage::Reply(frame, limit, said) => self.conclude(turn, terms, (frame, limit, said)),
            Stage::Await(Some(visitor)) => self.consider(turn, terms, visitor),
            Stage::Answer(frame, answer) => self.answer(frame, answer),
            Stage::Answered(answer) => self.begin(turn, terms, answer),
            waiting => Outcome::Wait(waiting),
        }
    }

    /// The state of the initiator's connection.
    fn tcp_state(&self) -> TcpState {
        match &self.means.socket {
            Some(socket) => socket.tcp_state(),
            None => TcpState::Close,
        }
    }

    /// Sends of the Request what TCP takes; whether that is the rest of it.
    fn send(&self, frame: &mut FrameWriter) -> Result<bool> {
        frame.send(self.means.socket.as_ref().ok_or(EPIPE)?)
    }

    /// Starts the stream.
    #[inline(never)]
    fn start(&self, turn: &mut Turn<'_>, socket: Socket, config: Config, claim: u32) -> Outcome {
        let owner = match config.mirror {
            true => self.qp.mirror_owner(),
            false => Ok(self.qp.owner()),
        };
        let Ok(owner) = owner else {
            return Outcome::Fail;
        };
        match Stream::start(self.qp.qp().clone(), socket, config, owner) {
            Ok(stream) => {
                turn.started(&stream);
                self.qp.qp().direct_connected(claim);
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
            Role::Responder => Self::Await(None),
            Role::Initiator | Role::Both => Self::Hold(Limit::new(HOLD_MS)),
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
            Self::Answer(_, answer) | Self::Answered(answer) => Some(answer.limit),
            Self::Await(_) | Self::Running(_) => None,
        }
    }

    /// The accepted socket.
    fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Await(Some(visitor)) => Some(&visitor.socket),
            Self::Answer(_, answer) | Self::Answered(answer) => Some(&answer.socket),
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
