// SPDX-License-Identifier: GPL-2.0

//! The listeners for queue pairs that connect themselves: one in each network namespace and L3 master
//! device (VRF), on the port that all hosts agree on. One is there as long as a responder is.
//!
//! A stranger has a place in the hall ([`places`](super::super::places)) until he is led to the
//! queue pair he names, and a limited time. Until then he does not keep the network namespace from
//! ending, as anybody may come at any time. A peer that is sent away without an answer comes again.
//!
//! Locks: that of the doors, that of a door's rounds, that of a door, that of a stranger; an endpoint's is taken before
//! that of a door, and never under one.

use core::{
    mem,
    net::IpAddr, //
};

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
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
    super::{
        budget::{
            PeerBudgets,
            Rate, //
        },
        places::{
            take_connections,
            Places,
            Reception,
            MAX_BACKLOG,
            RETRY_MS, //
        }, //
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

/// Wrong guesses of packet sequence numbers, of which there are 2^24, for each peer.
const GUESSES: Rate = Rate::new::<32, 1>();

/// A door, and how many responders share it.
struct Shared {
    /// Responders.
    users: u32,
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

    /// Has a responder take part in the door of its device's network namespace and L3 master device,
    /// of index `l3mdev` (0: none), which is opened by the first. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: somebody else has the port. `ENODEV` when the device goes.
    pub(super) fn enter(&self, device: &Arc<Device>, l3mdev: u32) -> Result<Entry> {
        let net = device.net_id();
        let mut open = self.open.lock();
        if device.going() {
            return Err(ENODEV);
        }
        let entry = |door: &Arc<Door>| Entry {
            device: device.clone(),
            door: door.clone(),
        };
        if let Some(shared) = open
            .iter_mut()
            .find(|shared| shared.door.is_at(net, l3mdev))
        {
            shared.users = shared.users.checked_add(1).ok_or(ENOMEM)?;
            return Ok(entry(&shared.door));
        }
        open.reserve(1, GFP_KERNEL)?;
        let door = Door::open(net, l3mdev, &device.netns().ok_or(ENODEV)?)?;
        let result = entry(&door);
        // There is room.
        open.push(Shared { users: 1, door }, GFP_KERNEL)?;
        Ok(result)
    }

    /// A responder has ended; the last one shuts the door. Process context; sleeps.
    fn leave(&self, door: &Arc<Door>) {
        let mut open = self.open.lock();
        let is_it = |shared: &Shared| core::ptr::eq(Arc::as_ptr(&shared.door), Arc::as_ptr(door));
        let Some(at) = open.iter().position(is_it) else {
            return;
        };
        let Some(shared) = open.get_mut(at) else {
            return;
        };
        shared.users = shared.users.saturating_sub(1);
        if shared.users == 0 {
            if let Ok(shared) = open.remove(at) {
                // Under the lock: the port is free when the next one wants it.
                shared.door.close();
            }
        }
    }
}

/// A responder's part in a door. Dropped in process context, not under a door's locks.
pub(super) struct Entry {
    /// Its device.
    device: Arc<Device>,
    /// The door.
    door: Arc<Door>,
}

impl Entry {
    /// The door.
    pub(super) fn door(&self) -> &Arc<Door> {
        &self.door
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.device.doors().leave(&self.door);
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
    /// The index of the L3 master device; 0: none.
    l3mdev: u32,
    /// What peers have guessed.
    #[pin]
    guesses: Mutex<PeerBudgets>,
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
    fn open(net: usize, l3mdev: u32, netns: &NetNs) -> Result<Arc<Self>> {
        let socket = Self::socket(netns, l3mdev)?;
        let guesses = PeerBudgets::new(GUESSES)?;
        let door = Arc::pin_init(
            pin_init!(Self {
                net,
                l3mdev,
                guesses <- new_mutex!(guesses, "rsiw_door_guesses"),
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
    fn socket(netns: &NetNs, l3mdev: u32) -> Result<ListenSocket> {
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
            if l3mdev != 0 {
                socket.bind_to_device(l3mdev)?;
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

    /// Whether it is the one of that network namespace and L3 master device.
    fn is_at(&self, net: usize, l3mdev: u32) -> bool {
        (self.net, self.l3mdev) == (net, l3mdev)
    }

    /// Whether `peer` may guess once more.
    pub(super) fn may_guess(&self, peer: IpAddr) -> bool {
        self.guesses.lock().has_room(peer)
    }

    /// `peer` has guessed a wrong packet sequence number.
    pub(super) fn has_guessed(&self, peer: IpAddr) {
        self.guesses.lock().add(peer);
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
