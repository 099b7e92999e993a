// SPDX-License-Identifier: GPL-2.0

//! The initiator of a connection (docs/rendezvous.md, section 3).

use super::{
    Outcome,
    Rendezvous,
    Stage, //
};
use crate::{
    cm::{
        endpoint::StepContext,
        mpa_frame::{
            terminate_reply,
            FrameReader,
            FrameWriter,
            ReadError, //
        },
        registry::AttemptSlot,
        stream_config,
        timer::Limit, //
    },
    params,
    qp::peer::Terms,
    rendezvous::{
        addresses,
        hello::Hello,
        request::{
            hello,
            judge,
            policy,
            Verdict, //
        },
    },
    stream::Role as StreamRole,
    sys::trace,
    verbs::counters::Counter, //
};
use iwarp_wire::RtrKind;

impl Rendezvous {
    /// Begins to connect the socket.
    #[inline(never)]
    pub(super) fn connect(&mut self, ctx: &mut StepContext<'_>, terms: &Terms) -> Outcome {
        let Some(socket) = &self.resources.socket else {
            return Outcome::Fail;
        };
        // An aborted attempt ends before the next one is counted.
        self.attempt = None;
        self.attempt = AttemptSlot::begin(ctx.device);
        if self.attempt.is_none() {
            return Outcome::Retry;
        }
        let (local, remote) = addresses(terms.reach, ctx.device.ifindex());
        let begin = || {
            if terms.traffic_class != 0 {
                socket.set_tos(terms.traffic_class);
            }
            socket.bind_address(&local)?;
            socket.connect_nonblocking(&remote)
        };
        match begin() {
            Ok(()) => Outcome::Go(Stage::Tcp(Limit::new(params::connect_timeout_ms()))),
            // An address and a route may appear later.
            Err(_) => Outcome::Retry,
        }
    }

    /// Prepares the Request.
    #[inline(never)]
    pub(super) fn greet(&self, terms: &Terms) -> Outcome {
        let said = hello(terms, self.qp.qp().qpn());
        let request = policy(self.asks_for_crc(), terms.ird);
        match FrameWriter::new(&request.request(&said.encode())) {
            Ok(frame) => {
                let limit = Limit::new(params::mpa_reply_timeout_ms());
                Outcome::Go(Stage::Request(frame, limit, said))
            }
            Err(_) => Outcome::Retry,
        }
    }

    /// Whether the settings of the device request CRCs.
    fn asks_for_crc(&self) -> bool {
        self.qp.qp().device().settings().crc()
    }

    /// Reads the Reply, and starts the stream.
    #[inline(never)]
    pub(super) fn conclude(
        &mut self,
        ctx: &mut StepContext<'_>,
        terms: &Terms,
        (mut reader, limit, said): (FrameReader, Limit, Hello),
    ) -> Outcome {
        let Some(socket) = &self.resources.socket else {
            return Outcome::Fail;
        };
        let frame = match reader.read(socket) {
            Ok(Some(frame)) => frame,
            Ok(None) if limit.is_over() => return Outcome::Retry,
            Ok(None) => return Outcome::Wait(Stage::Reply(reader, limit, said)),
            // Another service uses the port on the peer's host.
            Err(ReadError::Malformed(_)) => return Outcome::Fail,
            Err(ReadError::Closed | ReadError::Broken(_)) => return Outcome::Retry,
        };
        let policy = policy(self.asks_for_crc(), terms.ird);
        let agreed = match policy.conclude(&frame) {
            Ok(agreed) => agreed,
            Err(refusal) => {
                if let Some(reason) = refusal.terminate() {
                    terminate_reply(socket, &policy, &frame, reason);
                    // Closed without a reset, so that the Terminate arrives.
                    self.resources.socket = None;
                }
                return Outcome::Fail;
            }
        };
        let qpn = self.qp.qp().qpn();
        let Some(theirs) = Hello::parse(frame.private_data) else {
            return Outcome::Fail;
        };
        if judge(&theirs, terms, qpn) == Verdict::Mismatch {
            return Outcome::Fail;
        }
        let role = StreamRole::Initiator {
            rtr: Some(RtrKind::Write),
        };
        ctx.device.counters().add(Counter::Connects, 1);
        let config = stream_config(&agreed, role);
        self.attempt = None;
        match self.resources.socket.take() {
            Some(socket) => {
                let (local, remote) = socket.ends();
                trace::connect(qpn.get(), &local, &remote, Ok(()));
                self.start(ctx, socket, &agreed, config, theirs.expects)
            }
            None => Outcome::Fail,
        }
    }
}
