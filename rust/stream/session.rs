// SPDX-License-Identifier: GPL-2.0

//! What the holder of the socket has in hand.
//!
//! [`State`] lies in the stream and belongs to whoever holds the socket. For one batch of work
//! the holder makes a [`Session`] of it: the protocol state, the queue pair, and the memory the
//! batch touches. The session ends before the socket is given back.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    end::Ending,
    excess::Excess,
    nudge::Nudges,
    patience::Patience,
    place::Pins,
    receive::Rx,
    reserve::{
        self,
        Reserve, //
    },
    sent::SentQueue,
    stash::Stash,
    transmit::Tx,
    unsettled::Unsettled,
    Config,
    Owner,
    Role,
    StreamEvent, //
};
use crate::{
    sys::socket::Locked,
    verbs::{
        counters::{
            Counter,
            Counters, //
        },
        cq::Completion,
        Qp, //
    }, //
};

/// How far a stream's life has come. Only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
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

/// Work a session leaves to somebody else, who runs after the socket is free.
#[derive(Clone, Copy, Default)]
pub(super) struct Todo {
    /// Memory was missing: try again soon.
    pub(super) retry: bool,
    /// TCP is to be told of what was read when the softirqs of this burst have run.
    pub(super) settle: bool,
    /// Somebody must look whether memory is still to be kept, after so many milliseconds.
    pub(super) look: Option<u32>,
    /// Process context is wanted: the socket can be released.
    pub(super) process: bool,
    /// Somebody must end the wait for the peer, after so many milliseconds.
    pub(super) deadline: Option<u32>,
    /// Somebody must look for a receive for the held Send, after so many nanoseconds.
    pub(super) look_for_receive: Option<u32>,
    /// Somebody must look whether the peer is heard, after so many milliseconds.
    pub(super) watch_peer: Option<u32>,
}

impl Todo {
    /// Nothing is left to others.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        !(self.retry
            || self.settle
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
pub(super) struct Link {
    /// The queue pair this stream serves.
    qp: Arc<Qp>,
    /// The one who started it.
    owner: Arc<dyn Owner>,
}

/// All that belongs to the holder of the socket.
pub(super) struct State {
    /// Whom the stream works for.
    link: Option<Link>,
    /// The protocol.
    proto: Proto,
}

/// The protocol state of both directions.
pub(super) struct Proto {
    /// How far the stream's life has come.
    pub(super) phase: Phase,
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
    /// What is done about a silent peer.
    pub(super) nudges: Nudges,
    /// Work for others.
    pub(super) todo: Todo,
    /// A message has come that the owner of the queue pair may answer.
    pub(super) talked: bool,
    /// What was read and TCP was not told of yet.
    pub(super) unsettled: Unsettled,
    /// Memory that TCP keeps.
    pub(super) reserve: Reserve,
    /// Memory that TCP does not account.
    pub(super) excess: Excess,
    /// A look at both is due.
    pub(super) looking: bool,
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

impl State {
    /// Prepares a stream. May sleep.
    #[inline(never)]
    pub(super) fn boxed(qp: Arc<Qp>, owner: Arc<dyn Owner>, config: Config) -> Result<KBox<Self>> {
        let proto = Proto {
            phase: Phase::Starting,
            mirror: config.mirror,
            sent: SentQueue::new(qp.sq().depth() as usize)?,
            tx: Tx::new(&config)?,
            nudges: match config.role {
                Role::Initiator { .. } => Nudges::new(!config.initial.is_empty()),
                Role::Responder { .. } => Nudges::none(),
            },
            rx: Rx::new(config),
            ending: Ending::default(),
            todo: Todo::default(),
            talked: false,
            unsettled: Unsettled::default(),
            reserve: Reserve::default(),
            excess: Excess::default(),
            looking: false,
            patience: Patience::default(),
            tally: Tally::default(),
        };
        let link = Some(Link { qp, owner });
        Ok(KBox::new(Self { link, proto }, GFP_KERNEL)?)
    }

    /// The start is finished: from now on callbacks and doorbells work.
    pub(super) fn open_for_work(&mut self) {
        self.proto.phase = self.proto.phase.max(Phase::Open);
        self.proto.todo.deadline = self.proto.nudges.next();
    }

    /// Begins a batch; `None` while the stream is being started, and when all is over.
    #[inline]
    pub(super) fn session(&mut self) -> Option<Session<'_>> {
        if self.proto.phase == Phase::Starting {
            return None;
        }
        let Link { qp, owner } = self.link.as_ref()?;
        Some(Session {
            qp,
            owner: &**owner,
            proto: &mut self.proto,
            pins: Pins::new(qp),
        })
    }

    /// Sets for how many milliseconds the peer may be silent while it owes acknowledgments; 0: this
    /// is left to TCP.
    pub(super) fn set_patience(&mut self, millis: u32) {
        self.proto.patience.set(millis);
        self.proto.todo.watch_peer = self.proto.patience.sent();
    }

    /// The incomplete FPDU, for which memory may be missing.
    pub(super) fn stash(&mut self) -> &mut Stash {
        &mut self.proto.rx.stash
    }

    /// Takes the list of what is left to others.
    #[inline]
    pub(super) fn take_todo(&mut self) -> Todo {
        core::mem::take(&mut self.proto.todo)
    }

    /// Whether a message has come that the owner of the queue pair may answer.
    #[inline]
    pub(super) fn take_talked(&mut self) -> bool {
        core::mem::take(&mut self.proto.talked)
    }

    /// The stream is open, and no nudge is due.
    pub(super) fn was_heard(&self) -> bool {
        self.proto.phase == Phase::Open && self.proto.nudges.next().is_none()
    }

    /// The socket can be released.
    pub(super) fn is_over(&self) -> bool {
        self.proto.phase == Phase::Over
    }

    /// Lets go of the queue pair and the owner, and of the memory that is charged to the socket. The
    /// caller drops them in process context, after the socket.
    pub(super) fn unlink(&mut self, locked: &mut Locked) -> Option<Link> {
        self.proto.tx.give_up();
        self.proto.rx.stash = Stash::new();
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
pub(super) struct Session<'a> {
    /// The queue pair.
    pub(super) qp: &'a Arc<Qp>,
    /// Who is told of events.
    pub(super) owner: &'a dyn Owner,
    /// The protocol state.
    pub(super) proto: &'a mut Proto,
    /// The memory in use.
    pub(super) pins: Pins<'a>,
}

impl Session<'_> {
    /// One batch: takes in what arrived if `receive`, sends up to `runs` runs.
    ///
    /// What is sent in answer to what arrived leaves before TCP is told that data was read, so
    /// that the acknowledgment rides on it. A batch that does not receive settles what others read.
    #[inline]
    pub(super) fn step(&mut self, locked: &mut Locked, receive: bool, runs: u32) -> Progress {
        let taken = match receive {
            true => self.receive(locked),
            false => 0,
        };
        let before = self.proto.tx.sent();
        let progress = self.transmit(locked, runs);
        let sent = self.proto.tx.sent().wrapping_sub(before);
        if sent != 0 {
            self.proto.todo.watch_peer = self.proto.patience.sent();
        }
        if taken != 0 {
            self.proto.nudges.heard();
            self.proto.ending.heard();
        }
        if self.proto.reserve.moved(sent.max(taken as u64)) {
            self.reserve(locked);
        }
        self.settle(locked, taken);
        if receive {
            self.watch_tcp(locked);
        }
        self.advance_end(locked);
        if self.proto.phase != Phase::Open {
            if self.proto.rx.unread {
                self.receive_the_rest(locked);
                self.advance_end(locked);
            }
            self.settle(locked, 0);
        }
        self.have_memory_looked_at();
        self.proto.tally.report(self.qp.device().counters());
        progress
    }

    /// Tells TCP of what was read, `taken` octets just now, or has somebody else do so soon.
    #[inline]
    fn settle(&mut self, locked: &mut Locked, taken: usize) {
        let unsettled = &mut self.proto.unsettled;
        // At the end what TCP still keeps would make a reset of a FIN.
        let done = match self.proto.phase {
            Phase::Open => unsettled.read(taken),
            _ => unsettled.settle().saturating_add(taken),
        };
        if done != 0 {
            locked.receive_done(done);
        }
        self.proto.todo.settle |= unsettled.octets() != 0;
    }

    /// Has TCP keep memory for what is likely to come.
    fn reserve(&mut self, locked: &mut Locked) {
        if self.proto.phase == Phase::Open && locked.reserve(reserve::RESERVED) {
            self.proto.reserve.is_held();
        }
    }

    /// Has a work item look later whether memory is still to be held, if any is.
    #[inline]
    fn have_memory_looked_at(&mut self) {
        let proto = &mut *self.proto;
        if proto.looking {
            return;
        }
        proto.todo.look = match proto.excess.is_some() || proto.reserve.is_some() {
            true => Some(reserve::LOOK_MS),
            false => proto.excess.has_fragment().then_some(FRAGMENT_MS),
        };
        proto.looking = proto.todo.look.is_some();
    }

    /// Looks whether memory is to be held any longer: by TCP for the stream, and beyond what TCP
    /// accounts.
    pub(super) fn look_at_memory(&mut self, locked: &mut Locked) {
        let proto = &mut *self.proto;
        if !proto.reserve.stays(locked.memory_is_plenty()) {
            locked.unreserve();
        }
        proto.looking = false;
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
                self.proto.todo.retry = true;
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
        self.qp.device().counters().add(counter, n);
    }

    /// Reports the oldest work requests, as far as TCP has taken them.
    #[inline]
    pub(super) fn retire(&mut self) {
        let sent = self.proto.tx.sent();
        while let Some(entry) = self.proto.sent.pop_done(sent) {
            if !entry.signaled {
                continue;
            }
            self.qp.complete_send(&Completion {
                id: entry.id,
                opcode: entry.opcode,
                status: entry.status,
                bytes: entry.bytes,
                invalidated: None,
                solicited: false,
            });
        }
    }

    /// Tells the owner.
    pub(super) fn tell(&self, event: StreamEvent) {
        self.owner.stream_event(event);
    }
}
