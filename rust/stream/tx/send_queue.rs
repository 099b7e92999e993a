// SPDX-License-Identifier: GPL-2.0

//! What goes out next: answers to the peer's Reads, and our own work requests in order.
//!
//! Answers go first, but after a few of them a work request gets its turn. Work requests start in
//! posting order (RFC 5041 section 5.3); one that has to wait, for a fence or for the number of
//! outstanding Reads (RFC 5040 section 5.5, requirements.md RDMAP-60), holds back those behind it,
//! never the answers: two ends that wait for each other's answers would wait for good.

mod start;

use core::ops::Deref;

use iwarp_wire::{
    rdmap::terminate::{
        Terminate,
        TerminateOctets,
        TerminateReason, //
    },
    reads::{
        Inbound,
        Irq,
        Orq,
        Outstanding, //
    },
    tx::{
        self,
        Msns,
        RtrOctets,
        Segmenter, //
    },
    RtrKind,
    TaggedOffset, //
};
use kernel::prelude::*;

use self::start::Start;
use crate::stream::{
    batch::Batch,
    tx::inflight::{
        Due,
        SentWr,
        Slot, //
    },
    Config,
    Role, //
};
use crate::verbs::{
    cq::{
        WcOpcode,
        WcStatus, //
    },
    queue::wqe::{
        BadWqe,
        Payload,
        SendWqe,
        Sgl, //
    },
    region::Invalidator,
    Stag, //
};

/// Answers sent in a row while work requests wait.
const ANSWERS_IN_A_ROW: u8 = 4;

/// A message on its way into FPDUs.
pub(in crate::stream) enum Job {
    /// A Send or Write.
    Message {
        /// Where to cut it.
        segmenter: Segmenter,
        /// Its payload.
        data: Payload,
        /// Its work request.
        slot: Slot,
    },
    /// The answer to the oldest Read Request of the peer.
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
    /// The Terminate.
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

/// What an outstanding Read belongs to.
#[derive(Clone, Copy)]
pub(in crate::stream) struct ReadCookie {
    /// The work request; none for a ready-to-receive frame.
    pub(in crate::stream) slot: Option<Slot>,
    /// This is the last of the work request's Reads.
    pub(in crate::stream) last: bool,
    /// The sink to invalidate when the data is there.
    pub(in crate::stream) invalidate: Option<Stag>,
}

/// A Read work request of which not every Read Request has been made.
struct Reads {
    /// Its entry.
    slot: Slot,
    /// Where the data goes, one Read Request for each element.
    sink: Sgl,
    /// The element whose turn it is.
    next: usize,
    /// The peer's memory.
    remote: Stag,
    /// Where in it this element's data starts.
    to: u64,
    /// Invalidate the sink in the end.
    local_inv: bool,
}

/// Outstanding Reads of our own, with memory of the driver.
type OutReads = Orq<ReadCookie, KVec<Option<Outstanding<ReadCookie>>>>;

/// Read Requests of the peer, with memory of the driver.
type InReads = Irq<KVec<Option<Inbound>>>;

/// Where messages come from.
pub(in crate::stream) struct Queued {
    /// The ready-to-receive frame to begin with, or its repetition (`quirk_siw_takeover`).
    rtr: Option<RtrKind>,
    /// The work request whose turn it is, while it has to wait.
    stalled: Option<SendWqe>,
    /// A Read whose requests are being made.
    reads: Option<Reads>,
    /// Message numbers of the outgoing queues.
    msns: Msns,
    /// Our outstanding Reads.
    pub(in crate::stream) orq: OutReads,
    /// The peer's Read Requests.
    pub(in crate::stream) irq: InReads,
    /// Reads that may be outstanding.
    ord: u16,
    /// Octets still to come of outstanding Reads which let further requests wait for each other.
    pub(in crate::stream) plenty: u64,
    /// Answers sent since the last work request.
    answers: u8,
    /// A work request failed: nothing behind it starts, and the stream ends.
    pub(in crate::stream) failed: bool,
    /// The send queue was empty when it was last looked at.
    idle: bool,
    /// No work request could be taken up because too many are incomplete.
    pub(in crate::stream) starved: bool,
}

impl Queued {
    /// Prepares the queues. May sleep.
    pub(in crate::stream) fn new(config: &Config) -> Result<Self> {
        let outgoing = KVec::from_elem(None, usize::from(config.ord), GFP_KERNEL)?;
        let incoming = KVec::from_elem(None, usize::from(config.ird), GFP_KERNEL)?;
        Ok(Self {
            rtr: match config.role {
                Role::Initiator { rtr } => rtr,
                Role::Responder { .. } => None,
            },
            stalled: None,
            reads: None,
            msns: Msns::new(),
            orq: Orq::new(outgoing, config.ord),
            irq: Irq::new(incoming, config.ird),
            ord: config.ord,
            plenty: u64::MAX,
            answers: 0,
            failed: false,
            idle: false,
            starved: false,
        })
    }

    /// Nothing is waiting or outstanding, as far as the send queue was seen.
    pub(in crate::stream) fn is_drained(&self) -> bool {
        self.idle
            && self.stalled.is_none()
            && self.reads.is_none()
            && self.rtr.is_none()
            && self.orq.is_empty()
            && self.irq.is_empty()
    }

    /// Something that was taken up, or that the peer asked for, may be sent, or nobody has looked.
    pub(in crate::stream) fn may_wait(&self) -> bool {
        !self.idle
            || self.rtr.is_some()
            || self.stalled.is_some()
            || self.reads.is_some()
            || !self.irq.is_empty()
    }

    /// The send queue has not been looked at, and may not be empty any more.
    pub(in crate::stream) fn not_looked(&mut self) {
        self.idle = false;
    }

    /// Has a Write without payload sent before the next message.
    pub(in crate::stream) fn repeat_rtr(&mut self) {
        self.rtr = self.rtr.or(Some(RtrKind::Write));
    }

    /// Takes the work request that had to wait.
    pub(in crate::stream) fn take_stalled(&mut self) -> Option<SendWqe> {
        self.stalled.take()
    }
}

impl Batch<'_> {
    /// The next message of the full operation phase; `None` if there is none that may be sent.
    pub(in crate::stream) fn next_message(&mut self) -> Option<Job> {
        let tx = &mut self.proto.tx;
        if !tx.enabled || tx.queued.failed {
            return None;
        }
        if let Some(kind) = tx.queued.rtr.take() {
            return Some(self.ready_to_receive(kind));
        }
        let queued = &mut tx.queued;
        if !queued.irq.is_empty() && queued.answers < ANSWERS_IN_A_ROW {
            queued.answers = queued.answers.saturating_add(1);
            return Some(Job::Answer);
        }
        queued.answers = 0;
        self.next_work()
            .or_else(|| (!self.proto.tx.queued.irq.is_empty()).then_some(Job::Answer))
    }

    /// The frame that lets the responder send (RFC 6581 section 4.4).
    fn ready_to_receive(&mut self, kind: RtrKind) -> Job {
        let queued = &mut self.proto.tx.queued;
        if kind == RtrKind::Read {
            let cookie = ReadCookie {
                slot: None,
                last: true,
                invalidate: None,
            };
            // It is the first Read of the stream; with an ORD of 0 the start-up does not choose
            // it. Should it not fit, its answer is an error that ends the stream.
            let zero = TaggedOffset::new(0);
            let _ = queued.orq.push_read(Stag::new(0), zero, 0, cookie);
        }
        Job::Control(Control::Rtr(tx::rtr(kind, &mut queued.msns)))
    }

    /// Takes up work requests until one gives a message to send.
    fn next_work(&mut self) -> Option<Job> {
        loop {
            if self.proto.tx.queued.reads.is_some() {
                return self.next_read();
            }
            let wqe = match self.proto.tx.queued.stalled.take() {
                Some(wqe) => wqe,
                None => self.fetch()?,
            };
            let (id, opcode) = (wqe.id, wqe.opcode());
            match self.take_up(wqe) {
                Start::Job(job) => return Some(job),
                Start::Started => {}
                Start::Stall(wqe) => {
                    self.proto.tx.queued.stalled = Some(wqe);
                    return None;
                }
                Start::Failed(status) => {
                    self.refuse(&BadWqe { id, opcode, status });
                    return None;
                }
            }
        }
    }

    /// Reads the next work request out of the send queue.
    fn fetch(&mut self) -> Option<SendWqe> {
        if self.proto.sent.is_full() {
            self.retire();
        }
        self.proto.tx.queued.starved = self.proto.sent.is_full();
        if self.proto.tx.queued.starved {
            return None;
        }
        let next = match self.proto.mirror {
            true => None,
            false => self.queues.sq().fetch(),
        };
        self.proto.tx.queued.idle = next.is_none();
        match next? {
            Ok(wqe) => Some(wqe),
            Err(bad) => {
                self.refuse(&bad);
                None
            }
        }
    }

    /// Enters a failed work request into the order of completions. The stream ends when
    /// everything in front of it has been given to TCP.
    fn refuse(&mut self, bad: &BadWqe) {
        let _ = self.proto.sent.push(SentWr {
            id: bad.id,
            due: Due::Sent(0),
            bytes: 0,
            opcode: bad.opcode,
            status: bad.status,
            signaled: true,
        });
        self.proto.tx.queued.failed = true;
    }

    /// The current message has been encoded up to octet `end` of the outgoing stream.
    #[inline]
    pub(in crate::stream) fn job_done(&mut self, end: u64) {
        match self.proto.tx.job.take() {
            Some(Job::Message { slot, .. }) => {
                if let Some(entry) = self.proto.sent.get_mut(slot) {
                    entry.due = Due::Sent(end);
                }
            }
            Some(Job::Answer | Job::Control(_)) | None => {}
        }
    }

    /// A Read has its data: reports its work request if it was the last of it.
    pub(in crate::stream) fn read_done(&mut self, cookie: ReadCookie) {
        let (true, Some(slot)) = (cookie.last, cookie.slot) else {
            return;
        };
        let by = Invalidator::Local(self.queues.association());
        let refused = cookie
            .invalidate
            .is_some_and(|stag| self.mrs.invalidate(stag, by).is_err());
        if refused {
            // At once: the Reads behind it have begun, and are not to succeed after it.
            self.slot_failed(slot, WcStatus::LocQpOp);
            self.fail(Terminate::bare(TerminateReason::RdmapCatastrophic));
        } else if let Some(entry) = self.proto.sent.get_mut(slot) {
            entry.due = Due::Sent(0);
        }
        self.retire();
    }

    /// Fails the oldest Send that is not complete, for the end of the stream. One that has not begun
    /// is taken up for that, and so are the work requests in front of it.
    pub(in crate::stream) fn fail_oldest_send(&mut self, status: WcStatus) {
        self.retire();
        if self.proto.mirror || self.proto.sent.fail_oldest(WcOpcode::Send, status) {
            return;
        }
        while !self.proto.sent.is_full() {
            let (id, opcode) = match self.proto.tx.queued.stalled.take() {
                Some(wqe) => (wqe.id, wqe.opcode()),
                None => match self.queues.sq().fetch() {
                    Some(Ok(wqe)) => (wqe.id, wqe.opcode()),
                    Some(Err(bad)) => (bad.id, bad.opcode),
                    None => return,
                },
            };
            let found = opcode == WcOpcode::Send;
            let _ = self.proto.sent.push(SentWr {
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

    /// The work request of an open message or Read cannot be carried out.
    pub(in crate::stream) fn slot_failed(&mut self, slot: Slot, status: WcStatus) {
        if let Some(entry) = self.proto.sent.get_mut(slot) {
            entry.status = status;
            entry.due = Due::Sent(0);
        }
        self.proto.tx.queued.failed = true;
    }
}
