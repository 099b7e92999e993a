// SPDX-License-Identifier: GPL-2.0

//! One hold of the socket lock.
//!
//! [`StreamState`] lies in the stream and belongs to the context that holds the socket. For one batch of work
//! the holder makes a [`Batch`] of it: the protocol state, the queue pair, and the memory the
//! batch touches. Both directions get the context and the read queues, and not each other. The batch
//! ends before the socket is given back.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    config::Agreed,
    ctx::{
        Ctx,
        DeferredWork,
        Progress,
        Shared, //
    },
    mem_reserve::{
        self,
        Reserve, //
    },
    patience::Patience,
    quirk_siw_takeover::SiwTakeover,
    read_queues::ReadQueues,
    rx::{
        ack_batch::AckBatch,
        reassembly::Reassembly,
        receive::Rx, //
    },
    teardown::Ending,
    tx::transmit::{
        Tx,
        TxSource, //
    },
    Config,
    Role,
    StreamEvent,
    StreamOwner,
    StreamUser, //
};
use crate::{
    sys::net::socket::Locked,
    verbs::{
        counters::Counters,
        qp_queues::QpQueues,
        settings::Settings, //
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
/// | Ended (behind a disconnect) | closed window, no progress for 400 ms: reset | Over |
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
    /// The end was reported to the queue pair. A Terminate may be on its way; what comes in is
    /// thrown away.
    Ended,
    /// The socket can be released.
    Over,
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

    /// The settings of the device.
    pub(super) fn settings(&self) -> &Settings {
        self.queues.device().settings()
    }

    /// The counters of the device.
    pub(super) fn counters(&self) -> &Counters {
        self.queues.counters()
    }
}

/// All that belongs to the holder of the socket.
pub(super) struct StreamState {
    /// The queue pair and the user.
    link: Option<Served>,
    /// What the start-up agreed on.
    pub(super) agreed: Agreed,
    /// What both directions share.
    pub(super) shared: Shared,
    /// The protocol.
    pub(super) proto: Proto,
}

/// The protocol state of both directions.
pub(super) struct Proto {
    /// The phase.
    pub(super) phase: StreamPhase,
    /// What comes in.
    pub(super) rx: Rx,
    /// What goes out.
    pub(super) tx: Tx,
    /// Reads of both ends.
    pub(super) reads: ReadQueues,
    /// How the stream ends.
    pub(super) ending: Ending,
    /// The workaround for a silent siw responder.
    pub(super) siw_takeover: SiwTakeover,
    /// Octets that were read and not yet reported to TCP.
    pub(super) ack_batch: AckBatch,
    /// Memory that TCP keeps.
    pub(super) reserve: Reserve,
    /// A check of both is due.
    pub(super) mem_watched: bool,
    /// How long the peer may be silent.
    pub(super) patience: Patience,
}

impl Proto {
    /// The protocol of a stream that is being started, made in its place.
    fn init(config: Config, reads: ReadQueues) -> impl Init<Self> {
        init!(Self {
            phase: StreamPhase::Starting,
            reads,
            tx: Tx::new(&config),
            siw_takeover: match config.role {
                Role::Initiator { .. } => SiwTakeover::new(!config.initial.is_empty()),
                Role::Responder { .. } => SiwTakeover::none(),
            },
            rx: Rx::new(config),
            ending: Ending::default(),
            ack_batch: AckBatch::default(),
            reserve: Reserve::default(),
            mem_watched: false,
            patience: Patience::default(),
        })
    }
}

/// Milliseconds for which a stream without other memory to give back keeps its page fragment.
/// Short, as an idle connection is to hold little; so long that few looks find one in use.
const FRAGMENT_MS: u32 = 100;

impl StreamState {
    /// Prepares a stream. May sleep.
    #[inline(never)]
    pub(super) fn init(served: Served, config: Config) -> Result<impl Init<Self>> {
        let shared = Shared::new(config.mirror, served.queues.sq().depth() as usize)?;
        let reads = ReadQueues::new(&config)?;
        Ok(init!(Self {
            link: Some(served),
            agreed: config.agreed(),
            shared,
            proto <- Proto::init(config, reads),
        }))
    }

    /// The start is finished: from now on callbacks and doorbells work.
    pub(super) fn open_for_work(&mut self) {
        self.proto.phase = self.proto.phase.max(StreamPhase::Open);
        self.shared.deferred.deadline = self.proto.siw_takeover.next();
    }

    /// Begins a batch; `None` while the stream is being started, and when all is over.
    #[inline]
    pub(super) fn batch(&mut self) -> Option<Batch<'_>> {
        if self.proto.phase == StreamPhase::Starting {
            return None;
        }
        let served = self.link.as_ref()?;
        Some(Batch {
            ctx: Ctx::new(&served.queues, &mut self.shared),
            owner: &*served.owner,
            user: &*served.user,
            proto: &mut self.proto,
        })
    }

    /// Sets for how many milliseconds the peer may be silent while it owes acknowledgments; 0: this
    /// is left to TCP. Nothing is watched behind [`Self::unlink`]: the release has canceled the item
    /// that would.
    pub(super) fn set_patience(&mut self, millis: u32) {
        if self.link.is_none() {
            return;
        }
        self.proto.patience.set(millis);
        self.shared.deferred.watch_peer = self.proto.patience.sent();
    }

    /// The incomplete FPDU, whose memory may be missing.
    pub(super) fn reassembly(&mut self) -> &mut Reassembly {
        &mut self.proto.rx.reassembly
    }

    /// Takes the deferred work.
    #[inline]
    pub(super) fn take_deferred(&mut self) -> DeferredWork {
        core::mem::take(&mut self.shared.deferred)
    }

    /// Whether a message has come that the owner of the queue pair may answer.
    #[inline]
    pub(super) fn take_rx_since_kick(&mut self) -> bool {
        core::mem::take(&mut self.proto.rx.talked)
    }

    /// The stream is open, and the siw workaround has nothing to repeat.
    pub(super) fn was_heard(&self) -> bool {
        self.proto.phase == StreamPhase::Open && self.proto.siw_takeover.next().is_none()
    }

    /// The socket can be released.
    pub(super) fn is_over(&self) -> bool {
        self.proto.phase == StreamPhase::Over
    }

    /// Takes the queue pair and the owner out, and releases the memory that is charged to the
    /// socket. The caller drops them in process context, after the socket.
    pub(super) fn unlink(&mut self, locked: &mut Locked) -> Option<Served> {
        self.proto.tx.give_up();
        self.proto.rx.reassembly = Reassembly::new();
        // TCP may hold blocks still.
        locked.leave_charge(self.shared.excess.end());
        self.link.take()
    }

    /// Resets the connection when the socket is released.
    pub(super) fn wants_reset(&self) -> bool {
        self.proto.ending.reset
    }
}

/// One batch of work of the holder of the socket. BH is off while it lives.
pub(super) struct Batch<'a> {
    /// What both directions see.
    pub(super) ctx: Ctx<'a>,
    /// The queue pair: receives the end of the stream.
    pub(super) owner: &'a dyn StreamOwner,
    /// The user: receives events.
    pub(super) user: &'a dyn StreamUser,
    /// The protocol state.
    pub(super) proto: &'a mut Proto,
}

impl Batch<'_> {
    /// One batch: takes in what arrived if `receive`, sends up to `bursts` bursts.
    ///
    /// What is sent in answer to what arrived leaves before TCP is told that data was read, so
    /// that the acknowledgment rides on it. A batch that does not receive flushes what others read.
    #[inline]
    pub(super) fn step(&mut self, locked: &mut Locked, receive: bool, bursts: u32) -> Progress {
        let taken = match receive {
            true => self.receive(locked),
            false => 0,
        };
        let before = self.ctx.shared.sent_octets;
        let progress = self.transmit(locked, bursts);
        let sent = self.ctx.shared.sent_octets.wrapping_sub(before);
        if sent != 0 {
            self.ctx.shared.deferred.watch_peer = self.proto.patience.sent();
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
        self.ctx.shared.tally.report(self.ctx.queues.counters());
        if core::mem::take(&mut self.ctx.shared.overflowed) {
            self.owner.overflowed();
        }
        progress
    }

    /// Receives what has arrived. Returns the octets read and not yet reported to TCP.
    #[inline]
    fn receive(&mut self, locked: &mut Locked) -> usize {
        let seen = self.proto.ack_batch.octets();
        let discard = self.proto.phase >= StreamPhase::Leaving;
        let Proto { rx, reads, .. } = &mut *self.proto;
        let taken = rx.receive(&mut self.ctx, reads, locked, seen, discard);
        if !self.proto.tx.enabled && self.proto.rx.ready {
            self.proto.tx.enabled = true;
            self.tell(StreamEvent::Ready);
        }
        if core::mem::take(&mut self.ctx.shared.charge_refused) {
            self.notice_acknowledged(locked);
        }
        self.handle_stop();
        taken
    }

    /// The stream has ended while a Send was held: throws away what TCP has.
    #[cold]
    fn receive_the_rest(&mut self, locked: &mut Locked) {
        self.proto.rx.unread = false;
        let taken = self.receive(locked);
        locked.receive_done(self.proto.ack_batch.flush().saturating_add(taken));
        self.watch_tcp(locked);
    }

    /// Sends up to `bursts` bursts; with 0 what TCP has not taken yet.
    #[inline]
    pub(super) fn transmit(&mut self, locked: &mut Locked, bursts: u32) -> Progress {
        let source = match self.proto.phase {
            StreamPhase::Open | StreamPhase::Closing => TxSource::Work,
            StreamPhase::Ended => TxSource::Farewell,
            StreamPhase::Starting | StreamPhase::Leaving | StreamPhase::Over => TxSource::Nothing,
        };
        let Proto { tx, reads, .. } = &mut *self.proto;
        let progress = tx.transmit(&mut self.ctx, reads, locked, bursts, source);
        self.handle_stop();
        progress
    }

    /// Ends the stream, if a direction has left a reason.
    #[inline]
    fn handle_stop(&mut self) {
        if let Some(stop) = self.ctx.shared.stop.take() {
            self.stop(stop);
        }
    }

    /// Whether a Send is held; nothing behind it is read then.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.proto.rx.hold.is_some() && self.proto.phase < StreamPhase::Ended
    }

    /// Notes where the receiver works: see [`Tx::note_receiver_cpu`].
    pub(super) fn note_receiver_cpu(&mut self, locked: &Locked) {
        self.proto.tx.note_receiver_cpu(locked);
    }

    /// Tells TCP of what was read, `taken` octets just now, or has a work item do so soon.
    #[inline]
    fn ack(&mut self, locked: &mut Locked, taken: usize) {
        let ack_batch = &mut self.proto.ack_batch;
        // After the end, octets that TCP still keeps would turn FIN into a reset.
        let done = match self.proto.phase {
            StreamPhase::Open => ack_batch.read(taken),
            _ => ack_batch.flush().saturating_add(taken),
        };
        if done != 0 {
            locked.receive_done(done);
        }
        self.ctx.shared.deferred.ack |= ack_batch.octets() != 0;
    }

    /// Has TCP keep memory for what is likely to come.
    fn reserve(&mut self, locked: &mut Locked) {
        if self.proto.phase == StreamPhase::Open && locked.reserve(mem_reserve::RESERVED) {
            self.proto.reserve.is_held();
        }
    }

    /// Queues a later check of the stream's memory, if any is held.
    #[inline]
    fn have_memory_looked_at(&mut self) {
        let Shared {
            excess, deferred, ..
        } = &mut *self.ctx.shared;
        let proto = &mut *self.proto;
        if proto.mem_watched {
            return;
        }
        deferred.look = match excess.is_some() || proto.reserve.is_some() {
            true => Some(mem_reserve::LOOK_MS),
            false => excess.has_fragment().then_some(FRAGMENT_MS),
        };
        proto.mem_watched = deferred.look.is_some();
    }

    /// Checks whether memory is still needed: by TCP for the stream, and beyond what TCP accounts.
    pub(super) fn look_at_memory(&mut self, locked: &mut Locked) {
        if !self.proto.reserve.stays(locked.memory_is_plenty()) {
            locked.unreserve();
        }
        self.proto.mem_watched = false;
        self.notice_acknowledged(locked);
        if locked.outstanding() == 0 {
            locked.drop_fragment();
            self.ctx.shared.excess.no_fragment();
        }
        locked.uncharge(self.ctx.shared.excess.take_surplus());
        self.have_memory_looked_at();
    }

    /// Releases blocks that TCP no longer holds.
    fn notice_acknowledged(&mut self, locked: &Locked) {
        let Shared {
            excess,
            sent_octets,
            ..
        } = &mut *self.ctx.shared;
        if self.proto.tx.give_up_free_block() {
            excess.set_lent(false);
        }
        excess.acknowledged(*sent_octets, locked.outstanding());
    }

    /// Reports an event to the owner.
    pub(super) fn tell(&self, event: StreamEvent) {
        self.user.stream_event(event);
    }
}
