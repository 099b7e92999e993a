// SPDX-License-Identifier: GPL-2.0

//! A device: one interface, one port, and all that belongs to it.

use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use crate::{
    cm,
    rendezvous::RendezvousListeners,
    sys::{
        context::Caller,
        ib::{
            core_ref::CoreHold,
            device::DeviceRef,
            event::CoreQp,
            netdev::Netdev,
            wr::QpPtr, //
        },
        iwcm::ConnParam,
        lock::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        net::NetNs,
        work, //
    },
    verbs::{
        counters::Counters,
        gid::{
            self,
            GidTable, //
        },
        limits,
        link::Globals,
        region::RegionTable,
        Qp, //
    },
};

/// Addresses of an interface that are looked at.
const ADDRESSES: usize = 2 * limits::GID_TABLE as usize;

/// Objects of which a device has a limited number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// Protection domains.
    Pd,
    /// Completion queues.
    Cq,
    /// Queue pairs.
    Qp,
    /// Shared receive queues.
    Srq,
    /// Memory regions.
    Mr,
}

impl ObjectKind {
    /// How many kinds there are.
    const KINDS: usize = 5;

    /// How many of them a device has at most.
    const fn limit(self) -> u32 {
        match self {
            Self::Pd => limits::MAX_PD,
            Self::Cq => limits::MAX_CQ,
            Self::Qp => limits::MAX_QP,
            Self::Srq => limits::MAX_SRQ,
            Self::Mr => limits::MAX_MR,
        }
    }
}

/// The share of an object in its device's limits: counted, and it keeps the device.
pub(super) struct ObjectSlot {
    /// The device.
    device: Arc<Device>,
    /// What the object is.
    object: ObjectKind,
}

impl ObjectSlot {
    /// Counts an object; `ENOMEM` when there are too many.
    pub(super) fn take(device: &Arc<Device>, object: ObjectKind) -> Result<Self> {
        let count = device.count(object);
        if count.fetch_add(1, Relaxed) >= object.limit() {
            count.fetch_sub(1, Relaxed);
            return Err(ENOMEM);
        }
        Ok(Self {
            device: device.clone(),
            object,
        })
    }

    /// The device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for ObjectSlot {
    fn drop(&mut self) {
        self.device.count(self.object).fetch_sub(1, Relaxed);
    }
}

/// A device.
#[pin_data]
pub(crate) struct Device {
    /// What all devices of the module have in common.
    globals: Arc<Globals>,
    /// The device as `ib_core` knows it.
    core: DeviceRef,
    /// Its GUID.
    guid: [u8; 8],
    /// The core has let go of it.
    removed: Atomic<bool>,
    /// A number of its interface, for comparison.
    netdev: usize,
    /// The index of its interface.
    ifindex: u32,
    /// A number of the network namespace of its interface, for comparison.
    net: usize,
    /// Its GIDs.
    #[pin]
    gids: SpinLockBh<GidTable>,
    /// Registered memory.
    #[pin]
    regions: RegionTable,
    /// Counters.
    counters: Counters,
    /// The next number of a domain or completion queue.
    numbers: Atomic<u64>,
    /// Objects of each kind.
    objects: [Atomic<u32>; ObjectKind::KINDS],
    /// Its users are being sent away.
    going: Atomic<bool>,
    /// What the connection manager keeps for it.
    #[pin]
    cm: cm::DeviceState,
    /// Takes it out of the list.
    #[pin]
    forget: Work<Self, 0>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Device { self.forget }
}

impl WorkItem<0> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.globals.end(&this);
    }
}

impl Device {
    /// A device for an interface, to be registered. Process context; sleeps.
    pub(super) fn new(
        globals: Arc<Globals>,
        core: DeviceRef,
        netdev: &Netdev<'_>,
        id: [u8; 8],
        guid: [u8; 8],
    ) -> Result<Arc<Self>> {
        let mut gids = GidTable::new(id);
        let _ = gids.update(Self::addresses(netdev, &mut Self::room()?));
        let (ifindex, net, netdev) = (netdev.ifindex(), netdev.net_id(), netdev.id());
        Arc::try_pin_init(
            try_pin_init!(Self {
                globals,
                core,
                guid,
                removed: Atomic::new(false),
                netdev,
                ifindex,
                net,
                gids <- new_spinlock_bh!(gids, "rsiw_gids"),
                regions <- RegionTable::new(),
                counters: Counters::new(),
                numbers: Atomic::new(1),
                objects: [const { Atomic::new(0) }; ObjectKind::KINDS],
                going: Atomic::new(false),
                cm <- cm::DeviceState::new(),
                forget <- new_work!("rsiw_device_forget"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The rendezvous listeners.
    pub(crate) fn rendezvous(&self) -> &RendezvousListeners {
        self.globals.rendezvous()
    }

    /// What all devices of the module have in common.
    pub(super) fn globals(&self) -> &Arc<Globals> {
        &self.globals
    }

    /// The device as `ib_core` knows it.
    pub(crate) fn core(&self) -> &DeviceRef {
        &self.core
    }

    /// Whether the GUID is taken, by this device.
    pub(super) fn has_guid(&self, guid: [u8; 8]) -> bool {
        self.guid == guid && !self.removed.load(Acquire)
    }

    /// Whether its interface is the one of that number.
    pub(super) fn is_on(&self, netdev: usize) -> bool {
        self.netdev == netdev
    }

    /// The index of its interface in [`netns`](Self::netns).
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The index of the L3 master device (VRF) that its interface is in now; 0: none. Process context.
    pub(crate) fn l3mdev(&self) -> u32 {
        self.core.with_netdev(|netdev| netdev.l3mdev()).unwrap_or(0)
    }

    /// The network namespace of its interface, in which its sockets live; `None` when either is
    /// on its way out. For one use: holding it keeps the namespace. Process context.
    pub(crate) fn netns(&self) -> Option<NetNs> {
        // An interface that moves is in the other one before the device is gone.
        self.core.netns().filter(|netns| netns.id() == self.net)
    }

    /// A number of the network namespace of its interface, for comparison.
    pub(crate) fn net_id(&self) -> usize {
        self.net
    }

    /// Whether its interface is in the network namespace of that number.
    pub(super) fn is_in(&self, net: usize) -> bool {
        self.net == net
    }

    /// Registered memory.
    #[inline]
    pub(crate) fn regions(&self) -> &RegionTable {
        &self.regions
    }

    /// Counters.
    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the connection manager keeps for it.
    pub(crate) fn cm_state(&self) -> &cm::DeviceState {
        &self.cm
    }

    /// Whether its users are being sent away, so that nothing new is to be begun.
    pub(crate) fn going(&self) -> bool {
        self.going.load(Acquire)
    }

    /// Its users are being sent away from now on, and its connections come to their end. Process
    /// context; does not wait.
    pub(super) fn set_going(&self) {
        self.going.store(true, Release);
        self.cm.abort_all();
    }

    /// The core lets go of it: it is to be taken out of the list of devices when the core is through
    /// with that. As long as it is there the module waits for it. Process context.
    pub(super) fn is_removed(self: &Arc<Self>) {
        self.removed.store(true, Release);
        let _ = work::devices().enqueue::<Arc<Self>, 0>(self.clone());
    }

    /// The queue pair of that number. Any context.
    pub(crate) fn qp(&self, number: u32) -> Option<Arc<Qp>> {
        let qp = self.globals.qps().get_arc(number)?;
        core::ptr::eq(Arc::as_ptr(qp.device()), self).then_some(qp)
    }

    /// The queue pair that `iw_cm` is asked to connect. Process context.
    ///
    /// None for one of the kernel, unless its owner or a trusted process asks.
    pub(crate) fn qp_of(&self, param: &ConnParam<'_>) -> Option<Arc<Qp>> {
        self.qp(param.qpn)
            .filter(|qp| qp.is_user() || param.is_of_owner(qp.core()) || Caller::is_trusted())
    }

    /// The queue pair of that number for `iw_cm`, as [`Qp::cm_get`]. Process context.
    pub(crate) fn qp_for_cm(&self, number: u32) -> Option<CoreHold<CoreQp>> {
        let guard = rcu::read_lock();
        let qp = self.globals.qps().get(number, &guard)?;
        let ours = core::ptr::eq(Arc::as_ptr(qp.device()), self);
        ours.then(|| qp.cm_get()).flatten()
    }

    /// The queue pair of that number as `ib_core` knows it. Any context.
    pub(super) fn qp_ptr(&self, number: u32) -> Option<QpPtr> {
        let guard = rcu::read_lock();
        let qp = self.globals.qps().get(number, &guard)?;
        core::ptr::eq(Arc::as_ptr(qp.device()), self).then(|| qp.core())
    }

    /// The GID at `index`; all zero for an empty entry. Process or softirq context.
    pub(super) fn gid(&self, index: u32) -> gid::Gid {
        self.gids.lock().get(index)
    }

    /// Room for the addresses of an interface; not on the stack, as it is a kilobyte. Process context.
    fn room() -> Result<KVec<gid::Gid>> {
        Ok(KVec::from_elem(gid::NONE, ADDRESSES, GFP_KERNEL)?)
    }

    /// The IP addresses of an interface, in `room`.
    fn addresses<'a>(netdev: &Netdev<'_>, room: &'a mut [gid::Gid]) -> &'a [gid::Gid] {
        let n = netdev.gids(room);
        room.get(..n).unwrap_or(&[])
    }

    /// What `gid` is to the device. Process or softirq context.
    pub(super) fn gid_standing(&self, gid: &gid::Gid) -> gid::Standing {
        self.gids.lock().standing(gid)
    }

    /// The hardware address of its interface, maybe another one.
    pub(super) fn set_address(&self, address: [u8; 6]) {
        let changed = self.gids.lock().set_id(gid::eui64(address));
        self.refresh_addresses();
        if changed {
            self.core.gids_changed();
        }
    }

    /// Maybe its interface has got another hardware address, or other IP addresses. Under the RTNL.
    pub(super) fn look_again(&self) {
        match self.core.with_netdev(|netdev| netdev.address()).flatten() {
            Some(address) => self.set_address(address),
            None => self.refresh_addresses(),
        }
    }

    /// Maybe its interface has got other IP addresses. Process context.
    pub(super) fn refresh_addresses(&self) {
        // Allocations of this size do not fail.
        let Ok(mut room) = Self::room() else {
            return;
        };
        let changed = self.core.with_netdev(|netdev| {
            let addresses = Self::addresses(netdev, &mut room);
            self.gids.lock().update(addresses)
        });
        if changed == Some(true) {
            self.core.gids_changed();
        }
    }

    /// The next number of a domain or completion queue. None is ever given out again: domains are
    /// told from each other by it.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// How many objects of that kind there are.
    fn count(&self, object: ObjectKind) -> &Atomic<u32> {
        // All kinds are below the length of the array.
        let [pd, cq, qp, srq, mr] = &self.objects;
        match object {
            ObjectKind::Pd => pd,
            ObjectKind::Cq => cq,
            ObjectKind::Qp => qp,
            ObjectKind::Srq => srq,
            ObjectKind::Mr => mr,
        }
    }
}
