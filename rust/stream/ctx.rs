// SPDX-License-Identifier: GPL-2.0

//! The context of a batch: the state that both directions of a stream share.
//!
//! [`Ctx`] exists during a batch; [`Shared`] is part of the stream, and the socket lock guards
//! it. `rx` and `tx` access both and the read queues, but not each other. A reason to end the
//! stream is stored here as a [`Stop`], which the batch handles once.

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
    /// Delayed work item: retry after a failed allocation or a refused charge.
    pub(super) retry: bool,
    /// Bottom-half work item: report read octets to TCP, after the softirqs that deliver several
    /// bursts.
    pub(super) ack: bool,
    /// Delayed work item: check the stream's memory, after so many milliseconds.
    pub(super) look: Option<u32>,
    /// Work item in process context: release the socket.
    pub(super) process: bool,
    /// Delayed work item: the deadline of the phase, after so many milliseconds.
    pub(super) deadline: Option<u32>,
    /// Timer: check for a receive for the held Send, after so many nanoseconds.
    pub(super) look_for_receive: Option<u32>,
    /// Delayed work item: check whether the peer answers, after so many milliseconds.
    pub(super) watch_peer: Option<u32>,
}

impl DeferredWork {
    /// Whether no work is deferred.
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

/// The result of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing can be sent now. A doorbell, an acknowledgment or received data continues.
    Wait,
    /// The budget is exhausted: there may be more to send.
    More,
}

/// Traffic since the last update of the device's counters: one addition per batch, instead of one
/// per FPDU or message.
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
    /// Executed Send work requests.
    tx_sends: u32,
    /// Executed Write work requests.
    tx_writes: u32,
    /// Executed Read work requests.
    tx_reads: u32,
}

impl Tally {
    /// Counts a received FPDU of `octets` octets.
    #[inline]
    pub(super) fn received(&mut self, octets: usize) {
        self.rx_fpdus = self.rx_fpdus.wrapping_add(1);
        self.rx_octets = self.rx_octets.wrapping_add(octets as u64);
    }

    /// Counts an encoded FPDU of `octets` octets.
    #[inline]
    pub(super) fn encoded(&mut self, octets: u32) {
        self.tx_fpdus = self.tx_fpdus.wrapping_add(1);
        self.tx_octets = self.tx_octets.wrapping_add(u64::from(octets));
    }

    /// Counts an executed work request.
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

    /// Adds the traffic to the device's counters, and clears it.
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

    /// Whether work requests were executed.
    #[inline]
    fn has_completions(&self) -> bool {
        self.tx_sends | self.tx_writes | self.tx_reads != 0
    }
}

/// The reason for which a batch ends the stream.
pub(super) enum Stop {
    /// This end found an error, which the Terminate reports to the peer.
    Fail(Terminate),
    /// The peer has sent a Terminate.
    Terminated(Terminate),
    /// The queue pair is in the error state.
    OwnerFailed,
    /// The connection has ended.
    End(EndReason),
}

/// The context contains a [`Stop`].
pub(super) struct Stopped;

/// The state that both directions share, from batch to batch.
pub(super) struct Shared {
    /// The receiving end of a queue pair that is connected to itself: the send queue belongs to
    /// the other end.
    pub(super) mirror: bool,
    /// Fetched send work requests without a completion.
    pub(super) sent: SentQueue,
    /// Octets of the FPDU stream that TCP has accepted.
    pub(super) sent_octets: u64,
    /// A send work request failed: later ones do not start, and the stream ends.
    pub(super) failed: bool,
    /// A receive completion or the connection manager reports the failure, so no event does.
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
    /// The reason to end the stream, if any.
    pub(super) stop: Option<Stop>,
}

impl Shared {
    /// The state of a new stream; the send queue has `depth` entries. Process context; sleeps.
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

/// The context of a batch. Bottom halves are disabled during the batch.
pub(super) struct Ctx<'a> {
    /// The data path of the queue pair.
    pub(super) queues: &'a QpQueues,
    /// The regions that the batch has pinned.
    pub(super) mrs: MrCache<'a>,
    /// The state that both directions share.
    pub(super) shared: &'a mut Shared,
}

impl<'a> Ctx<'a> {
    /// Makes the context of a new batch.
    #[inline]
    pub(super) fn new(queues: &'a QpQueues, shared: &'a mut Shared) -> Self {
        Self {
            queues,
            mrs: MrCache::new(queues),
            shared,
        }
    }

    /// Stores a reason to end the stream. Later reasons have no effect.
    #[cold]
    pub(super) fn stop(&mut self, stop: Stop) -> Stopped {
        self.shared.stop.get_or_insert(stop);
        Stopped
    }

    /// [`Self::stop`] for an error that this end found.
    #[cold]
    pub(super) fn fail(&mut self, terminate: Terminate) -> Stopped {
        self.stop(Stop::Fail(terminate))
    }

    /// Whether the context contains a reason to end the stream.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.stop.is_some()
    }

    /// Increments a counter of a rare event.
    pub(super) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `n` to a counter of a rare event.
    pub(super) fn add(&self, counter: Counter, n: u64) {
        self.queues.counters().add(counter, n);
    }

    /// Completes the oldest send work requests that are done, in posting order.
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

    /// Fails the work request of an unfinished message or Read, and with it the stream.
    pub(super) fn slot_failed(&mut self, slot: Slot, status: WcStatus) {
        if let Some(entry) = self.shared.sent.get_mut(slot) {
            entry.status = status;
            entry.due = Due::Sent(0);
        }
        self.shared.failed = true;
    }

    /// Charges the socket for the memory that the reassembly buffer waits for. Returns whether a
    /// charge was missing and is granted now. A refused charge defers a retry.
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
