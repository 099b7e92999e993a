// SPDX-License-Identifier: GPL-2.0

//! The responder of a connection (docs/direct-mode.md, section 4), which a queue pair that is
//! connected to itself is too.

use kernel::prelude::*;

use super::{
    Answer,
    Direct,
    Mirror,
    Outcome,
    Stage, //
};
use crate::{
    cm::{
        direct::visitor::{
            Verdict,
            Visitor, //
        },
        endpoint::Turn,
        frame::FrameWriter,
        stream_config,
        timer::Limit, //
    },
    params,
    stream::{
        Config,
        Role as StreamRole, //
    },
    verbs::{
        counters::Counter,
        direct::{
            Role,
            Terms, //
        }, //
    },
};

/// Octets behind the Reply that are read before the stream begins.
const FIRST_OCTETS: usize = 64;

impl Direct {
    /// Goes on with the receiving end where the peer is the queue pair itself. When that fails the
    /// sending end notices.
    #[inline(never)]
    pub(super) fn reflect(&mut self, turn: &mut Turn<'_>, terms: &Terms) {
        loop {
            self.mirror = match core::mem::replace(&mut self.mirror, Mirror::None) {
                Mirror::None => return,
                Mirror::Answer(frame, answer) => match self.answer(frame, answer) {
                    Outcome::Go(Stage::Answered(answer)) => Mirror::Answered(answer),
                    Outcome::Wait(Stage::Answer(frame, answer)) => {
                        self.mirror = Mirror::Answer(frame, answer);
                        return;
                    }
                    _ => Mirror::None,
                },
                Mirror::Answered(answer) => match self.begin(turn, terms, answer) {
                    Outcome::Wait(Stage::Answered(answer)) => {
                        self.mirror = Mirror::Answered(answer);
                        return;
                    }
                    _ => Mirror::None,
                },
            };
        }
    }

    /// Looks whether a visitor is the peer.
    #[inline(never)]
    pub(super) fn consider(&self, turn: &mut Turn<'_>, terms: &Terms, visitor: Visitor) -> Outcome {
        let qpn = self.qp.qp().qpn();
        if visitor.is_gone() {
            return Outcome::Wait(Stage::Await(None));
        }
        match visitor.verdict(terms, qpn, turn.device.ifindex()) {
            Verdict::Unproven => Outcome::Wait(Stage::Await(Some(visitor))),
            Verdict::Stranger => {
                self.count_guess(turn, terms, &visitor);
                visitor.refuse();
                Outcome::Wait(Stage::Await(None))
            }
            Verdict::Peer => match self.let_in(terms, visitor) {
                Ok((frame, answer)) => Outcome::Go(Stage::Answer(frame, answer)),
                Err(_) => Outcome::Retry,
            },
        }
    }

    /// Counts a wrong guess: the hello named the queue pair and its peer, with packet sequence
    /// numbers that are not theirs.
    fn count_guess(&self, turn: &Turn<'_>, terms: &Terms, visitor: &Visitor) {
        let guesser = visitor.guesser(terms, self.qp.qp().qpn(), turn.device.ifindex());
        if let (Some(entry), Some(guesser)) = (&self.means.entry, guesser) {
            entry.door().has_guessed(guesser);
        }
    }

    /// Whether the connection is closed unheard, since too many guesses came from its address.
    fn is_silenced(&self, turn: &Turn<'_>, terms: &Terms, visitor: &Visitor) -> bool {
        let guesser = visitor.guesser(terms, self.qp.qp().qpn(), turn.device.ifindex());
        match (&self.means.entry, guesser) {
            (Some(entry), Some(guesser)) => !entry.door().may_guess(guesser),
            _ => false,
        }
    }

    /// Prepares the Reply for the peer. The connection belongs to the queue pair's owner from now on.
    fn let_in(&self, terms: &Terms, visitor: Visitor) -> Result<(FrameWriter, Answer)> {
        visitor
            .socket
            .inherit(self.means.owner.as_ref().ok_or(EINVAL)?)?;
        let (frame, agreed) = visitor.accept(terms, self.qp.qp().qpn())?;
        let answer = Answer {
            agreed,
            claim: visitor.hello.expects,
            limit: Limit::new(params::mpa_request_timeout_ms()),
            socket: visitor.socket,
        };
        Ok((frame, answer))
    }

    /// Sends the Reply.
    #[inline(never)]
    pub(super) fn answer(&self, mut frame: FrameWriter, answer: Answer) -> Outcome {
        match frame.send(&answer.socket) {
            Ok(true) => Outcome::Go(Stage::Answered(answer)),
            Ok(false) if !answer.limit.is_over() => Outcome::Wait(Stage::Answer(frame, answer)),
            _ => Outcome::Retry,
        }
    }

    /// Starts the stream when the first octets of the peer's first FPDU are there.
    #[inline(never)]
    pub(super) fn begin(&self, turn: &mut Turn<'_>, terms: &Terms, answer: Answer) -> Outcome {
        let mut octets = [0; FIRST_OCTETS];
        let len = match answer.socket.recv_nonblocking(&mut octets) {
            Err(EAGAIN) if !answer.limit.is_over() => {
                return Outcome::Wait(Stage::Answered(answer));
            }
            // The peer has begun anew, and comes again.
            Ok(0) | Err(_) => return Outcome::Retry,
            Ok(len) => len,
        };
        let mut initial = KVec::new();
        let copied = initial.extend_from_slice(octets.get(..len).unwrap_or_default(), GFP_KERNEL);
        if copied.is_err() {
            return Outcome::Fail;
        }
        let Answer {
            socket,
            agreed,
            claim,
            ..
        } = answer;
        let role = StreamRole::Responder { rtr: agreed.rtr };
        turn.device.counters().add(Counter::Accepts, 1);
        let config = Config {
            initial,
            mirror: terms.role == Role::Both,
            ..stream_config(&agreed, role)
        };
        self.start(turn, socket, config, claim)
    }

    /// Somebody wants this queue pair.
    #[inline(never)]
    pub(in crate::cm::direct) fn visit(&mut self, turn: &mut Turn<'_>, visitor: Visitor) {
        let qp = self.qp.qp();
        let Some(terms) = qp.terms() else {
            visitor.refuse();
            return;
        };
        let stage = match self.stage.take() {
            Some(stage) => stage,
            None => Stage::first(&terms),
        };
        if self.is_silenced(turn, &terms, &visitor) {
            visitor.dismiss();
            self.stage = Some(stage);
            return;
        }
        let verdict = visitor.verdict(&terms, qp.qpn(), turn.device.ifindex());
        if verdict == Verdict::Stranger {
            self.count_guess(turn, &terms, &visitor);
        }
        if terms.role == Role::Both {
            self.stage = Some(stage);
            self.meet_itself(turn, &terms, visitor, verdict);
            return;
        }
        self.stage = Some(match (stage, verdict) {
            // One who can prove it displaces one who has not gone on, and anybody one who can not.
            (Stage::Await(_) | Stage::Answer(..) | Stage::Answered(_), Verdict::Peer)
            | (Stage::Await(_), Verdict::Unproven) => {
                visitor.socket.install(turn.endpoint.clone());
                Stage::Await(Some(visitor))
            }
            // He may come again.
            (stage @ (Stage::Answer(..) | Stage::Answered(_)), Verdict::Unproven) => stage,
            (stage, _) => {
                visitor.refuse();
                stage
            }
        });
    }

    /// Lets in a visitor where the peer is the queue pair itself.
    fn meet_itself(
        &mut self,
        turn: &mut Turn<'_>,
        terms: &Terms,
        visitor: Visitor,
        verdict: Verdict,
    ) {
        let waits = matches!(self.stage, Some(Stage::Request(..) | Stage::Reply(..)));
        // It need not know its own number yet, but it does know which one it expects.
        let ours = visitor.hello.expects == terms.remote_psn;
        match verdict {
            Verdict::Peer | Verdict::Unproven if waits && ours => {
                visitor.socket.install(turn.endpoint.clone());
                if let Ok((frame, answer)) = self.let_in(terms, visitor) {
                    self.mirror = Mirror::Answer(frame, answer);
                }
            }
            _ => {
                if verdict != Verdict::Stranger && !ours {
                    self.count_guess(turn, terms, &visitor);
                }
                visitor.refuse();
            }
        }
    }
}
