// SPDX-License-Identifier: GPL-2.0

//! One connection, from the first step of its start-up to its end.
//!
//! An endpoint moves on in a work item of its own, which waits for nothing: the socket, the
//! stream, the queue pair, the timer and the device leave notes and queue it. So no peer holds up
//! another connection, and nobody who is called under a lock has to do any work. `iw_cm` calls in
//! process context, and what it asks for is done at once under the endpoint's lock.
//!
//! Locks: an endpoint's lock is taken before a listener's, the registry's and any of a socket or
//! a queue pair; the lock of the notes is taken last.

mod hook;
mod streams;

use core::mem;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

pub(super) use self::hook::Attachment;
use self::streams::Streams;
use super::{
    accept::{
        Accepting,
        HalfOpen,
        Offered, //
    },
    connect::Initiator,
    connected::Connected,
    direct::Direct,
    registry::Member,
    timer::Timer, //
};
use crate::{
    stream::{
        EndReason,
        Stream, //
    },
    sys::{
        iwcm::Handle,
        lock::{
            new_spinlock_irq,
            SpinLockIrq, //
        },
        work, //
    },
    verbs::Device, //
};

/// Milliseconds until something is tried again that `iw_cm` had no room for.
const RETRY_MS: u32 = 20;

/// Where an endpoint is on its way.
pub(super) enum Phase {
    /// At the start.
    New,
    /// Connecting.
    Initiator(Initiator),
    /// A peer has connected and has to say what it wants.
    HalfOpen(HalfOpen),
    /// `iw_cm` is to decide.
    Offered(Offered),
    /// `iw_cm` has accepted.
    Accepting(Accepting),
    /// The stream runs, and `iw_cm` knows.
    Connected(Connected),
    /// The queue pair connects itself, at whatever stage.
    Direct(KBox<Direct>),
    /// At the end, but a stream has not let go of its socket.
    Lingering(Streams),
    /// At the end.
    Over,
}

/// What a step leads to.
pub(super) enum Next {
    /// The next step can be made now.
    Go(Phase),
    /// A note has to come first, or the end of the time.
    Wait(Phase),
    /// The same is to be tried again soon.
    Retry(Phase),
}

/// What others have told the endpoint. Nothing is ever taken back.
#[derive(Clone, Copy, Default)]
pub(super) struct Notes {
    /// The device, the listener or the queue pair goes.
    pub(super) quit: bool,
    /// The owner of the queue pair ends the connection.
    pub(super) left: bool,
    /// The stream of a responder has had its first FPDU.
    pub(super) ready: bool,
    /// The peer has closed its half of the stream.
    pub(super) half_closed: bool,
    /// The stream has ended.
    pub(super) ended: Option<EndReason>,
    /// Queue pairs and streams that know the endpoint.
    hooks: u32,
}

/// What a step has to work with.
pub(super) struct Turn<'a> {
    /// The endpoint.
    pub(super) endpoint: &'a Arc<Endpoint>,
    /// Its device.
    pub(super) device: &'a Arc<Device>,
    /// The limit of time of its phase.
    pub(super) timer: &'a mut Timer,
    /// Its streams, from their start.
    streams: &'a mut Streams,
    /// What it was told.
    pub(super) notes: Notes,
}

impl Turn<'_> {
    /// Has the endpoint look after a stream that was started until it has let go of its socket.
    pub(super) fn started(&mut self, stream: &Arc<Stream>) {
        self.streams.add(stream);
    }
}

/// What the lock protects.
struct Inner {
    /// Where it is on its way.
    phase: Phase,
    /// The limit of time of that.
    timer: Timer,
    /// The streams that were started.
    streams: Streams,
    /// The device, until the end.
    device: Option<Arc<Device>>,
}

/// A connection.
#[pin_data]
pub(super) struct Endpoint {
    /// Its number in the device.
    handle: Handle,
    /// Where it is on its way.
    #[pin]
    inner: Mutex<Inner>,
    /// What it was told.
    #[pin]
    notes: SpinLockIrq<Notes>,
    /// Looks at the notes and the socket.
    #[pin]
    look: Work<Self, { Self::LOOK }>,
    /// Looks at the clock.
    #[pin]
    wake: DelayedWork<Self, { Self::WAKE }>,
}

impl_has_work! {
    impl HasWork<Self, { Self::LOOK }> for Endpoint { self.look }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, { Self::WAKE }> for Endpoint { self.wake }
}

impl WorkItem<{ Endpoint::LOOK }> for Endpoint {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.advance(&mut this.inner.lock(), false);
    }
}

impl WorkItem<{ Endpoint::WAKE }> for Endpoint {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.advance(&mut this.inner.lock(), true);
    }
}

impl Endpoint {
    /// The work item that looks at notes and socket.
    const LOOK: u64 = 0;
    /// The work item that looks at the clock.
    const WAKE: u64 = 1;

    /// Makes an endpoint and has the device know it. It holds the device until its end.
    ///
    /// `ENODEV` once the device goes.
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        device.cm_state().admit(|handle| {
            let endpoint = Arc::pin_init(
                pin_init!(Self {
                    handle,
                    inner <- new_mutex!(
                        Inner {
                            phase: Phase::New,
                            timer: Timer::new(),
                            streams: Streams::default(),
                            device: Some(device.clone()),
                        },
                        "rsiw_endpoint"
                    ),
                    notes <- new_spinlock_irq!(Notes::default(), "rsiw_endpoint_notes"),
                    look <- new_work!("rsiw_endpoint_look"),
                    wake <- new_delayed_work!("rsiw_endpoint_wake"),
                }),
                GFP_KERNEL,
            )?;
            Ok((Member::Endpoint(endpoint.clone()), endpoint))
        })
    }

    /// Its number in the device.
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Changes the phase on behalf of a caller, and moves on from there. Process context, sleeps.
    ///
    /// `f` is given the phase; with an error it says where the endpoint is then.
    pub(super) fn change(
        self: &Arc<Self>,
        f: impl FnOnce(Phase, &mut Turn<'_>) -> Result<Phase, (Error, Phase)>,
    ) -> Result {
        let mut guard = self.inner.lock();
        let result = self.replace(&mut guard, f);
        self.advance(&mut guard, false);
        result
    }

    /// As [`change`](Self::change), but has the work item move on: for callers on whose stack there
    /// is no room for that.
    pub(super) fn change_and_leave(
        self: &Arc<Self>,
        f: impl FnOnce(Phase, &mut Turn<'_>) -> Result<Phase, (Error, Phase)>,
    ) -> Result {
        let result = self.replace(&mut self.inner.lock(), f);
        self.look();
        result
    }

    /// Changes the phase.
    // A frame of its own: phases are large.
    #[inline(never)]
    fn replace(
        self: &Arc<Self>,
        inner: &mut Inner,
        f: impl FnOnce(Phase, &mut Turn<'_>) -> Result<Phase, (Error, Phase)>,
    ) -> Result {
        let Some(device) = inner.device.clone() else {
            return Err(crate::sys::errno::ECONNRESET);
        };
        let phase = mem::replace(&mut inner.phase, Phase::Over);
        let notes = *self.notes.lock();
        let mut turn = Turn {
            endpoint: self,
            device: &device,
            timer: &mut inner.timer,
            streams: &mut inner.streams,
            notes,
        };
        match apply(f, phase, &mut turn) {
            Ok(phase) => {
                inner.phase = phase;
                Ok(())
            }
            Err((error, phase)) => {
                inner.phase = phase;
                Err(error)
            }
        }
    }

    /// Makes all steps that can be made now; `fired`: the timer has called.
    #[inline(never)]
    fn advance(self: &Arc<Self>, inner: &mut Inner, fired: bool) {
        let Some(device) = inner.device.clone() else {
            return;
        };
        let retry = loop {
            let notes = *self.notes.lock();
            let mut turn = Turn {
                endpoint: self,
                device: &device,
                timer: &mut inner.timer,
                streams: &mut inner.streams,
                notes,
            };
            match inner.phase.advance(&mut turn) {
                Step::Go => {}
                Step::Wait if matches!(inner.phase, Phase::Over) => match inner.streams.take() {
                    Some(streams) => inner.phase = Phase::Lingering(streams),
                    None => break false,
                },
                Step::Wait => break false,
                Step::Retry => break true,
            }
        };
        if matches!(inner.phase, Phase::Over) {
            inner.timer.clear();
            work::cancel_delayed::<_, { Self::WAKE }>(self);
            inner.device = None;
            device.cm_state().leave(self.handle);
        } else if retry {
            self.wake_after(msecs_to_jiffies(RETRY_MS));
        } else if let Some(delay) = inner.timer.wake(fired) {
            self.wake_after(delay);
        }
    }

    /// Has the timer call after `delay` from now.
    fn wake_after(self: &Arc<Self>, delay: Jiffies) {
        work::process().mod_delayed::<_, { Self::WAKE }>(self.clone(), delay);
    }

    /// Leaves a note and has it looked at. Any context.
    fn note(self: &Arc<Self>, f: impl FnOnce(&mut Notes)) {
        f(&mut self.notes.lock());
        self.look();
    }

    /// Has the work item look at socket and notes. Any context.
    fn look(self: &Arc<Self>) {
        let _ = work::process().enqueue::<_, { Self::LOOK }>(self.clone());
    }

    /// Has the connection end without ceremony. Any context; does not wait.
    pub(super) fn abort(self: &Arc<Self>) {
        self.note(|notes| notes.quit = true);
    }
}

/// How to go on after a step: [`Next`] without the phase.
enum Step {
    /// The next step can be made now.
    Go,
    /// A note has to come first, or the end of the time.
    Wait,
    /// The same is to be tried again soon.
    Retry,
}

impl Phase {
    /// Makes one step in place.
    #[inline(never)]
    fn advance(&mut self, turn: &mut Turn<'_>) -> Step {
        match mem::replace(self, Self::Over).step(turn) {
            Next::Go(phase) => {
                *self = phase;
                Step::Go
            }
            Next::Wait(phase) => {
                *self = phase;
                Step::Wait
            }
            Next::Retry(phase) => {
                *self = phase;
                Step::Retry
            }
        }
    }

    /// Makes one step.
    ///
    /// Those of the phases are kept apart: in one function they would make one large stack frame,
    /// and below it TCP needs its room.
    #[inline(never)]
    fn step(self, turn: &mut Turn<'_>) -> Next {
        match self {
            Self::New => Next::Wait(Self::New),
            Self::Initiator(initiator) => initiator.step(turn),
            Self::HalfOpen(half_open) => half_open.step(turn),
            Self::Offered(offered) => offered.step(turn),
            Self::Accepting(accepting) => accepting.step(turn),
            Self::Connected(connected) => connected.step(turn),
            Self::Direct(direct) => direct.step(turn),
            Self::Lingering(streams) => linger(streams, turn),
            Self::Over => Next::Wait(Self::Over),
        }
    }
}

/// Calls `f` in a stack frame of its own.
#[inline(never)]
fn apply(
    f: impl FnOnce(Phase, &mut Turn<'_>) -> Result<Phase, (Error, Phase)>,
    phase: Phase,
    turn: &mut Turn<'_>,
) -> Result<Phase, (Error, Phase)> {
    f(phase, turn)
}

/// Waits until the streams have let go of their sockets, which must not outlive the device.
#[inline(never)]
fn linger(streams: Streams, turn: &mut Turn<'_>) -> Next {
    if turn.notes.hooks == 0 {
        return Next::Wait(Phase::Over);
    }
    turn.timer.clear();
    if turn.notes.quit {
        streams.abort();
    }
    Next::Wait(Phase::Lingering(streams))
}
