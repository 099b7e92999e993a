// SPDX-License-Identifier: GPL-2.0

//! Deferred work of a stream: work items and timers.
//!
//! They continue after an exhausted budget, or after a thread owned the socket. They allocate
//! memory, limit the wait for the peer, and release the socket.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
    workqueue::WorkItem, //
};

use super::{
    ctx::{
        DeferredWork,
        Progress, //
    },
    mem_reserve::LOOK_MS,
    Stream,
    BURSTS_PER_ENTRY, //
};
use crate::sys::{
    sync::{
        context::{
            in_shared_thread,
            processor_is_wanted,
            without_io,
            BhGuard, //
        },
        timer::{
            now_ns,
            SoftTimer,
            Timed, //
        },
        work as queues, //
    }, //
};

/// Jiffies until an allocation is retried.
const RETRY_DELAY: Jiffies = 1;

impl Timed for Stream {
    fn time_is_up(this: Arc<Self>) {
        this.note_waiting();
        let more = this.run_bh() == Progress::More;
        this.doorbells.deferred_kick_done(now_ns(), more);
    }
}

impl Timed<1> for Stream {
    fn time_is_up(this: Arc<Self>) {
        let this = this.as_arc_borrow();
        // Receives posted before this are found.
        this.receive_posted.xchg(false, Full);
        match this.state.sock().try_lock_bh() {
            Ok(mut locked) => this.work_in_callback(&mut locked, true),
            Err(_) => this.queue_process(),
        };
    }
}

impl WorkItem<0> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Cleared before the read octets are collected: a later reader queues the item again.
        this.ack_queued.store(false, Relaxed);
        this.run_bh();
    }
}

impl WorkItem<4> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_highpri();
    }
}

impl WorkItem<1> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_process(false);
    }
}

impl WorkItem<2> for Stream {
    type Pointer = queues::Delayed<Self>;

    fn run(this: queues::Delayed<Self>) {
        let this = this.into_arc();
        this.provide_memory();
        this.run_process(false);
    }
}

impl WorkItem<3> for Stream {
    type Pointer = queues::Delayed<Self>;

    fn run(this: queues::Delayed<Self>) {
        let this = this.into_arc();
        if !this.was_heard() {
            this.run_process(true);
        }
    }
}

impl WorkItem<5> for Stream {
    type Pointer = queues::Delayed<Self>;

    fn run(this: queues::Delayed<Self>) {
        let this = this.into_arc();
        this.look_at_memory();
    }
}

impl WorkItem<6> for Stream {
    type Pointer = queues::Delayed<Self>;

    fn run(this: queues::Delayed<Self>) {
        let this = this.into_arc();
        this.watch_peer();
    }
}

impl Stream {
    /// Sends one burst; a further work item sends the rest. Softirqs receive the segments that
    /// TCP queued for loopback before that item runs. Softirq context.
    fn run_bh(self: &Arc<Self>) -> Progress {
        let progress = match self.is_highpri() {
            true => Progress::More,
            false => self.send(1),
        };
        if progress == Progress::More {
            self.as_arc_borrow().queue_rest();
        }
        progress
    }

    /// Runs a batch in process context: executes a local close, handles the `deadline`, and
    /// releases the socket after the end. Sleeps.
    pub(super) fn run_process(self: &Arc<Self>, deadline: bool) {
        let this = self.as_arc_borrow();
        let over = {
            let mut locked = self.state.sock().lock();
            let bh = BhGuard::new();
            if let Ok(mut opened) = self.state.open(&mut locked) {
                let (state, locked) = opened.split();
                if let Some(mut batch) = state.batch() {
                    // The lock is released before the close, which makes completions with
                    // interrupts on.
                    let wish = self.wish.lock().take();
                    if let Some(how) = wish {
                        batch.close(how);
                    }
                    if deadline {
                        batch.deadline(locked);
                    }
                }
            }
            if this.work(&mut locked, true, BURSTS_PER_ENTRY) == Progress::More {
                this.queue_rest();
            }
            drop(bh);
            let opened = self.state.open(&mut locked);
            opened.is_ok_and(|state| state.is_over())
        };
        if over {
            self.release();
        }
    }

    /// Allocates memory for the reassembly buffer after a failed attempt in atomic context.
    /// Process context; sleeps.
    pub(super) fn provide_memory(&self) {
        let wanted = {
            let mut locked = self.state.sock().lock();
            let opened = self.state.open(&mut locked);
            opened.map_or(0, |mut state| state.reassembly().wanted())
        };
        if wanted == 0 {
            return;
        }
        // If the allocation fails, the next delayed work item retries. The allocation does not
        // wait for block devices or file systems, since they may use this connection.
        if let Ok(room) = without_io(|| KVVec::with_capacity(wanted, GFP_KERNEL)) {
            let mut locked = self.state.sock().lock();
            if let Ok(mut state) = self.state.open(&mut locked) {
                state.reassembly().provide(room);
            };
        }
    }

    /// Releases the socket, the queue pair and the user. Process context; sleeps.
    pub(super) fn release(self: &Arc<Self>) {
        let Some(socket) = self.socket.lock().take() else {
            return;
        };
        let (link, reset) = {
            let mut locked = self.state.sock().lock();
            let opened = self.state.open(&mut locked);
            opened.map_or((None, true), |mut opened| {
                let (state, locked) = opened.split();
                (state.unlink(locked), state.wants_reset())
            })
        };
        if reset {
            socket.set_linger_abort();
        }
        // No callback runs after this.
        drop(socket);
        if let Some(served) = &link {
            self.tell_retransmits(served.counters());
        }
        drop(link);
        queues::cancel_delayed::<_, 2>(self);
        queues::cancel_delayed::<_, 3>(self);
        queues::cancel_delayed::<_, 5>(self);
        queues::cancel_delayed::<_, 6>(self);
        self.doorbell_timer.cancel();
        self.receive_look.cancel();
    }

    /// Queues the deferred work of a batch.
    #[inline]
    pub(super) fn schedule(self: ArcBorrow<'_, Self>, deferred: DeferredWork) {
        if deferred.is_empty() {
            return;
        }
        if deferred.retry {
            queues::process().enqueue_delayed::<_, 2>(Arc::from(self), RETRY_DELAY);
        }
        if let Some(millis) = deferred.deadline {
            queues::process().mod_delayed::<_, 3>(Arc::from(self), msecs_to_jiffies(millis));
        }
        if let Some(millis) = deferred.look {
            self.look_again(millis);
        }
        if let Some(millis) = deferred.watch_peer {
            let delay = msecs_to_jiffies(millis);
            queues::process().enqueue_delayed::<_, 6>(Arc::from(self), delay);
        }
        if let Some(nanos) = deferred.look_for_receive {
            // The timer of an earlier hold may still be queued, and that of a receive posted since
            // the batch has looked.
            self.receive_look.cancel();
            let nanos = match self.receive_posted.xchg(false, Full) {
                true => 1,
                false => nanos,
            };
            SoftTimer::<_, 1>::start(Arc::from(self), nanos);
        }
        // The item waits until the caller releases the socket, so it sees all octets that were
        // read. Queueing it again would cost time for every burst.
        if deferred.ack && !self.ack_queued.load(Relaxed) {
            self.ack_queued.store(true, Relaxed);
            self.queue_bh();
        }
        if deferred.process {
            self.queue_process();
        }
    }

    /// Whether the stream is open, and no repetition of its RTR frame is due; `false` while a
    /// thread owns the socket. The function does not own the socket: octets that arrive for a
    /// preempted owner would wait, and fill the window.
    fn was_heard(&self) -> bool {
        let Ok(mut locked) = self.state.sock().try_lock_bh() else {
            return false;
        };
        let opened = self.state.open(&mut locked);
        opened.is_ok_and(|state| state.was_heard())
    }

    /// Checks whether the stream still needs its memory. Process context.
    fn look_at_memory(self: &Arc<Self>) {
        let this = self.as_arc_borrow();
        // A thread owns the socket: the memory is in use.
        let Ok(mut locked) = self.state.sock().try_lock_bh() else {
            this.look_again(LOOK_MS);
            // A concurrent release may have cancelled the item before it was queued again. No
            // item may be queued when the module is unloaded.
            if self.socket.lock().is_none() {
                queues::cancel_delayed::<_, 5>(self);
            }
            return;
        };
        if let Ok(mut opened) = self.state.open(&mut locked) {
            let (state, locked) = opened.split();
            if let Some(mut batch) = state.batch() {
                batch.look_at_memory(locked);
            }
            this.schedule(state.take_deferred());
        };
    }

    /// Checks whether the peer answers. Process context; sleeps.
    fn watch_peer(self: &Arc<Self>) {
        let this = self.as_arc_borrow();
        let mut locked = self.state.sock().lock();
        let bh = BhGuard::new();
        if let Ok(mut opened) = self.state.open(&mut locked) {
            let (state, locked) = opened.split();
            if let Some(mut batch) = state.batch() {
                batch.watch_peer(locked);
            }
            this.schedule(state.take_deferred());
        }
        drop(bh);
        drop(locked);
        // A concurrent release has found no item to cancel.
        if self.socket.lock().is_none() {
            queues::cancel_delayed::<_, 6>(self);
        }
    }

    /// Queues the check of the stream's memory.
    fn look_again(self: ArcBorrow<'_, Self>, millis: u32) {
        let delay = msecs_to_jiffies(millis);
        queues::process().enqueue_delayed::<_, 5>(Arc::from(self), delay);
    }

    /// Reports the number of waiting work requests at the end of a doorbell delay. Softirq
    /// context.
    pub(super) fn note_waiting(&self) {
        if let Ok(mut locked) = self.state.sock().try_lock_bh() {
            if let Ok(mut state) = self.state.open(&mut locked) {
                if let Some(batch) = state.batch() {
                    self.doorbells.expired(batch.ctx.queues.sq().waiting());
                }
            }
        }
    }

    /// One run of the WQ_HIGHPRI work item.
    fn run_highpri(self: &Arc<Self>) {
        match self.send(BURSTS_PER_ENTRY) {
            // The item is queued after those of other streams.
            Progress::More => self.as_arc_borrow().queue_highpri(),
            Progress::Wait => self.highpri_queued.store(false, Relaxed),
        }
    }

    /// The number of bursts that a callback may send.
    #[inline]
    pub(super) fn callback_budget(&self) -> u32 {
        if self.is_highpri() || in_shared_thread() {
            // Softirqs that send on every acknowledgment would soon run in `ksoftirqd` all the
            // time.
            0
        } else if processor_is_wanted() {
            1
        } else {
            BURSTS_PER_ENTRY
        }
    }

    /// Queues a work item that continues after an exhausted budget. Any context with interrupts
    /// on.
    ///
    /// The kernel defers long softirqs to `ksoftirqd`, which shares the CPU with other threads. A
    /// process that polls for completions would get as much CPU time as the transfer that it
    /// waits for. Long transmissions therefore move to a WQ_HIGHPRI work item if other threads
    /// wait for the CPU.
    pub(super) fn queue_rest(self: ArcBorrow<'_, Self>) {
        match self.is_highpri() || processor_is_wanted() {
            true => self.queue_highpri(),
            false => self.queue_bh(),
        }
    }

    /// Whether the WQ_HIGHPRI work item is queued or running. Only that item sends then:
    /// alternate bursts of two CPUs reach a peer on this host out of order.
    #[inline]
    pub(super) fn is_highpri(&self) -> bool {
        self.highpri_queued.load(Relaxed)
    }

    /// Queues the WQ_HIGHPRI work item: on the CPU where it is running, else on this one.
    fn queue_highpri(self: ArcBorrow<'_, Self>) {
        self.highpri_queued.store(true, Relaxed);
        let this = Arc::from(self);
        let _ = queues::highpri().enqueue::<_, 4>(this);
    }

    /// Queues the work item that runs in softirq context.
    pub(super) fn queue_bh(self: ArcBorrow<'_, Self>) {
        let this = Arc::from(self);
        let _ = queues::bh().enqueue::<_, 0>(this);
    }

    /// Queues the work item that runs in process context.
    pub(super) fn queue_process(self: ArcBorrow<'_, Self>) {
        let this = Arc::from(self);
        let _ = queues::process().enqueue::<_, 1>(this);
    }
}
