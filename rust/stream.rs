// SPDX-License-Identifier: GPL-2.0

//! One connection on the wire, from the end of the MPA start-up to the last FIN.
//!
//! A [`Stream`] connects a queue pair to a TCP socket in full operation phase (RFC 5044 section
//! 7, RFC 5041, RFC 5040). The socket lock guards all of its protocol state; `docs/locking.md`
//! lists the three ways to hold a socket. The crate `iwarp_wire` makes the protocol decisions,
//! and this module executes them.
//!
//! - [`config`]: the result of the MPA start-up; [`events`]: the events of a stream
//! - [`batch`]: one hold of the socket lock, from receive to acknowledgment
//! - [`rx`]: the receive direction; [`tx`]: the transmit direction
//! - [`ctx`]: the state that both directions share in a batch; [`read_queues`]: the ORQ and the
//!   IRQ
//! - [`inflight`]: completion of work requests, in posting order
//! - [`deferred`]: deferred work, by context
//! - [`mr_cache`]: regions pinned for one batch
//! - [`mem_reserve`]: memory reserved for bulk transfers
//! - [`excess`]: memory that TCP does not account
//! - [`patience`]: the time limit for a peer that does not answer
//! - [`quirk_siw_takeover`]: a workaround for siw responders that miss early FPDUs
//! - [`teardown`]: the end of a stream; [`info`]: its state for `rdma resource show`

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
    alloc::flags::GFP_KERNEL_ACCOUNT,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
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

/// The largest number of bursts that one doorbell, callback or work item sends: about 1 MiB. A
/// further work item sends the rest.
const BURSTS_PER_ENTRY: u32 = 16;

/// A connection in full operation phase.
///
/// The queue pair holds a reference until [`StreamOwner::ended`], and the socket's callbacks
/// until the release of the socket. Each queued work item holds one.
#[pin_data]
pub(crate) struct Stream {
    /// The state that the socket lock guards.
    state: SockCell<StreamState>,
    /// The socket, until it is released. Taken in process context only.
    #[pin]
    socket: Mutex<Option<Socket>>,
    /// Retransmitted segments that the device's counters include.
    retransmits_told: Atomic<u32>,
    /// A local close that is not executed yet.
    #[pin]
    wish: SpinLockIrq<Option<Close>>,
    /// Transmit ownership.
    tx_owner: TxOwner,
    /// Doorbell batching of the send queue.
    doorbells: DoorbellBatcher,
    /// Transmits at the end of a doorbell delay.
    #[pin]
    doorbell_timer: SoftTimer<Stream>,
    /// Checks for a receive for the held Send.
    #[pin]
    receive_look: SoftTimer<Stream, 1>,
    /// A receive was posted since the last check by the timer.
    receive_posted: Atomic<bool>,
    /// Continues in softirq context after an exhausted budget.
    #[pin]
    soft: Work<Self, 0>,
    /// `soft` is queued to report read octets to TCP.
    ack_queued: Atomic<bool>,
    /// Continues in a WQ_HIGHPRI worker after an exhausted budget, if other threads wait for the
    /// CPU.
    #[pin]
    highpri: Work<Self, 4>,
    /// `highpri` is queued or running. A hint: no work depends on it.
    highpri_queued: Atomic<bool>,
    /// Runs in process context: work on a socket that a thread owned, a local close, the release.
    #[pin]
    process: Work<Self, 1>,
    /// Retries an allocation.
    #[pin]
    retry: DelayedWork<Self, 2>,
    /// The deadline of the current phase: for a peer that does not close, or for a repeated RTR
    /// frame.
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
    /// The caller has passed the whole start-up frame of this end to TCP. On return an initiator
    /// may send, and octets that had arrived are processed. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// The socket is returned unchanged. `ENOMEM`: no memory. Errors of
    /// [`StreamOwner::starting`].
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

    /// Allocates a stream whose start is not complete, charged to the memory cgroup of the socket.
    /// Process context; sleeps.
    fn new(served: Served, socket: &Socket, config: Config) -> Result<Arc<Self>> {
        socket.with_memcg(|| Self::allocate(served, socket, config))
    }

    /// [`Self::new`] without the choice of the memory cgroup.
    #[inline(never)]
    fn allocate(served: Served, socket: &Socket, config: Config) -> Result<Arc<Self>> {
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
                receive_posted: Atomic::new(false),
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
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Transmits work requests of the send queue until TCP's send buffer is full. Any context.
    ///
    /// Transmits in the context of the caller. A work item transmits with interrupts off, while a
    /// thread owns the socket, and after [`BURSTS_PER_ENTRY`] bursts.
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

    /// Starts a check for a receive for the held Send. Any context except hard interrupts.
    pub(crate) fn receive_posted(self: &Arc<Self>) {
        // A batch that has just found no receive starts the timer again, with a longer interval. It
        // sees the mark, or has started the timer before.
        self.receive_posted.xchg(true, Full);
        if !SoftTimer::<_, 1>::restart(self, 1) {
            // That batch runs in the timer's callback, whose start can not be cancelled yet. The
            // work item receives.
            self.as_arc_borrow().queue_process();
        }
    }

    /// Requests the end of the stream. Any context; a work item executes the request.
    ///
    /// After the end of the stream only [`Close::Abort`] has an effect: the release of the socket
    /// resets the connection.
    pub(crate) fn close(self: &Arc<Self>, how: Close) {
        {
            let mut wish = self.wish.lock();
            if !matches!(&*wish, Some(old) if old.rank() >= how.rank()) {
                *wish = Some(how);
            }
        }
        self.as_arc_borrow().queue_process();
    }

    /// Limits the time for which the peer may leave data unacknowledged, in milliseconds; 0: the
    /// default of the system. Process context; sleeps.
    ///
    /// With `for_ever` the peer may keep its window closed without limit. The limit then ends the
    /// connection of a peer that does not answer.
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

    /// Runs batches for the holder of the socket, until no nested callback is noted.
    #[inline]
    fn work(
        self: ArcBorrow<'_, Self>,
        locked: &mut Locked,
        receive: bool,
        bursts: u32,
    ) -> Progress {
        let Ok(mut opened) = self.state.open(locked) else {
            // The callback is nested in a call into TCP further up the stack. Free space needs no
            // note: that call is about to return.
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

    /// Sends up to `bursts` bursts, unless another context is the transmit owner. If a thread
    /// owns the socket, a work item sends. Any context with interrupts on.
    fn send(self: &Arc<Self>, bursts: u32) -> Progress {
        self.tx_owner.transmit(self, bursts)
    }

    /// [`Self::work`] in a callback; a work item sends what exceeds the budget.
    #[inline]
    fn work_in_callback(self: ArcBorrow<'_, Self>, locked: &mut Locked, receive: bool) {
        let _bh = BhGuard::new();
        // A running transmit owner sends in place of the callback, when it locks the socket.
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
        // With too little free space `SOCK_NOSPACE` stays set: TCP calls again.
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
