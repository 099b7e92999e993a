// SPDX-License-Identifier: GPL-2.0

//! The send queue: filled by its owner, emptied by the transmit engine.
//!
//! A process posts by stores alone. libsiw rings the doorbell only if the element before the first
//! new one has been fetched. The driver therefore releases a fetched element with a full barrier,
//! and loads the next header after that.
//!
//! Work requests of a [closed](SendQueue::set_closed) queue are not executed, even while the stream
//! has not ended.

mod encode;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::{
    sys::{
        rdma::{
            ring::{
                Owner,
                Ring, //
            },
            wr::SendWr, //
        },
        sync::lock::{
            new_spinlock_irq,
            SpinLockIrq, //
        }, //
    },
    verbs::{
        cq::{
            WcOpcode,
            WcStatus, //
        },
        mr::{
            Access,
            RegMr,
            LOCAL_DMA_LKEY, //
        },
        wq::{
            abi::{
                self,
                flag,
                opcode,
                WqeHeader,
                SQE_SGES,
                SQE_WORDS, //
            },
            wqe::{
                BadWqe,
                InlineData,
                Payload,
                SendOp,
                SendWqe,
                Sge,
                Sgl, //
            }, //
        }, //
    }, //
};

/// The send queue of a queue pair: its owner appends, the stream fetches.
#[pin_data]
pub(crate) struct SendQueue {
    /// The elements.
    ring: Arc<Ring>,
    /// Every work request generates a completion (`IB_SIGNAL_ALL_WR`).
    signal_all: bool,
    /// The largest number of scatter-gather elements in a work request.
    max_sge: u8,
    /// The largest number of octets of inline data for a kernel owner.
    max_inline: u32,
    /// The index of the next element to fetch, free running. Only the consumer changes it: the
    /// context that holds the stream, later the flush.
    get: Atomic<u32>,
    /// Work requests are flushed, not executed.
    closed: Atomic<bool>,
    /// The index of the next element that a kernel owner fills, free running.
    #[pin]
    put: SpinLockIrq<u32>,
}

impl SendQueue {
    /// Makes a queue of `depth` elements (a power of two). Process context; sleeps.
    pub(crate) fn new(
        depth: u32,
        max_sge: u8,
        max_inline: u32,
        signal_all: bool,
        owner: Owner,
    ) -> Result<impl PinInit<Self>> {
        let ring = Ring::new(depth, SQE_WORDS as u32, false, owner)?;
        Ok(pin_init!(Self {
            ring,
            signal_all,
            max_sge,
            max_inline,
            get: Atomic::new(0),
            closed: Atomic::new(false),
            put <- new_spinlock_irq!(0, "rsiw_sq"),
        }))
    }

    /// The ring, to map it.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// The number of elements of the ring: the largest number of posted work requests.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.ring.slots()
    }

    /// Whether a work request waits in the queue, open or closed.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.is_posted(self.get.load(Relaxed))
    }

    /// An estimate of the number of posted work requests. The estimate is exact if the owner fills
    /// the ring in order and no context fetches concurrently.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        let get = self.get.load(Relaxed);
        // Invariant of the search: elements before `there` are posted, the one at `not` is not.
        let (mut there, mut not) = (0, self.depth());
        let mut at = 1;
        while at <= not {
            if !self.is_posted(get.wrapping_add(at.wrapping_sub(1))) {
                not = at.wrapping_sub(1);
                break;
            }
            there = at;
            at = at.saturating_mul(2);
        }
        while there < not {
            let middle = there.midpoint(not);
            match self.is_posted(get.wrapping_add(middle)) {
                true => there = middle.saturating_add(1),
                false => not = middle,
            }
        }
        there
    }

    /// Whether the element at `index` holds a work request.
    #[inline]
    fn is_posted(&self, index: u32) -> bool {
        WqeHeader(self.ring.header(index)).has(flag::VALID)
    }

    /// The number of elements fetched so far, modulo 2^32.
    #[inline]
    pub(crate) fn fetched(&self) -> u32 {
        self.get.load(Relaxed)
    }

    /// Closes or reopens the queue. Work requests of a closed queue are only
    /// [flushed](Self::fetch_to_flush). Any context.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Relaxed);
    }

    /// Takes the next work request to execute it, if there is one and the queue is not closed.
    ///
    /// The caller is the consumer: it holds the stream. The element is read once, and the copy is
    /// checked, so later stores of the owner have no effect.
    #[inline]
    pub(crate) fn fetch(&self) -> Option<Result<SendWqe, BadWqe>> {
        let (at, header) = self.next()?;
        // Loaded after the header: the queue was still open when the owner posted the element, or
        // the load sees the closing.
        if self.closed.load(Relaxed) {
            return None;
        }
        Some(self.take(at, header))
    }

    /// Takes the next work request to flush it, if there is one.
    ///
    /// The caller is the consumer: it flushes after the stream's end.
    pub(crate) fn fetch_to_flush(&self) -> Option<Result<SendWqe, BadWqe>> {
        let (at, header) = self.next()?;
        Some(self.take(at, header))
    }

    /// The index and the header of the next element, if it has been posted. An acquire load: later
    /// loads of the element are not older.
    #[inline]
    fn next(&self) -> Option<(u32, WqeHeader)> {
        let at = self.get.load(Relaxed);
        let header = WqeHeader(self.ring.header(at));
        header.has(flag::VALID).then_some((at, header))
    }

    /// Takes the element at `at`, whose header has been read.
    #[inline]
    fn take(&self, at: u32, header: WqeHeader) -> Result<SendWqe, BadWqe> {
        let words = self.ring.read::<SQE_WORDS>(at);
        self.ring.release(at);
        self.get.store(at.wrapping_add(1), Relaxed);
        self.decode(header, &words)
    }

    /// Decodes and checks an element.
    fn decode(&self, header: WqeHeader, words: &[u64; SQE_WORDS]) -> Result<SendWqe, BadWqe> {
        let &[id, _, to, ref rest @ ..] = words;
        let kernel = self.ring.owner() != Owner::User;
        let bad = |opcode, status| Err(BadWqe { id, opcode, status });
        let remote = header.rkey();
        let op = match header.opcode() {
            opcode::WRITE => match self.payload(header, words) {
                Some(local) => SendOp::Write { local, remote, to },
                None => return bad(WcOpcode::Write, WcStatus::LocLen),
            },
            op @ (opcode::SEND | opcode::SEND_REMOTE_INV) => match self.payload(header, words) {
                Some(local) => SendOp::Send {
                    local,
                    invalidate: (op == opcode::SEND_REMOTE_INV).then_some(remote),
                },
                None => return bad(WcOpcode::Send, WcStatus::LocLen),
            },
            op @ (opcode::READ | opcode::READ_LOCAL_INV) if kernel || op == opcode::READ => {
                let local_inv = op == opcode::READ_LOCAL_INV;
                match self.sink(header, words) {
                    Ok(sink) if local_inv && sink.as_slice().len() > 1 => {
                        return bad(WcOpcode::Read, WcStatus::LocQpOp)
                    }
                    Ok(sink) => SendOp::Read {
                        sink,
                        remote,
                        to,
                        local_inv,
                    },
                    Err(status) => return bad(WcOpcode::Read, status),
                }
            }
            opcode::INVAL_STAG if kernel => SendOp::LocalInv { stag: remote },
            opcode::REG_MR if kernel => {
                let [access, length, ..] = *rest;
                SendOp::RegMr(RegMr {
                    stag: remote,
                    iova: to,
                    length,
                    access: Access::from_ib(access as u32),
                })
            }
            _ => return bad(WcOpcode::Send, WcStatus::LocQpOp),
        };
        Ok(SendWqe {
            id,
            signaled: self.signal_all || header.has(flag::SIGNALLED),
            solicited: header.has(flag::SOLICITED),
            fence: header.has(flag::READ_FENCE),
            op,
        })
    }

    /// The payload of a Send or Write; `None` when it exceeds the limits.
    fn payload(&self, header: WqeHeader, words: &[u64; SQE_WORDS]) -> Option<Payload> {
        if header.has(flag::INLINE) {
            // The length field is that of the first scatter-gather element.
            let len = *words.get(SQE_SGES + 1)? as u32;
            return InlineData::new(abi::decode_inline(words), len).map(Payload::Inline);
        }
        abi::decode_sgl(words, SQE_SGES, header.num_sge(), self.max_sge).map(Payload::Sgl)
    }

    /// The sink of a Read.
    fn sink(&self, header: WqeHeader, words: &[u64; SQE_WORDS]) -> Result<Sgl, WcStatus> {
        if header.has(flag::INLINE) {
            return Err(WcStatus::LocQpOp);
        }
        let sink = abi::decode_sgl(words, SQE_SGES, header.num_sge(), self.max_sge)
            .ok_or(WcStatus::LocLen)?;
        // The Read Request carries the STag of the sink; the local DMA key is never sent (DDP-96).
        let local = |sge: &Sge| sge.lkey == LOCAL_DMA_LKEY && sge.len != 0;
        if sink.as_slice().iter().any(local) {
            return Err(WcStatus::LocProt);
        }
        Ok(sink)
    }

    /// Appends a work request of a kernel user, under the lock of [`put`](Self::put). Any context.
    ///
    /// `EINVAL` for an invalid work request, `ENOMEM` when the queue is full; the queue is
    /// unchanged then.
    pub(crate) fn post(&self, put: &mut u32, wr: SendWr<'_>) -> Result {
        if WqeHeader(self.ring.header(*put)).has(flag::VALID) {
            return Err(ENOMEM);
        }
        let (header, words) = self.encode(wr)?;
        self.ring.write(*put, &words);
        self.ring.publish(*put, header.0);
        *put = put.wrapping_add(1);
        Ok(())
    }

    /// The lock under which a kernel user posts.
    pub(crate) fn put(&self) -> &SpinLockIrq<u32> {
        &self.put
    }
}
