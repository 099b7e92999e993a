// SPDX-License-Identifier: GPL-2.0

//! What the holder of the socket has in hand.
//!
//! [`StreamState`] lies in the stream and belongs to the context that holds the socket. For one batch of work
//! the holder makes a [`Batch`] of it: the protocol state, the queue pair, and the memory the
//! batch touches. The batch ends before the socket is given back.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    excess::Excess,
    mem_reserve::{
        self,
        Reserve, //
    },
    mr_cache::MrCache,
    patience::Patience,
    quirk_siw_takeover::SiwTakeover,
    rx::ack_batch::AckBatch,
    rx::reassembly::Reassembly,
    rx::receive::Rx,
    teardown::Ending,
    tx::inflight::SentQueue,
    tx::transmit::Tx,
    Config,
    Role,
    StreamEvent, //
    StreamOwner,
    StreamUser,
};
use crate::{
    sys::socket::Locked,
    verbs::{
        counters::{
            Counter,
            Counters, //
        },
        cq::Completion,
        qp_queues::QpQueues, //
    }, //
};

/// The phase of a stream. It only advances.
///
/// | phase | event | next |
/// | --- | --- | --- |
/// | Starting | start-up done | Open |
/// | Open | graceful close (`SQD` of a named peer) | Closing |
/// | Open | peer's FIN, no Read outstanding | Closing |
/// | Open, Closing | disconnect | Leaving |
/// | Open | peer's FIN with a Read outstanding, or within an FPDU | Ended |
/// | Open, Closing | error found, Terminate received, abort | Ended |
/// | Closing | send queue drained: FIN; then the peer's FIN | Ended, Over |
/// | Closing | no progress in the deadline | Ended, Over |
/// | Leaving | message in progress sent: FIN | Ended |
/// | Leaving | 500 ms | Ended |
/// | Ended | FIN sent and received, reset, or deadline | Over |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamPhase {
    /// The callbacks may come already, but the start is not finished.
    Starting,
    /// Full operation.
    Open,
    /// The send queue is worked off, then FIN is sent.
    Closing,
    /// The message in progress is finished, then FIN is sent; what comes in is thrown away.
    Leaving,
    /// The queue pair has been told the end. A Terminate may be on its way; what comes in is
    /// thrown away.
    Ended,
    /// The socket can be released.
    Over,
}

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

/// The queue pair and the owner, until the socket is released.
pub(super) struct Served {
    /// The data path of the queue pair.
    queues: Arc<QpQueues>,
    /// The queue pair.
    owner: Arc<dyn StreamOwner>,
    /// The user that started the stream.
    user: Arc<dyn StreamUser>,
}

impl Served {
    /// The queue pair, by its data path and as the owner, and the user.
    pub(super) fn new(
        queues: Arc<QpQueues>,
        owner: Arc<dyn StreamOwner>,
        user: Arc<dyn StreamUser>,
    ) -> Self {
        Self {
            queues,
            owner,
            user,
        }
    }
}

/// All that belongs to the holder of the socket.
pub(super) struct StreamState {
    /// The queue pair and the user.
    link: Option<Served>,
    /// The protocol.
    proto: Proto,
}

/// The protocol state of both directions.
pub(super) struct Proto {
    /// The phase.
    pub(super) phase: StreamPhase,
    /// The receiving end of a queue pair that is connected to itself: the send queue belongs to
    /// the other end.
    pub(super) mirror: bool,
    /// What comes in.
    pub(super) rx: Rx,
    /// What goes out.
    pub(super) tx: Tx,
    /// Fetched work requests.
    pub(super) sent: SentQueue,
    /// How the stream ends.
    pub(super) ending: Ending,
    /// The workaround for a silent siw responder.
    pub(super) siw_takeover: SiwTakeover,
    /// Deferred work.
    pub(super) deferred: DeferredWork,
    /// A message has come that the owner of the queue pair may answer.
    pub(super) rx_since_kick: bool,
    /// What was read and TCP was not told of yet.
    pub(super) ack_batch: AckBatch,
    /// Memory that TCP keeps.
    pub(super) reserve: Reserve,
    /// Memory that TCP does not account.
    pub(super) excess: Excess,
    /// A look at both is due.
    pub(super) mem_watched: bool,
    /// How long the peer may be silent.
    pub(super) patience: Patience,
    /// What the device's counters are still to be told.
    pub(super) tally: Tally,
}

/// Traffic since the device's counters were last told: one addition a batch, not one an FPDU.
#[derive(Default)]
pub(super) struct Tally {
    /// FPDUs received.
    rx_fpdus: u64,
    /// Their octets, framing included.
    rx_octets: u64,
    /// FPDUs encoded.
    tx_fpdus: u64,
    /// Their octets, framing included.
    tx_octets: u64,
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

    /// Tells the device's counters.
    fn report(&mut self, counters: &Counters) {
        let Self {
            rx_fpdus,
            rx_octets,
            tx_fpdus,
            tx_octets,
        } = core::mem::take(self);
        for (counter, n) in [
            (Counter::RxFpdus, rx_fpdus),
            (Counter::RxOctets, rx_octets),
            (Counter::TxFpdus, tx_fpdus),
            (Counter::TxOctets, tx_octets),
        ] {
            if n != 0 {
                counters.add(counter, n);
            }
        }
    }
}

/// Milliseconds for which a stream without other memory to give back keeps its page fragment: soon, as
/// an idle connection is to hold little, and so long that few looks fall on one in use.
const FRAGMENT_MS: u32 = 100;

impl StreamState {
    /// Prepares a stream. May sleep.
    #[inline(never)]
    pub(super) fn boxed(served: Served, config: Config) -> Result<KBox<Self>> {
        let proto = Proto {
            phase: StreamPhase::Starting,
            mirror: config.mirror,
            sent: SentQueue::new(served.queues.sq().depth() as usize)?,
            tx: Tx::new(&config)?,
            siw_takeover: match config.role {
                Role::Initiator { .. } => SiwTakeover::new(!config.initial.is_empty()),
                Role::Responder { .. } => SiwTakeover::none(),
            },
            rx: Rx::new(config),
            ending: Ending::default(),
            deferred: DeferredWork::default(),
            rx_since_kick: false,
            ack_batch: AckBatch::default(),
            reserve: Reserve::default(),
            excess: Excess::default(),
            mem_watched: false,
            patience: Patience::default(),
            tally: Tally::default(),
        };
        let link = Some(served);
        Ok(KBox::new(Self { link, proto }, GFP_KERNEL)?)
    }

    /// The start is finished: from now on callbacks and doorbells work.
    pub(super) fn open_for_work(&mut self) {
        self.proto.phase = self.proto.phase.max(StreamPhase::Open);
        self.proto.deferred.deadline = self.proto.siw_takeover.next();
    }

    /// Begins a batch; `None` while the stream is being started, and when all is over.
    #[inline]
    pub(super) fn batch(&mut self) -> Option<Batch<'_>> {
        if self.proto.phase == StreamPhase::Starting {
            return None;
        }
        let served = self.link.as_ref()?;
        Some(Batch {
            queues: &served.queues,
            owner: &*served.owner,
            user: &*served.user,
            proto: &mut self.proto,
            mrs: MrCache::new(&served.queues),
        })
    }

    /// Sets for how many milliseconds the peer may be silent while it owes acknowledgments; 0: this
    /// is left to TCP.
    pub(super) fn set_patience(&mut self, millis: u32) {
        self.proto.patience.set(millis);
        self.proto.deferred.watch_peer = self.proto.patience.sent();
    }

    /// The incomplete FPDU, for which memory may be missing.
    pub(super) fn reassembly(&mut self) -> &mut Reassembly {
        &mut self.proto.rx.reassembly
    }

    /// Takes the deferred work.
    #[inline]
    pub(super) fn take_deferred(&mut self) -> DeferredWork {
        core::mem::take(&mut self.proto.deferred)
    }

    /// Whether a message has come that the owner of the queue pair may answer.
    #[inline]
    pub(super) fn take_rx_since_kick(&mut self) -> bool {
        core::mem::take(&mut self.proto.rx_since_kick)
    }

    /// The stream is open, and the siw workaround has nothing to repeat.
    pub(super) fn was_heard(&self) -> bool {
        self.proto.phase == StreamPhase::Open && self.proto.siw_takeover.next().is_none()
    }

    /// The socket can be released.
    pub(super) fn is_over(&self) -> bool {
        self.proto.phase == StreamPhase::Over
    }

    /// Lets go of the queue pair and the owner, and of the memory that is charged to the socket. The
    /// caller drops them in process context, after the socket.
    pub(super) fn unlink(&mut self, locked: &mut Locked) -> Option<Served> {
        self.proto.tx.give_up();
        self.proto.rx.reassembly = Reassembly::new();
        // TCP may hold blocks still.
        locked.leave_charge(self.proto.excess.end());
        self.link.take()
    }

    /// The connection is to be reset when the socket is released.
    pub(super) fn wants_reset(&self) -> bool {
        self.proto.ending.reset
    }
}

/// One batch of work of the holder of the socket. BH is off while it lives.
pub(super) struct Batch<'a> {
    /// The data path of the queue pair.
    pub(super) queues: &'a QpQueues,
    /// The queue pair, which is told of the end.
    pub(super) owner: &'a dyn StreamOwner,
    /// The user, which is told of events.
    pub(super) user: &'a dyn StreamUser,
    /// The protocol state.
    pub(super) proto: &'a mut Proto,
    /// The memory in use.
    pub(super) mrs: MrCache<'a>,
}

impl Batch<'_> {
    /// One batch: takes in what arrived if `receive`, sends up to `runs` runs.
    ///
    /// What is sent in answer to what arrived leaves before TCP is told that data was read, so
    /// that the acknowledgment rides on it. A batch that does not receive flushes what others read.
    #[inline]
    pub(super) fn step(&mut self, locked: &mut Locked, receive: bool, bursts: u32) -> Progress {
        let taken = match receive {
            true => self.receive(locked),
            false => 0,
        };
        let before = self.proto.tx.sent();
        let progress = self.transmit(locked, bursts);
        let sent = self.proto.tx.sent().wrapping_sub(before);
        if sent != 0 {
            self.proto.deferred.watch_peer = self.proto.patience.sent();
        }
        if taken != 0 {
            self.proto.siw_takeover.heard();
            self.proto.ending.heard();
        }
        if self.proto.reserve.moved(sent.max(taken as u64)) {
            self.reserve(locked);
        }
        self.ack(locked, taken);
        if receive {
            self.watch_tcp(locked);
        }
        self.advance_end(locked);
        if self.proto.phase != StreamPhase::Open {
            if self.proto.rx.unread {
                self.receive_the_rest(locked);
                self.advance_end(locked);
            }
            self.ack(locked, 0);
        }
        self.have_memory_looked_at();
        self.proto.tally.report(self.queues.counters());
        progress
    }

    /// Tells TCP of what was read, `taken` octets just now, or has a work item do so soon.
    #[inline]
    fn ack(&mut self, locked: &mut Locked, taken: usize) {
        let ack_batch = &mut self.proto.ack_batch;
        // At the end what TCP still keeps would make a reset of a FIN.
        let done = match self.proto.phase {
            StreamPhase::Open => ack_batch.read(taken),
            _ => ack_batch.flush().saturating_add(taken),
        };
        if done != 0 {
            locked.receive_done(done);
        }
        self.proto.deferred.ack |= ack_batch.octets() != 0;
    }

    /// Has TCP keep memory for what is likely to come.
    fn reserve(&mut self, locked: &mut Locked) {
        if self.proto.phase == StreamPhase::Open && locked.reserve(mem_reserve::RESERVED) {
            self.proto.reserve.is_held();
        }
    }

    /// Has a work item look later whether memory is still to be held, if any is.
    #[inline]
    fn have_memory_looked_at(&mut self) {
        let proto = &mut *self.proto;
        if proto.mem_watched {
            return;
        }
        proto.deferred.look = match proto.excess.is_some() || proto.reserve.is_some() {
            true => Some(mem_reserve::LOOK_MS),
            false => proto.excess.has_fragment().then_some(FRAGMENT_MS),
        };
        proto.mem_watched = proto.deferred.look.is_some();
    }

    /// Looks whether memory is to be held any longer: by TCP for the stream, and beyond what TCP
    /// accounts.
    pub(super) fn look_at_memory(&mut self, locked: &mut Locked) {
        let proto = &mut *self.proto;
        if !proto.reserve.stays(locked.memory_is_plenty()) {
            locked.unreserve();
        }
        proto.mem_watched = false;
        self.notice_acknowledged(locked);
        if locked.outstanding() == 0 {
            locked.drop_fragment();
            self.proto.excess.no_fragment();
        }
        locked.uncharge(self.proto.excess.take_surplus());
        self.have_memory_looked_at();
    }

    /// Notices what TCP does not hold any more.
    fn notice_acknowledged(&mut self, locked: &Locked) {
        let Proto { tx, excess, .. } = &mut *self.proto;
        if tx.give_up_free_block() {
            excess.set_lent(false);
        }
        excess.acknowledged(tx.sent(), locked.outstanding());
    }

    /// Has the socket charged for what the reassembly buffer waits for; whether it was refused before,
    /// and is granted now.
    pub(super) fn charge_reassembly(&mut self, locked: &mut Locked) -> bool {
        let wanted = self.proto.excess.take_wanted();
        if wanted == 0 {
            return false;
        }
        let granted = locked.charge(wanted);
        match granted {
            true => self.proto.excess.charged(wanted),
            false => {
                self.notice_acknowledged(locked);
                self.proto.deferred.retry = true;
            }
        }
        granted
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
        let sent = self.proto.tx.sent();
        while let Some(entry) = self.proto.sent.pop_done(sent) {
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
            if !room {
                self.owner.overflowed();
            }
        }
    }

    /// Tells the owner.
    pub(super) fn tell(&self, event: StreamEvent) {
        self.user.stream_event(event);
    }
}
