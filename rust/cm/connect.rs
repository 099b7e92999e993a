// SPDX-License-Identifier: GPL-2.0

//! The initiator's side of the start-up (RFC 5044 section 7.1.2, RFC 6581 sections 4 and 5).
//!
//! TCP connects, the Request is sent, the Reply arrives, the stream starts. A peer without support
//! for revision 2 closes the connection or replies with revision 1. The initiator then tries
//! revision 1 once, on a new connection (requirements.md EMC-05).

mod plan;

use iwarp_wire::{
    mpa::{
        negotiate::{
            Parameters,
            Refusal, //
        },
        startup::{
            Depths as WireDepths,
            Frame,
            FrameKind,
            Revision, //
        }, //
    },
    rdmap::terminate::MpaError,
    RtrKind,
    TerminateReason, //
};
use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};

use self::plan::Plan;
use super::{
    connected::Established,
    device::CmDevice,
    endpoint::{
        Attachment,
        Endpoint,
        Next,
        Phase,
        StepContext, //
    },
    mpa_frame::{
        terminate_reply,
        FrameReader,
        FrameWriter,
        ReadError, //
    },
    stream_config, //
};
use crate::{
    params,
    stream::Role,
    sys::{
        errno::{
            EADDRNOTAVAIL,
            ECONNREFUSED,
            ECONNRESET,
            EHOSTUNREACH,
            ENETDOWN,
            ENETUNREACH,
            EPROTO, //
        },
        net::socket::{
            Socket,
            TcpState, //
        },
        rdma::iwcm::{
            ConnParam,
            ConnectCall,
            Connecting,
            Depths,
            Peers,
            PrivateData, //
        },
        trace, //
    },
    verbs::counters::{
        ConnFailure,
        Counter, //
    }, //
};

/// Begins to connect on behalf of `iw_cm`. Process context; sleeps.
///
/// # Errors
///
/// `ENETDOWN`: the device or the address is being removed, of which kernel users are notified one
/// by one. `EINVAL`: no such queue pair, or too much private data.
pub(crate) fn connect(
    device: &Arc<CmDevice>,
    call: ConnectCall<'_>,
    param: &ConnParam<'_>,
) -> Result {
    begin(device, call, param).map_err(|error| match error {
        // The device or the address may be missing in every step. NFS passes these two errors on
        // to the program that writes.
        ENODEV | EADDRNOTAVAIL => ENETDOWN,
        other => other,
    })
}

/// As [`connect`], but the error names what is missing: device, address or queue pair.
fn begin(device: &Arc<CmDevice>, call: ConnectCall<'_>, param: &ConnParam<'_>) -> Result {
    if device.going() {
        return Err(ENODEV);
    }
    let qp = device.qp_of(param).ok_or(EINVAL)?;
    let endpoint = Endpoint::new(device)?;
    endpoint.change(|_, ctx| {
        let begun = || {
            let plan = Plan::new(&call, param, device.settings())?;
            // Checks the size of the private data early.
            plan.request()?;
            let qp = Attachment::new(qp, ctx.endpoint)?;
            let socket = plan.open(ctx)?;
            Ok((plan, qp, socket))
        };
        let (plan, qp, socket) = begun().map_err(|error| (error, Phase::Over))?;
        let initiation = Initiation {
            call: call.commit(ctx.endpoint.handle()),
            plan,
            qp,
            socket,
        };
        Ok(Phase::Initiator(Initiator {
            initiation,
            stage: RequestStage::Tcp,
        }))
    })
}

/// The state of an initiator that all stages have in common.
struct Initiation {
    /// The committed connect, for which `iw_cm` awaits CONNECT_REPLY.
    call: Connecting,
    /// The parameters of the connect call.
    plan: Plan,
    /// The queue pair.
    qp: Attachment,
    socket: Socket,
}

/// The stage of an initiator.
///
/// | stage | event | next |
/// | --- | --- | --- |
/// | Tcp | established | Request |
/// | Request | sent | Reply |
/// | Request, Reply | peer closes, revision 1 not tried | Tcp, with revision 1 |
/// | Reply | revision 1 | Tcp, with revision 1 |
/// | Reply | accepted | the stream starts, the connection is established |
/// | Reply | refused | the failure is reported to `iw_cm` |
/// | any | failure, time-out, abort | the failure is reported to `iw_cm` |
enum RequestStage {
    /// TCP connects.
    Tcp,
    /// The Request is being sent.
    Request(FrameWriter),
    /// The Reply is being received.
    Reply(FrameReader),
}

/// An initiator in its start-up.
pub(crate) struct Initiator {
    /// The state that all stages have in common.
    initiation: Initiation,
    stage: RequestStage,
}

impl Initiator {
    /// The stage, for `rdma resource show`.
    pub(crate) fn name(&self) -> &'static CStr {
        match self.stage {
            RequestStage::Tcp => c"connects_tcp",
            RequestStage::Request(_) => c"sends_request",
            RequestStage::Reply(_) => c"awaits_reply",
        }
    }

    /// The revision of MPA in the Request.
    pub(crate) fn revision(&self) -> u32 {
        match self.initiation.plan.policy.revision {
            Revision::One => 1,
            Revision::Two => 2,
        }
    }

    /// Makes all steps that are possible without waiting.
    #[inline(never)]
    pub(crate) fn step(self, ctx: &mut StepContext<'_>) -> Next {
        let Self { initiation, stage } = self;
        if ctx.notes.quit {
            return initiation.abort(ctx, ECONNRESET);
        }
        match stage {
            RequestStage::Tcp => initiation.tcp(ctx),
            RequestStage::Request(frame) => initiation.send(ctx, frame),
            RequestStage::Reply(frame) => initiation.receive(ctx, frame),
        }
    }
}

impl Initiation {
    /// Waits for the next note in `stage`, or aborts after the time limit.
    fn wait(self, ctx: &mut StepContext<'_>, stage: RequestStage) -> Next {
        if ctx.timer.is_over() {
            return self.abort(ctx, ETIMEDOUT);
        }
        Next::Wait(Phase::Initiator(Initiator {
            initiation: self,
            stage,
        }))
    }

    /// Checks TCP's state.
    #[inline(never)]
    fn tcp(self, ctx: &mut StepContext<'_>) -> Next {
        match self.socket.tcp_state() {
            // A peer may have closed its half before this check.
            TcpState::Established | TcpState::CloseWait => match self.plan.request() {
                Ok(frame) => {
                    ctx.timer.set(params::mpa_reply_timeout_ms());
                    let stage = RequestStage::Request(frame);
                    Next::Go(Phase::Initiator(Initiator {
                        initiation: self,
                        stage,
                    }))
                }
                Err(error) => self.abort(ctx, error),
            },
            TcpState::SynSent | TcpState::SynRecv => self.wait(ctx, RequestStage::Tcp),
            _ => {
                let error = self.socket.take_error().unwrap_or(ECONNRESET);
                self.abort(ctx, error)
            }
        }
    }

    /// Sends the Request.
    #[inline(never)]
    fn send(self, ctx: &mut StepContext<'_>, mut frame: FrameWriter) -> Next {
        match frame.send(&self.socket) {
            Ok(true) => match FrameReader::new(FrameKind::Reply) {
                Ok(frame) => {
                    let stage = RequestStage::Reply(frame);
                    Next::Go(Phase::Initiator(Initiator {
                        initiation: self,
                        stage,
                    }))
                }
                Err(error) => self.abort(ctx, error),
            },
            Ok(false) => self.wait(ctx, RequestStage::Request(frame)),
            Err(_) => self.closed_early(ctx),
        }
    }

    /// Reads the Reply.
    #[inline(never)]
    fn receive(self, ctx: &mut StepContext<'_>, mut reader: FrameReader) -> Next {
        match reader.read(&self.socket) {
            Ok(None) => self.wait(ctx, RequestStage::Reply(reader)),
            Ok(Some(frame)) => match self.plan.policy.conclude(&frame) {
                Ok(agreed) => self.establish(ctx, &frame, &agreed),
                Err(refusal) => self.refused(ctx, &frame, refusal),
            },
            // The same call may read the first octets of a Reply and find the end of the
            // connection.
            Err(error) => match (error, reader.is_empty()) {
                (ReadError::Malformed(_), _) => self.abort(ctx, EPROTO),
                (ReadError::Closed | ReadError::Broken(_), true) => self.closed_early(ctx),
                (ReadError::Closed, false) => self.abort(ctx, ECONNRESET),
                (ReadError::Broken(error), false) => self.abort(ctx, error),
            },
        }
    }

    /// Handles the end of the connection before any octet of a Reply.
    fn closed_early(self, ctx: &mut StepContext<'_>) -> Next {
        if self.may_fall_back() {
            return self.fall_back(ctx);
        }
        self.abort(ctx, ECONNRESET)
    }

    /// Whether an attempt with revision 1 is left.
    fn may_fall_back(&self) -> bool {
        params::rev1_fallback() && self.plan.policy.revision == Revision::Two
    }

    /// Begins a second attempt, with revision 1.
    fn fall_back(self, ctx: &mut StepContext<'_>) -> Next {
        let Self {
            call,
            mut plan,
            qp,
            socket,
        } = self;
        plan.policy.revision = Revision::One;
        plan.policy.peer_to_peer = false;
        // The new connection has the same two addresses, so the old one must be closed completely.
        // The socket is reused, since this context is not the process that owns it.
        let begun = socket
            .disconnect()
            .and_then(|()| plan.connect(&socket, ctx));
        let initiation = Self {
            call,
            plan,
            qp,
            socket,
        };
        match begun {
            Ok(()) => Next::Go(Phase::Initiator(Initiator {
                initiation,
                stage: RequestStage::Tcp,
            })),
            Err(error) => initiation.close(ctx, error, Depths::NONE),
        }
    }

    /// Handles a Reply with which no connection is possible.
    fn refused(self, ctx: &mut StepContext<'_>, frame: &Frame<'_>, refusal: Refusal) -> Next {
        if refusal == Refusal::Revision && self.may_fall_back() {
            return self.fall_back(ctx);
        }
        if let Some(reason) = refusal.terminate() {
            self.terminate(frame, reason);
        }
        self.close_for(ctx, Report::of_refusal(frame, refusal))
    }

    /// Sends a Terminate as the first and last FPDU.
    fn terminate(&self, frame: &Frame<'_>, reason: TerminateReason) {
        terminate_reply(&self.socket, &self.plan.policy, frame, reason);
    }

    /// Ends the connection after a valid Reply, for a reason of this end.
    fn fail(self, ctx: &mut StepContext<'_>, frame: &Frame<'_>, error: Error) -> Next {
        // Revision 1 has no Terminate for this error.
        if frame.enhanced.is_none() {
            return self.abort(ctx, error);
        }
        self.terminate(frame, TerminateReason::Mpa(MpaError::LocalCatastrophic));
        self.close(ctx, error, said_by(frame))
    }

    /// Starts the stream after a valid Reply, and reports the connection to `iw_cm`.
    fn establish(self, ctx: &mut StepContext<'_>, frame: &Frame<'_>, agreed: &Parameters) -> Next {
        // Private data that does not fit into the event is left out whole (requirements.md
        // VRB-07), and the connection fails.
        let Some(data) = PrivateData::new(frame.private_data) else {
            return self.fail(ctx, frame, EMSGSIZE);
        };
        let local = match self.socket.local_addr() {
            Ok(local) => local,
            Err(error) => return self.fail(ctx, frame, error),
        };
        let Self {
            call,
            plan,
            qp,
            socket,
        } = self;
        let peers = Peers {
            local,
            remote: plan.peers.remote,
        };
        let config = stream_config(
            agreed,
            Role::Initiator {
                rtr: first_frame(agreed),
            },
        );
        qp.qp().set_depths(agreed.ird, agreed.ord);
        match qp.qp().start_stream(socket, config, qp.user()) {
            Ok(stream) => {
                ctx.started(&stream);
                ctx.timer.clear();
                ctx.device.counters().add(Counter::Connects, 1);
                trace::connect(qp.qp().qpn().get(), &peers.local, &peers.remote, Ok(()));
                // The depths of the Reply, or without them those that this end uses.
                let said = frame.depths_or(WireDepths {
                    ird: agreed.ord,
                    ord: agreed.ird,
                });
                let depths = depths_of(said);
                let cm = call.connected(&peers, depths, data).ok();
                let failed = cm.is_none() && frame.enhanced.is_some();
                let connected = Established::new(cm, stream, qp, None);
                Next::Go(Phase::Established(if failed {
                    connected.after_failed_set_up()
                } else {
                    connected
                }))
            }
            Err((error, socket)) => Self {
                call,
                plan,
                qp,
                socket,
            }
            .fail(ctx, frame, error),
        }
    }

    /// Ends the attempt with a failure, and resets the connection.
    fn abort(self, ctx: &mut StepContext<'_>, error: Error) -> Next {
        self.socket.set_linger_abort();
        self.close(ctx, error, Depths::NONE)
    }

    /// Ends the attempt with a failure. `iw_cm` is notified after the port and the queue pair are
    /// released.
    fn close(self, ctx: &mut StepContext<'_>, error: Error, said: Depths) -> Next {
        let report = Report {
            failure: ConnFailure::Error(error),
            error,
            said,
            data: &[],
        };
        self.close_for(ctx, report)
    }

    /// As [`close`](Self::close), with a report of any content.
    fn close_for(self, ctx: &mut StepContext<'_>, report: Report<'_>) -> Next {
        let Report {
            failure,
            error,
            said,
            data,
        } = report;
        let Peers { local, remote } = self.plan.peers;
        let local = self.socket.local_addr().unwrap_or(local);
        trace::connect(self.qp.qp().qpn().get(), &local, &remote, Err(error));
        ctx.device.counters().connection_failed(failure);
        drop(self.socket);
        drop(self.qp);
        // Private data that does not fit into the event is left out whole.
        let data = PrivateData::new(data).unwrap_or(PrivateData::NONE);
        self.call.failed(status_of(error), said, data);
        Next::Wait(Phase::Over)
    }
}

/// The report of a failed attempt to counters and to `iw_cm`.
struct Report<'a> {
    /// The counted failure.
    failure: ConnFailure,
    /// The result of the connect, from which the status of the event follows.
    error: Error,
    /// The peer's depths.
    said: Depths,
    /// The peer's private data.
    data: &'a [u8],
}

impl<'a> Report<'a> {
    /// The report of a Reply with which no connection is possible. The depths of the Reply are in
    /// each, and its private data in that of a reject.
    fn of_refusal(frame: &Frame<'a>, refusal: Refusal) -> Self {
        let said = said_by(frame);
        match refusal {
            Refusal::Rejected => Self {
                failure: ConnFailure::Rejected,
                error: ECONNREFUSED,
                said,
                data: frame.private_data,
            },
            Refusal::Revision | Refusal::InsufficientIrd | Refusal::NoMatchingRtr => Self {
                failure: ConnFailure::Error(EPROTO),
                error: EPROTO,
                said,
                data: &[],
            },
        }
    }
}

/// The empty frame that this end sends first.
///
/// A responder sends nothing before it has received an FPDU (RFC 5044 section 7.1.2). An
/// application whose server sends first would wait without end. Without an agreed RTR frame, an
/// RDMA Write of length 0 prevents that, too. The peer handles it as any other Write, and it has
/// no effect.
fn first_frame(agreed: &Parameters) -> Option<RtrKind> {
    agreed.rtr.preferred().or(Some(RtrKind::Write))
}

/// The depths of the peer in an event of an initiator.
///
/// `cma.c` copies the IRD of an event to `initiator_depth`, and the ORD to `responder_resources`.
/// Users of iWARP interpret both as the peer's own values (`fs/smb/smbdirect/connect.c`). So the
/// event carries the peer's ORD as its IRD, and the peer's IRD as its ORD.
fn depths_of(said: WireDepths) -> Depths {
    Depths::new(said.ord, said.ird)
}

/// The peer's depths in a Reply that leads to no connection, for an event.
fn said_by(frame: &Frame<'_>) -> Depths {
    depths_of(frame.depths_or(WireDepths { ird: 0, ord: 0 }))
}

/// The error that `iw_cm` receives for an error of TCP. Users of `iw_cm` distinguish three cases.
fn status_of(error: Error) -> Error {
    if error == EHOSTUNREACH || error == ENETUNREACH {
        ETIMEDOUT
    } else if error == EPIPE {
        ECONNRESET
    } else {
        error
    }
}

#[kunit_tests(rsiw_cm_connect)]
mod tests {
    use super::*;
    use iwarp_wire::mpa::startup::{
        Depth,
        Enhanced,
        RtrKinds, //
    };

    /// RFC 6581 section 9.1: the initiator's user learns the depths of a Reply that rejects.
    #[test]
    fn depths_of_a_reject_are_told() {
        let mut reply = Frame {
            kind: FrameKind::Reply,
            revision: Revision::Two,
            markers: false,
            crc: true,
            rejected: true,
            enhanced: Some(Enhanced {
                peer_to_peer: false,
                rtr: RtrKinds::NONE,
                ird: Depth::new(3),
                ord: Depth::new(5),
            }),
            private_data: b"no",
        };
        let report = Report::of_refusal(&reply, Refusal::Rejected);
        assert!(report.failure == ConnFailure::Rejected && report.error == ECONNREFUSED);
        assert!(report.said == Depths::new(5, 3));
        assert!(report.data == b"no");
        for refusal in [
            Refusal::Revision,
            Refusal::InsufficientIrd,
            Refusal::NoMatchingRtr,
        ] {
            let report = Report::of_refusal(&reply, refusal);
            assert!(report.failure == ConnFailure::Error(EPROTO) && report.error == EPROTO);
            assert!(report.said == Depths::new(5, 3));
            assert!(report.data.is_empty());
        }
        reply.enhanced = None;
        assert!(Report::of_refusal(&reply, Refusal::Rejected).said == Depths::NONE);
    }
}
