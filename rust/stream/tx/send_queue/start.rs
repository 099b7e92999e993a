// SPDX-License-Identifier: GPL-2.0

//! Work requests on their way to a message: checked, entered into the order of completions, or made
//! to wait.

use iwarp_wire::{
    rdmap::{
        ReadRequest,
        SendKind, //
    },
    tx::{
        self,
        Message,
        Segmenter, //
    },
    TaggedOffset, //
};
use kernel::prelude::*;

use super::{
    Control,
    Job,
    ReadCookie,
    Reads, //
};
use crate::{
    stream::{
        batch::Batch,
        tx::inflight::{
            Due,
            SentWr, //
        },
        EndReason, //
    },
    verbs::{
        cq::WcStatus,
        queue::wqe::{
            Payload,
            SendOp,
            SendWqe, //
        },
        region::{
            Access,
            Invalidator, //
        },
        Stag, //
    }, //
};

/// What became of a work request that was taken up.
pub(in crate::stream) enum Start {
    /// It is a message to send.
    Job(Job),
    /// It is done, or its Read Requests are to be made.
    Started,
    /// It has to wait for outstanding Reads.
    Stall(SendWqe),
    /// It is wrong.
    Failed(WcStatus),
}

impl Batch<'_> {
    /// Starts a work request.
    pub(in crate::stream) fn take_up(&mut self, wqe: SendWqe) -> Start {
        let reads_open = !self.proto.tx.queued.orq.is_empty();
        // An invalidation promises that no earlier work request uses the memory any more.
        let fenced = wqe.fence || matches!(wqe.op, SendOp::LocalInv { .. });
        if fenced && reads_open {
            return Start::Stall(wqe);
        }
        let mut entry = SentWr {
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
                if self.mrs.check_list(&sink, Access::LOCAL_WRITE).is_err() {
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
                let by = Invalidator::Local(self.queues.association());
                let done = self.mrs.invalidate(stag, by).is_ok();
                self.local_operation(entry, done)
            }
            SendOp::RegMr(reg) => {
                let regions = self.queues.regions();
                // A concurrent revocation waits for these pins, and the registration for it.
                self.mrs.release();
                let done = regions.register(self.queues.association(), &reg).is_ok();
                self.local_operation(entry, done)
            }
        }
    }

    /// Enters a local operation that has been carried out.
    fn local_operation(&mut self, mut entry: SentWr, done: bool) -> Start {
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
                .mrs
                .check_list(list, Access::NONE)
                .map_err(|_| WcStatus::LocProt),
            Payload::Inline(_) => Ok(()),
        }
    }

    /// Enters a message whose payload is to be cut into FPDUs.
    fn start_message(&mut self, mut entry: SentWr, message: Message, data: Payload) -> Start {
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
    pub(in crate::stream) fn next_read(&mut self) -> Option<Job> {
        if self.proto.ending.peer_closed() {
            // Its answer could not come any more.
            self.end(EndReason::PeerFin);
            return None;
        }
        let queued = &mut self.proto.tx.queued;
        if !queued.orq.is_due(queued.plenty) {
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
}
