// SPDX-License-Identifier: GPL-2.0

//! One connection, from the first step of its start-up to its end.
//!
//! An endpoint advances in its own work item, which does not wait. The socket, the stream, the
//! queue pair, the timer and the device set notes and queue the work item. So no peer delays
//! another connection, and a callback under a lock does no work. Requests of `iw_cm` arrive in
//! process context, and are carried out at once under the endpoint's lock.
//!
//! An endpoint's lock is taken before that of a listener, of the registry, of a socket or of a
//! queue pair. The lock of the notes is taken last.

mod callbacks;
mod streams;

use core::mem;

use kernel::{
    new_mutex,
    prelude::*,
    str::CStr,
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

pub(crate) use self::callbacks::Attachment;
use self::streams::Streams;
use super::{
    accept::{
        HalfOpen,
        Offered, //
        Replying,
    },
    connect::Initiator,
    connected::Established,
    device::CmDevice,
    registry::Member,
    timer::Timer, //
};
use crate::{
    stream::{
        EndReason,
        Stream, //
    },
    sys::{
        rdma::{
            iwcm::Handle, //
            res::ResAttrs,
        },
        sync::{
            lock::{
                new_spinlock_irq,
                SpinLockIrq, //
            },
            work, //
        }, //
    }, //
};

/// Milliseconds until a step is retried, such as an event for which `iw_cm` had no memory.
const RETRY_MS: u32 = 20;

/// The phase of a connection.
///
/// | phase | event | next |
/// | --- | --- | --- |
/// | New | `connect` | Initiator |
/// | New | connection accepted from TCP | HalfOpen |
/// | New | RTR with a named peer | Driven |
/// | Initiator | Reply, stream started | Established |
/// | Initiator | revision 2 not supported by the peer | Initiator, with revision 1 |
/// | Initiator | failure, time-out | Over |
/// | HalfOpen | Request | Offered |
/// | HalfOpen | no Request in time, evicted | Over |
/// | Offered | `accept` | Replying |
/// | Offered | `reject`, peer closes, time-out | Over |
/// | Replying | stream ready | Established |
/// | Replying | failure, time-out | Over |
/// | Established | stream ended | Over |
/// | Driven | stream ended, given up | Over |
/// | Over | a stream still has its socket | Lingering |
/// | Lingering | streams released | Over |
pub(crate) enum Phase {
    /// The initial phase.
    New,
    /// The initiator's start-up.
    Initiator(Initiator),
    /// A peer has connected; its Request is awaited.
    HalfOpen(HalfOpen),
    /// `iw_cm` decides.
    Offered(Offered),
    /// `iw_cm` has accepted.
    Replying(Replying),
    /// The stream runs, and was reported to `iw_cm`.
    Established(Established),
    /// Driven by another module, the rendezvous.
    Driven(Arc<dyn Driven>),
    /// Ended, but a stream has not released its socket.
    Lingering(Streams),
    /// Ended.
    Over,
}

/// A connection that another module drives in an endpoint.
pub(crate) trait Driven: Send + Sync {
    /// Makes a step, without waiting. Under the endpoint's lock.
    fn step(&self, ctx: &mut StepContext<'_>) -> DrivenStep;
}

/// The outcome of a step of a driven connection.
pub(crate) enum DrivenStep {
    /// The next step can be made now.
    Go,
    /// The next step follows a note, or the end of a time limit.
    Wait,
    /// The connection has ended.
    Over,
}

/// The outcome of a step.
pub(crate) enum Next {
    /// The next step can be made now.
    Go(Phase),
    /// The next step follows a note, or the end of the time limit.
    Wait(Phase),
    /// The same step is tried again after [`RETRY_MS`].
    Retry(Phase),
}

/// Events recorded for the endpoint. A flag is never cleared.
#[derive(Clone, Copy, Default)]
pub(crate) struct Notes {
    /// The device, the listener or the queue pair ends, and the connection with it.
    pub(crate) quit: bool,
    /// The owner of the queue pair ends the connection.
    pub(crate) left: bool,
    /// The stream of a responder has received its first FPDU.
    pub(crate) ready: bool,
    /// The peer has closed its half of the stream.
    pub(crate) half_closed: bool,
    /// The stream has ended.
    pub(crate) ended: Option<EndReason>,
    /// The number of references by queue pairs and streams.
    refs: u32,
}

/// The context of a step.
pub(crate) struct StepContext<'a> {
    pub(crate) endpoint: &'a Arc<Endpoint>,
    /// The device of the endpoint.
    pub(crate) device: &'a Arc<CmDevice>,
    /// The time limit of the phase.
    pub(crate) timer: &'a mut Timer,
    /// The streams of the connection, from their start.
    streams: &'a mut Streams,
    /// The notes at the start of the step.
    pub(crate) notes: Notes,
}

impl StepContext<'_> {
    /// Adds a started stream: the endpoint waits until the stream has released its socket.
    pub(crate) fn started(&mut self, stream: &Arc<Stream>) {
        self.streams.add(stream);
    }
}

/// State that the endpoint's lock protects.
struct EndpointState {
    phase: Phase,
    /// The time limit of the phase.
    timer: Timer,
    /// The started streams.
    streams: Streams,
    /// The device, until the end.
    device: Option<Arc<CmDevice>>,
}

/// A connection.
#[pin_data]
pub(crate) struct Endpoint {
    /// The endpoint's number in the device.
    handle: Handle,
    /// The phase.
    #[pin]
    inner: Mutex<EndpointState>,
    #[pin]
    notes: SpinLockIrq<Notes>,
    /// Handles notes and the socket.
    #[pin]
    look: Work<Self, { Self::LOOK }>,
    /// Handles the end of a time limit.
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
    type Pointer = work::Delayed<Self>;

    fn run(this: work::Delayed<Self>) {
        let this = this.into_arc();
        this.advance(&mut this.inner.lock(), true);
    }
}

impl Endpoint {
    /// The work item for notes and the socket.
    const LOOK: u64 = 0;
    /// The work item for time limits.
    const WAKE: u64 = 1;

    /// Makes an endpoint and registers it with the device. It holds the device until its end.
    /// Process context; sleeps.
    ///
    /// `ENODEV`: the device is being removed.
    pub(crate) fn new(device: &Arc<CmDevice>) -> Result<Arc<Self>> {
        device.registry().admit(|handle| {
            let endpoint = Arc::pin_init(
                pin_init!(Self {
                    handle,
                    inner <- new_mutex!(
                        EndpointState {
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

    /// The endpoint's number in the device.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Changes the phase on behalf of a caller, and makes the steps that follow. Process context,
    /// sleeps.
    ///
    /// `f` takes the phase and returns the next one, also with an error.
    ///
    /// `ECONNRESET`: the endpoint has ended. Other errors are those of `f`.
    pub(crate) fn change(
        self: &Arc<Self>,
        f: impl FnOnce(Phase, &mut StepContext<'_>) -> Result<Phase, (Error, Phase)>,
    ) -> Result {
        let mut guard = self.inner.lock();
        let result = self.replace(&mut guard, f);
        self.advance(&mut guard, false);
        result
    }

    /// As [`change`](Self::change), but a work item makes the steps that follow: for callers with
    /// little stack left.
    pub(crate) fn change_and_leave(
        self: &Arc<Self>,
        f: impl FnOnce(Phase, &mut StepContext<'_>) -> Result<Phase, (Error, Phase)>,
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
        inner: &mut EndpointState,
        f: impl FnOnce(Phase, &mut StepContext<'_>) -> Result<Phase, (Error, Phase)>,
    ) -> Result {
        let Some(device) = inner.device.clone() else {
            return Err(crate::sys::errno::ECONNRESET);
        };
        let phase = mem::replace(&mut inner.phase, Phase::Over);
        let notes = *self.notes.lock();
        let mut ctx = StepContext {
            endpoint: self,
            device: &device,
            timer: &mut inner.timer,
            streams: &mut inner.streams,
            notes,
        };
        match apply(f, phase, &mut ctx) {
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

    /// Makes all steps that are possible without waiting. `fired`: the timer has expired.
    #[inline(never)]
    fn advance(self: &Arc<Self>, inner: &mut EndpointState, fired: bool) {
        let Some(device) = inner.device.clone() else {
            return;
        };
        let retry = loop {
            let notes = *self.notes.lock();
            let mut ctx = StepContext {
                endpoint: self,
                device: &device,
                timer: &mut inner.timer,
                streams: &mut inner.streams,
                notes,
            };
            match inner.phase.advance(&mut ctx) {
                Flow::Go => {}
                Flow::Wait if matches!(inner.phase, Phase::Over) => match inner.streams.take() {
                    Some(streams) => inner.phase = Phase::Lingering(streams),
                    None => break false,
                },
                Flow::Wait => break false,
                Flow::Retry => break true,
            }
        };
        if matches!(inner.phase, Phase::Over) {
            inner.timer.clear();
            work::cancel_delayed::<_, { Self::WAKE }>(self);
            inner.device = None;
            device.registry().leave(self.handle);
        } else if retry {
            self.wake_after(msecs_to_jiffies(RETRY_MS));
        } else if let Some(delay) = inner.timer.wake(fired) {
            self.wake_after(delay);
        }
    }

    /// Sets the timer to expire after `delay`.
    fn wake_after(self: &Arc<Self>, delay: Jiffies) {
        work::process().mod_delayed::<_, { Self::WAKE }>(self.clone(), delay);
    }

    /// Adds attributes of the connection for `rdma resource show`. Process context; sleeps.
    pub(crate) fn describe(&self, attrs: &mut ResAttrs<'_>) {
        let inner = self.inner.lock();
        attrs.text(c"stage", inner.phase.name());
        if let Phase::Initiator(initiator) = &inner.phase {
            attrs.number(c"mpa_rev", initiator.revision());
        }
        let stream = match &inner.phase {
            Phase::Established(established) => Some(established.stream().clone()),
            _ => None,
        };
        drop(inner);
        if let Some(info) = stream.and_then(|stream| stream.info()) {
            info.describe(attrs);
        }
    }

    /// Sets a note and queues the work item. Any context.
    fn note(self: &Arc<Self>, f: impl FnOnce(&mut Notes)) {
        f(&mut self.notes.lock());
        self.look();
    }

    /// Queues the work item for socket and notes. Any context.
    fn look(self: &Arc<Self>) {
        let _ = work::process().enqueue::<_, { Self::LOOK }>(self.clone());
    }

    /// Aborts the connection. Any context; does not wait.
    pub(crate) fn abort(self: &Arc<Self>) {
        self.note(|notes| notes.quit = true);
    }
}

/// The outcome of a step: [`Next`] without the phase.
enum Flow {
    /// The next step can be made now.
    Go,
    /// The next step follows a note, or the end of the time limit.
    Wait,
    /// The same step is tried again after [`RETRY_MS`].
    Retry,
}

impl Phase {
    /// The name, for `rdma resource show`.
    fn name(&self) -> &'static CStr {
        match self {
            Self::New => c"new",
            Self::Initiator(initiator) => initiator.name(),
            Self::HalfOpen(_) => c"awaits_request",
            Self::Offered(_) => c"awaits_accept",
            Self::Replying(_) => c"sends_reply",
            Self::Established(_) => c"established",
            Self::Driven(_) => c"rendezvous",
            Self::Lingering(_) => c"closing",
            Self::Over => c"closed",
        }
    }

    /// Makes one step in place.
    #[inline(never)]
    fn advance(&mut self, ctx: &mut StepContext<'_>) -> Flow {
        match mem::replace(self, Self::Over).step(ctx) {
            Next::Go(phase) => {
                *self = phase;
                Flow::Go
            }
            Next::Wait(phase) => {
                *self = phase;
                Flow::Wait
            }
            Next::Retry(phase) => {
                *self = phase;
                Flow::Retry
            }
        }
    }

    /// Makes one step.
    ///
    /// Each phase has its own function: a common function would have one large stack frame, and
    /// TCP needs the stack below it.
    #[inline(never)]
    fn step(self, ctx: &mut StepContext<'_>) -> Next {
        match self {
            Self::New => Next::Wait(Self::New),
            Self::Initiator(initiator) => initiator.step(ctx),
            Self::HalfOpen(half_open) => half_open.step(ctx),
            Self::Offered(offered) => offered.step(ctx),
            Self::Replying(accepting) => accepting.step(ctx),
            Self::Established(connected) => connected.step(ctx),
            Self::Driven(driven) => match driven.step(ctx) {
                DrivenStep::Go => Next::Go(Self::Driven(driven)),
                DrivenStep::Wait => Next::Wait(Self::Driven(driven)),
                DrivenStep::Over => Next::Wait(Self::Over),
            },
            Self::Lingering(streams) => linger(streams, ctx),
            Self::Over => Next::Wait(Self::Over),
        }
    }
}

/// Calls `f` in a stack frame of its own.
#[inline(never)]
fn apply(
    f: impl FnOnce(Phase, &mut StepContext<'_>) -> Result<Phase, (Error, Phase)>,
    phase: Phase,
    ctx: &mut StepContext<'_>,
) -> Result<Phase, (Error, Phase)> {
    f(phase, ctx)
}

/// Waits until the streams have released their sockets, which must not outlive the device.
#[inline(never)]
fn linger(streams: Streams, ctx: &mut StepContext<'_>) -> Next {
    if ctx.notes.refs == 0 {
        return Next::Wait(Phase::Over);
    }
    ctx.timer.clear();
    if ctx.notes.quit {
        streams.abort();
    }
    Next::Wait(Phase::Lingering(streams))
}
