// SPDX-License-Identifier: GPL-2.0

//! The responder's side of the start-up (RFC 5044 section 7.1.2, RFC 6581 sections 4 and 5).
//!
//! The Request arrives, `iw_cm` decides, the Reply is sent, the stream starts. `iw_cm` may decide
//! at any time, or never. A [`Handle`] identifies an offered connection. The offer ends when the
//! peer closes, or after the time limit.

mod offered;

use core::net::SocketAddr;

use iwarp_wire::mpa::{
    negotiate::Parameters,
    startup::{
        Depths as WireDepths,
        Frame,
        FrameKind, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    }, //
};

pub(crate) use self::offered::Offered;
use super::{
    connected::{
        result_of,
        Established, //
    },
    device::CmDevice,
    endpoint::{
        Attachment,
        Next,
        Phase,
        StepContext, //
    },
    listen::{
        BacklogSlot, //
        Listener,
    },
    mpa_frame::{
        has_more,
        terminate_set_up,
        FrameReader,
        FrameWriter, //
    },
    policy,
    stream_config, //
};
use crate::{
    params,
    stream::{
        Close,
        Role,
        Stream, //
    },
    sys::{
        errno::{
            ECONNABORTED,
            ECONNRESET, //
        },
        net::socket::Socket,
        rdma::iwcm::{
            self,
            AcceptCall,
            ConnParam,
            Depths,
            Handle,
            Peers,
            PrivateData, //
        },
        trace, //
    },
    verbs::{
        counters::{
            ConnFailure,
            Counter, //
        },
        limits::MAX_RD_ATOM, //
    }, //
};

/// The time limit for the decision of `iw_cm`, in milliseconds. By then every peer has timed out.
/// `iw_cm` may never decide, since it drops requests when a listener ends.
const DECISION_MS: u32 = 120_000;

/// Accepts an offered connection on behalf of `iw_cm`. Process context; sleeps.
///
/// After an error the connection is closed. `ECONNRESET`: the offer has ended. `EINVAL`: the queue
/// pair does not exist, or can not be connected.
pub(crate) fn accept(
    device: &Arc<CmDevice>,
    connection: Handle,
    call: AcceptCall<'_>,
    param: &ConnParam<'_>,
) -> Result {
    let endpoint = device.registry().endpoint(connection).ok_or(ECONNRESET)?;
    endpoint.change(|phase, ctx| match phase {
        Phase::Offered(offered) => {
            let peers = offered.peers;
            let accepted = offered.accept(ctx, call, param);
            accepted.map(Phase::Replying).map_err(|error| {
                lost(ctx, param.qpn, &peers, error);
                (error, Phase::Over)
            })
        }
        other => Err((ECONNRESET, other)),
    })
}

/// Rejects an offered connection on behalf of `iw_cm`. Process context; sleeps.
pub(crate) fn reject(device: &Arc<CmDevice>, connection: Handle, private_data: &[u8]) -> Result {
    let Some(endpoint) = device.registry().endpoint(connection) else {
        // The peer has closed already.
        return Ok(());
    };
    endpoint.change(|phase, ctx| match phase {
        Phase::Offered(offered) => {
            let peers = offered.peers;
            let rejected = offered.reject(ctx.device, private_data);
            refused(ctx, &peers, rejected);
            match rejected {
                Ok(()) => Ok(Phase::Over),
                Err(error) => Err((error, Phase::Over)),
            }
        }
        other => Ok(other),
    })
}

/// The addresses of a socket; an IPv4-mapped IPv6 address becomes an IPv4 address.
fn peers_of(socket: &Socket) -> Result<Peers> {
    let plain = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
    // A mapped address has no scope; other IPv6 addresses keep theirs.
    let told = |addr: SocketAddr| match addr {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => addr,
        other => plain(other),
    };
    Ok(Peers {
        local: told(socket.local_addr()?),
        remote: told(socket.peer_addr()?),
    })
}

/// A connected peer whose Request has not arrived.
pub(crate) struct HalfOpen {
    /// The entry in the listener's backlog, which is dropped before the socket is closed.
    slot: BacklogSlot,
    /// The peer's Request.
    request: FrameReader,
    /// The time at which the connection was accepted from TCP.
    came: Instant<Monotonic>,
    socket: Socket,
}

impl HalfOpen {
    /// Begins to wait for the Request, and sets the time limit.
    pub(crate) fn new(
        ctx: &mut StepContext<'_>,
        slot: BacklogSlot,
        socket: Socket,
    ) -> Result<Self> {
        let request = FrameReader::new(FrameKind::Request)?;
        ctx.timer.set(params::mpa_request_timeout_ms());
        Ok(Self {
            slot,
            request,
            came: Instant::now(),
            socket,
        })
    }

    /// Reads the Request and offers the connection to `iw_cm`.
    ///
    /// A peer that sends no Request receives no Reply (requirements.md MPA-95).
    #[inline(never)]
    pub(crate) fn step(mut self, ctx: &mut StepContext<'_>) -> Next {
        let (peers, frame) = match self.request.read(&self.socket) {
            _ if ctx.notes.quit => return Next::Wait(Phase::Over),
            Ok(Some(frame)) if !has_more(&self.socket) => match peers_of(&self.socket) {
                Ok(peers) => (peers, frame),
                Err(_) => return Next::Wait(Phase::Over),
            },
            Ok(None) if !ctx.timer.is_over() => return Next::Wait(Phase::HalfOpen(self)),
            Ok(_) | Err(_) => return Next::Wait(Phase::Over),
        };
        let Some(data) = PrivateData::new(frame.private_data) else {
            // An event can not carry the private data whole (requirements.md VRB-07), but the
            // Request is valid.
            let request = without_data(&frame);
            refused(ctx, &peers, Err(EMSGSIZE));
            let _ = refuse(&self.socket, &request, &[]);
            return Next::Wait(Phase::Over);
        };
        // Revision 1 has no depths, and absent depths do not mean 0. Others are told as the Request has
        // them, also above the device's limits (RFC 6581 section 9.1).
        let said = frame.depths_or(WireDepths {
            ird: MAX_RD_ATOM,
            ord: MAX_RD_ATOM,
        });
        let depths = Depths::new(said.ird, said.ord);
        let request = without_data(&frame);
        // `iw_cm` may accept or reject before `offer` returns. That call waits for the endpoint's
        // lock.
        let listener = self.slot.listener().clone();
        let offered = listener.offer(self.came, ctx.endpoint.handle(), &peers, depths, data);
        match offered {
            Ok(()) => {
                ctx.timer.set(DECISION_MS);
                Next::Wait(Phase::Offered(Offered {
                    listener,
                    request,
                    peers,
                    socket: self.socket,
                }))
            }
            Err(ENOMEM | EAGAIN) if !ctx.timer.is_over() => Next::Retry(Phase::HalfOpen(self)),
            Err(error) => {
                refused(ctx, &peers, Err(error));
                let _ = refuse(&self.socket, &request, &[]);
                Next::Wait(Phase::Over)
            }
        }
    }
}

/// A copy of a Request without its private data, which outlives the original.
pub(crate) fn without_data(frame: &Frame<'_>) -> Frame<'static> {
    Frame {
        private_data: &[],
        ..*frame
    }
}

/// Counts and traces a Request that this end refuses. `Ok`: the user rejects it. `Err`: the driver
/// refuses it for that reason.
fn refused(ctx: &StepContext<'_>, peers: &Peers, result: Result) {
    let failure = ConnFailure::RejectSent;
    ctx.device.counters().connection_failed(failure);
    trace::reject(0, &peers.local, &peers.remote, result);
}

/// Counts and traces a connection that failed after this end had accepted it.
fn lost(ctx: &StepContext<'_>, qpn: u32, peers: &Peers, error: Error) {
    ctx.device.counters().connection_failed(ConnFailure::Accept);
    trace::accept(qpn, &peers.local, &peers.remote, Err(error));
}

/// Sends a Reply that refuses the connection. The caller then closes the connection.
fn refuse(socket: &Socket, request: &Frame<'_>, private_data: &[u8]) -> Result {
    let reply = policy(params::crc(), 0, 0).reject(request, private_data);
    // The send buffer is empty, so the Reply fits.
    FrameWriter::new(&reply)?.send(socket).map(|_| ())
}

/// The result of the negotiation of the start-up.
struct Agreement {
    /// The agreed parameters.
    agreed: Parameters,
    /// The connection is established when the peer's ready-to-receive frame arrives
    /// (requirements.md EMC-16).
    waits_for_rtr: bool,
    /// Request and Reply are enhanced ones (RFC 6581).
    enhanced: bool,
}

/// The stage of a responder that `iw_cm` has accepted.
///
/// | stage | event | next |
/// | --- | --- | --- |
/// | Reply | sent | Started |
/// | Reply | failure, time-out, abort | the failure is reported to `iw_cm` |
/// | Started | first FPDU, or none is owed | the connection is established |
/// | Started | stream ended | the failure is reported to `iw_cm` |
/// | Started | time-out of the ready-to-receive frame, abort | Closing |
/// | Closing | stream ended | the failure is reported to `iw_cm` |
enum ReplyStage {
    /// The Reply is being sent.
    Reply(FrameWriter, Socket),
    /// The stream runs.
    Started(Arc<Stream>),
    /// The stream is ending; `iw_cm` receives this error then.
    Closing(Error),
}

impl ReplyStage {
    /// Closes the stream, and enters the stage `Closing`.
    fn closing(stream: Arc<Stream>, how: Close, error: Error) -> Self {
        stream.close(how);
        Self::Closing(error)
    }
}

impl Agreement {
    /// Sends as much of the Reply as TCP accepts. Starts the stream once the Reply is complete.
    fn reply(
        &self,
        ctx: &mut StepContext<'_>,
        qp: &Attachment,
        socket: Socket,
        mut frame: FrameWriter,
    ) -> Result<ReplyStage> {
        match frame.send(&socket) {
            Ok(true) => {}
            Ok(false) => {
                ctx.timer.set(params::mpa_reply_timeout_ms());
                return Ok(ReplyStage::Reply(frame, socket));
            }
            Err(error) => return Err(error),
        }
        let agreed = &self.agreed;
        let config = stream_config(agreed, Role::Responder { rtr: agreed.rtr });
        qp.qp().set_depths(agreed.ird, agreed.ord);
        match qp.qp().start_stream(socket, config, qp.user()) {
            Ok(stream) => {
                ctx.started(&stream);
                ctx.timer.set(params::mpa_request_timeout_ms());
                Ok(ReplyStage::Started(stream))
            }
            Err((error, socket)) => {
                if self.enhanced {
                    terminate_set_up(&socket, agreed);
                } else {
                    socket.set_linger_abort();
                }
                Err(error)
            }
        }
    }
}

/// A connection that `iw_cm` has accepted.
pub(crate) struct Replying {
    /// The listener that accepted the connection.
    listener: Arc<Listener>,
    /// The addresses of the connection.
    peers: Peers,
    /// The committed accept, for which `iw_cm` awaits ESTABLISHED.
    cm: iwcm::Accepting,
    /// The queue pair.
    qp: Attachment,
    /// The result of the negotiation.
    offer: Agreement,
    stage: ReplyStage,
}

impl Replying {
    /// Makes all steps that are possible without waiting.
    #[inline(never)]
    pub(crate) fn step(self, ctx: &mut StepContext<'_>) -> Next {
        let Self {
            listener,
            peers,
            cm,
            qp,
            offer,
            stage,
        } = self;
        let notes = ctx.notes;
        let stage = match stage {
            ReplyStage::Reply(_, socket) if notes.quit || ctx.timer.is_over() => {
                socket.set_linger_abort();
                drop(socket);
                return failed(ctx, cm, qp, &peers, ECONNABORTED);
            }
            ReplyStage::Reply(frame, socket) => match offer.reply(ctx, &qp, socket, frame) {
                Ok(stage) => stage,
                Err(error) => return failed(ctx, cm, qp, &peers, error),
            },
            started => started,
        };
        let stage = match stage {
            ReplyStage::Started(stream) if notes.ready || !offer.waits_for_rtr => {
                ctx.timer.clear();
                ctx.device.counters().add(Counter::Accepts, 1);
                trace::accept(qp.qp().qpn().get(), &peers.local, &peers.remote, Ok(()));
                let cm = cm.connected(Depths::new(offer.agreed.ird, offer.agreed.ord));
                let connected = Established::new(Some(cm), stream, qp, Some(listener));
                return Next::Go(Phase::Established(connected));
            }
            ReplyStage::Started(_) if notes.ended.is_some() => {
                let result = notes.ended.map_or(Ok(()), result_of);
                return failed(ctx, cm, qp, &peers, result.err().unwrap_or(ECONNRESET));
            }
            ReplyStage::Started(stream) if notes.quit => {
                ReplyStage::closing(stream, Close::Abort, ECONNABORTED)
            }
            // The peer owes the ready-to-receive frame, so the connection is an enhanced one.
            ReplyStage::Started(stream) if ctx.timer.is_over() => {
                ReplyStage::closing(stream, Close::SetUpFailed, ETIMEDOUT)
            }
            ReplyStage::Closing(error) if notes.ended.is_some() => {
                return failed(ctx, cm, qp, &peers, error)
            }
            other => other,
        };
        Next::Wait(Phase::Replying(Self {
            listener,
            peers,
            cm,
            qp,
            offer,
            stage,
        }))
    }
}

/// Reports the lost connection to `iw_cm`, after the queue pair was detached.
fn failed(
    ctx: &StepContext<'_>,
    cm: iwcm::Accepting,
    qp: Attachment,
    peers: &Peers,
    error: Error,
) -> Next {
    lost(ctx, qp.qp().qpn().get(), peers, error);
    drop(qp);
    cm.failed(error);
    Next::Wait(Phase::Over)
}
