// SPDX-License-Identifier: GPL-2.0

//! The work of one hold of the socket lock.
//!
//! [`StreamState`] is the part of a stream that the socket lock guards. The holder of the socket
//! makes a [`Batch`] of it: the protocol state, the queue pair, and the regions that the batch
//! accesses. Each direction accesses the context and the read queues, but not the other
//! direction. A batch ends before the socket lock is released.

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
/// | Open, Closing | error found, Terminate received | Ended |
/// | Open, Closing, Leaving | reset, abort, error of TCP | Ended, Over |
/// | Closing | send queue drained: FIN; then the peer's FIN | Ended, Over |
/// | Closing | no progress in the deadline | Ended, Over |
/// | Leaving | message in progress sent: FIN | Ended |
/// | Leaving | 500 ms | Ended |
/// | Ended | FIN sent and received, reset, abort, or deadline | Over |
/// | Ended (behind a disconnect) | closed window, no progress for 400 ms: reset | Over |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamPhase {
    /// The start is not complete; callbacks may run already.
    Starting,
    /// Full operation phase.
    Open,
    /// Posted work requests are executed, then FIN is sent.
    Closing,
    /// The message in progress is sent, then FIN. Received octets are discarded.
    Leaving,
    /// The end was reported to the queue pair. A Terminate may have to be sent. Received octets
    /// are discarded.
    Ended,
    /// The socket can be released.
    Over,
}

/// The queue pair and the user of a stream, until the socket is released.
pub(super) struct Served {
    /// The data path of the queue pair.
    queues: Arc<QpQueues>,
    /// The queue pair as the owner of the stream.
    owner: Arc<dyn StreamOwner>,
    /// The user that started the stream.
    user: Arc<dyn StreamUser>,
}

impl Served {
    /// Combines the data path of the queue pair, the queue pair as the owner, and the user.
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

/// The state of a stream that the socket lock guards.
pub(super) struct StreamState {
    /// The queue pair and the user.
    link: Option<Served>,
    /// The parameters that the MPA start-up negotiated.
    pub(super) agreed: Agreed,
    /// The state that both directions share.
    pub(super) shared: Shared,
    /// The protocol state.
    pub(super) proto: Proto,
}

/// The protocol state of both directions.
pub(super) struct Proto {
    pub(super) phase: StreamPhase,
    /// The receive direction.
    pub(super) rx: Rx,
    /// The transmit direction.
    pub(super) tx: Tx,
    /// The ORQ and the IRQ.
    pub(super) reads: ReadQueues,
    /// The state of the end of the stream.
    pub(super) ending: Ending,
    /// The workaround for siw responders.
    pub(super) siw_takeover: SiwTakeover,
    /// Octets that were read and not yet reported to TCP.
    pub(super) ack_batch: AckBatch,
    /// The memory that TCP has reserved.
    pub(super) reserve: Reserve,
    /// A check of reserved and of unaccounted memory is queued.
    pub(super) mem_watched: bool,
    /// The time limit for a peer that does not answer.
    pub(super) patience: Patience,
}

impl Proto {
    /// The initial protocol state of a stream, initialized in place.
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

/// Milliseconds after which a stream without other memory to release checks its page fragment.
/// The time is short, since an idle connection should hold little memory. It is long enough that
/// few checks find the fragment in use.
const FRAGMENT_MS: u32 = 100;

impl StreamState {
    /// Allocates the parts of a stream's state, and returns its initializer. Process context;
    /// sleeps.
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

    /// Completes the start: callbacks and doorbells run batches from now on.
    pub(super) fn open_for_work(&mut self) {
        self.proto.phase = self.proto.phase.max(StreamPhase::Open);
        self.shared.deferred.deadline = self.proto.siw_takeover.next();
    }

    /// Begins a batch. `None` before the start is complete, and after [`Self::unlink`].
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

    /// Sets the milliseconds for which the peer may be silent while octets are unacknowledged; 0:
    /// only the limits of TCP apply. No effect after [`Self::unlink`]: the release has cancelled
    /// the work item that checks the peer.
    pub(super) fn set_patience(&mut self, millis: u32) {
        if self.link.is_none() {
            return;
        }
        self.proto.patience.set(millis);
        self.shared.deferred.watch_peer = self.proto.patience.sent();
    }

    /// The reassembly buffer, for an allocation in process context.
    pub(super) fn reassembly(&mut self) -> &mut Reassembly {
        &mut self.proto.rx.reassembly
    }

    /// Takes the deferred work.
    #[inline]
    pub(super) fn take_deferred(&mut self) -> DeferredWork {
        core::mem::take(&mut self.shared.deferred)
    }

    /// Whether a message was received that the owner of the queue pair may answer. Clears the
    /// note.
    #[inline]
    pub(super) fn take_rx_since_kick(&mut self) -> bool {
        core::mem::take(&mut self.proto.rx.rx_since_kick)
    }

    /// Whether the stream is open, and the siw workaround has nothing to repeat.
    pub(super) fn was_heard(&self) -> bool {
        self.proto.phase == StreamPhase::Open && self.proto.siw_takeover.next().is_none()
    }

    /// Whether the socket can be released.
    pub(super) fn is_over(&self) -> bool {
        self.proto.phase == StreamPhase::Over
    }

    /// Removes the queue pair and the user, and releases the memory that is charged to the
    /// socket. The caller drops the result in process context, after the socket.
    pub(super) fn unlink(&mut self, locked: &mut Locked) -> Option<Served> {
        self.proto.tx.give_up();
        self.proto.rx.reassembly = Reassembly::new();
        // TCP may still have references to blocks.
        locked.leave_charge(self.shared.excess.end());
        self.link.take()
    }

    /// Whether the release of the socket resets the connection.
    pub(super) fn wants_reset(&self) -> bool {
        self.proto.ending.reset
    }
}

/// One batch of work under the socket lock. Bottom halves are disabled during the batch.
pub(super) struct Batch<'a> {
    /// The context that both directions share.
    pub(super) ctx: Ctx<'a>,
    /// The queue pair, to which the end of the stream is reported.
    pub(super) owner: &'a dyn StreamOwner,
    /// The user, to which events are reported.
    pub(super) user: &'a dyn StreamUser,
    /// The protocol state.
    pub(super) proto: &'a mut Proto,
}

impl Batch<'_> {
    /// Runs the batch: receives if `receive`, sends up to `bursts` bursts, and reports read
    /// octets to TCP.
    ///
    /// Answers are sent before read octets are reported to TCP: their segments carry the
    /// acknowledgment. A batch that does not receive reports the octets that earlier batches have
    /// read.
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

    /// Processes received octets. Returns the number of octets read and not yet reported to TCP.
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

    /// Discards the octets in TCP's receive queue, after the end of a stream that held a Send.
    #[cold]
    fn receive_the_rest(&mut self, locked: &mut Locked) {
        self.proto.rx.unread = false;
        let taken = self.receive(locked);
        locked.receive_done(self.proto.ack_batch.flush().saturating_add(taken));
        self.watch_tcp(locked);
    }

    /// Sends up to `bursts` bursts; with 0 the rest of the current burst.
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

    /// Ends the stream, if a direction has stored a reason in the context.
    #[inline]
    fn handle_stop(&mut self) {
        if let Some(stop) = self.ctx.shared.stop.take() {
            self.stop(stop);
        }
    }

    /// Whether a Send is held. Octets after it are not read then.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.proto.rx.hold.is_some() && self.proto.phase < StreamPhase::Ended
    }

    /// Notes whether the receiver runs on this CPU: see [`Tx::note_receiver_cpu`].
    pub(super) fn note_receiver_cpu(&mut self, locked: &Locked) {
        self.proto.tx.note_receiver_cpu(locked);
    }

    /// Reports read octets to TCP, `taken` of them from this batch, or defers the report to a
    /// work item.
    #[inline]
    fn ack(&mut self, locked: &mut Locked, taken: usize) {
        let ack_batch = &mut self.proto.ack_batch;
        // After the end TCP would replace FIN by a reset, if unreported octets were left.
        let done = match self.proto.phase {
            StreamPhase::Open => ack_batch.read(taken),
            _ => ack_batch.flush().saturating_add(taken),
        };
        if done != 0 {
            locked.receive_done(done);
        }
        self.ctx.shared.deferred.ack |= ack_batch.octets() != 0;
    }

    /// Reserves TCP memory for further bulk data.
    fn reserve(&mut self, locked: &mut Locked) {
        if self.proto.phase == StreamPhase::Open && locked.reserve(mem_reserve::RESERVED) {
            self.proto.reserve.is_held();
        }
    }

    /// Defers a check of the stream's memory, if there is any to release.
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

    /// Releases memory that is no longer needed: TCP's reservation, the page fragment, and
    /// charges.
    pub(super) fn look_at_memory(&mut self, locked: &mut Locked) {
        if !self.proto.reserve.stays(locked.memory_is_plenty()) {
            locked.unreserve();
        }
        self.proto.mem_watched = false;
        self.notice_acknowledged(locked);
        let idle = locked.outstanding() == 0;
        let dropped = idle && locked.drop_fragment();
        if dropped {
            self.ctx.shared.excess.no_fragment();
        }
        locked.uncharge(self.ctx.shared.excess.take_surplus());
        // A charge that was refused.
        self.ctx.shared.excess.charge_missing(locked);
        self.have_memory_looked_at();
        if idle && !dropped {
            // A receiver on this host may leave octets unread for long.
            self.ctx.shared.deferred.look = Some(mem_reserve::LOOK_MS);
        }
    }

    /// Accounts for acknowledged octets, and releases blocks without references of TCP.
    fn notice_acknowledged(&mut self, locked: &Locked) {
        let Shared {
            excess,
            sent_octets,
            ..
        } = &mut *self.ctx.shared;
        if self.proto.tx.give_up_free_block() {
            excess.set_in_use(0);
        }
        excess.acknowledged(*sent_octets, locked.outstanding());
    }

    /// Reports an event to the user.
    pub(super) fn tell(&self, event: StreamEvent) {
        self.user.stream_event(event);
    }
}
