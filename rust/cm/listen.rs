// SPDX-License-Identifier: GPL-2.0

//! Listeners, and the strangers who connect to them.
//!
//! A stranger holds a place in the listener ([`super::places`]) until its Request is there.

use core::net::SocketAddr;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Instant,
        Monotonic, //
    },
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};

use super::{
    accept::HalfOpen,
    endpoint::{
        Endpoint,
        Phase, //
    },
    pause::Pause,
    places::{
        take_connections,
        Places,
        Reception,
        MAX_BACKLOG,
        RETRY_MS, //
    },
    registry::Member, //
};
use crate::{
    sys::{
        errno::ECONNABORTED,
        iwcm::{
            Depths,
            Handle,
            ListenCall,
            Listening,
            Peers,
            PrivateData, //
        },
        net::Family,
        socket::{
            Incoming,
            ListenSocket, //
        },
        trace,
        work, //
    },
    verbs::{
        Device,
        Qp,
        Survivor, //
    }, //
};

/// Milliseconds for which a stranger may keep its place however many others come.
const STAY_MS: i64 = 250;

/// Connections that may wait in TCP: no fewer, since the user means those it has to decide on.
const MIN_BACKLOG: u32 = 64;

/// A listener that has not been stopped.
struct Open {
    /// The socket.
    socket: ListenSocket,
    /// To tell `iw_cm` of requests.
    cm: Listening,
    /// Those whose Request has not come, in the order they came.
    strangers: Places<Arc<Endpoint>>,
    /// Holds requests back when the user closes connections.
    pause: Pause,
    /// The device.
    device: Arc<Device>,
}

/// A listener.
#[pin_data]
pub(super) struct Listener {
    /// Its number in the device.
    handle: Handle,
    /// Until it is stopped.
    #[pin]
    open: Mutex<Option<Open>>,
    /// Takes what has come in.
    #[pin]
    take: DelayedWork<Self, { Self::TAKE }>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, { Self::TAKE }> for Listener { self.take }
}

impl WorkItem<{ Listener::TAKE }> for Listener {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        take_connections(this);
    }
}

impl Incoming for Listener {
    fn incoming(this: ArcBorrow<'_, Self>) {
        Arc::from(this).take_now();
    }
}

impl Reception for Listener {
    fn take_now(self: Arc<Self>) {
        work::process().mod_delayed::<_, { Self::TAKE }>(self, 0);
    }

    fn take_later(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(RETRY_MS);
        // Whoever stops the listener cancels what waits, after the lock: it is held until then.
        let open = self.open.lock();
        if open.is_some() {
            work::process().enqueue_delayed::<_, { Self::TAKE }>(self.clone(), delay);
        }
    }

    fn take_one(self: &Arc<Self>) -> Result<bool> {
        let (socket, device) = {
            let mut open = self.open.lock();
            let Some(open) = (*open).as_mut() else {
                return Ok(false);
            };
            if let Some(ousted) = open.strangers.make_room()? {
                ousted.abort();
            }
            match open.socket.accept() {
                Ok(Some(socket)) => (socket, open.device.clone()),
                Ok(None) => return Ok(false),
                // Its namespace goes, and so will the listener; the next one tells.
                Err(ENODEV) => return Ok(true),
                Err(error) => return Err(error),
            }
        };
        let endpoint = Endpoint::new(&device)?;
        endpoint.change(|_, turn| {
            let seated = || {
                let seat = self.seat(turn.endpoint)?;
                socket.install(turn.endpoint.clone());
                HalfOpen::new(turn, seat, socket)
            };
            seated()
                .map(Phase::HalfOpen)
                .map_err(|error| (error, Phase::Over))
        })?;
        Ok(true)
    }
}

impl Listener {
    /// The work item that takes what has come in.
    const TAKE: u64 = 0;

    /// Begins to listen on behalf of `iw_cm`.
    pub(super) fn start(device: &Arc<Device>, call: ListenCall, backlog: u32) -> Result<Handle> {
        let port = call.local().port();
        Self::open(device, call, backlog)
            .inspect_err(|error| trace::listen_failed(device.ifindex(), port, error.to_errno()))
    }

    /// As [`start`](Self::start).
    fn open(device: &Arc<Device>, call: ListenCall, backlog: u32) -> Result<Handle> {
        if device.going() {
            return Err(ENODEV);
        }
        let socket = Self::socket(device, &call)?;
        let listener = device.cm_state().admit(|handle| {
            let listener = Arc::pin_init(
                pin_init!(Self {
                    handle,
                    open <- new_mutex!(None, "rsiw_listener"),
                    take <- new_delayed_work!("rsiw_listener_take"),
                }),
                GFP_KERNEL,
            )?;
            Ok((Member::Listener(listener.clone()), listener))
        })?;
        let mut open = listener.open.lock();
        let backlog = backlog.clamp(MIN_BACKLOG, MAX_BACKLOG);
        if let Err(error) = socket.listen(backlog, listener.clone()) {
            drop(open);
            device.cm_state().leave(listener.handle);
            return Err(error);
        }
        *open = Some(Open {
            socket,
            cm: call.commit(),
            strangers: Places::new(STAY_MS),
            pause: Pause::new(),
            device: device.clone(),
        });
        Ok(listener.handle)
    }

    /// Makes the socket.
    ///
    /// On any address, or on that of the host itself, devices listen side by side: each for its
    /// interface.
    fn socket(device: &Arc<Device>, call: &ListenCall) -> Result<ListenSocket> {
        let local = call.local();
        let socket = ListenSocket::create(&device.netns().ok_or(ENODEV)?, Family::of(local))?;
        socket.set_reuse();
        if matches!(local, SocketAddr::V6(_)) {
            socket.set_v6only(call.v6_only());
        }
        let l3mdev = device.l3mdev();
        if local.ip().is_unspecified() || local.ip().is_loopback() {
            socket.bind_to_device(device.ifindex())?;
        } else if l3mdev != 0 {
            // The address is that of a VRF.
            socket.bind_to_device(l3mdev)?;
        }
        if let Some(tos) = call.tos() {
            socket.set_tos(tos);
        }
        socket.bind(local)?;
        Ok(socket)
    }

    /// Ends listening; the strangers are sent away. Process context, sleeps.
    pub(super) fn stop(self: &Arc<Self>) {
        let Some(open) = self.open.lock().take() else {
            return;
        };
        work::cancel_delayed::<_, { Self::TAKE }>(self);
        let Open {
            socket,
            cm,
            strangers,
            device,
            ..
        } = open;
        drop(socket);
        drop(cm);
        for stranger in strangers.iter() {
            stranger.abort();
        }
        device.cm_state().leave(self.handle);
    }

    /// Gives a stranger a place, of which there is one: only the work item gives them out.
    fn seat(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> Result<Seat> {
        let mut open = self.open.lock();
        let strangers = &mut (*open).as_mut().ok_or(ECONNABORTED)?.strangers;
        strangers.give(endpoint.clone())?;
        Ok(Seat {
            listener: self.clone(),
            handle: endpoint.handle(),
        })
    }

    /// Takes the place of a stranger back.
    fn unseat(self: &Arc<Self>, handle: Handle) {
        let mut open = self.open.lock();
        let Some(open) = (*open).as_mut() else {
            return;
        };
        let strangers = &mut open.strangers;
        let was_full = strangers.are_taken();
        // The endpoint is in use by its caller, so this is not the last reference.
        drop(strangers.leave(|endpoint| (endpoint.handle() == handle).then_some(())));
        if was_full {
            self.clone().take_now();
        }
    }

    /// The user has closed a connection of `qp` that it had accepted here. Process context, sleeps.
    pub(super) fn closed_one(self: Arc<Self>, qp: &Qp) {
        if let Some(open) = (*self.open.lock()).as_mut() {
            open.pause.closed();
        }
        qp.tell_when_gone(self);
    }

    /// Offers the connection of a peer that connected at `came` to `iw_cm`. Process context, sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: `iw_cm` has no room for it now. `EAGAIN`: it is to be held back for a while.
    /// `ECONNABORTED`: the listener was stopped.
    pub(super) fn offer(
        &self,
        came: Instant<Monotonic>,
        connection: Handle,
        peers: &Peers,
        depths: Depths,
        private_data: PrivateData<'_>,
    ) -> Result {
        let open = self.open.lock();
        let open = open.as_ref().ok_or(ECONNABORTED)?;
        if open.pause.holds(came) {
            return Err(EAGAIN);
        }
        open.cm.request(connection, peers, depths, private_data)
    }
}

impl Survivor for Listener {
    fn qp_gone(&self) {
        if let Some(open) = (*self.open.lock()).as_mut() {
            open.pause.destroyed();
        }
    }
}

/// A stranger's place in a listener.
pub(super) struct Seat {
    /// The listener.
    listener: Arc<Listener>,
    /// The stranger's number.
    handle: Handle,
}

impl Seat {
    /// The listener.
    pub(super) fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.listener.unseat(self.handle);
    }
}
