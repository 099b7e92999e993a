// SPDX-License-Identifier: GPL-2.0

//! The end of a stream (RFC 5044 section 7.2, RFC 5041 section 6.2, RFC 5040 section 6).
//!
//! The end is reported to the queue pair at once and exactly once, for every reason, and the
//! queue pair flushes its work requests. Afterwards the stream keeps only the socket. A Terminate
//! is sent at the next FPDU boundary, then FIN. The socket is released after the peer's FIN, or
//! after a time limit.

use iwarp_wire::{
    ddp::Header,
    rdmap::terminate::{
        MpaError,
        Terminate,
        TerminateReason,
        UntaggedError, //
    },
    QueueNumber, //
};
use kernel::prelude::*;

use super::{
    batch::{
        Batch,
        StreamPhase, //
    },
    ctx::Stop,
    Close,
    EndReason,
    StreamEvent,
    Unfinished, //
};
use crate::{
    sys::{
        net::socket::{
            Locked,
            TcpState, //
        },
        rdma::event::QpEvent,
        sync::timer::now_ns,
        trace, //
    },
    verbs::{
        counters::Counter,
        cq::WcStatus, //
    }, //
};

/// Milliseconds after a disconnect for the rest of the message in progress. The end is reported
/// to the owner then at the latest, for any behaviour of the peer.
const DISCONNECT_MS: u32 = 500;

/// Milliseconds for which an ended stream waits for the peer's FIN, or for free space for a
/// Terminate.
const LINGER_MS: u32 = 5_000;

/// Milliseconds between two checks, after a disconnect, whether the peer's closed window delays
/// FIN. The second check may end the wait, so the peer receives a reset within a second.
const KEPT_BACK_MS: u32 = 400;

/// The largest number of these checks, which take about [`LINGER_MS`].
const MOST_LOOKS: u8 = 12;

/// Milliseconds without progress after which a graceful close is cut short. The peer may have to
/// answer Reads, and TCP may have to retransmit.
const GRACE_MS: u32 = 8_000;

/// The largest number of times that progress extends the deadline. The last posted work requests
/// have about three minutes, for any behaviour of the peer.
const MOST_DELAYS: u8 = 24;

/// The state of the end of a stream.
#[derive(Default)]
pub(super) struct Ending {
    /// The peer has sent FIN.
    peer_fin: bool,
    /// The peer's FIN was reported to the user.
    half_closed_told: bool,
    /// The close is a local one.
    local: bool,
    /// Resets the connection when the socket is released.
    pub(super) reset: bool,
    /// The octets that TCP had accepted plus those that the peer had acknowledged, at the last
    /// check of the deadline.
    moved_before: u64,
    /// Octets have arrived since the last check of the deadline.
    heard: bool,
    /// How often the deadline was extended.
    delays: u8,
    /// A disconnect: the peer receives FIN or a reset in time.
    left: bool,
    /// The octets that the peer had acknowledged at the last check for a closed window.
    acked_before: Option<u64>,
    /// The number of checks for a closed window.
    looks: u8,
}

impl Ending {
    /// Notes that octets have arrived.
    #[inline]
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Whether the deadline is extended: octets have moved since the last check, or, with
    /// `waits`, have arrived. `moved` is the sum of the octets that TCP has accepted and those
    /// that the peer has acknowledged. The first check counts all earlier octets, so that a
    /// deadline for another purpose ends nothing.
    fn goes_on(&mut self, moved: u64, waits: bool) -> bool {
        let moved = core::mem::replace(&mut self.moved_before, moved) != moved;
        let heard = core::mem::take(&mut self.heard) && waits;
        let goes_on = (moved || heard) && self.delays < MOST_DELAYS;
        self.delays = self.delays.saturating_add(goes_on.into());
        goes_on
    }

    /// Milliseconds until the next check of an ended stream.
    fn linger_ms(&self) -> u32 {
        match self.left && self.looks < MOST_LOOKS {
            true => KEPT_BACK_MS,
            false => LINGER_MS,
        }
    }

    /// Checks for a closed window after a disconnect. The peer has acknowledged `acked` octets;
    /// `closed`: its window is closed. Returns whether no octet has moved since the last check,
    /// and none can.
    fn is_kept_back(&mut self, acked: u64, closed: bool) -> bool {
        self.looks = self.looks.saturating_add(1);
        let before = self.acked_before.replace(acked);
        closed && before == Some(acked)
    }

    /// The reason for the end of a stream whose two halves are closed.
    fn closed(&self) -> EndReason {
        match self.local {
            true => EndReason::LocalClose,
            false => EndReason::PeerFin,
        }
    }
}

impl Batch<'_> {
    /// Executes a local close.
    pub(super) fn close(&mut self, how: Close) {
        match how {
            Close::Graceful => {
                if self.proto.phase == StreamPhase::Open {
                    self.proto.phase = StreamPhase::Closing;
                    self.proto.ending.local = true;
                    self.ctx.shared.deferred.deadline = Some(GRACE_MS);
                    self.owner.closing();
                }
            }
            Close::Disconnect => {
                if matches!(self.proto.phase, StreamPhase::Open | StreamPhase::Closing) {
                    self.proto.phase = StreamPhase::Leaving;
                    self.proto.ending.left = true;
                    self.ctx.shared.deferred.deadline = Some(DISCONNECT_MS);
                }
            }
            Close::Leave => self.end(EndReason::LocalClose),
            Close::SetUpFailed => {
                // The connection manager reports the failure to the owner of the queue pair.
                self.ctx.shared.told = true;
                let reason = TerminateReason::Mpa(MpaError::LocalCatastrophic);
                self.fail(Terminate::bare(reason));
            }
            Close::Abort => {
                self.end(EndReason::LocalClose);
                self.over(true);
            }
        }
    }

    /// Ends the stream after a local error, with a Terminate. Later errors have no effect. After
    /// a disconnect no error has: the stream is about to end.
    pub(super) fn fail(&mut self, terminate: Terminate) {
        if self.proto.phase >= StreamPhase::Leaving {
            return;
        }
        self.trace(&terminate, true);
        self.ctx.count(Counter::TerminateTx);
        match terminate.reason() {
            TerminateReason::Mpa(MpaError::Crc) => self.ctx.count(Counter::CrcErrors),
            reason if reason.is_access() => self.ctx.count(Counter::AccessErrors),
            _ => {}
        }
        let event = self.event_of(terminate.reason());
        self.proto.tx.farewell = Some(terminate.ulpdu());
        self.end(EndReason::TerminateSent(event));
    }

    /// Ends the stream for a reason that a direction has stored. Only the first error has an
    /// effect.
    #[cold]
    pub(super) fn stop(&mut self, stop: Stop) {
        match stop {
            Stop::Fail(terminate) => self.fail(terminate),
            Stop::Terminated(terminate) => self.terminated(&terminate),
            Stop::OwnerFailed => match self.owner.failed() {
                Some(how) => self.close(how),
                None => self.fail(Terminate::bare(TerminateReason::DdpCatastrophic)),
            },
            Stop::End(reason) => self.end(reason),
        }
    }

    /// Ends the stream after a Terminate of the peer: no further message is sent. A Read of this
    /// end that the Terminate concerns is reported with its error. So is the oldest incomplete
    /// Send, if the peer had no receive for a Send.
    fn terminated(&mut self, terminate: &Terminate) {
        self.trace(terminate, false);
        self.ctx.count(Counter::TerminateRx);
        let status = match terminate.reason() {
            TerminateReason::RemoteProtection(_) | TerminateReason::Tagged(_) => {
                Some(WcStatus::RemAccess)
            }
            TerminateReason::RemoteOperation(_) | TerminateReason::Untagged(_) => {
                Some(WcStatus::RemInvReq)
            }
            _ => None,
        };
        // A Terminate without a copied header may concern a Read, too.
        let of_read = match terminate.header() {
            Some(Header::Untagged(header)) => header.qn == QueueNumber::ReadRequest.into(),
            Some(Header::Tagged(_)) => false,
            None => true,
        };
        // Responses arrive in order, so the Read that failed is the oldest one.
        let front = self.proto.reads.front().filter(|_| of_read);
        let slot = front.and_then(|cookie| cookie.slot);
        if let (Some(slot), Some(status)) = (slot, status) {
            self.ctx.slot_failed(slot, status);
        }
        let of_send = match terminate.header() {
            Some(Header::Untagged(header)) => header.qn == QueueNumber::Send.into(),
            Some(Header::Tagged(_)) => false,
            None => front.is_none(),
        };
        if of_send && terminate.reason() == TerminateReason::Untagged(UntaggedError::NoBuffer) {
            self.proto
                .tx
                .fail_oldest_send(&mut self.ctx, WcStatus::RnrRetryExceeded);
        }
        self.end(EndReason::TerminateReceived);
    }

    /// The event for the owner of the queue pair after a local error (RFC 5041 sections 7.1 and
    /// 8.3). `None` if a completion or the connection manager reports the error.
    fn event_of(&self, reason: TerminateReason) -> Option<QpEvent> {
        match reason {
            _ if self.ctx.shared.told || self.ctx.shared.failed => None,
            reason if reason.is_access() => Some(QpEvent::AccessErr),
            _ => Some(QpEvent::Fatal),
        }
    }

    /// Reports a Terminate to the owner, and emits a trace event.
    pub(super) fn trace(&self, terminate: &Terminate, sent: bool) {
        let reason = terminate.reason();
        let class = u32::from(reason.layer()) << 12 | u32::from(reason.etype()) << 8;
        let code = class | u32::from(reason.code());
        trace::terminate(self.ctx.queues.qpn().get(), sent, code);
        self.owner.terminate(sent, code);
    }

    /// Ends the stream: reports the end and the fetched work requests to the queue pair, and the
    /// end to the user. No effect after the first call.
    pub(super) fn end(&mut self, reason: EndReason) {
        if self.proto.phase >= StreamPhase::Ended {
            return;
        }
        self.proto.phase = StreamPhase::Ended;
        let (number, error) = reason.traced();
        trace::stream_end(self.ctx.queues.qpn().get(), number, error);
        self.ctx.count(match reason {
            EndReason::PeerFin | EndReason::LocalClose => Counter::Closes,
            _ => Counter::Aborts,
        });
        self.ctx.shared.deferred.deadline = Some(self.proto.ending.linger_ms());
        self.proto.tx.job = None;
        self.proto.rx.receiver.fail();
        self.proto.rx.abandon_hold(&mut self.ctx);
        self.ctx.mrs.release();
        let unfinished = self.take_unfinished();
        self.owner.ended(reason, unfinished);
        self.tell(StreamEvent::Ended(reason));
        match reason {
            EndReason::Reset => self.over(false),
            EndReason::LlpError(_) => self.over(true),
            _ => {}
        }
    }

    /// Takes every fetched work request that is not complete, in posting order.
    fn take_unfinished(&mut self) -> Unfinished {
        self.ctx.retire();
        let stalled = self.proto.tx.queued.take_stalled();
        Unfinished::new(
            self.ctx.shared.sent.take(),
            stalled.map(|wqe| (wqe.id, wqe.opcode())),
            self.proto.rx.recv.take().map(|recv| recv.id),
        )
    }

    /// Moves to the phase Over, and queues the release of the socket; `reset`: it resets the
    /// connection.
    fn over(&mut self, reset: bool) {
        self.proto.ending.reset |= reset;
        self.proto.phase = StreamPhase::Over;
        self.ctx.shared.deferred.process = true;
    }

    /// Handles the state of the TCP connection: FIN, reset or error of the peer. All received
    /// octets have been processed.
    pub(super) fn watch_tcp(&mut self, locked: &mut Locked) {
        match locked.tcp_state() {
            // SynRecv: a connection of TCP Fast Open.
            TcpState::SynRecv | TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2 => {
            }
            // Octets that wait for memory are processed before the end, also those that arrived
            // with the last FIN.
            _ if self.ctx.shared.deferred.retry && self.proto.phase < StreamPhase::Leaving => {}
            TcpState::Close => {
                let reason = match locked.take_error() {
                    // Both ends have closed; data of the peer is still unread.
                    None if self.proto.tx.fin_sent && self.is_held() => return,
                    // The last FIN was acknowledged.
                    None if self.proto.tx.fin_sent => self.proto.ending.closed(),
                    None => EndReason::Reset,
                    Some(error) => EndReason::of(error),
                };
                self.end(reason);
                self.over(false);
            }
            // Octets after a held Send are processed after its delivery.
            _ if self.is_held() => self.fin_behind_hold(),
            _ => self.peer_fin(),
        }
    }

    /// Handles the peer's FIN.
    fn peer_fin(&mut self) {
        if self.proto.ending.peer_fin {
            return;
        }
        self.proto.ending.peer_fin = true;
        self.proto.tx.peer_closed = true;
        if self.proto.phase >= StreamPhase::Leaving {
            return;
        }
        if !self.proto.rx.at_boundary() {
            self.end(EndReason::LlpError(EPIPE));
        } else if !self.proto.reads.orq.is_empty() {
            // No response to these Reads can arrive any more.
            self.end(EndReason::PeerFin);
        } else {
            // Half closed: posted work requests are still executed (RFC 5041 section 6.2.1).
            self.proto.phase = StreamPhase::Closing;
            self.ctx.shared.deferred.deadline = Some(LINGER_MS);
            self.owner.closing();
            self.tell_half_closed();
        }
    }

    /// Handles the peer's FIN after a held Send. FIN is reported to the user after half a second,
    /// and the Send can be delivered until a local disconnect.
    #[cold]
    fn fin_behind_hold(&mut self) {
        let hold = self.proto.rx.hold.as_ref();
        if hold.is_some_and(|hold| hold.tells_fin(now_ns())) {
            self.tell_half_closed();
        }
    }

    /// Reports the peer's FIN to the user, once.
    fn tell_half_closed(&mut self) {
        if !core::mem::replace(&mut self.proto.ending.half_closed_told, true) {
            self.tell(StreamEvent::HalfClosed);
        }
    }

    /// Executes the next steps of the end: the Terminate of a local failure, FIN, the release.
    #[inline]
    pub(super) fn advance_end(&mut self, locked: &mut Locked) {
        if self.proto.phase == StreamPhase::Open && !self.ctx.shared.failed {
            return;
        }
        self.advance_end_slowly(locked);
    }

    /// The part of [`Self::advance_end`] that full operation phase does not need.
    fn advance_end_slowly(&mut self, locked: &mut Locked) {
        if self.ctx.shared.failed
            && self.proto.phase < StreamPhase::Ended
            && self.proto.tx.is_flushed()
        {
            self.fail(Terminate::bare(TerminateReason::RdmapCatastrophic));
        }
        if self.proto.phase == StreamPhase::Ended && self.proto.tx.farewell.is_some() {
            self.transmit(locked, 1);
        }
        let tx = &self.proto.tx;
        let said_all = match self.proto.phase {
            StreamPhase::Closing => {
                tx.is_flushed()
                    && tx.job.is_none()
                    && self.ctx.shared.sent.is_empty()
                    // A responder that has received nothing may not send anything.
                    && (tx.queued.is_drained(&self.proto.reads) || !tx.enabled)
            }
            StreamPhase::Leaving => tx.is_flushed() && tx.job.is_none(),
            StreamPhase::Ended => {
                tx.is_flushed() && tx.job.is_none() && self.proto.tx.farewell.is_none()
            }
            StreamPhase::Starting | StreamPhase::Open | StreamPhase::Over => return,
        };
        if said_all && !self.proto.tx.fin_sent {
            self.proto.tx.fin_sent = true;
            self.ctx.shared.deferred.deadline = Some(self.proto.ending.linger_ms());
            locked.send_fin();
        }
        if self.proto.tx.fin_sent && self.proto.phase == StreamPhase::Leaving {
            self.end(EndReason::LocalClose);
        }
        if self.proto.tx.fin_sent && self.proto.ending.peer_fin {
            self.end(self.proto.ending.closed());
            self.over(false);
        }
    }

    /// Handles an expired deadline: ends the phase, or extends the deadline after progress.
    pub(super) fn deadline(&mut self, locked: &Locked) {
        match self.proto.phase {
            StreamPhase::Open => return self.repeat_rtr(),
            // The message in progress is cut at an FPDU boundary, and FIN follows.
            StreamPhase::Leaving => {
                self.proto.ending.acked_before = Some(locked.acked());
                return self.end(EndReason::LocalClose);
            }
            StreamPhase::Ended
                if self.proto.ending.left && self.proto.ending.looks < MOST_LOOKS =>
            {
                return self.look_for_closed_window(locked);
            }
            _ => {}
        }
        let fin_sent = self.proto.tx.fin_sent;
        let graceful = self.proto.phase == StreamPhase::Closing;
        let moved = self.ctx.shared.sent_octets.wrapping_add(locked.acked());
        let goes_on = self.proto.ending.goes_on(moved, graceful);
        match self.proto.phase {
            StreamPhase::Closing | StreamPhase::Ended if goes_on && !fin_sent => {
                self.ctx.shared.deferred.deadline =
                    Some(if graceful { GRACE_MS } else { LINGER_MS });
            }
            StreamPhase::Closing | StreamPhase::Ended => {
                self.end(EndReason::LocalClose);
                // TCP delivers the accepted octets, and the FIN after them, without the stream.
                self.over(!fin_sent);
            }
            StreamPhase::Starting
            | StreamPhase::Open
            | StreamPhase::Leaving
            | StreamPhase::Over => {}
        }
    }

    /// Resets the connection if the peer's closed window delays the FIN of a disconnect. A peer
    /// that holds a Send without a receive closes its window. Only a reset reaches such a peer.
    fn look_for_closed_window(&mut self, locked: &Locked) {
        let closed = locked.window_is_closed();
        if self.proto.ending.is_kept_back(locked.acked(), closed) {
            return self.over(true);
        }
        self.ctx.shared.deferred.deadline = Some(self.proto.ending.linger_ms());
    }

    /// Repeats the RTR frame if the peer had time to send and has not. The caller transmits.
    fn repeat_rtr(&mut self) {
        let asked = self.ctx.queues.sq().fetched() != 0;
        if self.proto.siw_takeover.due(asked) {
            self.proto.tx.queued.repeat_rtr();
            self.ctx.shared.deferred.deadline = self.proto.siw_takeover.next();
        }
    }
}

#[kunit_tests(rsiw_stream_end)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_put_off_while_something_moves() {
        let mut ending = Ending::default();
        ending.heard();
        assert!(ending.goes_on(100, true));
        assert!(!ending.goes_on(100, true));
        assert!(ending.goes_on(101, true));
        ending.heard();
        assert!(ending.goes_on(101, true));
        assert!(!ending.goes_on(101, true));
        // Without a wait, received octets do not extend the deadline.
        ending.heard();
        assert!(!ending.goes_on(101, false));
        assert!(ending.goes_on(102, false));
    }

    #[test]
    fn a_closed_window_without_progress_keeps_back() {
        let mut ending = Ending::default();
        assert!(!ending.is_kept_back(100, true));
        assert!(!ending.is_kept_back(101, true));
        assert!(!ending.is_kept_back(101, false));
        assert!(!ending.is_kept_back(102, true));
        assert!(ending.is_kept_back(102, true));
    }

    #[test]
    fn a_disconnect_is_looked_at_for_the_usual_time() {
        let mut ending = Ending {
            left: true,
            ..Ending::default()
        };
        let mut millis = 0;
        while ending.linger_ms() != LINGER_MS {
            millis += ending.linger_ms();
            assert!(!ending.is_kept_back(0, false));
        }
        assert!((LINGER_MS - KEPT_BACK_MS..=LINGER_MS).contains(&millis));
    }

    #[test]
    fn the_end_is_not_put_off_for_ever() {
        let mut ending = Ending::default();
        let mut times = 0;
        while times < 1000 && ending.goes_on(times + 1, true) {
            times += 1;
        }
        assert_eq!(times, u64::from(MOST_DELAYS));
    }
}
