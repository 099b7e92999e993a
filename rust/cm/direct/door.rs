// SPDX-License-Identifier: GPL-2.0

//! The listeners for queue pairs that connect themselves: one in each network namespace that has
//! devices, on the port that all hosts agree on.
//!
//! A stranger has a place in the hall ([`places`](super::super::places)) until he is led to the
//! queue pair he names, and a limited time. Until then he does not keep the network namespace from
//! ending, as anybody may come at any time. A peer that is sent away without an answer comes again.
//!
//! Locks: that of the doors, that of a door's rounds, that of a door, that of a stranger; an endpoint's is taken before
//! that of a door, and never under one.

use core::mem;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow,
        Mutex, //
    },
    time::msecs_to_jiffies,
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};

use super::{
    super::places::{
        take_connections,
        Places,
        Reception,
        MAX_BACKLOG,
        RETRY_MS, //
    },
    stranger::Stranger,
    visitor::Visitor, //
};
use crate::{
    params,
    sys::{
        errno::EAFNOSUPPORT,
        net::{
            Family,
            Ipv4Addr,
            Ipv6Addr,
            NetNs,
            SocketAddr,
            SocketAddrV4,
            SocketAddrV6, //
        },
        socket::{
            Incoming,
            ListenSocket, //
        },
        work, //
    },
    verbs::Device, //
};

/// Milliseconds for which a stranger may keep his place however many others come.
const STAY_MS: i64 = 100;

/// A door, and how many devices share it.
struct Shared {
    /// A number of the network namespace.
    net: usize,
    /// Devices.
    devices: u32,
    /// The door.
    door: Arc<Door>,
}

/// The doors of all network namespaces.
#[pin_data]
pub(crate) struct Doors {
    /// Them.
    #[pin]
    open: Mutex<KVec<Shared>>,
}

impl Doors {
    /// None.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            open <- new_mutex!(KVec::new(), "rsiw_doors"),
        })
    }

    /// Has a device take part in the door of its network namespace, which is opened by the first.
    /// Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: somebody else has the port. `ENODEV` when the device goes.
    pub(crate) fn enter(&self, device: &Arc<Device>) -> Result<Arc<Door>> {
        let net = device.net_id();
        let state = device.cm_state();
        let mut open = self.open.lock();
        if device.going() {
            return Err(ENODEV);
        }
        if let Some(shared) = open.iter_mut().find(|shared| shared.net == net) {
            if !state.in_door.load(Relaxed) {
                shared.devices = shared.devices.saturating_add(1);
                state.in_door.store(true, Relaxed);
            }
            return Ok(shared.door.clone());
        }
        open.reserve(1, GFP_KERNEL)?;
        let door = Door::open(net, &device.netns().ok_or(ENODEV)?)?;
        let shared = Shared {
            net,
            devices: 1,
            door: door.clone(),
        };
        if let Err(error) = open.push(shared, GFP_KERNEL) {
            door.close();
            return Err(error.into());
        }
        state.in_door.store(true, Relaxed);
        Ok(door)
    }

    /// A device goes; the last one shuts the door. Process context; sleeps.
    pub(crate) fn leave(&self, device: &Device) {
        let mut open = self.open.lock();
        if !device.cm_state().in_door.load(Relaxed) {
            return;
        }
        device.cm_state().in_door.store(false, Relaxed);
        let net = device.net_id();
        let Some(at) = open.iter().position(|shared| shared.net == net) else {
            return;
        };
        let Some(shared) = open.get_mut(at) else {
            return;
        };
        shared.devices = shared.devices.saturating_sub(1);
        if shared.devices == 0 {
            if let Ok(shared) = open.remove(at) {
                // Under the lock: the port is free when the next one wants it.
                shared.door.close();
            }
        }
    }
}

/// What there is while a door is open.
struct Hall {
    /// The socket.
    socket: ListenSocket,
    /// Those who have come in, in that order.
    strangers: Places<Arc<Stranger>>,
}

/// The listener of a network namespace.
#[pin_data]
pub(crate) struct Door {
    /// A number of the network namespace.
    net: usize,
    /// Until it is shut.
    #[pin]
    hall: Mutex<Option<Hall>>,
    /// Held by the work items as long as they run: what they have taken out of the hall does not
    /// keep the namespace from ending.
    #[pin]
    rounds: Mutex<()>,
    /// Takes what has come in.
    #[pin]
    take: DelayedWork<Self, { Self::TAKE }>,
    /// Sends those away who have been there for too long.
    #[pin]
    sweep: DelayedWork<Self, { Self::SWEEP }>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, { Self::TAKE }> for Door { self.take }
    impl HasDelayedWork<Self, { Self::SWEEP }> for Door { self.sweep }
}

impl WorkItem<{ Door::TAKE }> for Door {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let door = this.clone();
        let _round = door.rounds.lock();
        take_connections(this);
    }
}

impl WorkItem<{ Door::SWEEP }> for Door {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _round = this.rounds.lock();
        while let Some(stranger) = this.overdue() {
            stranger.dismiss();
        }
        this.sweep_later();
    }
}

impl Incoming for Door {
    fn incoming(this: ArcBorrow<'_, Self>) {
        Arc::from(this).take_now();
    }
}

impl Reception for Door {
    fn take_now(self: Arc<Self>) {
        work::process().mod_delayed::<_, { Self::TAKE }>(self, 0);
    }

    fn take_later(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(RETRY_MS);
        // Whoever shuts the door cancels what waits, after the lock: it is held until then.
        let hall = self.hall.lock();
        if hall.is_some() {
            work::process().enqueue_delayed::<_, { Self::TAKE }>(self.clone(), delay);
        }
    }

    fn take_one(self: &Arc<Self>) -> Result<bool> {
        // Only this work item gives places out, so the place stays free.
        let ousted = match &mut *self.hall.lock() {
            Some(hall) => hall.strangers.make_room()?,
            None => return Ok(false),
        };
        if let Some(ousted) = ousted {
            ousted.dismiss();
        }
        let stranger = {
            let mut guard = self.hall.lock();
            let Some(hall) = &mut *guard else {
                return Ok(false);
            };
            let Some(socket) = hall.socket.accept_guest()? else {
                return Ok(false);
            };
            let stranger = Stranger::new(self, socket)?;
            if hall.strangers.give(stranger.clone()).is_err() {
                stranger.dismiss();
                return Err(ENOMEM);
            }
            stranger
        };
        self.sweep_later();
        stranger.look();
        Ok(true)
    }
}

impl Door {
    /// The work item that takes connections.
    const TAKE: u64 = 0;
    /// The work item that looks through the hall.
    const SWEEP: u64 = 1;

    /// Opens the door of a network namespace.
    fn open(net: usize, netns: &NetNs) -> Result<Arc<Self>> {
        let socket = Self::socket(netns)?;
        let door = Arc::pin_init(
            pin_init!(Self {
                net,
                hall <- new_mutex!(None, "rsiw_door"),
                rounds <- new_mutex!((), "rsiw_door_rounds"),
                take <- new_delayed_work!("rsiw_door_take"),
                sweep <- new_delayed_work!("rsiw_door_sweep"),
            }),
            GFP_KERNEL,
        )?;
        let mut hall = door.hall.lock();
        socket.listen(MAX_BACKLOG, door.clone())?;
        *hall = Some(Hall {
            socket,
            strangers: Places::new(STAY_MS),
        });
        drop(hall);
        Ok(door)
    }

    /// Makes a socket for both families, or for IPv4 where that is all there is.
    fn socket(netns: &NetNs) -> Result<ListenSocket> {
        let port = params::direct_port();
        if port == 0 {
            return Err(ENODEV);
        }
        let v6 = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
        let v4 = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
        let bound = |addr: &SocketAddr| {
            let socket = ListenSocket::create_shared(netns, Family::of(addr))?;
            socket.set_reuse();
            if addr.is_ipv6() {
                socket.set_v6only(false);
            }
            socket.bind(addr).map(|()| socket)
        };
        match bound(&v6) {
            Err(error) if error == EAFNOSUPPORT => bound(&v4),
            other => other,
        }
    }

    /// Shuts the door, and sends the strangers away. Process context; sleeps.
    fn close(self: &Arc<Self>) {
        let hall = self.hall.lock().take();
        if let Some(Hall { socket, strangers }) = hall {
            drop(socket);
            for stranger in strangers.iter() {
                stranger.dismiss();
            }
        }
        work::cancel_delayed::<_, { Self::TAKE }>(self);
        work::cancel_delayed::<_, { Self::SWEEP }>(self);
        // What runs still ends; what begins finds nobody.
        drop(self.rounds.lock());
    }

    /// The number of the network namespace.
    pub(super) fn net(&self) -> usize {
        self.net
    }

    /// Has the hall looked through after a while, if somebody is there.
    fn sweep_later(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(RETRY_MS);
        // As in `take_later`.
        let hall = self.hall.lock();
        if hall.as_ref().is_some_and(|hall| !hall.strangers.is_empty()) {
            work::process().enqueue_delayed::<_, { Self::SWEEP }>(self.clone(), delay);
        }
    }

    /// Takes one who has had all the time there is out of the hall.
    fn overdue(&self) -> Option<Arc<Stranger>> {
        let mut guard = self.hall.lock();
        let limit = params::mpa_request_timeout_ms();
        (*guard).as_mut()?.strangers.leave_after(limit.into())
    }

    /// A stranger has left the hall.
    pub(super) fn forget(&self, stranger: &Arc<Stranger>) {
        let found = {
            let mut guard = self.hall.lock();
            let Some(hall) = &mut *guard else {
                return;
            };
            hall.strangers
                .leave(|one| is_same(one, stranger).then_some(()))
        };
        drop(found);
    }

    /// Has a visitor wait in the hall, where he still has his place; gives him back if not.
    pub(super) fn seat(&self, stranger: &Arc<Stranger>, visitor: Visitor) -> Result<(), Visitor> {
        let guard = self.hall.lock();
        let here = guard
            .as_ref()
            .is_some_and(|hall| hall.strangers.iter().any(|one| is_same(one, stranger)));
        match here {
            true => {
                stranger.sit(visitor);
                Ok(())
            }
            false => Err(visitor),
        }
    }

    /// Takes one who waits for queue pair `number` out of the hall. Process context; sleeps.
    pub(super) fn waiting_for(&self, number: u32) -> Option<Visitor> {
        let (stranger, visitor) = {
            let mut guard = self.hall.lock();
            let strangers = &mut (*guard).as_mut()?.strangers;
            strangers.leave(|one| one.stand_up(number))?
        };
        drop(stranger);
        Some(visitor)
    }
}

/// Whether both are one.
fn is_same(one: &Arc<Stranger>, other: &Arc<Stranger>) -> bool {
    core::ptr::eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

const _: () = assert!(mem::align_of::<Door>() >= 8);
