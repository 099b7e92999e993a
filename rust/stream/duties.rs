// SPDX-License-Identifier: GPL-2.0

//! What the holders of a stream's socket leave to work items and a timer: the rest of a budget, a
//! socket that had an owner, memory, the wait for the peer's end, the release.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
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
    reserve::LOOK_MS,
    session::{
        Progress,
        Todo, //
    },
    Stream,
    RUNS_PER_ENTRY, //
};
use crate::sys::{
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
};

/// Jiffies until something is tried again that memory was missing for.
const RETRY_DELAY: Jiffies = 1;

impl Timed for Stream {
    fn time_is_up(this: Arc<Self>) {
        this.note_gathered();
        let more = this.one_run() == Progress::More;
        this.rush.over(now_ns(), more);
    }
}

impl Timed<1> for Stream {
    fn time_is_up(this: Arc<Self>) {
        let this = this.as_arc_borrow();
        match this.state.sock().try_lock_bh() {
            Ok(mut locked) => this.work_in_callback(&mut locked, true),
            Err(_) => this.go_on_in_process(),
        };
    }
}

impl WorkItem<0> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Before it looks at what there is to settle: whoever reads more after that asks again.
        this.settling.store(false, Relaxed);
        this.one_run();
    }
}

impl WorkItem<4> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.urgent_turn();
    }
}

impl WorkItem<1> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_in_process(false);
    }
}

impl WorkItem<2> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.provide_memory();
        this.run_in_process(false);
    }
}

impl WorkItem<3> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if !this.was_heard() {
            this.run_in_process(true);
        }
    }
}

impl WorkItem<5> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.look_at_memory();
    }
}

impl WorkItem<6> for Stream {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.watch_peer();
    }
}

impl Stream {
    /// Sends one run, and leaves the others to a work item: before it, softirqs have worked on
    /// what TCP handed to a loopback. Softirq context.
    fn one_run(self: &Arc<Self>) -> Progress {
        let progress = match self.is_urged() {
            true => Progress::More,
            false => self.send(1),
        };
        if progress == Progress::More {
            self.as_arc_borrow().go_on();
        }
        progress
    }

    /// Work that needs process context, or found the socket owned: carries out wishes to close,
    /// and releases the socket in the end.
    pub(super) fn run_in_process(self: &Arc<Self>, deadline: bool) {
        let this = self.as_arc_borrow();
        let over = {
            let mut locked = self.state.sock().lock();
            let bh = BhGuard::new();
            if let Ok(mut opened) = self.state.open(&mut locked) {
                let (state, locked) = opened.split();
                if let Some(mut session) = state.session() {
                    // Its lock is not held meanwhile: to close makes completions, for which
                    // interrupts have to be on.
                    let wish = self.wish.lock().take();
                    if let Some(how) = wish {
                        session.close(how);
                    }
                    if deadline {
                        session.deadline(locked);
                    }
                }
            }
            if this.work(&mut locked, true, RUNS_PER_ENTRY) == Progress::More {
                this.go_on();
            }
            drop(bh);
            let opened = self.state.open(&mut locked);
            opened.is_ok_and(|state| state.is_over())
        };
        if over {
            self.release();
        }
    }

    /// Allocates with leave to sleep what could not be had without it. Process context.
    pub(super) fn provide_memory(&self) {
        let wanted = {
            let mut locked = self.state.sock().lock();
            let opened = self.state.open(&mut locked);
            opened.map_or(0, |mut state| state.stash().wanted())
        };
        if wanted == 0 {
            return;
        }
        // Should this fail too, the next attempt comes with the next delayed work.
        // Nor may it wait for a disk or a file system, which may be behind this very connection.
        if let Ok(room) = without_io(|| KVVec::with_capacity(wanted, GFP_KERNEL)) {
            let mut locked = self.state.sock().lock();
            if let Ok(mut state) = self.state.open(&mut locked) {
                state.stash().adopt(room);
            };
        }
    }

    /// Releases the socket, and lets go of the queue pair and the owner. Process context.
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
        // From here on no callback comes any more.
        drop(socket);
        drop(link);
        queues::cancel_delayed::<_, 2>(self);
        queues::cancel_delayed::<_, 3>(self);
        queues::cancel_delayed::<_, 5>(self);
        queues::cancel_delayed::<_, 6>(self);
        self.moment.cancel();
        self.receive_look.cancel();
    }

    /// Finds somebody for what a batch left over.
    #[inline]
    pub(super) fn arrange(self: ArcBorrow<'_, Self>, todo: Todo) {
        if todo.is_empty() {
            return;
        }
        if todo.retry {
            queues::process().enqueue_delayed::<_, 2>(Arc::from(self), RETRY_DELAY);
        }
        if let Some(millis) = todo.deadline {
            queues::process().mod_delayed::<_, 3>(Arc::from(self), msecs_to_jiffies(millis));
        }
        if let Some(millis) = todo.look {
            self.look_again(millis);
        }
        if let Some(millis) = todo.watch_peer {
            let delay = msecs_to_jiffies(millis);
            queues::process().enqueue_delayed::<_, 6>(Arc::from(self), delay);
        }
        if let Some(nanos) = todo.look_for_receive {
            // That of an earlier hold may be queued still.
            self.receive_look.cancel();
            SoftTimer::<_, 1>::start(Arc::from(self), nanos);
        }
        // Asked by the holder of the socket, for which the item waits: it sees what was read. To
        // queue it again would cost every run of a burst.
        if todo.settle && !self.settling.load(Relaxed) {
            self.settling.store(true, Relaxed);
            self.go_on_in_softirq();
        }
        if todo.process {
            self.go_on_in_process();
        }
    }

    /// Whether the peer of an open stream was heard in time, so that nothing is due. Asked without
    /// owning the socket: what arrives for an owner who is preempted waits, and fills the window.
    fn was_heard(&self) -> bool {
        let Ok(mut locked) = self.state.sock().try_lock_bh() else {
            return false;
        };
        let opened = self.state.open(&mut locked);
        opened.is_ok_and(|state| state.was_heard())
    }

    /// Looks whether memory is to be held for the stream any longer. Process context.
    fn look_at_memory(self: &Arc<Self>) {
        let this = self.as_arc_borrow();
        // Owned by somebody, it is in use.
        let Ok(mut locked) = self.state.sock().try_lock_bh() else {
            this.look_again(LOOK_MS);
            // By the one who releases it, perhaps, who then may have taken off before what waits:
            // nothing may be left to wait when the module goes.
            if self.socket.lock().is_none() {
                queues::cancel_delayed::<_, 5>(self);
            }
            return;
        };
        if let Ok(mut opened) = self.state.open(&mut locked) {
            let (state, locked) = opened.split();
            if let Some(mut session) = state.session() {
                session.look_at_memory(locked);
            }
            this.arrange(state.take_todo());
        };
    }

    /// Looks whether the peer is heard. Process context; sleeps.
    fn watch_peer(self: &Arc<Self>) {
        let this = self.as_arc_borrow();
        let mut locked = self.state.sock().lock();
        let bh = BhGuard::new();
        if let Ok(mut opened) = self.state.open(&mut locked) {
            let (state, locked) = opened.split();
            if let Some(mut session) = state.session() {
                session.watch_peer(locked);
            }
            this.arrange(state.take_todo());
        }
        drop(bh);
        drop(locked);
        // A release meanwhile has found no item to cancel.
        if self.socket.lock().is_none() {
            queues::cancel_delayed::<_, 6>(self);
        }
    }

    /// Has somebody look at the stream's memory in a while.
    fn look_again(self: ArcBorrow<'_, Self>, millis: u32) {
        let delay = msecs_to_jiffies(millis);
        queues::process().enqueue_delayed::<_, 5>(Arc::from(self), delay);
    }

    /// Notes what a moment has gathered. Softirq context.
    pub(super) fn note_gathered(&self) {
        if let Ok(mut locked) = self.state.sock().try_lock_bh() {
            if let Ok(mut state) = self.state.open(&mut locked) {
                if let Some(session) = state.session() {
                    self.rush.gathered(session.qp.sq().waiting());
                }
            }
        }
    }

    /// One turn of the urgent work item.
    fn urgent_turn(self: &Arc<Self>) {
        match self.send(RUNS_PER_ENTRY) {
            // Behind the items of other streams.
            Progress::More => self.as_arc_borrow().go_on_urgently(),
            Progress::Wait => self.urged.store(false, Relaxed),
        }
    }

    /// Runs that a callback sends itself.
    #[inline]
    pub(super) fn callback_budget(&self) -> u32 {
        if self.is_urged() || in_shared_thread() {
            // Each acknowledgment would have softirqs go on sending, which then are soon left to
            // that thread for good.
            0
        } else if processor_is_wanted() {
            1
        } else {
            RUNS_PER_ENTRY
        }
    }

    /// Has a work item go on with what a budget left. Any context with interrupts on.
    ///
    /// Softirqs that last are left to `ksoftirqd`, which takes turns with others that want the
    /// processor: a program that polls for completions would use up as much of it as the transfer
    /// that it waits for.
    pub(super) fn go_on(self: ArcBorrow<'_, Self>) {
        match self.is_urged() || processor_is_wanted() {
            true => self.go_on_urgently(),
            false => self.go_on_in_softirq(),
        }
    }

    /// Whether the urgent work item is at work, or about to be: then sending is left to it. What two
    /// processors send in turns reaches a peer on this host in another order.
    #[inline]
    pub(super) fn is_urged(&self) -> bool {
        self.urged.load(Relaxed)
    }

    /// Has the urgent work item go on: on the processor where it is at work, else on this one.
    fn go_on_urgently(self: ArcBorrow<'_, Self>) {
        self.urged.store(true, Relaxed);
        let this = Arc::from(self);
        let _ = queues::urgent().enqueue::<_, 4>(this);
    }

    /// Has a work item go on in softirq context.
    pub(super) fn go_on_in_softirq(self: ArcBorrow<'_, Self>) {
        let this = Arc::from(self);
        let _ = queues::bh().enqueue::<_, 0>(this);
    }

    /// Has a work item go on in process context.
    pub(super) fn go_on_in_process(self: ArcBorrow<'_, Self>) {
        let this = Arc::from(self);
        let _ = queues::process().enqueue::<_, 1>(this);
    }
}
