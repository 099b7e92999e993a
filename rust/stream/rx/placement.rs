// SPDX-License-Identifier: GPL-2.0

//! What a verified FPDU asks for: place, complete, answer, or end (RFC 5041 section 5, RFC 5040
//! sections 5 and 7).
//!
//! `iwarp_wire::rx::Receiver` decides; here its decisions meet memory and queues. Payload is
//! copied once, from where it arrived to where it belongs.

use iwarp_wire::{
    ddp::{
        self,
        Header, //
    },
    rdmap::terminate::{
        Terminate,
        TerminateReason,
        UntaggedError, //
    },
    rx::{
        Decision,
        ReadSegment,
        SendSegment,
        TaggedSegment,
        HEAD_LEN, //
    },
    QueueNumber, //
};

use crate::stream::{
    batch::Batch,
    mr_cache,
    rx::source::Source,
    tx::send_queue::ReadCookie,
    EndReason,
    StreamEvent, //
};
use crate::verbs::{
    counters::Counter,
    cq::{
        Completion,
        WcOpcode,
        WcStatus, //
    },
    queue::wqe::RecvWqe,
    region::{
        Access,
        AccessError,
        Invalidator, //
    },
    Stag, //
};

impl Batch<'_> {
    /// Carries out what the ULPDU of `len` octets at offset `ulpdu` of `src` asks for. `head`
    /// begins with its first octets.
    #[inline]
    pub(in crate::stream) fn deliver<S: Source + ?Sized>(
        &mut self,
        src: &S,
        ulpdu: usize,
        head: &[u8],
        len: u16,
    ) {
        let head = head
            .get(..usize::from(len).min(HEAD_LEN))
            .unwrap_or_default();
        let proto = &mut *self.proto;
        let queued = &mut proto.tx.queued;
        match proto.rx.receiver.receive_data(head, len, &mut queued.orq) {
            Some(decision) => self.carry_out(src, ulpdu, head, len, decision),
            None => self.deliver_other(src, ulpdu, head, len),
        }
    }

    /// [`deliver`](Self::deliver) for what carries no data, or comes before the stream has started.
    // On its own, so that decisions about data stay in registers.
    #[inline(never)]
    fn deliver_other<S: Source + ?Sized>(&mut self, src: &S, ulpdu: usize, head: &[u8], len: u16) {
        let proto = &mut *self.proto;
        let queued = &mut proto.tx.queued;
        let decision = proto
            .rx
            .receiver
            .receive(head, len, &mut queued.orq, &mut queued.irq);
        self.carry_out(src, ulpdu, head, len, decision);
    }

    /// Carries out a decision about the ULPDU of `len` octets at offset `ulpdu` of `src`, which
    /// begins with `head`.
    #[inline(always)]
    fn carry_out<S: Source + ?Sized>(
        &mut self,
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
                self.proto.rx_since_kick = true;
                self.place_write(src, tagged, &segment)
            }
            Decision::ReadResponse(segment) => self.place_read(src, tagged, &segment),
            Decision::Send(segment) => {
                self.proto.rx_since_kick = true;
                self.place_send(src, untagged, &segment)
            }
            Decision::ReadRequest | Decision::Nothing | Decision::Dropped => Ok(()),
            Decision::Terminated(terminate) => {
                self.terminated(&terminate);
                Ok(())
            }
            Decision::Fail(reason) => Err(reason),
            // Not announced, so the receiver refuses them as unexpected opcodes.
            Decision::Immediate { .. }
            | Decision::AtomicRequest
            | Decision::AtomicResponse { .. } => Err(TerminateReason::RdmapCatastrophic),
        };
        if let Err(reason) = done {
            self.fail(Terminate::for_segment(reason, head, len));
        } else if !self.proto.tx.enabled && self.proto.rx.receiver.started() {
            self.proto.tx.enabled = true;
            self.tell(StreamEvent::Ready);
        }
    }

    /// Places a segment of the peer's Write.
    #[inline]
    fn place_write<S: Source + ?Sized>(
        &mut self,
        src: &S,
        off: usize,
        segment: &TaggedSegment,
    ) -> Result<(), TerminateReason> {
        let place = (segment.stag, segment.to.get(), segment.len);
        let need = Access::REMOTE_WRITE;
        match self.queues.grants(need) || segment.len == 0 {
            true => self.place_tagged(src, off, place, need),
            false => Err(AccessError::Rights),
        }
        .map_err(|error| mr_cache::to_wire(error).for_write())
    }

    /// Copies `len` octets to `addr` of the region `stag`.
    #[inline]
    fn place_tagged<S: Source + ?Sized>(
        &mut self,
        src: &S,
        off: usize,
        (stag, addr, len): (Stag, u64, u32),
        need: Access,
    ) -> Result<(), AccessError> {
        if len == 0 {
            return Ok(());
        }
        let region = self.mrs.remote(stag, addr, len, need)?;
        let mut addr = addr;
        src.chunks(off, len as usize, |chunk| {
            region.write_at(addr, chunk)?;
            addr = addr.wrapping_add(chunk.len() as u64);
            Ok(())
        })
    }

    /// Places a segment of the answer to our oldest Read.
    fn place_read<S: Source + ?Sized>(
        &mut self,
        src: &S,
        off: usize,
        segment: &ReadSegment,
    ) -> Result<(), TerminateReason> {
        let place = (segment.stag, segment.to.get(), segment.len);
        if let Err(error) = self.place_tagged(src, off, place, Access::LOCAL_WRITE) {
            if let Some(slot) = self.read_in_front().and_then(|cookie| cookie.slot) {
                self.slot_failed(slot, WcStatus::LocAccess);
            }
            return Err(mr_cache::to_wire(error).for_write());
        }
        if segment.last {
            if let Some(cookie) = self.proto.tx.queued.orq.complete() {
                self.read_done(cookie);
            }
        }
        Ok(())
    }

    /// What our oldest Read belongs to.
    pub(in crate::stream) fn read_in_front(&self) -> Option<ReadCookie> {
        self.proto.tx.queued.orq.head().map(|read| read.cookie)
    }

    /// Places a segment of a Send, and reports the message if it is the last.
    fn place_send<S: Source + ?Sized>(
        &mut self,
        src: &S,
        off: usize,
        segment: &SendSegment,
    ) -> Result<(), TerminateReason> {
        // The Receive of a Send that was held has been taken already.
        if segment.first && self.proto.rx.recv.is_none() {
            match self.queues.rq().take() {
                Some(Ok(recv)) => self.proto.rx.recv = Some(recv),
                Some(Err(bad)) => {
                    self.recv_failed(bad.id, bad.status);
                    return Err(TerminateReason::DdpCatastrophic);
                }
                None => return self.nothing_posted(segment),
            }
        }
        let Some(RecvWqe { id, sgl }) = &self.proto.rx.recv else {
            return Err(segment.no_buffer());
        };
        let id = *id;
        if let Err(reason) = segment.fit(sgl.total()) {
            self.recv_failed(id, WcStatus::LocLen);
            return Err(reason);
        }
        let mrs = &mut self.mrs;
        let mut at = segment.mo;
        let placed = src.chunks(off, segment.len as usize, |chunk| {
            mrs.scatter(sgl, at, chunk)?;
            at = at.wrapping_add(chunk.len() as u32);
            Ok::<(), AccessError>(())
        });
        if placed.is_err() {
            self.recv_failed(id, WcStatus::LocProt);
            return Err(TerminateReason::DdpCatastrophic);
        }
        if !segment.last {
            return Ok(());
        }
        let invalidated = match segment.invalidate {
            Some(stag) => self.invalidate_for_peer(stag)?.then_some(stag),
            None => None,
        };
        self.proto.rx.recv = None;
        self.report_recv(
            id,
            WcStatus::Success,
            segment.end(),
            invalidated,
            segment.solicited,
        );
        Ok(())
    }

    /// No receive is posted for the peer's message: it is held. Where the queue pair is in error, the
    /// stream ends as it would anyway, and the peer is told no more than that.
    fn nothing_posted(&mut self, segment: &SendSegment) -> Result<(), TerminateReason> {
        if let Some(how) = self.owner.failed() {
            self.close(how);
            return Err(segment.no_buffer());
        }
        self.hold(segment)
    }

    /// Takes the peer's access to `stag` away, before its message is reported; whether it had any.
    fn invalidate_for_peer(&mut self, stag: Stag) -> Result<bool, TerminateReason> {
        let by = Invalidator::Remote(self.queues.association());
        self.mrs
            .invalidate(stag, by)
            .map_err(|error| mr_cache::to_wire(error).for_invalidate())
    }

    /// Reports a Receive that cannot be carried out: the end of the stream needs no event.
    pub(in crate::stream) fn recv_failed(&mut self, id: u64, status: WcStatus) {
        self.proto.rx.recv = None;
        self.proto.ending.told = true;
        self.report_recv(id, status, 0, None, false);
    }

    /// Reports a Receive.
    #[inline]
    pub(in crate::stream) fn report_recv(
        &self,
        id: u64,
        status: WcStatus,
        bytes: u32,
        invalidated: Option<Stag>,
        solicited: bool,
    ) {
        let room = self.queues.complete_recv(&Completion {
            id,
            opcode: WcOpcode::Recv,
            status,
            bytes,
            invalidated,
            solicited,
        });
        if !room {
            self.owner.overflowed();
        }
    }

    /// The peer sent a Terminate: nothing is sent any more, and our Read it speaks of, if it
    /// does, is reported with its error. So is the oldest incomplete Send if it had no receive for
    /// one.
    fn terminated(&mut self, terminate: &Terminate) {
        self.trace(terminate, false);
        self.count(Counter::TerminateRx);
        let status = match terminate.reason() {
            TerminateReason::RemoteProtection(_) | TerminateReason::Tagged(_) => {
                Some(WcStatus::RemAccess)
            }
            TerminateReason::RemoteOperation(_) | TerminateReason::Untagged(_) => {
                Some(WcStatus::RemInvReq)
            }
            _ => None,
        };
        // A Terminate without a copied header may mean a Read, too.
        let of_read = match terminate.header() {
            Some(Header::Untagged(header)) => header.qn == QueueNumber::ReadRequest.into(),
            Some(Header::Tagged(_)) => false,
            None => true,
        };
        // Answers come in order, so the Read that failed is the oldest one.
        let front = self.read_in_front().filter(|_| of_read);
        let slot = front.and_then(|cookie| cookie.slot);
        if let (Some(slot), Some(status)) = (slot, status) {
            self.slot_failed(slot, status);
        }
        let of_send = match terminate.header() {
            Some(Header::Untagged(header)) => header.qn == QueueNumber::Send.into(),
            Some(Header::Tagged(_)) => false,
            None => front.is_none(),
        };
        if of_send && terminate.reason() == TerminateReason::Untagged(UntaggedError::NoBuffer) {
            self.fail_oldest_send(WcStatus::RnrRetryExceeded);
        }
        self.end(EndReason::TerminateReceived);
    }
}
