// SPDX-License-Identifier: GPL-2.0

//! One connection on the wire, from the end of the MPA start-up to the last FIN.
//!
//! A [`Stream`] joins a queue pair to a TCP socket in full operation phase (RFC 5044 section 7,
//! RFC 5041, RFC 5040). All of its protocol state belongs to the context that holds the socket
//! exclusively; `docs/locking.md` lists the three ways to hold it. `iwarp_wire` takes the
//! decisions of the protocol; this module carries them out.
//!
//! - [`config`]: what the start-up agreed on; [`events`]: what a stream tells of its life
//! - [`batch`]: one hold of the socket lock, from receive to acknowledgment
//! - [`rx`]: what comes in, [`tx`]: what goes out
//! - [`ctx`]: what both directions see in a batch, [`read_queues`]: Reads of both ends
//! - [`inflight`]: completion of work requests, in posting order
//! - [`deferred`]: deferred work, by context
//! - [`mr_cache`]: regions pinned for one batch
//! - [`mem_reserve`]: memory that TCP keeps for bulk, [`excess`]: memory that TCP does not account
//! - [`patience`]: the limit for a silent peer
//! - [`quirk_siw_takeover`]: a workaround for responders that overlook what they were sent
//! - [`teardown`]: the ways a stream ends; [`info`]: what it tells of itself

mod batch;
mod config;
mod ctx;
mod deferred;
mod events;
mod excess;
mod inflight;
mod info;
mod mem_reserve;
mod mr_cache;
mod patience;
mod quirk_siw_takeover;
mod read_queues;
mod rx;
mod teardown;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
mod tx;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        new_delayed_work,
        new_work,
        DelayedWork,
        Work, //
    }, //
};

use self::{
    batch::{
        Served,
        StreamState, //
    },
    ctx::Progress,
    tx::{
        doorbell_batch::{
            DoorbellAction,
            DoorbellBatcher, //
        },
        owner::{
            Sender,
            TxOwner, //
        },
        transmit::SEND_BUFFER, //
    },
};
pub(crate) use self::{
    config::{
        Close,
        Config,
        EndReason,
        Role, //
    },
    events::{
        StreamEvent,
        StreamOwner,
        StreamUser,
        Unfinished, //
    },
};
use crate::{
    sys::{
        net::{
            sockcell::SockCell,
            socket::{
                CallbackSock,
                Handler,
                Locked,
                LockedBh,
                Socket, //
            }, //
        }, //
        sync::{
            context::{
                irqs_off,
                need_resched,
                BhGuard,
                PreemptGuard, //
            },
            lock::{
                new_spinlock_irq,
                SpinLockIrq, //
            },
            timer::{
                impl_has_soft_timer,
                now_ns,
                SoftTimer, //
            }, //
        },
    },
    verbs::qp_queues::QpQueues, //
};

/// Bursts that a doorbell, callback or WQ_HIGHPRI work item sends before it leaves the rest to a
/// work item: about 1 MiB.
const BURSTS_PER_ENTRY: u32 = 16;

/// A connection in full operation phase.
///
/// References are held by its queue pair until `stream_ended`, by the socket's callbacks until
/// the socket is released, and by queued work items.
#[pin_data]
pub(crate) struct Stream {
    /// State that belongs to the holder of the socket.
    state: SockCell<StreamState>,
    /// The socket, until it is released. Taken in process context only.
    #[pin]
    socket: Mutex<Option<Socket>>,
    /// Segments that TCP has sent again, as far as the device's counters know.
    retransmits_told: Atomic<u32>,
    /// A local close that has not been carried out.
    #[pin]
    wish: SpinLockIrq<Option<Close>>,
    /// Transmit ownership.
    tx_owner: TxOwner,
    /// Doorbell batching of the send queue.
    doorbells: DoorbellBatcher,
    /// Serves a deferred doorbell.
    #[pin]
    doorbell_timer: SoftTimer<Stream>,
    /// Looks for a receive for the held Send.
    #[pin]
    receive_look: SoftTimer<Stream, 1>,
    /// Continues in softirq where a budget ended.
    #[pin]
    soft: Work<Self, 0>,
    /// The previous work item is queued to report read octets to TCP.
    ack_queued: Atomic<bool>,
    /// Continues in a WQ_HIGHPRI thread, where a budget ended and other threads want the CPU.
    #[pin]
    highpri: Work<Self, 4>,
    /// The item before is queued or running. A hint: no work depends on it.
    highpri_queued: Atomic<bool>,
    /// Continues in process context: the socket was owned, a local close, the release.
    #[pin]
    process: Work<Self, 1>,
    /// Retries an allocation.
    #[pin]
    retry: DelayedWork<Self, 2>,
    /// Ends the wait for a peer that does not close.
    #[pin]
    deadline: DelayedWork<Self, 3>,
    /// Checks whether the stream still needs its memory.
    #[pin]
    look: DelayedWork<Self, 5>,
    /// Checks whether the peer answers.
    #[pin]
    watch_peer: DelayedWork<Self, 6>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Stream { self.soft }
    impl HasWork<Self, 1> for Stream { self.process }
    impl HasWork<Self, 4> for Stream { self.highpri }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Stream { self.retry }
    impl HasDelayedWork<Self, 3> for Stream { self.deadline }
    impl HasDelayedWork<Self, 5> for Stream { self.look }
    impl HasDelayedWork<Self, 6> for Stream { self.watch_peer }
}

impl_has_soft_timer! {
    impl HasSoftTimer for Stream { self.doorbell_timer }
}

impl_has_soft_timer! {
    impl HasSoftTimer<1> for Stream { self.receive_look }
}

impl Stream {
    /// Puts a socket into full operation phase for the queue pair of `owner`.
    ///
    /// The start-up frame of this side has been handed to TCP completely. On return the initiator
    /// may send; what already arrived has been worked on. Process context, may sleep.
    ///
    /// # Errors
    ///
    /// Returns the socket, with nothing changed, if memory is missing or the queue pair can not be
    /// connected (any more).
    pub(crate) fn start(
        queues: Arc<QpQueues>,
        owner: Arc<dyn StreamOwner>,
        user: Arc<dyn StreamUser>,
        socket: Socket,
        config: Config,
    ) -> Result<Arc<Stream>, (Error, Socket)> {
        let served = Served::new(queues, owner.clone(), user);
        let stream = match Self::new(served, &socket, config) {
            Ok(stream) => stream,
            Err(error) => return Err((error, socket)),
        };
        if let Err(error) = owner.starting(stream.clone()) {
            return Err((error, socket));
        }
        socket.set_sndbuf_cap(SEND_BUFFER);
        socket.install(stream.clone());
        *stream.socket.lock() = Some(socket);
        {
            let mut locked = stream.state.sock().lock();
            if let Ok(mut state) = stream.state.open(&mut locked) {
                state.open_for_work();
            };
        }
        stream.run_process(false);
        Ok(stream)
    }

    /// Allocates a stream that does nothing yet. May sleep.
    #[inline(never)]
    fn new(served: Served, socket: &Socket, config: Config) -> Result<Arc<Self>> {
        let coalesce = served.settings().doorbell_coalesce_usecs();
        // Initialized in place: the stack is too small for it.
        let state = StreamState::init(served, config)?;
        Arc::pin_init(
            pin_init!(Self {
                state <- SockCell::init(socket.sock(), state),
                socket <- new_mutex!(None),
                retransmits_told: Atomic::new(0),
                wish <- new_spinlock_irq!(None),
                tx_owner: TxOwner::new(),
                doorbells: DoorbellBatcher::new(coalesce),
                doorbell_timer <- SoftTimer::new(),
                receive_look <- SoftTimer::new(),
                soft <- new_work!(),
                ack_queued: Atomic::new(false),
                highpri <- new_work!(),
                highpri_queued: Atomic::new(false),
                process <- new_work!(),
                retry <- new_delayed_work!(),
                deadline <- new_delayed_work!(),
                look <- new_delayed_work!(),
                watch_peer <- new_delayed_work!(),
            }),
            GFP_KERNEL,
        )
    }

    /// Sends what the send queue holds, as far as TCP takes it. Any context.
    ///
    /// Works in the caller where the socket is free, else leaves the work to a work item.
    pub(crate) fn kick(self: &Arc<Self>) {
        let this = self.as_arc_borrow();
        if irqs_off() {
            this.queue_bh();
            return;
        }
        if self.is_highpri() || self.send(BURSTS_PER_ENTRY) == Progress::More {
            this.queue_rest();
        }
    }

    /// Handles a doorbell of the send queue, now or after a delay. Process context.
    pub(crate) fn doorbell(self: &Arc<Self>) {
        match self.doorbells.on_doorbell(now_ns()) {
            DoorbellAction::Kick => {
                self.kick();
                self.doorbells.kicked(now_ns());
            }
            DoorbellAction::Defer => {
                SoftTimer::<_, 0>::start(self.clone(), self.doorbells.delay_ns());
            }
        }
    }

    /// Has the stream check at once for a receive for its held Send. Any context but hard
    /// interrupts.
    pub(crate) fn receive_posted(self: &Arc<Self>) {
        self.receive_look.cancel();
        SoftTimer::<_, 1>::start(self.clone(), 1);
    }

    /// Ends the stream. Any context; carried out by a work item.
    ///
    /// Once the stream ended on its own this does nothing.
    pub(crate) fn close(self: &Arc<Self>, how: Close) {
        {
            let mut wish = self.wish.lock();
            if !matches!(&*wish, Some(old) if old.rank() >= how.rank()) {
                *wish = Some(how);
            }
        }
        self.as_arc_borrow().queue_process();
    }

    /// Limits how long the peer may leave data unacknowledged, in milliseconds; 0: as the system
    /// does. With `for_ever` the peer may keep its window closed, and the limit is for a peer that
    /// does not answer. Process context; sleeps.
    pub(crate) fn set_patience(self: &Arc<Self>, millis: u32, for_ever: bool) {
        let (of_tcp, own) = if for_ever { (0, millis) } else { (millis, 0) };
        if let Some(socket) = &*self.socket.lock() {
            socket.set_user_timeout(of_tcp);
        }
        let mut locked = self.state.sock().lock();
        let Ok(mut state) = self.state.open(&mut locked) else {
            return;
        };
        state.set_patience(own);
        let deferred = state.take_deferred();
        drop(state);
        self.as_arc_borrow().schedule(deferred);
    }

    /// One batch of work for the holder of the socket.
    #[inline]
    fn work(
        self: ArcBorrow<'_, Self>,
        locked: &mut Locked,
        receive: bool,
        bursts: u32,
    ) -> Progress {
        let Ok(mut opened) = self.state.open(locked) else {
            // A callback out of a call into TCP further up the stack. Room needs no note: that call
            // is about to return.
            if receive {
                self.state.note(locked);
            }
            return Progress::Wait;
        };
        let mut receive = receive;
        loop {
            let (state, locked) = opened.split();
            let progress = match state.batch() {
                Some(mut batch) => {
                    let progress = batch.step(locked, receive, bursts);
                    self.doorbells.progress(
                        batch.ctx.queues.sq().fetched(),
                        batch.ctx.shared.sent_octets,
                    );
                    progress
                }
                None => Progress::Wait,
            };
            if state.take_rx_since_kick() {
                self.doorbells.note_rx();
            }
            let deferred = state.take_deferred();
            self.schedule(deferred);
            if !opened.take_missed() {
                return progress;
            }
            receive = true;
        }
    }

    /// Sends up to `bursts` bursts. Leaves it to a work item if the socket has an owner, or to the
    /// transmit owner. Any context with interrupts on.
    fn send(self: &Arc<Self>, bursts: u32) -> Progress {
        self.tx_owner.transmit(self, bursts)
    }

    /// As [`Self::work`] inside a callback: what exceeds the budget is left to softirq.
    #[inline]
    fn work_in_callback(self: ArcBorrow<'_, Self>, locked: &mut Locked, receive: bool) {
        let _bh = BhGuard::new();
        // The transmit owner sends what the callback would, when it has the socket.
        let bursts = match self.tx_owner.is_running() {
            true => 0,
            false => self.callback_budget(),
        };
        if self.work(locked, receive, bursts) == Progress::More && !self.tx_owner.set_missed() {
            self.queue_rest();
        }
    }
}

impl Handler for Stream {
    fn data_ready(this: ArcBorrow<'_, Self>, mut socket: CallbackSock<'_>) {
        this.work_in_callback(&mut socket, true);
    }

    fn write_space(this: ArcBorrow<'_, Self>, mut socket: CallbackSock<'_>) {
        // While there is too little room TCP is to call again: the mark stays.
        if socket.stream_writable() {
            socket.clear_nospace();
            this.work_in_callback(&mut socket, false);
        }
    }

    fn state_change(this: ArcBorrow<'_, Self>, mut socket: CallbackSock<'_>) {
        this.work_in_callback(&mut socket, true);
    }

    fn error_report(this: ArcBorrow<'_, Self>, mut socket: CallbackSock<'_>) {
        this.work_in_callback(&mut socket, true);
    }
}

impl Sender for Arc<Stream> {
    type NoPreempt = PreemptGuard;
    type Lock<'a> = LockedBh<'a>;

    #[inline]
    fn no_preempt(&self) -> PreemptGuard {
        PreemptGuard::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<LockedBh<'_>> {
        self.state.sock().try_lock_bh().ok()
    }

    #[inline]
    fn send_bursts(&self, locked: &mut LockedBh<'_>, bursts: u32) -> Progress {
        self.as_arc_borrow().work(locked, false, bursts)
    }

    #[inline]
    fn note_receiver_cpu(&self, locked: &mut LockedBh<'_>) {
        if let Ok(mut opened) = self.state.open(locked) {
            let (state, locked) = opened.split();
            if let Some(mut batch) = state.batch() {
                batch.note_receiver_cpu(locked);
            }
        }
    }

    #[inline]
    fn need_resched(&self) -> bool {
        need_resched()
    }

    fn defer_to_process(&self) {
        self.as_arc_borrow().queue_process();
    }
}
