// SPDX-License-Identifier: GPL-2.0

//! The send queue: filled by its owner, emptied by the transmit engine.
//!
//! A process fills its ring by stores alone. It rings the doorbell only when it finds the element
//! before its first new one already fetched (libsiw). So an element is given back with a full
//! barrier when it is fetched, and the next one is looked at after that.
//!
//! Once the queue is [closed](SendQueue::set_closed) nothing of it is executed any more, not even
//! by a stream that has not ended yet.

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

/// A send queue.
#[pin_data]
pub(crate) struct SendQueue {
    /// The elements.
    ring: Arc<Ring>,
    /// Every work request asks for a completion.
    signal_all: bool,
    /// Scatter-gather elements which the owner may use.
    max_sge: u8,
    /// Octets of inline data which a kernel owner may use.
    max_inline: u32,
    /// The next element to fetch, free running. Changed by the one consumer only: the holder of
    /// the stream, later the flush.
    get: Atomic<u32>,
    /// What is in it is flushed, and nothing else.
    closed: Atomic<bool>,
    /// The next element that a kernel owner fills, free running.
    #[pin]
    put: SpinLockIrq<u32>,
}

impl SendQueue {
    /// A queue of `depth` elements (a power of two). Process context; sleeps.
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

    /// Elements of the ring: no more work requests than that are under way from it at a time.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.ring.slots()
    }

    /// Whether there is something to fetch.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.is_posted(self.get.load(Relaxed))
    }

    /// How many work requests there are to fetch: a guess. It is right if the owner fills the ring
    /// in order and no context fetches meanwhile.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        let get = self.get.load(Relaxed);
        // All in front of `there` have been posted, that at `not` has not.
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

    /// Whether the element at `index` is to be fetched.
    #[inline]
    fn is_posted(&self, index: u32) -> bool {
        WqeHeader(self.ring.header(index)).has(flag::VALID)
    }

    /// Elements fetched so far, wrapping.
    #[inline]
    pub(crate) fn fetched(&self) -> u32 {
        self.get.load(Relaxed)
    }

    /// Closes the queue, or opens it again: what is posted after this has closed it is not fetched,
    /// only [flushed](Self::fetch_to_flush). Any context.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Relaxed);
    }

    /// Takes the next work request out to execute it, if there is one and the queue is not closed.
    ///
    /// The caller is the one consumer: it holds the stream.
    /// The element is read once; what it says is checked; nothing the owner does later matters.
    #[inline]
    pub(crate) fn fetch(&self) -> Option<Result<SendWqe, BadWqe>> {
        let (at, header) = self.next()?;
        // After the element: the owner posted it after the queue was closed, or it was not.
        if self.closed.load(Relaxed) {
            return None;
        }
        Some(self.take(at, header))
    }

    /// Takes the next work request out to flush it, if there is one.
    ///
    /// The caller is the one consumer: it flushes after the stream's end.
    pub(crate) fn fetch_to_flush(&self) -> Option<Result<SendWqe, BadWqe>> {
        let (at, header) = self.next()?;
        Some(self.take(at, header))
    }

    /// The index and the header of the next element, if it has been posted. What is read afterwards
    /// is not older.
    #[inline]
    fn next(&self) -> Option<(u32, WqeHeader)> {
        let at = self.get.load(Relaxed);
        let header = WqeHeader(self.ring.header(at));
        header.has(flag::VALID).then_some((at, header))
    }

    /// Takes out the element at `at`, whose header has been read.
    #[inline]
    fn take(&self, at: u32, header: WqeHeader) -> Result<SendWqe, BadWqe> {
        let words = self.ring.read::<SQE_WORDS>(at);
        self.ring.release(at);
        self.get.store(at.wrapping_add(1), Relaxed);
        self.decode(header, &words)
    }

    /// Makes sense of an element.
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

    /// What a Send or Write carries; `None` when there is too much of it.
    fn payload(&self, header: WqeHeader, words: &[u64; SQE_WORDS]) -> Option<Payload> {
        if header.has(flag::INLINE) {
            // The length stands where the first scatter-gather element has it.
            let len = *words.get(SQE_SGES + 1)? as u32;
            return InlineData::new(abi::decode_inline(words), len).map(Payload::Inline);
        }
        abi::decode_sgl(words, SQE_SGES, header.num_sge(), self.max_sge).map(Payload::Sgl)
    }

    /// Where a Read puts its data.
    fn sink(&self, header: WqeHeader, words: &[u64; SQE_WORDS]) -> Result<Sgl, WcStatus> {
        if header.has(flag::INLINE) {
            return Err(WcStatus::LocQpOp);
        }
        let sink = abi::decode_sgl(words, SQE_SGES, header.num_sge(), self.max_sge)
            .ok_or(WcStatus::LocLen)?;
        // A sink's key goes on the wire, and the local DMA key never does (DDP-96).
        let local = |sge: &Sge| sge.lkey == LOCAL_DMA_LKEY && sge.len != 0;
        if sink.as_slice().iter().any(local) {
            return Err(WcStatus::LocProt);
        }
        Ok(sink)
    }

    /// Appends a work request of a kernel user. Any context.
    ///
    /// `EINVAL` for one that can not be, `ENOMEM` when the queue is full; nothing is changed then.
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
