// SPDX-License-Identifier: GPL-2.0

//! The responder of a connection (docs/rendezvous.md, section 4), and the receiving end of a queue
//! pair that is connected to itself.

use kernel::prelude::*;

use super::{
    Mirror,
    Outcome,
    PendingReply,
    Rendezvous,
    Stage, //
};
use crate::{
    cm::{
        endpoint::StepContext,
        mpa_frame::FrameWriter,
        stream_config,
        timer::Limit, //
    },
    params,
    qp::peer::{
        RendezvousRole,
        Terms, //
    },
    rendezvous::request::{
        ConnRequest,
        Verdict, //
    },
    stream::{
        Config,
        Role as StreamRole, //
    },
    sys::trace,
    verbs::counters::Counter, //
};

/// The maximum number of octets after the Reply that are read before the stream starts.
const FIRST_OCTETS: usize = 64;

impl Rendezvous {
    /// Makes the steps of the receiving end if the peer is the queue pair itself. A failure closes
    /// its connection, which the sending end detects.
    #[inline(never)]
    pub(super) fn advance_mirror(&mut self, ctx: &mut StepContext<'_>, terms: &Terms) {
        loop {
            self.mirror = match core::mem::replace(&mut self.mirror, Mirror::None) {
                Mirror::None => return,
                Mirror::PendingReply(frame, answer) => match self.answer(frame, answer) {
                    Outcome::Go(Stage::Answered(answer)) => Mirror::Answered(answer),
                    Outcome::Wait(Stage::PendingReply(frame, answer)) => {
                        self.mirror = Mirror::PendingReply(frame, answer);
                        return;
                    }
                    _ => Mirror::None,
                },
                Mirror::Answered(answer) => match self.begin(ctx, terms, answer) {
                    Outcome::Wait(Stage::Answered(answer)) => {
                        self.mirror = Mirror::Answered(answer);
                        return;
                    }
                    _ => Mirror::None,
                },
            };
        }
    }

    /// Checks whether a request is from the peer.
    #[inline(never)]
    pub(super) fn judge_request(
        &self,
        ctx: &mut StepContext<'_>,
        terms: &Terms,
        request: ConnRequest,
    ) -> Outcome {
        let qpn = self.qp.qp().qpn();
        if request.is_closed() {
            return Outcome::Wait(Stage::Await(None));
        }
        match request.verdict(terms, qpn, ctx.device.ifindex()) {
            Verdict::Unproven => Outcome::Wait(Stage::Await(Some(request))),
            Verdict::Mismatch => {
                self.count_guess(ctx, terms, &request);
                request.refuse();
                Outcome::Wait(Stage::Await(None))
            }
            Verdict::Peer => match self.accept_request(terms, request) {
                Ok((frame, answer)) => Outcome::Go(Stage::PendingReply(frame, answer)),
                Err(_) => Outcome::Retry,
            },
        }
    }

    /// Counts a wrong guess: the hello named the queue pair and its peer, with packet sequence
    /// numbers that are not theirs.
    fn count_guess(&self, ctx: &StepContext<'_>, terms: &Terms, request: &ConnRequest) {
        let guesser = request.guesser(terms, self.qp.qp().qpn(), ctx.device.ifindex());
        if let (Some(share), Some(guesser)) = (&self.resources.share, guesser) {
            share.listener().has_guessed(guesser);
        }
    }

    /// Whether the connection is reset without a Reply, because of too many guesses from its
    /// address.
    fn is_silenced(&self, ctx: &StepContext<'_>, terms: &Terms, request: &ConnRequest) -> bool {
        let guesser = request.guesser(terms, self.qp.qp().qpn(), ctx.device.ifindex());
        match (&self.resources.share, guesser) {
            (Some(share), Some(guesser)) => !share.listener().may_guess(guesser),
            _ => false,
        }
    }

    /// Prepares the Reply to the peer. The connection is assigned to the owner of the queue pair
    /// from now on.
    fn accept_request(
        &self,
        terms: &Terms,
        request: ConnRequest,
    ) -> Result<(FrameWriter, PendingReply)> {
        request
            .socket
            .inherit(self.resources.owner.as_ref().ok_or(EINVAL)?)?;
        let (frame, agreed) = request.accept(terms, self.qp.qp())?;
        let answer = PendingReply {
            agreed,
            claim: request.hello.expects,
            limit: Limit::new(params::mpa_request_timeout_ms()),
            socket: request.socket,
        };
        Ok((frame, answer))
    }

    /// Sends the Reply.
    #[inline(never)]
    pub(super) fn answer(&self, mut frame: FrameWriter, answer: PendingReply) -> Outcome {
        match frame.send(&answer.socket) {
            Ok(true) => Outcome::Go(Stage::Answered(answer)),
            Ok(false) if !answer.limit.is_over() => {
                Outcome::Wait(Stage::PendingReply(frame, answer))
            }
            _ => Outcome::Retry,
        }
    }

    /// Starts the stream when the first octets of the peer's first FPDU have arrived.
    #[inline(never)]
    pub(super) fn begin(
        &self,
        ctx: &mut StepContext<'_>,
        terms: &Terms,
        answer: PendingReply,
    ) -> Outcome {
        let mut octets = [0; FIRST_OCTETS];
        let len = match answer.socket.recv_nonblocking(&mut octets) {
            Err(EAGAIN) if !answer.limit.is_over() => {
                return Outcome::Wait(Stage::Answered(answer));
            }
            // An initiator with the Reply does not retry, and TCP delivers the Reply first.
            Err(EAGAIN) => {
                answer.terminate();
                return Outcome::Retry;
            }
            // The peer has aborted this attempt, and will retry.
            Ok(0) | Err(_) => return Outcome::Retry,
            Ok(len) => len,
        };
        let mut initial = KVec::new();
        let copied = initial.extend_from_slice(octets.get(..len).unwrap_or_default(), GFP_KERNEL);
        if copied.is_err() {
            answer.terminate();
            return Outcome::Fail;
        }
        let PendingReply {
            socket,
            agreed,
            claim,
            ..
        } = answer;
        let role = StreamRole::Responder { rtr: agreed.rtr };
        ctx.device.counters().add(Counter::Accepts, 1);
        let (local, remote) = socket.ends();
        trace::accept(self.qp.qp().qpn().get(), &local, &remote, Ok(()));
        let config = Config {
            initial,
            mirror: terms.role == RendezvousRole::Both,
            ..stream_config(&agreed, role)
        };
        self.start(ctx, socket, &agreed, config, claim)
    }

    /// Handles a connection request for this queue pair.
    #[inline(never)]
    pub(in crate::rendezvous) fn handle_request(
        &mut self,
        ctx: &mut StepContext<'_>,
        request: ConnRequest,
    ) {
        let qp = self.qp.qp();
        let Some(terms) = qp.terms() else {
            request.refuse();
            return;
        };
        let stage = match self.stage.take() {
            Some(stage) => stage,
            None => Stage::first(&terms),
        };
        if self.is_silenced(ctx, &terms, &request) {
            request.reset();
            self.stage = Some(stage);
            return;
        }
        let verdict = request.verdict(&terms, qp.qpn(), ctx.device.ifindex());
        if verdict == Verdict::Mismatch {
            self.count_guess(ctx, &terms, &request);
        }
        if terms.role == RendezvousRole::Both {
            self.stage = Some(stage);
            self.accept_own_request(ctx, &terms, request, verdict);
            return;
        }
        self.stage = Some(match (stage, verdict) {
            // A proven request replaces one whose first FPDU has not arrived. An unproven request
            // replaces one without a Reply.
            (Stage::Await(_) | Stage::PendingReply(..) | Stage::Answered(_), Verdict::Peer)
            | (Stage::Await(_), Verdict::Unproven) => {
                request.socket.install(ctx.endpoint.clone());
                Stage::Await(Some(request))
            }
            // The request is dropped without a Reply, so that the peer may retry.
            (stage @ (Stage::PendingReply(..) | Stage::Answered(_)), Verdict::Unproven) => stage,
            (stage, _) => {
                request.refuse();
                stage
            }
        });
    }

    /// Handles a request if the peer is the queue pair itself.
    fn accept_own_request(
        &mut self,
        ctx: &mut StepContext<'_>,
        terms: &Terms,
        request: ConnRequest,
        verdict: Verdict,
    ) {
        let waits = matches!(self.stage, Some(Stage::Request(..) | Stage::Reply(..)));
        // This end may not have its own packet sequence number yet. But the number that it expects
        // of the peer is set.
        let ours = request.hello.expects == terms.remote_psn;
        match verdict {
            Verdict::Peer | Verdict::Unproven if waits && ours => {
                request.socket.install(ctx.endpoint.clone());
                if let Ok((frame, answer)) = self.accept_request(terms, request) {
                    self.mirror = Mirror::PendingReply(frame, answer);
                }
            }
            _ => {
                if verdict != Verdict::Mismatch && !ours {
                    self.count_guess(ctx, terms, &request);
                }
                request.refuse();
            }
        }
    }
}
