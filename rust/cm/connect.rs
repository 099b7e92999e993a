// SPDX-License-Identifier: GPL-2.0

//! The initiator's side of the start-up (RFC 5044 section 7.1.2, RFC 6581 sections 4 and 5).
//!
//! TCP connects, the Request goes out, the Reply comes in, the stream starts. A peer that does not
//! know revision 2 closes the connection or answers in revision 1. Then revision 1 is tried once,
//! on a new connection (requirements.md EMC-05).

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
        send_terminate,
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
/// `ENETDOWN` when the device or the address goes: kernel users are notified of that one by one.
/// `EINVAL`: no such queue pair, too much private data.
pub(crate) fn connect(device: &Arc<CmDevice>, call: ConnectCall, param: &ConnParam<'_>) -> Result {
    begin(device, call, param).map_err(|error| match error {
        // Every step may find the device or the address missing. NFS passes these two to the
        // program that writes.
        ENODEV | EADDRNOTAVAIL => ENETDOWN,
        other => other,
    })
}

/// As [`connect`], but the error names what is missing: device, address or queue pair.
fn begin(device: &Arc<CmDevice>, call: ConnectCall, param: &ConnParam<'_>) -> Result {
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
        let attempt = Attempt {
            call: call.commit(ctx.endpoint.handle()),
            plan,
            qp,
            socket,
        };
        Ok(Phase::Initiator(Initiator {
            attempt,
            stage: RequestStage::Tcp,
        }))
    })
}

/// State of an initiator in every stage.
struct Attempt {
    /// `iw_cm` waits for an answer.
    call: Connecting,
    /// The user's request.
    plan: Plan,
    /// The queue pair.
    qp: Attachment,
    /// The socket.
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
/// | Reply | refused | `iw_cm` is told of the failure |
/// | any | failure, time-out, abort | `iw_cm` is told of the failure |
enum RequestStage {
    /// TCP connects.
    Tcp,
    /// The Request goes out.
    Request(FrameWriter),
    /// The Reply comes in.
    Reply(FrameReader),
}

/// An initiator in its start-up.
pub(crate) struct Initiator {
    /// State common to all stages.
    attempt: Attempt,
    /// The stage.
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
        match self.attempt.plan.policy.revision {
            Revision::One => 1,
            Revision::Two => 2,
        }
    }

    /// Makes all steps that are possible without waiting.
    #[inline(never)]
    pub(crate) fn step(self, ctx: &mut StepContext<'_>) -> Next {
        let Self { attempt, stage } = self;
        if ctx.notes.quit {
            return attempt.abort(ctx, ECONNRESET);
        }
        match stage {
            RequestStage::Tcp => attempt.tcp(ctx),
            RequestStage::Request(frame) => attempt.send(ctx, frame),
            RequestStage::Reply(frame) => attempt.receive(ctx, frame),
        }
    }
}

impl Attempt {
    /// Waits for the next note at that stage, unless the time is over.
    fn wait(self, ctx: &mut StepContext<'_>, stage: RequestStage) -> Next {
        if ctx.timer.is_over() {
            return self.abort(ctx, ETIMEDOUT);
        }
        Next::Wait(Phase::Initiator(Initiator {
            attempt: self,
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
                        attempt: self,
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
                        attempt: self,
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
            // The same call may read the first octets of a Reply and meet the end.
            Err(error) => match (error, reader.is_empty()) {
                (ReadError::Malformed(_), _) => self.abort(ctx, EPROTO),
                (ReadError::Closed | ReadError::Broken(_), true) => self.closed_early(ctx),
                (ReadError::Closed, false) => self.abort(ctx, ECONNRESET),
                (ReadError::Broken(error), false) => self.abort(ctx, error),
            },
        }
    }

    /// The peer has closed the connection instead of replying.
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

    /// Begins again with revision 1.
    fn fall_back(self, ctx: &mut StepContext<'_>) -> Next {
        let Self {
            call,
            mut plan,
            qp,
            socket,
        } = self;
        plan.policy.revision = Revision::One;
        plan.policy.peer_to_peer = false;
        // The new connection has the same two addresses, so nothing may be left of the old one. The
        // socket stays: this context is not the process that owns it.
        let begun = socket
            .disconnect()
            .and_then(|()| plan.connect(&socket, ctx));
        let attempt = Self {
            call,
            plan,
            qp,
            socket,
        };
        match begun {
            Ok(()) => Next::Go(Phase::Initiator(Initiator {
                attempt,
                stage: RequestStage::Tcp,
            })),
            Err(error) => attempt.close(ctx, error, Depths::NONE, PrivateData::NONE),
        }
    }

    /// The two ends do not suit each other.
    fn refused(self, ctx: &mut StepContext<'_>, frame: &Frame<'_>, refusal: Refusal) -> Next {
        match refusal {
            Refusal::Rejected => {
                let data = PrivateData::new(frame.private_data).unwrap_or(PrivateData::NONE);
                let failure = ConnFailure::Rejected;
                self.close_for(ctx, failure, ECONNREFUSED, said_by(frame), data)
            }
            Refusal::Revision if self.may_fall_back() => self.fall_back(ctx),
            Refusal::Revision | Refusal::InsufficientIrd | Refusal::NoMatchingRtr => {
                if let Some(reason) = refusal.terminate() {
                    self.terminate(frame, reason);
                }
                self.close(ctx, EPROTO, said_by(frame), PrivateData::NONE)
            }
        }
    }

    /// Sends a Terminate as the first and last FPDU.
    fn terminate(&self, frame: &Frame<'_>, reason: TerminateReason) {
        let crc = self.plan.policy.crc || frame.crc;
        send_terminate(&self.socket, frame.markers, crc, reason);
    }

    /// Ends a connection after a good Reply, for a reason of this end.
    fn fail(self, ctx: &mut StepContext<'_>, frame: &Frame<'_>, error: Error) -> Next {
        // Revision 1 has no code for it.
        if frame.enhanced.is_none() {
            return self.abort(ctx, error);
        }
        self.terminate(frame, TerminateReason::Mpa(MpaError::LocalCatastrophic));
        self.close(ctx, error, said_by(frame), PrivateData::NONE)
    }

    /// The stream can start.
    fn establish(self, ctx: &mut StepContext<'_>, frame: &Frame<'_>, agreed: &Parameters) -> Next {
        // Private data that do not fit into the event are left out whole (requirements.md VRB-07).
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
                // The peer's depths, or else those that this end uses.
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

    /// Fails, and resets the connection.
    fn abort(self, ctx: &mut StepContext<'_>, error: Error) -> Next {
        self.socket.set_linger_abort();
        self.close(ctx, error, Depths::NONE, PrivateData::NONE)
    }

    /// Gives up. `iw_cm` is notified after the port and the queue pair are released.
    fn close(
        self,
        ctx: &mut StepContext<'_>,
        error: Error,
        said: Depths,
        data: PrivateData<'_>,
    ) -> Next {
        self.close_for(ctx, ConnFailure::Error(error), error, said, data)
    }

    /// As [`close`](Self::close), counted as `failure`.
    fn close_for(
        self,
        ctx: &mut StepContext<'_>,
        failure: ConnFailure,
        error: Error,
        said: Depths,
        data: PrivateData<'_>,
    ) -> Next {
        let Peers { local, remote } = self.plan.peers;
        let local = self.socket.local_addr().unwrap_or(local);
        trace::connect(self.qp.qp().qpn().get(), &local, &remote, Err(error));
        ctx.device.counters().connection_failed(failure);
        drop(self.socket);
        drop(self.qp);
        self.call.failed(status_of(error), said, data);
        Next::Wait(Phase::Over)
    }
}

/// The frame without content that this end sends first.
///
/// A responder sends nothing before something came (RFC 5044 section 7.1.2), so an application
/// whose server speaks first would wait for good. Where no RTR frame was agreed on, an RDMA Write
/// of no octets prevents that, too. The peer takes it as any other Write, and it has no effect.
fn first_frame(agreed: &Parameters) -> Option<RtrKind> {
    agreed.rtr.preferred().or(Some(RtrKind::Write))
}

/// The depths of the peer in an event of an initiator.
///
/// `cma.c` makes `initiator_depth` of an event's IRD and `responder_resources` of its ORD, and the
/// users of iWARP take them for the peer's own (`fs/smb/smbdirect/connect.c`). So the peer's ORD
/// goes where the IRD is, and its IRD where the ORD is.
fn depths_of(said: WireDepths) -> Depths {
    Depths::new(said.ord, said.ird)
}

/// The peer's depths in a Reply that leads to no connection, for an event.
fn said_by(frame: &Frame<'_>) -> Depths {
    depths_of(frame.depths_or(WireDepths { ird: 0, ord: 0 }))
}

/// The error for users of `iw_cm`, which distinguish three cases, of an error of TCP.
fn status_of(error: Error) -> Error {
    if error == EHOSTUNREACH || error == ENETUNREACH {
        ETIMEDOUT
    } else if error == EPIPE {
        ECONNRESET
    } else {
        error
    }
}
