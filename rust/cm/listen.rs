// SPDX-License-Identifier: GPL-2.0

//! Listeners of `iw_cm`.
//!
//! A connection is in the listener's half-open backlog ([`super::half_open`]) until its Request
//! has arrived.

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
    device::CmDevice,
    endpoint::{
        Endpoint,
        Phase, //
    },
    half_open::{
        run_accept,
        AcceptLoop,
        HalfOpenBacklog,
        MAX_BACKLOG,
        RETRY_MS, //
    },
    quirk_svcrdma_close::SvcrdmaClose,
    registry::Member, //
};
use crate::{
    qp::{
        DestroyNotify,
        Qp, //
    },
    sys::{
        errno::ECONNABORTED,
        net::{
            socket::{
                Incoming,
                ListenSocket, //
            }, //
            Family,
        },
        rdma::{
            iwcm::{
                Depths,
                Handle,
                ListenCall,
                Listening,
                Peers,
                PrivateData, //
            }, //
            res::ResAttrs,
        },
        sync::work, //
        trace,
    }, //
};

/// Milliseconds before which a half-open connection is not evicted.
const MIN_AGE_MS: i64 = 250;

/// The minimum backlog of the TCP socket, in connections. The backlog of the user counts
/// connections that await its decision, and may be smaller.
const MIN_BACKLOG: u32 = 64;

/// A listener that has not been stopped.
struct Open {
    socket: ListenSocket,
    /// Reports requests to `iw_cm`.
    cm: Listening,
    /// Connections whose Request has not arrived.
    half_open: HalfOpenBacklog<Arc<Endpoint>>,
    /// Delays requests when the user closes connections.
    svcrdma_close: SvcrdmaClose,
    device: Arc<CmDevice>,
}

/// The state of one `rdma_listen` call: the socket and its half-open backlog.
#[pin_data]
pub(crate) struct Listener {
    /// The listener's number in the device.
    handle: Handle,
    /// The open listener; `None` once it is stopped.
    #[pin]
    open: Mutex<Option<Open>>,
    /// Accepts connections.
    #[pin]
    accept_work: DelayedWork<Self, { Self::ACCEPT }>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, { Self::ACCEPT }> for Listener { self.accept_work }
}

impl WorkItem<{ Listener::ACCEPT }> for Listener {
    type Pointer = work::Delayed<Self>;

    fn run(this: work::Delayed<Self>) {
        let this = this.into_arc();
        run_accept(this);
    }
}

impl Incoming for Listener {
    fn incoming(this: ArcBorrow<'_, Self>) {
        Arc::from(this).queue_accept();
    }
}

impl AcceptLoop for Listener {
    fn queue_accept(self: Arc<Self>) {
        work::process().mod_delayed::<_, { Self::ACCEPT }>(self, 0);
    }

    fn queue_accept_later(self: &Arc<Self>) {
        let delay = msecs_to_jiffies(RETRY_MS);
        // A stop cancels the work item after it has released this lock.
        let open = self.open.lock();
        if open.is_some() {
            work::process().enqueue_delayed::<_, { Self::ACCEPT }>(self.clone(), delay);
        }
    }

    fn accept_one(self: &Arc<Self>) -> Result<bool> {
        let (socket, device) = {
            let mut open = self.open.lock();
            let Some(open) = (*open).as_mut() else {
                return Ok(false);
            };
            if let Some(evicted) = open.half_open.evict_oldest()? {
                evicted.abort();
            }
            match open.socket.accept() {
                Ok(Some(socket)) => (socket, open.device.clone()),
                Ok(None) => return Ok(false),
                // The network namespace of the connection and of the listener is being removed.
                // The next accept returns an error.
                Err(ENODEV) => return Ok(true),
                Err(error) => return Err(error),
            }
        };
        let endpoint = Endpoint::new(&device)?;
        endpoint.change(|_, ctx| {
            let begun = || {
                let slot = self.slot(ctx.endpoint)?;
                socket.install(ctx.endpoint.clone());
                HalfOpen::new(ctx, slot, socket)
            };
            begun()
                .map(Phase::HalfOpen)
                .map_err(|error| (error, Phase::Over))
        })?;
        Ok(true)
    }
}

impl Listener {
    /// Adds attributes of the listener for `rdma resource show`. Process context; sleeps.
    pub(crate) fn describe(&self, attrs: &mut ResAttrs<'_>) {
        let open = self.open.lock();
        let half_open = open
            .as_ref()
            .map_or(0, |open| open.half_open.iter().count());
        drop(open);
        attrs.text(c"stage", c"listens");
        attrs.number(c"half_open", half_open as u32);
    }

    /// The work item that accepts connections.
    const ACCEPT: u64 = 0;

    /// Begins to listen on behalf of `iw_cm`. Process context; sleeps.
    pub(crate) fn start(device: &Arc<CmDevice>, call: ListenCall, backlog: u32) -> Result<Handle> {
        let port = call.local().port();
        Self::open(device, call, backlog).inspect_err(|error| {
            trace::listen_failed(device.ifindex(), port.into(), error.to_errno())
        })
    }

    /// As [`start`](Self::start), without the trace event.
    fn open(device: &Arc<CmDevice>, call: ListenCall, backlog: u32) -> Result<Handle> {
        if device.going() {
            return Err(ENODEV);
        }
        let socket = Self::socket(device, &call)?;
        let listener = device.registry().admit(|handle| {
            let listener = Arc::pin_init(
                pin_init!(Self {
                    handle,
                    open <- new_mutex!(None, "rsiw_listener"),
                    accept_work <- new_delayed_work!("rsiw_listener_accept"),
                }),
                GFP_KERNEL,
            )?;
            Ok((Member::Listener(listener.clone()), listener))
        })?;
        let mut open = listener.open.lock();
        let backlog = backlog.clamp(MIN_BACKLOG, MAX_BACKLOG);
        if let Err(error) = socket.listen(backlog, listener.clone()) {
            drop(open);
            device.registry().leave(listener.handle);
            return Err(error);
        }
        *open = Some(Open {
            socket,
            cm: call.commit(),
            half_open: HalfOpenBacklog::new(MIN_AGE_MS),
            svcrdma_close: SvcrdmaClose::new(),
            device: device.clone(),
        });
        Ok(listener.handle)
    }

    /// Makes the socket.
    ///
    /// On an unspecified or loopback address each device listens for its own interface, so that
    /// several devices can use one port.
    fn socket(device: &Arc<CmDevice>, call: &ListenCall) -> Result<ListenSocket> {
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

    /// Ends listening, and aborts half-open connections. Process context, sleeps.
    pub(crate) fn stop(self: &Arc<Self>) {
        let Some(open) = self.open.lock().take() else {
            return;
        };
        work::cancel_delayed::<_, { Self::ACCEPT }>(self);
        let Open {
            socket,
            cm,
            half_open,
            device,
            ..
        } = open;
        drop(socket);
        drop(cm);
        for endpoint in half_open.iter() {
            endpoint.abort();
        }
        device.registry().leave(self.handle);
    }

    /// Adds an endpoint to the backlog, which has a free entry: only the work item adds.
    fn slot(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> Result<BacklogSlot> {
        let mut open = self.open.lock();
        let half_open = &mut (*open).as_mut().ok_or(ECONNABORTED)?.half_open;
        half_open.insert(endpoint.clone())?;
        Ok(BacklogSlot {
            listener: self.clone(),
            handle: endpoint.handle(),
        })
    }

    /// Removes an endpoint from the backlog.
    fn release_slot(self: &Arc<Self>, handle: Handle) {
        let mut open = self.open.lock();
        let Some(open) = (*open).as_mut() else {
            return;
        };
        let half_open = &mut open.half_open;
        let was_full = half_open.is_full();
        // The endpoint is in use by its caller, so this is not the last reference.
        drop(half_open.remove(|endpoint| (endpoint.handle() == handle).then_some(())));
        if was_full {
            self.clone().queue_accept();
        }
    }

    /// Handles the close of a connection of `qp` by the user that had accepted it here. Process
    /// context, sleeps.
    pub(crate) fn closed_by_owner(self: Arc<Self>, qp: &Qp) {
        if let Some(open) = (*self.open.lock()).as_mut() {
            open.svcrdma_close.closed();
        }
        qp.notify_on_destroy(self);
    }

    /// Offers the connection of a peer that connected at `came` to `iw_cm`. Process context,
    /// sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the backlog of `iw_cm` is full, or there is no memory. `EAGAIN`: the request is
    /// delayed. `ECONNABORTED`: the listener was stopped.
    pub(crate) fn offer(
        &self,
        came: Instant<Monotonic>,
        connection: Handle,
        peers: &Peers,
        depths: Depths,
        private_data: PrivateData<'_>,
    ) -> Result {
        let open = self.open.lock();
        let open = open.as_ref().ok_or(ECONNABORTED)?;
        if open.svcrdma_close.holds(came) {
            return Err(EAGAIN);
        }
        open.cm.request(connection, peers, depths, private_data)
    }
}

impl DestroyNotify for Listener {
    fn qp_destroyed(&self) {
        if let Some(open) = (*self.open.lock()).as_mut() {
            open.svcrdma_close.destroyed();
        }
    }
}

/// An entry in a listener's half-open backlog.
pub(crate) struct BacklogSlot {
    listener: Arc<Listener>,
    /// The endpoint's number.
    handle: Handle,
}

impl BacklogSlot {
    pub(crate) fn listener(&self) -> &Arc<Listener> {
        &self.listener
    }
}

impl Drop for BacklogSlot {
    fn drop(&mut self) {
        self.listener.release_slot(self.handle);
    }
}
