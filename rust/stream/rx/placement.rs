// SPDX-License-Identifier: GPL-2.0

//! Execution of a verified FPDU: place, complete, answer, or end (RFC 5041 section 5, RFC 5040
//! sections 5 and 7).
//!
//! `iwarp_wire::rx::Receiver` makes the decisions; this module applies them to memory and queues.
//! Payload is copied once, from TCP's buffers to registered memory.

use iwarp_wire::{
    ddp,
    rdmap::terminate::{
        Terminate,
        TerminateReason, //
    },
    rx::{
        Decision,
        ReadSegment,
        SendSegment,
        TaggedSegment,
        HEAD_LEN, //
    }, //
};

use super::{
    receive::Rx,
    source::Source, //
};
use crate::{
    stream::{
        ctx::{
            Ctx,
            Stop, //
        },
        inflight::Due,
        mr_cache,
        read_queues::{
            ReadCookie,
            ReadQueues, //
        }, //
    },
    verbs::{
        cq::{
            Completion,
            WcOpcode,
            WcStatus, //
        },
        mr::{
            Access,
            AccessError,
            Invalidator, //
        },
        wq::wqe::RecvWqe,
        Stag, //
    },
};

/// Places a segment of the peer's Write.
#[inline]
fn place_write<S: Source + ?Sized>(
    ctx: &mut Ctx<'_>,
    src: &S,
    off: usize,
    segment: &TaggedSegment,
) -> Result<(), TerminateReason> {
    let place = (segment.stag, segment.to.get(), segment.len);
    let need = Access::REMOTE_WRITE;
    match ctx.queues.grants(need) || segment.len == 0 {
        true => place_tagged(ctx, src, off, place, need),
        false => Err(AccessError::Rights),
    }
    .map_err(|error| mr_cache::to_wire(error).for_write())
}

/// Copies `len` octets to `addr` of the region `stag`.
#[inline]
fn place_tagged<S: Source + ?Sized>(
    ctx: &mut Ctx<'_>,
    src: &S,
    off: usize,
    (stag, addr, len): (Stag, u64, u32),
    need: Access,
) -> Result<(), AccessError> {
    if len == 0 {
        return Ok(());
    }
    let region = ctx.mrs.remote(stag, addr, len, need)?;
    let mut addr = addr;
    src.chunks(off, len as usize, |chunk| {
        region.write_at(addr, chunk)?;
        addr = addr.wrapping_add(chunk.len() as u64);
        Ok(())
    })
}

/// Places a segment of the response to the oldest Read of this end.
fn place_read<S: Source + ?Sized>(
    ctx: &mut Ctx<'_>,
    reads: &mut ReadQueues,
    src: &S,
    off: usize,
    segment: &ReadSegment,
) -> Result<(), TerminateReason> {
    let place = (segment.stag, segment.to.get(), segment.len);
    if let Err(error) = place_tagged(ctx, src, off, place, Access::LOCAL_WRITE) {
        if let Some(slot) = reads.front().and_then(|cookie| cookie.slot) {
            ctx.slot_failed(slot, WcStatus::LocAccess);
        }
        return Err(mr_cache::to_wire(error).for_write());
    }
    if segment.last {
        if let Some(cookie) = reads.orq.complete() {
            read_done(ctx, cookie);
        }
    }
    Ok(())
}

/// Handles the end of a Read Response; the last one of a work request completes it.
fn read_done(ctx: &mut Ctx<'_>, cookie: ReadCookie) {
    let (true, Some(slot)) = (cookie.last, cookie.slot) else {
        return;
    };
    let by = Invalidator::Local(ctx.queues.association());
    let refused = cookie
        .invalidate
        .is_some_and(|stag| ctx.mrs.invalidate(stag, by).is_err());
    if refused {
        // The stream ends at once: later Reads have started, and must not succeed after this
        // failure.
        ctx.slot_failed(slot, WcStatus::LocQpOp);
        ctx.fail(Terminate::bare(TerminateReason::RdmapCatastrophic));
    } else if let Some(entry) = ctx.shared.sent.get_mut(slot) {
        entry.due = Due::Sent(0);
    }
    ctx.retire();
}

impl Rx {
    /// Executes the ULPDU of `len` octets at offset `ulpdu` of `src`. `head` begins with its first
    /// octets.
    #[inline]
    pub(super) fn deliver<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        src: &S,
        ulpdu: usize,
        head: &[u8],
        len: u16,
    ) {
        let head = head
            .get(..usize::from(len).min(HEAD_LEN))
            .unwrap_or_default();
        match self.receiver.receive_data(head, len, &mut reads.orq) {
            Some(decision) => self.carry_out(ctx, reads, src, ulpdu, head, len, decision),
            None => self.deliver_other(ctx, reads, src, ulpdu, head, len),
        }
    }

    /// [`deliver`](Self::deliver) for segments without data, or before the stream has started.
    // A separate function, so that decisions about data stay in registers.
    #[inline(never)]
    fn deliver_other<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        src: &S,
        ulpdu: usize,
        head: &[u8],
        len: u16,
    ) {
        let decision = self
            .receiver
            .receive(head, len, &mut reads.orq, &mut reads.irq);
        self.carry_out(ctx, reads, src, ulpdu, head, len, decision);
    }

    /// Carries out a decision about the ULPDU of `len` octets at offset `ulpdu` of `src`, which
    /// begins with `head`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn carry_out<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        src: &S,
        ulpdu: usize,
        head: &[u8],
        len: u16,
        decision: Decision,
    ) {
        let tagged = ulpdu.wrapping_add(ddp::TAGGED_LEN);
        let untagged = ulpdu.wrapping_add(ddp::UNTAGGED_LEN);
        let done = match decision {
            Decision::Write(segment) => {
                self.rx_since_kick = true;
                let tally = &mut ctx.shared.tally;
                tally.rx_writes = tally.rx_writes.wrapping_add(segment.last.into());
                place_write(ctx, src, tagged, &segment)
            }
            Decision::ReadResponse(segment) => place_read(ctx, reads, src, tagged, &segment),
            Decision::Send(segment) => {
                self.rx_since_kick = true;
                self.place_send(ctx, src, untagged, &segment)
            }
            Decision::ReadRequest => {
                let tally = &mut ctx.shared.tally;
                tally.rx_reads = tally.rx_reads.wrapping_add(1);
                Ok(())
            }
            Decision::Nothing | Decision::Dropped => Ok(()),
            Decision::Terminated(terminate) => {
                ctx.stop(Stop::Terminated(terminate));
                Ok(())
            }
            Decision::Fail(reason) => Err(reason),
            // The driver does not enable them, so the receiver refuses them as unexpected
            // opcodes.
            Decision::Immediate { .. }
            | Decision::AtomicRequest
            | Decision::AtomicResponse { .. } => Err(TerminateReason::RdmapCatastrophic),
        };
        match done {
            Ok(()) => self.ready |= self.receiver.started(),
            Err(reason) => {
                ctx.fail(Terminate::for_segment(reason, head, len));
            }
        }
    }

    /// Places a segment of a Send, and completes the receive work request after the last segment.
    fn place_send<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        src: &S,
        off: usize,
        segment: &SendSegment,
    ) -> Result<(), TerminateReason> {
        // The receive of a held Send has been taken already.
        if segment.first && self.recv.is_none() {
            match ctx.queues.rq().take() {
                Some(Ok(recv)) => self.recv = Some(recv),
                Some(Err(bad)) => {
                    self.recv_failed(ctx, bad.id, bad.status);
                    return Err(TerminateReason::DdpCatastrophic);
                }
                None => return self.nothing_posted(ctx, segment),
            }
        }
        let Some(RecvWqe { id, sgl }) = &self.recv else {
            return Err(segment.no_buffer());
        };
        let id = *id;
        if let Err(reason) = segment.fit(sgl.total()) {
            self.recv_failed(ctx, id, WcStatus::LocLen);
            return Err(reason);
        }
        let mrs = &mut ctx.mrs;
        let mut at = segment.mo;
        let placed = src.chunks(off, segment.len as usize, |chunk| {
            mrs.scatter(sgl, at, chunk)?;
            at = at.wrapping_add(chunk.len() as u32);
            Ok::<(), AccessError>(())
        });
        if placed.is_err() {
            self.recv_failed(ctx, id, WcStatus::LocProt);
            return Err(TerminateReason::DdpCatastrophic);
        }
        if !segment.last {
            return Ok(());
        }
        let invalidated = match segment.invalidate {
            Some(stag) => invalidate_for_peer(ctx, stag)?.then_some(stag),
            None => None,
        };
        self.recv = None;
        let tally = &mut ctx.shared.tally;
        tally.rx_sends = tally.rx_sends.wrapping_add(1);
        report_recv(
            ctx,
            id,
            WcStatus::Success,
            segment.end(),
            invalidated,
            segment.solicited,
        );
        Ok(())
    }

    /// Holds a message for which no receive is posted. If the queue pair is in the error state,
    /// the stream ends in the mode of that state. No Terminate reports the missing receive then.
    fn nothing_posted(
        &mut self,
        ctx: &mut Ctx<'_>,
        segment: &SendSegment,
    ) -> Result<(), TerminateReason> {
        if ctx.queues.is_closed() {
            ctx.stop(Stop::OwnerFailed);
            return Err(segment.no_buffer());
        }
        self.hold(ctx, segment)
    }

    /// Completes a receive work request with an error: the end of the stream needs no event.
    pub(super) fn recv_failed(&mut self, ctx: &mut Ctx<'_>, id: u64, status: WcStatus) {
        self.recv = None;
        ctx.shared.told = true;
        report_recv(ctx, id, status, 0, None, false);
    }
}

/// Invalidates `stag` for the peer, before its message completes. Returns whether the peer had
/// access.
fn invalidate_for_peer(ctx: &mut Ctx<'_>, stag: Stag) -> Result<bool, TerminateReason> {
    let by = Invalidator::Remote(ctx.queues.association());
    ctx.mrs
        .invalidate(stag, by)
        .map_err(|error| mr_cache::to_wire(error).for_invalidate())
}

/// Completes a receive work request.
#[inline]
fn report_recv(
    ctx: &mut Ctx<'_>,
    id: u64,
    status: WcStatus,
    bytes: u32,
    invalidated: Option<Stag>,
    solicited: bool,
) {
    let room = ctx.queues.complete_recv(&Completion {
        id,
        opcode: WcOpcode::Recv,
        status,
        bytes,
        invalidated,
        solicited,
    });
    ctx.shared.overflowed |= !room;
}
