// SPDX-License-Identifier: GPL-2.0

//! A device: one interface, one port, and all that belongs to it.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::{
    sys::{
        net::NetNs, //
        rdma::{
            device::DeviceRef,
            netdev::Netdev, //
        },
        sync::lock::{
            new_spinlock_bh,
            SpinLockBh, //
        },
    },
    verbs::{
        counters::Counters,
        gid::{
            self,
            GidTable, //
        },
        limits,
        mr::RegionTable,
        settings::Settings, //
    }, //
};

/// Addresses of an interface that are looked at.
const ADDRESSES: usize = 2 * limits::GID_TABLE as usize;

/// Objects of which a device has a limited number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
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
pub(crate) struct ObjectSlot {
    /// The device.
    device: Arc<Device>,
    /// What the object is.
    object: ObjectKind,
}

impl ObjectSlot {
    /// Counts an object; `ENOMEM` when there are too many.
    pub(crate) fn take(device: &Arc<Device>, object: ObjectKind) -> Result<Self> {
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
    pub(crate) fn device(&self) -> &Arc<Device> {
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
    /// The device as `ib_core` knows it.
    core: DeviceRef,
    /// The GUID of the device.
    guid: [u8; 8],
    /// The core has let go of it.
    removed: Atomic<bool>,
    /// A number of its interface, for comparison.
    netdev: usize,
    /// The index of its interface.
    ifindex: u32,
    /// A number of the network namespace of its interface, for comparison.
    net: usize,
    /// The GIDs of the port.
    #[pin]
    gids: SpinLockBh<GidTable>,
    /// Room for the addresses of its interface. One context at a time looks at them.
    #[pin]
    addresses: Mutex<KVec<gid::Gid>>,
    /// Registered memory.
    #[pin]
    regions: RegionTable,
    /// Counters.
    counters: Counters,
    /// The next number of a domain or completion queue.
    numbers: Atomic<u64>,
    /// Objects of each kind.
    objects: [Atomic<u32>; ObjectKind::KINDS],
    /// The users of the device are being asked to leave.
    going: Atomic<bool>,
    /// Megabits per second of its interface; 0: not known.
    speed: Atomic<u32>,
    /// The speed may have changed.
    speed_due: Atomic<bool>,
    /// The settings of the device.
    settings: Settings,
}

impl Device {
    /// A device for an interface, to be registered. Process context; sleeps.
    pub(crate) fn new(
        core: DeviceRef,
        netdev: &Netdev<'_>,
        id: [u8; 8],
        guid: [u8; 8],
    ) -> Result<Arc<Self>> {
        let mut gids = GidTable::new(id);
        // Not on the stack, as it is a kilobyte.
        let mut room = KVec::from_elem(gid::NONE, ADDRESSES, GFP_KERNEL)?;
        let _ = gids.update(Self::addresses(netdev, &mut room));
        let (ifindex, net, netdev) = (netdev.ifindex(), netdev.net_id(), netdev.id());
        Arc::try_pin_init(
            try_pin_init!(Self {
                core,
                guid,
                removed: Atomic::new(false),
                netdev,
                ifindex,
                net,
                gids <- new_spinlock_bh!(gids, "rsiw_gids"),
                addresses <- new_mutex!(room, "rsiw_addresses"),
                regions <- RegionTable::new(),
                counters: Counters::new(),
                numbers: Atomic::new(1),
                objects: [const { Atomic::new(0) }; ObjectKind::KINDS],
                going: Atomic::new(false),
                speed: Atomic::new(0),
                speed_due: Atomic::new(false),
                settings: Settings::new(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The device as `ib_core` knows it.
    pub(crate) fn core(&self) -> &DeviceRef {
        &self.core
    }

    /// Whether the GUID is taken, by this device.
    pub(crate) fn has_guid(&self, guid: [u8; 8]) -> bool {
        self.guid == guid && !self.removed.load(Acquire)
    }

    /// Whether its interface is the one of that number.
    pub(crate) fn is_on(&self, netdev: usize) -> bool {
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
    pub(crate) fn is_in(&self, net: usize) -> bool {
        self.net == net
    }

    /// Whether the core gives the device to the network namespace of its interface.
    pub(crate) fn shares_netns(&self) -> bool {
        self.core.is_accessible_in(self.net)
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

    /// Whether its users are being sent away, so that nothing new is to be begun.
    pub(crate) fn going(&self) -> bool {
        self.going.load(Acquire)
    }

    /// From now on the users of the device are asked to leave. Any context.
    pub(crate) fn set_going(&self) {
        self.going.store(true, Release);
    }

    /// The core lets go of it.
    pub(crate) fn set_removed(&self) {
        self.removed.store(true, Release);
    }

    /// The GID at `index`; all zero for an empty entry. Process or softirq context.
    pub(crate) fn gid(&self, index: u32) -> gid::Gid {
        self.gids.lock().get(index)
    }

    /// The IP addresses of an interface, in `room`.
    fn addresses<'a>(netdev: &Netdev<'_>, room: &'a mut [gid::Gid]) -> &'a [gid::Gid] {
        let n = netdev.gids(room);
        room.get(..n).unwrap_or(&[])
    }

    /// What `gid` is to the device. Process or softirq context.
    pub(crate) fn gid_standing(&self, gid: &gid::Gid) -> gid::Standing {
        self.gids.lock().standing(gid)
    }

    /// The hardware address of its interface, maybe another one.
    pub(crate) fn set_address(&self, address: [u8; 6]) {
        let changed = self.gids.lock().set_id(gid::eui64(address));
        self.refresh_addresses();
        if changed {
            self.core.gids_changed();
        }
    }

    /// Maybe its interface has got another hardware address, or other IP addresses. Under the RTNL.
    pub(crate) fn look_again(&self) {
        match self.core.with_netdev(|netdev| netdev.address()).flatten() {
            Some(address) => self.set_address(address),
            None => self.refresh_addresses(),
        }
    }

    /// Maybe its interface has got other IP addresses. Process context; allocates nothing.
    pub(crate) fn refresh_addresses(&self) {
        let changed = {
            let mut room = self.addresses.lock();
            self.core.with_netdev(|netdev| {
                let addresses = Self::addresses(netdev, &mut room);
                self.gids.lock().update(addresses)
            })
        };
        if changed == Some(true) {
            self.core.gids_changed();
        }
    }

    /// The settings of the device.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Megabits per second of its interface; 0: not known. Any context.
    pub(crate) fn speed(&self) -> u32 {
        self.speed.load(Relaxed)
    }

    /// The speed is to be [refreshed](Self::refresh_speed). Any context.
    pub(crate) fn set_speed_due(&self) {
        self.speed_due.store(true, Relaxed);
    }

    /// Whether that was so; it is not any more. Any context.
    pub(crate) fn take_speed_due(&self) -> bool {
        self.speed_due.load(Relaxed) && self.speed_due.xchg(false, Relaxed)
    }

    /// Maybe the speed of its interface has changed. Process context without the RTNL; sleeps.
    pub(crate) fn refresh_speed(&self) {
        if let Some(speed) = self.core.with_netdev(|netdev| netdev.speed()) {
            self.speed.store(speed, Relaxed);
        }
    }

    /// The next number of a domain or completion queue. None is ever given out again: domains are
    /// told from each other by it.
    pub(crate) fn next_number(&self) -> u64 {
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
