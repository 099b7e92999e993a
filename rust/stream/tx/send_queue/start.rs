// SPDX-License-Identifier: GPL-2.0

//! The start of work requests: checks, waits, and the entry for the completion in posting order.

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
    Reads, //
};
use crate::{
    stream::{
        config::EndReason,
        ctx::{
            Ctx,
            Stop, //
        },
        inflight::{
            Due,
            SentWr, //
        },
        read_queues::{
            ReadCookie,
            ReadQueues, //
        },
        tx::transmit::Tx, //
    },
    verbs::{
        cq::WcStatus,
        mr::{
            Access,
            Invalidator, //
        },
        wq::wqe::{
            Payload,
            SendOp,
            SendWqe, //
        },
        Stag, //
    }, //
};

/// The result of starting a work request.
pub(super) enum Start {
    /// A message to send.
    Job(Job),
    /// Nothing to send: done, or Read Requests follow.
    Started,
    /// The work request waits for outstanding Reads.
    Stall(SendWqe),
    /// The work request has failed, with the status of its completion.
    Failed(WcStatus),
}

impl Tx {
    /// Starts a work request.
    pub(super) fn take_up(&mut self, ctx: &mut Ctx<'_>, reads: &ReadQueues, wqe: SendWqe) -> Start {
        let reads_open = !reads.orq.is_empty();
        // No earlier work request may use the memory after an invalidation.
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
                start_message(ctx, entry, Message::Write { stag: remote, to }, local)
            }
            SendOp::Send { local, invalidate } => {
                let kind = SendKind {
                    solicited: wqe.solicited,
                    invalidate,
                };
                let msn = self.queued.msns.send();
                start_message(ctx, entry, Message::Send { msn, kind }, local)
            }
            SendOp::Read {
                sink,
                remote,
                to,
                local_inv,
            } => {
                if self.queued.ord == 0 {
                    return Start::Failed(WcStatus::LocQpOp);
                }
                if ctx.mrs.check_list(&sink, Access::LOCAL_WRITE).is_err() {
                    return Start::Failed(WcStatus::LocProt);
                }
                entry.bytes = sink.total();
                let Some(slot) = ctx.shared.sent.push(entry) else {
                    return Start::Failed(WcStatus::General);
                };
                self.queued.reads = Some(Reads {
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
                let by = Invalidator::Local(ctx.queues.association());
                let done = ctx.mrs.invalidate(stag, by).is_ok();
                local_operation(ctx, entry, done)
            }
            SendOp::RegMr(reg) => {
                let regions = ctx.queues.regions();
                // A concurrent revocation waits for these pins, and the registration waits for
                // that revocation.
                ctx.mrs.release();
                let done = regions.register(ctx.queues.association(), &reg).is_ok();
                local_operation(ctx, entry, done)
            }
        }
    }

    /// Makes the next Read Request of the current work request; `None` if it has to wait.
    pub(super) fn next_read(&mut self, ctx: &mut Ctx<'_>, reads: &mut ReadQueues) -> Option<Job> {
        if self.peer_closed {
            // The response to a Read could not arrive any more.
            ctx.stop(Stop::End(EndReason::PeerFin));
            return None;
        }
        let queued = &mut self.queued;
        if !reads.orq.is_due(queued.plenty) {
            return None;
        }
        let mut current = queued.reads.take()?;
        let elements = current.sink.as_slice();
        let last = current.next.saturating_add(1) >= elements.len();
        // A Read without elements moves no octet, but its Read Request is sent.
        let (stag, addr, len) = elements
            .get(current.next)
            .map_or((Stag::new(0), 0, 0), |sge| (sge.lkey, sge.addr, sge.len));
        let request = ReadRequest {
            sink: stag,
            sink_to: TaggedOffset::new(addr),
            size: len,
            source: current.remote,
            source_to: TaggedOffset::new(current.to),
        };
        let cookie = ReadCookie {
            slot: Some(current.slot),
            last,
            invalidate: (last && current.local_inv).then_some(stag),
        };
        reads
            .orq
            .push_read(stag, request.sink_to, len, cookie)
            .ok()?;
        let octets = tx::read_request(queued.msns.read_request(), &request);
        if !last {
            current.next = current.next.saturating_add(1);
            current.to = current.to.wrapping_add(u64::from(len));
            queued.reads = Some(current);
        }
        Some(Job::Control(Control::Read(octets)))
    }
}

/// Queues an executed local operation for its completion; `done`: it has succeeded.
fn local_operation(ctx: &mut Ctx<'_>, mut entry: SentWr, done: bool) -> Start {
    if !done {
        return Start::Failed(WcStatus::LocQpOp);
    }
    entry.due = Due::Sent(0);
    match ctx.shared.sent.push(entry) {
        Some(_) => Start::Started,
        None => Start::Failed(WcStatus::General),
    }
}

/// Checks that the memory of a payload may be read. `LocProt`: it may not.
fn check_payload(ctx: &mut Ctx<'_>, data: &Payload) -> Result<(), WcStatus> {
    match data {
        Payload::Sgl(list) => ctx
            .mrs
            .check_list(list, Access::NONE)
            .map_err(|_| WcStatus::LocProt),
        Payload::Inline(_) => Ok(()),
    }
}

/// Queues a message for its completion, and begins its segmentation.
fn start_message(ctx: &mut Ctx<'_>, mut entry: SentWr, message: Message, data: Payload) -> Start {
    if let Err(status) = check_payload(ctx, &data) {
        return Start::Failed(status);
    }
    entry.bytes = data.len();
    match ctx.shared.sent.push(entry) {
        Some(slot) => Start::Job(Job::Message {
            segmenter: Segmenter::new(message, data.len()),
            data,
            slot,
        }),
        None => Start::Failed(WcStatus::General),
    }
}
