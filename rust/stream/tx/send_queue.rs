// SPDX-License-Identifier: GPL-2.0

//! The choice of the next message: responses to the peer's Reads, and work requests in order.
//!
//! Responses precede work requests, but after [`ANSWERS_IN_A_ROW`] of them a work request
//! follows. Work requests start in posting order (RFC 5041 section 5.3). A work request may have
//! to wait, for a fence or for the number of outstanding Reads (RFC 5040 section 5.5,
//! requirements.md RDMAP-60). It delays later work requests, but no response: two ends that wait
//! for each other's responses would wait forever.

mod start;

use core::ops::Deref;

use iwarp_wire::{
    rdmap::terminate::TerminateOctets,
    tx::{
        self,
        Msns,
        RtrOctets,
        Segmenter, //
    },
    RtrKind,
    TaggedOffset, //
};

use self::start::Start;
use super::transmit::Tx;
use crate::{
    stream::{
        config::{
            Config,
            Role, //
        },
        ctx::Ctx,
        inflight::{
            Due,
            SentWr,
            Slot, //
        },
        read_queues::{
            ReadCookie,
            ReadQueues, //
        }, //
    },
    verbs::{
        cq::{
            WcOpcode,
            WcStatus, //
        },
        wq::wqe::{
            BadWqe,
            Payload,
            SendWqe,
            Sgl, //
        },
        Stag, //
    },
};

/// The number of responses sent in a row while work requests wait.
const ANSWERS_IN_A_ROW: u8 = 4;

/// A message that is being segmented into FPDUs.
pub(in crate::stream) enum Job {
    /// A Send or Write.
    Message {
        /// The position in the message.
        segmenter: Segmenter,
        /// The payload.
        data: Payload,
        /// The entry of the work request.
        slot: Slot,
    },
    /// The response to the oldest Read Request of the peer.
    Answer,
    /// A message without payload that fits any FPDU.
    Control(Control),
}

/// A message without payload: its whole ULPDU.
pub(in crate::stream) enum Control {
    /// The ready-to-receive frame.
    Rtr(RtrOctets),
    /// A Read Request.
    Read([u8; 46]),
    Terminate(TerminateOctets),
}

impl Deref for Control {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Rtr(octets) => octets,
            Self::Read(octets) => octets,
            Self::Terminate(octets) => octets,
        }
    }
}

/// A Read work request with Read Requests left to send.
struct Reads {
    /// The entry of the work request.
    slot: Slot,
    /// The sink, with one Read Request for each element.
    sink: Sgl,
    /// The index of the next element.
    next: usize,
    /// The STag of the source, a region of the peer.
    remote: Stag,
    /// The offset in the source of the next element's data.
    to: u64,
    /// The sink is invalidated after the last octet was placed.
    local_inv: bool,
}

/// The source of messages of a stream.
pub(in crate::stream) struct Queued {
    /// The ready-to-receive frame to send first, or its repetition (`quirk_siw_takeover`).
    rtr: Option<RtrKind>,
    /// The next work request, while it has to wait.
    stalled: Option<SendWqe>,
    /// A Read whose requests are being sent.
    reads: Option<Reads>,
    /// The message numbers of the transmitted queues.
    msns: Msns,
    /// Read Requests that may be outstanding (ORD).
    ord: u16,
    /// The octets of outstanding Reads from which further Read Requests are batched
    /// (`Orq::is_due`).
    pub(in crate::stream) plenty: u64,
    /// Responses sent since the last work request.
    answers: u8,
    /// The send queue was empty at the last check.
    idle: bool,
    /// No work request could be fetched because too many are incomplete.
    pub(in crate::stream) starved: bool,
}

impl Queued {
    /// Makes the source of messages of a new stream.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            rtr: match config.role {
                Role::Initiator { rtr } => rtr,
                Role::Responder { .. } => None,
            },
            stalled: None,
            reads: None,
            msns: Msns::new(),
            ord: config.ord,
            plenty: u64::MAX,
            answers: 0,
            idle: false,
            starved: false,
        }
    }

    /// Whether nothing waits or is outstanding, as of the last check of the send queue.
    pub(in crate::stream) fn is_drained(&self, reads: &ReadQueues) -> bool {
        self.idle
            && self.stalled.is_none()
            && self.reads.is_none()
            && self.rtr.is_none()
            && reads.orq.is_empty()
            && reads.irq.is_empty()
    }

    /// Whether a fetched work request or a response may wait, or the send queue must be checked.
    pub(super) fn may_wait(&self, reads: &ReadQueues) -> bool {
        !self.idle
            || self.rtr.is_some()
            || self.stalled.is_some()
            || self.reads.is_some()
            || !reads.irq.is_empty()
    }

    /// Notes that the send queue must be checked: it may not be empty any more.
    pub(in crate::stream) fn not_looked(&mut self) {
        self.idle = false;
    }

    /// Makes a Write without payload the next message.
    pub(in crate::stream) fn repeat_rtr(&mut self) {
        self.rtr = self.rtr.or(Some(RtrKind::Write));
    }

    /// Takes the work request that had to wait.
    pub(in crate::stream) fn take_stalled(&mut self) -> Option<SendWqe> {
        self.stalled.take()
    }
}

impl Tx {
    /// The next message of the full operation phase; `None` if there is none that may be sent.
    pub(super) fn next_message(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
    ) -> Option<Job> {
        if !self.enabled || ctx.shared.failed {
            return None;
        }
        if let Some(kind) = self.queued.rtr.take() {
            return Some(self.ready_to_receive(reads, kind));
        }
        if !reads.irq.is_empty() && self.queued.answers < ANSWERS_IN_A_ROW {
            self.queued.answers = self.queued.answers.saturating_add(1);
            return Some(Job::Answer);
        }
        self.queued.answers = 0;
        self.next_work(ctx, reads)
            .or_else(|| (!reads.irq.is_empty()).then_some(Job::Answer))
    }

    /// The ready-to-receive frame, after which the responder may send (RFC 6581 section 4.4).
    fn ready_to_receive(&mut self, reads: &mut ReadQueues, kind: RtrKind) -> Job {
        if kind == RtrKind::Read {
            let cookie = ReadCookie {
                slot: None,
                last: true,
                invalidate: None,
            };
            // The frame is the first Read of the stream. The start-up does not choose a Read with
            // an ORD of 0. If the queue were full, the response would be an error that ends the
            // stream.
            let zero = TaggedOffset::new(0);
            let _ = reads.orq.push_read(Stag::new(0), zero, 0, cookie);
        }
        Job::Control(Control::Rtr(tx::rtr(kind, &mut self.queued.msns)))
    }

    /// Starts work requests until one has a message to send.
    fn next_work(&mut self, ctx: &mut Ctx<'_>, reads: &mut ReadQueues) -> Option<Job> {
        loop {
            if self.queued.reads.is_some() {
                return self.next_read(ctx, reads);
            }
            let wqe = match self.queued.stalled.take() {
                Some(wqe) => wqe,
                None => self.fetch(ctx)?,
            };
            let (id, opcode) = (wqe.id, wqe.opcode());
            match self.take_up(ctx, reads, wqe) {
                Start::Job(job) => return Some(job),
                Start::Started => {}
                Start::Stall(wqe) => {
                    self.queued.stalled = Some(wqe);
                    return None;
                }
                Start::Failed(status) => {
                    refuse(ctx, &BadWqe { id, opcode, status });
                    return None;
                }
            }
        }
    }

    /// Fetches the next work request from the send queue.
    fn fetch(&mut self, ctx: &mut Ctx<'_>) -> Option<SendWqe> {
        if ctx.shared.sent.is_full() {
            ctx.retire();
        }
        self.queued.starved = ctx.shared.sent.is_full();
        if self.queued.starved {
            return None;
        }
        let next = match ctx.shared.mirror {
            true => None,
            false => ctx.queues.sq().fetch(),
        };
        self.queued.idle = next.is_none();
        match next? {
            Ok(wqe) => Some(wqe),
            Err(bad) => {
                refuse(ctx, &bad);
                None
            }
        }
    }

    /// Notes that the current message is encoded up to octet `end` of the transmitted stream.
    #[inline]
    pub(super) fn job_done(&mut self, ctx: &mut Ctx<'_>, end: u64) {
        match self.job.take() {
            Some(Job::Message { slot, .. }) => {
                if let Some(entry) = ctx.shared.sent.get_mut(slot) {
                    entry.due = Due::Sent(end);
                }
            }
            Some(Job::Answer | Job::Control(_)) | None => {}
        }
    }

    /// Fails the oldest Send that is not complete, before the end of the stream. If that Send has
    /// not started, it is fetched, and so are the work requests before it.
    pub(in crate::stream) fn fail_oldest_send(&mut self, ctx: &mut Ctx<'_>, status: WcStatus) {
        ctx.retire();
        if ctx.shared.mirror || ctx.shared.sent.fail_oldest(WcOpcode::Send, status) {
            return;
        }
        while !ctx.shared.sent.is_full() {
            let (id, opcode) = match self.queued.stalled.take() {
                Some(wqe) => (wqe.id, wqe.opcode()),
                None => match ctx.queues.sq().fetch() {
                    Some(Ok(wqe)) => (wqe.id, wqe.opcode()),
                    Some(Err(bad)) => (bad.id, bad.opcode),
                    None => return,
                },
            };
            let found = opcode == WcOpcode::Send;
            let _ = ctx.shared.sent.push(SentWr {
                id,
                due: Due::Open,
                bytes: 0,
                opcode,
                status: if found { status } else { WcStatus::Success },
                signaled: true,
            });
            if found {
                return;
            }
        }
    }
}

/// Queues a failed work request for its completion in posting order. The stream ends when TCP has
/// accepted all octets before it.
fn refuse(ctx: &mut Ctx<'_>, bad: &BadWqe) {
    let _ = ctx.shared.sent.push(SentWr {
        id: bad.id,
        due: Due::Sent(0),
        bytes: 0,
        opcode: bad.opcode,
        status: bad.status,
        signaled: true,
    });
    ctx.shared.failed = true;
}
