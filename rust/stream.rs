// SPDX-License-Identifier: GPL-2.0

//! One connection's life on the wire, from the end of the MPA start-up to the last FIN.
//!
//! A [`Stream`] joins a queue pair to a TCP socket in full operation phase (RFC 5044 section 7,
//! RFC 5041, RFC 5040). All of its protocol state belongs to whoever holds the socket
//! exclusively; `design.md` (Execution model) describes the three ways to be that holder. The protocol's
//! decisions are taken by `iwarp_wire`; this module carries them out.
//!
//! - [`contract`]: what the ends of a start-up agree on, and what a stream tells of its life
//! - [`duties`]: what is left to work items
//! - [`session`]: what the holder of the socket has in hand
//! - [`receive`]: from TCP's queue to whole FPDUs, [`stash`]: those that come in parts
//! - [`unsettled`]: when TCP is told of what was read
//! - [`reserve`]: memory that TCP keeps for a stream that moves bulk, [`excess`]: memory that a
//!   stream holds beyond what TCP accounts
//! - [`hold`]: a Send for which no receive is posted
//! - [`deliver`]: what an FPDU asks for, [`place`]: from payload to memory and back
//! - [`transmit`]: runs of FPDUs, [`align`]: their sizes, [`work`]: what goes into them
//! - [`turn`]: one at a time sends, [`rush`]: doorbells in quick succession
//! - [`patience`]: peers that are silent
//! - [`nudge`]: responders that overlook what they were sent
//! - [`sent`]: completion of work requests in order
//! - [`end`]: the ways a stream ends

mod align;
mod contract;
mod deliver;
mod duties;
mod encode;
mod end;
mod excess;
mod hold;
mod nudge;
mod patience;
mod place;
mod receive;
mod reserve;
mod rush;
mod sent;
mod session;
mod stash;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
mod transmit;
mod turn;
mod unsettled;
mod work;

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

pub(crate) use self::contract::{
    Close,
    Config,
    EndReason,
    Owner,
    Role,
    StreamEvent,
    Unfinished, //
};
use self::{
    rush::{
        Answer,
        Rush, //
    },
    session::{
        Progress,
        State, //
    },
    turn::Turn, //
};
use crate::{
    params,
    sys::{
        context::{
            irqs_off,
            BhGuard, //
        },
        lock::{
            new_spinlock_irq,
            SpinLockIrq, //
        },
        sockcell::SockCell,
        socket::{
            CallbackSock,
            Handler,
            Locked,
            Socket, //
        },
        timer::{
            impl_has_soft_timer,
            now_ns,
            SoftTimer, //
        }, //
    },
    verbs::Qp, //
};

/// Runs a doorbell, callback or urgent work item sends before it leaves the rest to a work item:
/// about 1 MiB.
const RUNS_PER_ENTRY: u32 = 16;

/// Runs sent in a row in process context before the lock is free and softirqs run: enough that the
/// receiver of a loopback, who gets them then, has several to work on at once, and few enough that
/// they are still in the cache.
const RUNS_PER_HOLD: u32 = 4;

/// Octets TCP may hold for us on a short way: little enough that one stream's burst does not keep
/// a CPU in softirq, and that they stay in its cache.
const SEND_BUFFER: u32 = 1 << 20;

/// Microseconds of a round trip from which on a way is a long one, and its congestion window says
/// how much TCP may hold.
const FAR_US: u32 = 300;

/// A connection in full operation phase.
///
/// References are held by its queue pair until `stream_ended`, by the socket's callbacks until
/// the socket is released, and by queued work items.
#[pin_data]
pub(crate) struct Stream {
    /// Everything that belongs to the holder of the socket.
    state: SockCell<State>,
    /// The socket, until it is released. Taken in process context only.
    #[pin]
    socket: Mutex<Option<Socket>>,
    /// A wish to close that has not been carried out.
    #[pin]
    wish: SpinLockIrq<Option<Close>>,
    /// Who sends.
    turn: Turn,
    /// What is known of the send queue's doorbells.
    rush: Rush,
    /// Answers a doorbell after a moment.
    #[pin]
    moment: SoftTimer<Stream>,
    /// Looks for a receive for the held Send.
    #[pin]
    receive_look: SoftTimer<Stream, 1>,
    /// Goes on in softirq where a budget ended.
    #[pin]
    soft: Work<Self, 0>,
    /// The item before has been asked to settle what was read, and has not begun.
    settling: Atomic<bool>,
    /// Goes on in a thread that comes before others, where a budget ended and others want the
    /// processor.
    #[pin]
    urgent: Work<Self, 4>,
    /// The urgent item has been asked to go on, and has not come to an end. A guess: nobody relies
    /// on it for anything to be done.
    urged: Atomic<bool>,
    /// Goes on in process context: the socket had an owner, a wish to close, the release.
    #[pin]
    process: Work<Self, 1>,
    /// Tries again when memory was missing.
    #[pin]
    retry: DelayedWork<Self, 2>,
    /// Ends the wait for a peer that does not close.
    #[pin]
    deadline: DelayedWork<Self, 3>,
    /// Looks whether memory is to be held for the stream.
    #[pin]
    look: DelayedWork<Self, 5>,
    /// Looks whether the peer is heard.
    #[pin]
    watch_peer: DelayedWork<Self, 6>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Stream { self.soft }
    impl HasWork<Self, 1> for Stream { self.process }
    impl HasWork<Self, 4> for Stream { self.urgent }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Stream { self.retry }
    impl HasDelayedWork<Self, 3> for Stream { self.deadline }
    impl HasDelayedWork<Self, 5> for Stream { self.look }
    impl HasDelayedWork<Self, 6> for Stream { self.watch_peer }
}

impl_has_soft_timer! {
    impl HasSoftTimer for Stream { self.moment }
}

impl_has_soft_timer! {
    impl HasSoftTimer<1> for Stream { self.receive_look }
}

impl Stream {
    /// Puts a socket into full operation phase for `qp`.
    ///
    /// The start-up frame of this side has been handed to TCP completely. On return the initiator
    /// may send; what already arrived has been worked on. Process context, may sleep.
    ///
    /// # Errors
    ///
    /// Gives the socket back if memory is missing or the queue pair is not fit to be connected
    /// (any more); nothing has changed then.
    pub(crate) fn start(
        qp: Arc<Qp>,
        socket: Socket,
        config: Config,
        owner: Arc<dyn Owner>,
    ) -> Result<Arc<Stream>, (Error, Socket)> {
        let mirror = config.mirror;
        let stream = match Self::new(&qp, &socket, config, owner) {
            Ok(stream) => stream,
            Err(error) => return Err((error, socket)),
        };
        let taken = match mirror {
            true => qp.set_mirror(stream.clone()),
            false => qp.set_rts(stream.clone()),
        };
        if let Err(error) = taken {
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
        stream.run_in_process(false);
        Ok(stream)
    }

    /// Allocates a stream that does nothing yet. May sleep.
    #[inline(never)]
    fn new(
        qp: &Arc<Qp>,
        socket: &Socket,
        config: Config,
        owner: Arc<dyn Owner>,
    ) -> Result<Arc<Self>> {
        // Not on the stack, where it would lie twice.
        let state = State::boxed(qp.clone(), owner, config)?;
        Arc::pin_init(
            pin_init!(Self {
                state: SockCell::new(socket.sock(), KBox::into_inner(state)),
                socket <- new_mutex!(None),
                wish <- new_spinlock_irq!(None),
                turn: Turn::new(),
                rush: Rush::new(params::gather_us()),
                moment <- SoftTimer::new(),
                receive_look <- SoftTimer::new(),
                soft <- new_work!(),
                settling: Atomic::new(false),
                urgent <- new_work!(),
                urged: Atomic::new(false),
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
            this.go_on_in_softirq();
            return;
        }
        if self.is_urged() || self.send(RUNS_PER_ENTRY) == Progress::More {
            this.go_on();
        }
    }

    /// Answers a doorbell of the send queue, now or in a moment. Process context.
    pub(crate) fn doorbell(self: &Arc<Self>) {
        match self.rush.rung(now_ns()) {
            Answer::Now => {
                self.kick();
                self.rush.answered(now_ns());
            }
            Answer::InAMoment => {
                SoftTimer::<_, 0>::start(self.clone(), self.rush.moment_ns());
            }
        }
    }

    /// Has the stream look at once for a receive for the Send that it holds. Any context but hard
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
        self.as_arc_borrow().go_on_in_process();
    }

    /// Limits how long the peer may leave data unacknowledged, in milliseconds; 0: as the system
    /// does. Where its window may be closed `for_ever`, the limit is for a peer that is not heard.
    /// Process context; sleeps.
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
        let todo = state.take_todo();
        drop(state);
        self.as_arc_borrow().arrange(todo);
    }

    /// One batch of work for the holder of the socket.
    #[inline]
    fn work(self: ArcBorrow<'_, Self>, locked: &mut Locked, receive: bool, runs: u32) -> Progress {
        let Ok(mut opened) = self.state.open(locked) else {
            // A callback out of a call into TCP that is made further up. Room needs no note: the
            // caller there is about to find out.
            if receive {
                self.state.note(locked);
            }
            return Progress::Wait;
        };
        let mut receive = receive;
        loop {
            let (state, locked) = opened.split();
            let progress = match state.session() {
                Some(mut session) => {
                    let progress = session.step(locked, receive, runs);
                    self.rush
                        .progress(session.qp.sq().fetched(), session.proto.tx.sent());
                    progress
                }
                None => Progress::Wait,
            };
            if state.take_talked() {
                self.rush.talked();
            }
            let todo = state.take_todo();
            self.arrange(todo);
            if !opened.take_missed() {
                return progress;
            }
            receive = true;
        }
    }

    /// As [`Self::work`] inside a callback: what does not fit into the budget is left to softirq.
    #[inline]
    fn work_in_callback(self: ArcBorrow<'_, Self>, locked: &mut Locked, receive: bool) {
        let _bh = BhGuard::new();
        // Who sends looks at what the callback finds when it has the socket.
        let runs = match self.turn.is_taken() {
            true => 0,
            false => self.callback_budget(),
        };
        if self.work(locked, receive, runs) == Progress::More && !self.turn.ask() {
            self.go_on();
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
