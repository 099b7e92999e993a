// SPDX-License-Identifier: GPL-2.0

//! What goes out next: answers to the peer's Reads, and our own work requests in order.
//!
//! Answers go first, but after a few of them a work request gets its turn. Work requests start in
//! posting order (RFC 5041 section 5.3); one that has to wait, for a fence or for the number of
//! outstanding Reads (RFC 5040 section 5.5, requirements.md RDMAP-60), holds back those behind it,
//! never the answers: two ends that wait for each other's answers would wait for good.

use core::ops::Deref;

use iwarp_wire::{
    rdmap::{
        terminate::TerminateOctets,
        ReadRequest,
        SendKind, //
    },
    reads::{
        Inbound,
        Irq,
        Orq,
        Outstanding, //
    },
    tx::{
        self,
        Message,
        Msns,
        RtrOctets,
        Segmenter, //
    },
    RtrKind,
    TaggedOffset, //
};
use kernel::prelude::*;

use super::{
    sent::{
        Due,
        Entry,
        Slot, //
    },
    session::Session,
    Config,
    Role, //
};
use crate::verbs::{
    cq::WcStatus,
    queue::wqe::{
        BadWqe,
        Payload,
        SendOp,
        SendWqe,
        Sgl, //
    },
    region::{
        Access,
        Invalidator, //
    },
    Stag, //
};

/// Answers sent in a row while work requests wait.
const ANSWERS_IN_A_ROW: u8 = 4;

/// A message on its way into FPDUs.
pub(super) enum Job {
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
pub(super) enum Control {
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
pub(super) struct ReadCookie {
    /// The work request; none for a ready-to-receive frame.
    pub(super) slot: Option<Slot>,
    /// This is the last of the work request's Reads.
    pub(super) last: bool,
    /// The sink to invalidate when the data is there.
    pub(super) invalidate: Option<Stag>,
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
pub(super) struct Queued {
    /// The ready-to-receive frame to begin with.
    rtr: Option<RtrKind>,
    /// The work request whose turn it is, while it has to wait.
    stalled: Option<SendWqe>,
    /// A Read whose requests are being made.
    reads: Option<Reads>,
    /// Message numbers of the outgoing queues.
    msns: Msns,
    /// Our outstanding Reads.
    pub(super) orq: OutReads,
    /// The peer's Read Requests.
    pub(super) irq: InReads,
    /// Reads that may be outstanding.
    ord: u16,
    /// Answers sent since the last work request.
    answers: u8,
    /// A work request failed: nothing behind it starts, and the stream ends.
    pub(super) failed: bool,
    /// The send queue was empty when it was last looked at.
    idle: bool,
    /// No work request could be taken up because too many are incomplete.
    pub(super) starved: bool,
}

impl Queued {
    /// Prepares the queues. May sleep.
    pub(super) fn new(config: &Config) -> Result<Self> {
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
            answers: 0,
            failed: false,
            idle: false,
            starved: false,
        })
    }

    /// Nothing is waiting or outstanding, as far as the send queue was seen.
    pub(super) fn is_drained(&self) -> bool {
        self.idle
            && self.stalled.is_none()
            && self.reads.is_none()
            && self.rtr.is_none()
            && self.orq.is_empty()
            && self.irq.is_empty()
    }

    /// Takes the work request that had to wait.
    pub(super) fn take_stalled(&mut self) -> Option<SendWqe> {
        self.stalled.take()
    }
}

/// What became of a work request that was taken up.
enum Start {
    /// It is a message to send.
    Job(Job),
    /// It is done, or its Read Requests are to be made.
    Started,
    /// It has to wait for outstanding Reads.
    Stall(SendWqe),
    /// It is wrong.
    Failed(WcStatus),
}

impl Session<'_> {
    /// The next message of the full operation phase; `None` if there is none that may be sent.
    pub(super) fn next_message(&mut self) -> Option<Job> {
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
            false => self.qp.sq().fetch(),
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
        let _ = self.proto.sent.push(Entry {
            id: bad.id,
            due: Due::Sent(0),
            bytes: 0,
            opcode: bad.opcode,
            status: bad.status,
            signaled: true,
        });
        self.proto.tx.queued.failed = true;
    }

    /// Starts a work request.
    fn take_up(&mut self, wqe: SendWqe) -> Start {
        let reads_open = !self.proto.tx.queued.orq.is_empty();
        // Whoever invalidates memory means that nothing in front of him uses it any more.
        let fenced = wqe.fence || matches!(wqe.op, SendOp::LocalInv { .. });
        if fenced && reads_open {
            return Start::Stall(wqe);
        }
        let mut entry = Entry {
            id: wqe.id,
            due: Due::Open,
            bytes: 0,
            opcode: wqe.opcode(),
            status: WcStatus::Success,
            signaled: wqe.signaled,
        };
        match wqe.op {
            SendOp::Write { local, remote, to } => {
                let to = TaggedOffset::new(to);
                self.start_message(entry, Message::Write { stag: remote, to }, local)
            }
            SendOp::Send { local, invalidate } => {
                let kind = SendKind {
                    solicited: wqe.solicited,
                    invalidate,
                };
                let msn = self.proto.tx.queued.msns.send();
                self.start_message(entry, Message::Send { msn, kind }, local)
            }
            SendOp::Read {
                sink,
                remote,
                to,
                local_inv,
            } => {
                if self.proto.tx.queued.ord == 0 {
                    return Start::Failed(WcStatus::LocQpOp);
                }
                if self.pins.check_list(&sink, Access::LOCAL_WRITE).is_err() {
                    return Start::Failed(WcStatus::LocProt);
                }
                entry.bytes = sink.total();
                let Some(slot) = self.proto.sent.push(entry) else {
                    return Start::Failed(WcStatus::General);
                };
                self.proto.tx.queued.reads = Some(Reads {
                    slot,
                    sink,
                    next: 0,
                    remote,
                    to,
                    local_inv,
                });
                Start::Started
            }
            SendOp::LocalInv { stag } => {
                let by = Invalidator::Local(self.qp.pd());
                let done = self.pins.invalidate(stag, by).is_ok();
                self.local_operation(entry, done)
            }
            SendOp::RegMr(reg) => {
                let regions = self.qp.device().regions();
                let done = regions.register(self.qp.pd(), &reg).is_ok();
                self.local_operation(entry, done)
            }
        }
    }

    /// Enters a local operation that has been carried out.
    fn local_operation(&mut self, mut entry: Entry, done: bool) -> Start {
        if !done {
            return Start::Failed(WcStatus::LocQpOp);
        }
        entry.due = Due::Sent(0);
        match self.proto.sent.push(entry) {
            Some(_) => Start::Started,
            None => Start::Failed(WcStatus::General),
        }
    }

    /// Checks that a payload may be read.
    fn check_payload(&mut self, data: &Payload) -> Result<(), WcStatus> {
        match data {
            Payload::Sgl(list) => self
                .pins
                .check_list(list, Access::NONE)
                .map_err(|_| WcStatus::LocProt),
            Payload::Inline(_) => Ok(()),
        }
    }

    /// Enters a message whose payload is to be cut into FPDUs.
    fn start_message(&mut self, mut entry: Entry, message: Message, data: Payload) -> Start {
        if let Err(status) = self.check_payload(&data) {
            return Start::Failed(status);
        }
        entry.bytes = data.len();
        match self.proto.sent.push(entry) {
            Some(slot) => Start::Job(Job::Message {
                segmenter: Segmenter::new(message, data.len()),
                data,
                slot,
            }),
            None => Start::Failed(WcStatus::General),
        }
    }

    /// Makes the next Read Request of the current work request; `None` if it has to wait.
    fn next_read(&mut self) -> Option<Job> {
        let queued = &mut self.proto.tx.queued;
        if queued.orq.is_full() {
            return None;
        }
        let mut reads = queued.reads.take()?;
        let elements = reads.sink.as_slice();
        let last = reads.next.saturating_add(1) >= elements.len();
        // A Read without an element moves nothing, but it is a Read.
        let (stag, addr, len) = elements
            .get(reads.next)
            .map_or((Stag::new(0), 0, 0), |sge| (sge.lkey, sge.addr, sge.len));
        let request = ReadRequest {
            sink: stag,
            sink_to: TaggedOffset::new(addr),
            size: len,
            source: reads.remote,
            source_to: TaggedOffset::new(reads.to),
        };
        let cookie = ReadCookie {
            slot: Some(reads.slot),
            last,
            invalidate: (last && reads.local_inv).then_some(stag),
        };
        queued
            .orq
            .push_read(stag, request.sink_to, len, cookie)
            .ok()?;
        let octets = tx::read_request(queued.msns.read_request(), &request);
        if !last {
            reads.next = reads.next.saturating_add(1);
            reads.to = reads.to.wrapping_add(u64::from(len));
            queued.reads = Some(reads);
        }
        Some(Job::Control(Control::Read(octets)))
    }

    /// The current message has been encoded up to octet `end` of the outgoing stream.
    #[inline]
    pub(super) fn job_done(&mut self, end: u64) {
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
    pub(super) fn read_done(&mut self, cookie: ReadCookie) {
        if !cookie.last {
            return;
        }
        let mut status = WcStatus::Success;
        if let Some(stag) = cookie.invalidate {
            let by = Invalidator::Local(self.qp.pd());
            if self.pins.invalidate(stag, by).is_err() {
                status = WcStatus::LocQpOp;
            }
        }
        if let Some(entry) = cookie.slot.and_then(|slot| self.proto.sent.get_mut(slot)) {
            entry.due = Due::Sent(0);
            entry.status = status;
        }
        self.retire();
    }

    /// The work request of an open message or Read cannot be carried out.
    pub(super) fn slot_failed(&mut self, slot: Slot, status: WcStatus) {
        if let Some(entry) = self.proto.sent.get_mut(slot) {
            entry.status = status;
            entry.due = Due::Sent(0);
        }
        self.proto.tx.queued.failed = true;
    }
}
