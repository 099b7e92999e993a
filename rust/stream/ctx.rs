// SPDX-License-Identifier: GPL-2.0

//! The context of a batch: what both directions of a stream share.
//!
//! [`Ctx`] lives as long as a batch; [`Shared`] lies in the stream and belongs to the holder of the
//! socket. `rx` and `tx` see them and the read queues, and not each other. What ends the stream is left
//! here as a [`Stop`], which the batch handles once.

use iwarp_wire::rdmap::terminate::Terminate;
use kernel::prelude::*;

use super::{
    config::EndReason,
    excess::Excess,
    inflight::{
        Due,
        SentQueue,
        Slot, //
    },
    mr_cache::MrCache, //
};
use crate::{
    sys::net::socket::Locked,
    verbs::{
        counters::{
            Counter,
            Counters, //
        },
        cq::{
            Completion,
            WcOpcode,
            WcStatus, //
        },
        qp_queues::QpQueues, //
    }, //
};

/// Work that a batch defers until the socket lock is released.
#[derive(Clone, Copy, Default)]
pub(super) struct DeferredWork {
    /// Memory was missing: try again soon.
    pub(super) retry: bool,
    /// Bottom-half work item: tell TCP of what was read, behind the softirqs that deliver a train of
    /// bursts.
    pub(super) ack: bool,
    /// Work item: is memory still to be kept? After so many milliseconds.
    pub(super) look: Option<u32>,
    /// Process work item: the socket can be released.
    pub(super) process: bool,
    /// Work item: the deadline for the peer, after so many milliseconds.
    pub(super) deadline: Option<u32>,
    /// Timer: look for a receive for the held Send, after so many nanoseconds.
    pub(super) look_for_receive: Option<u32>,
    /// Work item: is the peer heard? After so many milliseconds.
    pub(super) watch_peer: Option<u32>,
}

impl DeferredWork {
    /// Nothing is deferred.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        !(self.retry
            || self.ack
            || self.look.is_some()
            || self.process
            || self.deadline.is_some()
            || self.look_for_receive.is_some()
            || self.watch_peer.is_some())
    }
}

/// Whether there is more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing to send, or an event will tell when to go on: a doorbell, an acknowledgment, data.
    Wait,
    /// The budget ended.
    More,
}

/// Traffic since the device's counters were last updated: one addition a batch, not one an FPDU or
/// message.
#[derive(Default)]
pub(super) struct Tally {
    /// FPDUs received.
    rx_fpdus: u64,
    /// Octets of received FPDUs, framing included.
    rx_octets: u64,
    /// FPDUs encoded.
    tx_fpdus: u64,
    /// Octets of sent FPDUs, framing included.
    tx_octets: u64,
    /// Send messages received.
    pub(super) rx_sends: u32,
    /// Write messages received.
    pub(super) rx_writes: u32,
    /// Read Requests received.
    pub(super) rx_reads: u32,
    /// Send work requests carried out.
    tx_sends: u32,
    /// Write work requests carried out.
    tx_writes: u32,
    /// Read work requests carried out.
    tx_reads: u32,
}

impl Tally {
    /// Notes an FPDU that came in.
    #[inline]
    pub(super) fn received(&mut self, octets: usize) {
        self.rx_fpdus = self.rx_fpdus.wrapping_add(1);
        self.rx_octets = self.rx_octets.wrapping_add(octets as u64);
    }

    /// Notes an FPDU that was encoded.
    #[inline]
    pub(super) fn encoded(&mut self, octets: u32) {
        self.tx_fpdus = self.tx_fpdus.wrapping_add(1);
        self.tx_octets = self.tx_octets.wrapping_add(u64::from(octets));
    }

    /// Notes a work request that was carried out.
    #[inline]
    fn completed(&mut self, opcode: WcOpcode) {
        let count = match opcode {
            WcOpcode::Send => &mut self.tx_sends,
            WcOpcode::Write => &mut self.tx_writes,
            WcOpcode::Read => &mut self.tx_reads,
            _ => return,
        };
        *count = count.wrapping_add(1);
    }

    /// Updates the device's counters.
    pub(super) fn report(&mut self, counters: &Counters) {
        if self.rx_fpdus | self.tx_fpdus == 0 && !self.has_completions() {
            return;
        }
        let now = core::mem::take(self);
        for (counter, n) in [
            (Counter::RxFpdus, now.rx_fpdus),
            (Counter::RxOctets, now.rx_octets),
            (Counter::TxFpdus, now.tx_fpdus),
            (Counter::TxOctets, now.tx_octets),
            (Counter::RxSends, now.rx_sends.into()),
            (Counter::RxWrites, now.rx_writes.into()),
            (Counter::RxReadRequests, now.rx_reads.into()),
            (Counter::TxSends, now.tx_sends.into()),
            (Counter::TxWrites, now.tx_writes.into()),
            (Counter::TxReads, now.tx_reads.into()),
        ] {
            if n != 0 {
                counters.add(counter, n);
            }
        }
    }

    /// Whether work requests were carried out.
    #[inline]
    fn has_completions(&self) -> bool {
        self.tx_sends | self.tx_writes | self.tx_reads != 0
    }
}

/// Why a batch ends the stream.
pub(super) enum Stop {
    /// An error was found here; this Terminate reports it to the peer.
    Fail(Terminate),
    /// The peer has sent a Terminate.
    Terminated(Terminate),
    /// The queue pair is in error.
    OwnerFailed,
    /// The connection has ended.
    End(EndReason),
}

/// A [`Stop`] has been left in the context.
pub(super) struct Stopped;

/// What both directions share, from batch to batch.
pub(super) struct Shared {
    /// The receiving end of a queue pair that is connected to itself: the send queue belongs to
    /// the other end.
    pub(super) mirror: bool,
    /// Fetched work requests.
    pub(super) sent: SentQueue,
    /// Octets of FPDU stream that TCP has taken.
    pub(super) sent_octets: u64,
    /// A work request failed: nothing behind it starts, and the stream ends.
    pub(super) failed: bool,
    /// The completion of a Receive reports the failure.
    pub(super) told: bool,
    /// Deferred work.
    pub(super) deferred: DeferredWork,
    /// Traffic that the device's counters do not include yet.
    pub(super) tally: Tally,
    /// Memory that TCP does not account.
    pub(super) excess: Excess,
    /// A charge for the reassembly buffer was refused.
    pub(super) charge_refused: bool,
    /// A completion queue was full.
    pub(super) overflowed: bool,
    /// Why the stream is to end.
    pub(super) stop: Option<Stop>,
}

impl Shared {
    /// Nothing yet; the send queue has `depth` entries. May sleep.
    pub(super) fn new(mirror: bool, depth: usize) -> Result<Self> {
        Ok(Self {
            mirror,
            sent: SentQueue::new(depth)?,
            sent_octets: 0,
            failed: false,
            told: false,
            deferred: DeferredWork::default(),
            tally: Tally::default(),
            excess: Excess::default(),
            charge_refused: false,
            overflowed: false,
            stop: None,
        })
    }
}

/// The context of a batch. BH is off while it lives.
pub(super) struct Ctx<'a> {
    /// The data path of the queue pair.
    pub(super) queues: &'a QpQueues,
    /// The memory in use.
    pub(super) mrs: MrCache<'a>,
    /// What both directions share.
    pub(super) shared: &'a mut Shared,
}

impl<'a> Ctx<'a> {
    /// The context of a batch that begins.
    #[inline]
    pub(super) fn new(queues: &'a QpQueues, shared: &'a mut Shared) -> Self {
        Self {
            queues,
            mrs: MrCache::new(queues),
            shared,
        }
    }

    /// Ends the stream. Only the first reason counts.
    #[cold]
    pub(super) fn stop(&mut self, stop: Stop) -> Stopped {
        self.shared.stop.get_or_insert(stop);
        Stopped
    }

    /// [`Self::stop`] for an error that was found here.
    #[cold]
    pub(super) fn fail(&mut self, terminate: Terminate) -> Stopped {
        self.stop(Stop::Fail(terminate))
    }

    /// Whether the stream is to end.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.stop.is_some()
    }

    /// Counts something rare.
    pub(super) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds to the counter of something rare.
    pub(super) fn add(&self, counter: Counter, n: u64) {
        self.queues.counters().add(counter, n);
    }

    /// Reports the oldest work requests, as far as TCP has taken them.
    #[inline]
    pub(super) fn retire(&mut self) {
        while let Some(entry) = self.shared.sent.pop_done(self.shared.sent_octets) {
            self.shared.tally.completed(entry.opcode);
            if !entry.signaled {
                continue;
            }
            let room = self.queues.complete_send(&Completion {
                id: entry.id,
                opcode: entry.opcode,
                status: entry.status,
                bytes: entry.bytes,
                invalidated: None,
                solicited: false,
            });
            self.shared.overflowed |= !room;
        }
    }

    /// The work request of an open message or Read cannot be carried out.
    pub(super) fn slot_failed(&mut self, slot: Slot, status: WcStatus) {
        if let Some(entry) = self.shared.sent.get_mut(slot) {
            entry.status = status;
            entry.due = Due::Sent(0);
        }
        self.shared.failed = true;
    }

    /// Charges the socket for the memory that the reassembly buffer waits for. Returns `true` if
    /// the charge was refused before and is granted now.
    pub(super) fn charge_reassembly(&mut self, locked: &mut Locked) -> bool {
        let wanted = self.shared.excess.take_wanted();
        if wanted == 0 {
            return false;
        }
        let granted = locked.charge(wanted);
        match granted {
            true => self.shared.excess.charged(wanted),
            false => {
                self.shared.charge_refused = true;
                self.shared.deferred.retry = true;
            }
        }
        granted
    }
}
