// SPDX-License-Identifier: GPL-2.0

//! Rendezvous listeners: one in each network namespace and L3 master device (VRF), on the port that
//! all hosts agree on.
//!
//! A listener exists as long as a responder has a share of it. A connection is in the pending set
//! ([`half_open`](crate::cm::half_open)) until it is dispatched to the queue pair that it names,
//! for a limited time. It holds no reference to the network namespace until then: any host may
//! connect at any time. A peer whose connection is reset without an answer retries.
//!
//! Lock order: the lock of an endpoint, the list of listeners, `dispatching`, the pending set, the
//! lock of a pending connection.

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
    pending::PendingConn,
    request::ConnRequest, //
};
use crate::{
    cm::{
        budget::{
            PeerBudgets,
            Rate, //
        },
        half_open::{
            run_accept,
            AcceptLoop,
            HalfOpenBacklog,
            MAX_BACKLOG,
            RETRY_MS, //
        },
        CmDevice, //
    },
    params,
    qp::{
        table::QpTable,
        Qp, //
    },
    sys::{
        errno::EAFNOSUPPORT,
        net::{
            socket::{
                Incoming,
                ListenSocket, //
            }, //
            Family,
            Ipv4Addr,
            Ipv6Addr,
            NetNs,
            SocketAddr,
            SocketAddrV4,
            SocketAddrV6,
        },
        sync::work, //
    }, //
};

/// Milliseconds before which a pending connection is not evicted.
const MIN_AGE_MS: i64 = 100;

/// The rate of wrong packet sequence numbers for each peer; 2^24 numbers exist.
const GUESSES: Rate = Rate::new::<32, 1>();

/// A listener with the number of responders that share it.
struct ListenerUse {
    /// The number of responders.
    users: u32,
    listener: Arc<RendezvousListener>,
}

/// The listeners of all network namespaces.
#[pin_data]
pub(crate) struct RendezvousListeners {
    /// The listeners that are open.
    #[pin]
    open: Mutex<KVec<ListenerUse>>,
    /// Queue pairs by number.
    qps: Arc<QpTable>,
}

impl RendezvousListeners {
    /// Makes an empty list. Process context; sleeps.
    pub(crate) fn new(qps: Arc<QpTable>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                open <- new_mutex!(KVec::new(), "rsiw_rendezvous_listeners"),
                qps,
            }),
            GFP_KERNEL,
        )
    }

    /// Queue pairs by number.
    pub(super) fn qps(&self) -> &QpTable {
        &self.qps
    }

    /// Adds a responder's share of the listener of its device's network namespace and L3 master
    /// device, of index `l3mdev` (0: none). The first share opens the listener. Process context;
    /// sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`: the port is in use. `ENODEV`: the device is being removed.
    pub(super) fn share(self: &Arc<Self>, device: &CmDevice, l3mdev: u32) -> Result<ListenerShare> {
        let net = device.net_id();
        let mut open = self.open.lock();
        if device.going() {
            return Err(ENODEV);
        }
        let share = |listener: &Arc<RendezvousListener>| ListenerShare {
            listeners: self.clone(),
            listener: listener.clone(),
        };
        if let Some(shared) = open
            .iter_mut()
            .find(|shared| shared.listener.is_at(net, l3mdev))
        {
            shared.users = shared.users.checked_add(1).ok_or(ENOMEM)?;
            return Ok(share(&shared.listener));
        }
        open.reserve(1, GFP_KERNEL)?;
        let listener = RendezvousListener::open(
            net,
            l3mdev,
            &device.netns().ok_or(ENODEV)?,
            self.qps.clone(),
        )?;
        let result = share(&listener);
        // The capacity is reserved.
        open.push(ListenerUse { users: 1, listener }, GFP_KERNEL)?;
        Ok(result)
    }

    /// Ends a share; the last one closes the listener. Process context; sleeps.
    fn leave(&self, listener: &Arc<RendezvousListener>) {
        let mut open = self.open.lock();
        let is_it = |shared: &ListenerUse| {
            core::ptr::eq(Arc::as_ptr(&shared.listener), Arc::as_ptr(listener))
        };
        let Some(at) = open.iter().position(is_it) else {
            return;
        };
        let Some(shared) = open.get_mut(at) else {
            return;
        };
        shared.users = shared.users.saturating_sub(1);
        if shared.users == 0 {
            if let Ok(shared) = open.remove(at) {
                // Closed under the lock, so that the port is free for the next listener.
                shared.listener.close();
            }
        }
    }
}

/// A responder's share of a listener. Dropped in process context, not under a listener's locks.
pub(super) struct ListenerShare {
    /// All listeners.
    listeners: Arc<RendezvousListeners>,
    listener: Arc<RendezvousListener>,
}

impl ListenerShare {
    pub(super) fn listener(&self) -> &Arc<RendezvousListener> {
        &self.listener
    }
}

impl Drop for ListenerShare {
    fn drop(&mut self) {
        self.listeners.leave(&self.listener);
    }
}

/// The pending set of an open listener.
struct PendingSet {
    socket: ListenSocket,
    /// Pending connections, oldest first.
    conns: HalfOpenBacklog<Arc<PendingConn>>,
}

/// The listener of a network namespace.
#[pin_data]
pub(crate) struct RendezvousListener {
    /// The identity of the network namespace, only for comparison.
    net: usize,
    /// The index of the L3 master device; 0: none.
    l3mdev: u32,
    /// Queue pairs by number.
    qps: Arc<QpTable>,
    /// Wrong guesses, by peer.
    #[pin]
    guesses: Mutex<PeerBudgets>,
    /// The pending set; `None` once the listener is closed.
    #[pin]
    pending: Mutex<Option<PendingSet>>,
    /// Held by the work items while they run; [`close`](Self::close) waits for it. A connection
    /// that a work item has taken out of the set holds no reference to the namespace.
    #[pin]
    dispatching: Mutex<()>,
    /// Accepts connections.
    #[pin]
    accept_work: DelayedWork<Self, { Self::ACCEPT }>,
    /// Resets connections that have been pending for too long.
    #[pin]
    sweep: DelayedWork<Self, { Self::SWEEP }>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, { Self::ACCEPT }> for RendezvousListener { self.accept_work }
    impl HasDelayedWork<Self, { Self::SWEEP }> for RendezvousListener { self.sweep }
}

impl WorkItem<{ RendezvousListener::ACCEPT }> for RendezvousListener {
    type Pointer = work::Delayed<Self>;

    fn run(this: work::Delayed<Self>) {
        let this = this.into_arc();
        let listener = this.clone();
        let _dispatching = listener.dispatching.lock();
        run_accept(this);
    }
}

impl WorkItem<{ RendezvousListener::SWEEP }> for RendezvousListener {
    type Pointer = work::Delayed<Self>;

    fn run(this: work::Delayed<Self>) {
        let this = this.into_arc();
        let _dispatching = this.dispatching.lock();
        while let Some(conn) = this.take_overdue() {
            conn.reset();
        }
        this.sweep_later();
    }
}

impl Incoming for RendezvousListener {
    fn incoming(this: ArcBorrow<'_, Self>) {
        Arc::from(this).queue_accept();
    }
}

impl AcceptLoop for RendezvousListener {
    fn queue_accept(self: Arc<Self>) {
        work::process().mod_delayed::<_, { Self::ACCEPT }>(self, 0);
    }

    fn queue_accept_later(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(RETRY_MS);
        // A close cancels the work item after it has released this lock.
        let pending = self.pending.lock();
        if pending.is_some() {
            work::process().enqueue_delayed::<_, { Self::ACCEPT }>(self.clone(), delay);
        }
    }

    fn accept_one(self: &Arc<Self>) -> Result<bool> {
        // Only this work item inserts, so the entry remains free.
        let evicted = match &mut *self.pending.lock() {
            Some(pending) => pending.conns.evict_oldest()?,
            None => return Ok(false),
        };
        if let Some(evicted) = evicted {
            evicted.reset();
        }
        let conn = {
            let mut guard = self.pending.lock();
            let Some(pending) = &mut *guard else {
                return Ok(false);
            };
            let Some(socket) = pending.socket.accept_unheld()? else {
                return Ok(false);
            };
            let conn = PendingConn::new(self, socket)?;
            if pending.conns.insert(conn.clone()).is_err() {
                conn.reset();
                return Err(ENOMEM);
            }
            conn
        };
        self.sweep_later();
        conn.look();
        Ok(true)
    }
}

impl RendezvousListener {
    /// The work item that accepts connections.
    const ACCEPT: u64 = 0;
    /// The work item that sweeps the pending set.
    const SWEEP: u64 = 1;

    /// Opens the listener of a network namespace.
    fn open(net: usize, l3mdev: u32, netns: &NetNs, qps: Arc<QpTable>) -> Result<Arc<Self>> {
        let socket = Self::socket(netns, l3mdev)?;
        let guesses = PeerBudgets::new(GUESSES)?;
        let listener = Arc::pin_init(
            pin_init!(Self {
                net,
                l3mdev,
                qps,
                guesses <- new_mutex!(guesses, "rsiw_rendezvous_guesses"),
                pending <- new_mutex!(None, "rsiw_rendezvous_listener"),
                dispatching <- new_mutex!((), "rsiw_rendezvous_dispatching"),
                accept_work <- new_delayed_work!("rsiw_rendezvous_accept"),
                sweep <- new_delayed_work!("rsiw_rendezvous_sweep"),
            }),
            GFP_KERNEL,
        )?;
        let mut pending = listener.pending.lock();
        socket.listen(MAX_BACKLOG, listener.clone())?;
        *pending = Some(PendingSet {
            socket,
            conns: HalfOpenBacklog::new(MIN_AGE_MS),
        });
        drop(pending);
        Ok(listener)
    }

    /// Makes a socket for both families, or for IPv4 on a host without IPv6.
    fn socket(netns: &NetNs, l3mdev: u32) -> Result<ListenSocket> {
        let port = params::rendezvous_port();
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

    /// Closes the listener, and resets pending connections. Process context; sleeps.
    fn close(self: &Arc<Self>) {
        let pending = self.pending.lock().take();
        if let Some(PendingSet { socket, conns }) = pending {
            drop(socket);
            for conn in conns.iter() {
                conn.reset();
            }
        }
        work::cancel_delayed::<_, { Self::ACCEPT }>(self);
        work::cancel_delayed::<_, { Self::SWEEP }>(self);
        // A running work item ends; a later one finds no connection.
        drop(self.dispatching.lock());
    }

    /// The queue pair of that number in the network namespace. Process context.
    pub(super) fn qp(&self, number: u32) -> Option<Arc<Qp>> {
        self.qps.in_net(self.net, number)
    }

    /// Whether the listener belongs to this network namespace and L3 master device.
    fn is_at(&self, net: usize, l3mdev: u32) -> bool {
        (self.net, self.l3mdev) == (net, l3mdev)
    }

    /// Whether the rate limit allows another guess of `peer`.
    pub(super) fn may_guess(&self, peer: IpAddr) -> bool {
        self.guesses.lock().has_room(peer)
    }

    /// Counts a wrong packet sequence number as a guess of `peer`.
    pub(super) fn has_guessed(&self, peer: IpAddr) {
        self.guesses.lock().add(peer);
    }

    /// Queues the sweep, if there are pending connections.
    fn sweep_later(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(RETRY_MS);
        // As in `queue_accept_later`.
        let pending = self.pending.lock();
        if pending
            .as_ref()
            .is_some_and(|pending| !pending.conns.is_empty())
        {
            work::process().enqueue_delayed::<_, { Self::SWEEP }>(self.clone(), delay);
        }
    }

    /// Removes a connection from the set after its time limit.
    fn take_overdue(&self) -> Option<Arc<PendingConn>> {
        let mut guard = self.pending.lock();
        let limit = params::mpa_request_timeout_ms();
        (*guard).as_mut()?.conns.evict_older(limit.into())
    }

    /// Removes a connection from the set.
    pub(super) fn remove(&self, conn: &Arc<PendingConn>) {
        let found = {
            let mut guard = self.pending.lock();
            let Some(pending) = &mut *guard else {
                return;
            };
            pending.conns.remove(|one| is_same(one, conn).then_some(()))
        };
        drop(found);
    }

    /// Parks a connection request in its pending connection; returns the request if the connection
    /// was evicted.
    pub(super) fn park(
        &self,
        conn: &Arc<PendingConn>,
        request: ConnRequest,
    ) -> Result<(), ConnRequest> {
        let guard = self.pending.lock();
        let here = guard
            .as_ref()
            .is_some_and(|pending| pending.conns.iter().any(|one| is_same(one, conn)));
        match here {
            true => {
                conn.park(request);
                Ok(())
            }
            false => Err(request),
        }
    }

    /// Takes a parked connection request for queue pair `number`. Process context; sleeps.
    pub(super) fn take_parked(&self, number: u32) -> Option<ConnRequest> {
        let (conn, request) = {
            let mut guard = self.pending.lock();
            let conns = &mut (*guard).as_mut()?.conns;
            conns.remove(|one| one.unpark(number))?
        };
        drop(conn);
        Some(request)
    }
}

/// Whether both are the same connection.
fn is_same(one: &Arc<PendingConn>, other: &Arc<PendingConn>) -> bool {
    core::ptr::eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

const _: () = assert!(mem::align_of::<RendezvousListener>() >= 8);
