// SPDX-License-Identifier: GPL-2.0

//! The verbs device: one network interface, one port, the GID table, regions, counters and limits.

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

/// The largest number of addresses of an interface that the driver reads.
const ADDRESSES: usize = 2 * limits::GID_TABLE as usize;

/// The kind of an object whose number a device limits.
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
    /// The number of kinds.
    const KINDS: usize = 5;

    /// The largest number of objects of this kind in a device.
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

/// One object counted towards a limit of a device. Holds a reference to the device.
pub(crate) struct ObjectSlot {
    device: Arc<Device>,
    object: ObjectKind,
}

impl ObjectSlot {
    /// Counts an object; `ENOMEM` when the device has reached the limit. Any context.
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

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for ObjectSlot {
    fn drop(&mut self) {
        self.device.count(self.object).fetch_sub(1, Relaxed);
    }
}

/// A verbs device, whose port is on one network interface.
#[pin_data]
pub(crate) struct Device {
    /// The `ib_device`.
    core: DeviceRef,
    /// The node GUID.
    guid: [u8; 8],
    /// `ib_core` has deallocated the device.
    removed: Atomic<bool>,
    /// The identity of the interface, only for comparison.
    netdev: usize,
    /// The index of the interface.
    ifindex: u32,
    /// The identity of the network namespace of the interface, only for comparison.
    net: usize,
    /// The GIDs of the port.
    #[pin]
    gids: SpinLockBh<GidTable>,
    /// A buffer for the addresses of the interface. The mutex serializes the reads.
    #[pin]
    addresses: Mutex<KVec<gid::Gid>>,
    /// The memory regions.
    #[pin]
    regions: RegionTable,
    counters: Counters,
    /// The next number of a protection domain or completion queue.
    numbers: Atomic<u64>,
    /// The number of objects of each kind.
    objects: [Atomic<u32>; ObjectKind::KINDS],
    /// The device is being removed: no new connection may start.
    going: Atomic<bool>,
    /// Megabits per second of its interface; 0: not known.
    speed: Atomic<u32>,
    /// The link speed may have changed.
    speed_due: Atomic<bool>,
    settings: Settings,
}

impl Device {
    /// Makes a device for an interface, not yet registered. Process context; sleeps.
    ///
    /// `id` is the interface identifier of GID 0, `guid` the node GUID.
    pub(crate) fn new(
        core: DeviceRef,
        netdev: &Netdev<'_>,
        id: [u8; 8],
        guid: [u8; 8],
    ) -> Result<Arc<Self>> {
        let mut gids = GidTable::new(id);
        // The buffer has a kilobyte, too much for the stack.
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

    /// The `ib_device`.
    pub(crate) fn core(&self) -> &DeviceRef {
        &self.core
    }

    /// Whether the device has the node GUID `guid`, and `ib_core` has not deallocated it.
    pub(crate) fn has_guid(&self, guid: [u8; 8]) -> bool {
        self.guid == guid && !self.removed.load(Acquire)
    }

    /// Whether the interface has the identity `netdev`.
    pub(crate) fn is_on(&self, netdev: usize) -> bool {
        self.netdev == netdev
    }

    /// The index of the interface in [`netns`](Self::netns).
    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The index of the current L3 master device (VRF) of the interface; 0: none. Process context.
    pub(crate) fn l3mdev(&self) -> u32 {
        self.core.with_netdev(|netdev| netdev.l3mdev()).unwrap_or(0)
    }

    /// The network namespace of the interface and of the device's sockets. `None` if the interface
    /// or the namespace is being removed. The reference delays the removal of the namespace: the
    /// caller holds it for a short time only. Process context.
    pub(crate) fn netns(&self) -> Option<NetNs> {
        // An interface moves to another namespace before its device is removed.
        self.core.netns().filter(|netns| netns.id() == self.net)
    }

    /// The identity of the network namespace of the interface, only for comparison.
    pub(crate) fn net_id(&self) -> usize {
        self.net
    }

    /// Whether the network namespace of the interface has the identity `net`.
    pub(crate) fn is_in(&self, net: usize) -> bool {
        self.net == net
    }

    /// Whether `ib_core` makes the device accessible in the network namespace of the interface.
    pub(crate) fn shares_netns(&self) -> bool {
        self.core.is_accessible_in(self.net)
    }

    /// The memory regions.
    #[inline]
    pub(crate) fn regions(&self) -> &RegionTable {
        &self.regions
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the device is being removed; no new connection may start then. Any context.
    pub(crate) fn going(&self) -> bool {
        self.going.load(Acquire)
    }

    /// Marks the device as being removed. Any context.
    pub(crate) fn set_going(&self) {
        self.going.store(true, Release);
    }

    /// Marks the device as deallocated by `ib_core`. Any context.
    pub(crate) fn set_removed(&self) {
        self.removed.store(true, Release);
    }

    /// The GID at `index`; all zero for an empty entry. Process or softirq context.
    pub(crate) fn gid(&self, index: u32) -> gid::Gid {
        self.gids.lock().get(index)
    }

    /// Reads the IP addresses of an interface into `room`, as many as fit. Process context.
    fn addresses<'a>(netdev: &Netdev<'_>, room: &'a mut [gid::Gid]) -> &'a [gid::Gid] {
        let n = netdev.gids(room);
        room.get(..n).unwrap_or(&[])
    }

    /// The standing of `gid` with the device. Process or softirq context.
    pub(crate) fn gid_standing(&self, gid: &gid::Gid) -> gid::Standing {
        self.gids.lock().standing(gid)
    }

    /// Stores the hardware address of the interface, changed or not, and rereads the IP addresses.
    /// Process context; sleeps.
    pub(crate) fn set_address(&self, address: [u8; 6]) {
        let changed = self.gids.lock().set_id(gid::eui64(address));
        self.refresh_addresses();
        if changed {
            self.core.gids_changed();
        }
    }

    /// Rereads the hardware address and the IP addresses of the interface. Under the RTNL.
    pub(crate) fn look_again(&self) {
        match self.core.with_netdev(|netdev| netdev.address()).flatten() {
            Some(address) => self.set_address(address),
            None => self.refresh_addresses(),
        }
    }

    /// Rereads the IP addresses of the interface. Process context; sleeps, but allocates no memory.
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

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The link speed of the interface in megabits per second; 0: not known. Any context.
    pub(crate) fn speed(&self) -> u32 {
        self.speed.load(Relaxed)
    }

    /// Requests a [`refresh_speed`](Self::refresh_speed). Any context.
    pub(crate) fn set_speed_due(&self) {
        self.speed_due.store(true, Relaxed);
    }

    /// Takes the request of [`set_speed_due`](Self::set_speed_due); returns whether there was one.
    /// Any context.
    pub(crate) fn take_speed_due(&self) -> bool {
        self.speed_due.load(Relaxed) && self.speed_due.xchg(false, Relaxed)
    }

    /// Rereads the link speed of the interface. Process context without the RTNL; sleeps.
    pub(crate) fn refresh_speed(&self) {
        if let Some(speed) = self.core.with_netdev(|netdev| netdev.speed()) {
            self.speed.store(speed, Relaxed);
        }
    }

    /// The next number of a protection domain or completion queue. Numbers are unique for the
    /// lifetime of the device, since protection domains are compared by their number.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// The number of objects of a kind.
    fn count(&self, object: ObjectKind) -> &Atomic<u32> {
        // A pattern instead of an index: the compiler checks that each kind has a counter.
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
