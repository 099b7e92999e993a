// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`, the end of devices, and what all devices have in common.
//!
//! The module keeps a list of its own devices. The core can unregister all devices of a driver id,
//! but the in-tree soft-iWARP has the same one.

use kernel::{
    global_lock,
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    Rsiw, //
    RsiwDevice,
};
use crate::{
    qp::table::QpTable,
    rendezvous::RendezvousListeners,
    sys::{
        errno::EOPNOTSUPP,
        random, //
        rdma::{
            device::Allocated,
            link::{
                LinkType,
                SharedLinkType, //
            },
            netdev::{
                Netdev,
                NetdevEvent,
                NetdevKind,
                Notifiers, //
            }, //
        },
    },
    verbs::{
        gid::{
            self,
            Gid,
            Standing, //
        },
        Device, //
    }, //
};

/// What all devices of the module have in common.
#[pin_data]
pub(super) struct Globals {
    /// Queue pairs by number.
    qps: Arc<QpTable>,
    /// Devices that are registered, or about to be.
    #[pin]
    devices: Mutex<KVec<Arc<RsiwDevice>>>,
    /// Rendezvous listeners.
    rendezvous: Arc<RendezvousListeners>,
    /// One device is made at a time: an interface and a GUID that were found free have to stay
    /// free.
    #[pin]
    adding: Mutex<()>,
}

impl Globals {
    /// No devices.
    fn new() -> Result<Arc<Self>> {
        let qps = QpTable::new()?;
        let rendezvous = RendezvousListeners::new(qps.clone())?;
        Arc::pin_init(
            pin_init!(Self {
                qps,
                devices <- new_mutex!(KVec::new(), "rsiw_devices"),
                rendezvous,
                adding <- new_mutex!((), "rsiw_adding"),
            }),
            GFP_KERNEL,
        )
    }

    /// Queue pairs by number.
    pub(super) fn qps(&self) -> &Arc<QpTable> {
        &self.qps
    }

    /// Rendezvous listeners.
    pub(super) fn rendezvous(&self) -> &Arc<RendezvousListeners> {
        &self.rendezvous
    }

    /// The standing of `gid` among the devices of a network namespace. Process context.
    pub(super) fn gid_standing(&self, net: usize, gid: &Gid) -> Standing {
        let devices = self.devices.lock();
        let of = |standing| {
            devices
                .iter()
                .filter(|device| device.verbs().is_in(net) && !device.verbs().going())
                .any(|device| device.verbs().gid_standing(gid) == standing)
        };
        if of(Standing::Address) {
            Standing::Address
        } else if of(Standing::NameOnly) {
            Standing::NameOnly
        } else {
            Standing::Foreign
        }
    }

    /// The GUID of a new device: the identifier of its interface, unless another device has it.
    /// VLANs and bridges have the address of an interface below. NVMe and iSER take devices of one
    /// GUID for one.
    fn guid_for(&self, id: [u8; 8]) -> [u8; 8] {
        let devices = self.devices.lock();
        let mut guid = id;
        while devices.iter().any(|device| device.verbs().has_guid(guid)) {
            guid = gid::eui64(random_address());
        }
        guid
    }

    /// Calls `f`, which does not sleep for long, with every device.
    fn for_each(&self, f: impl Fn(&Arc<RsiwDevice>)) {
        self.devices.lock().iter().for_each(f);
    }

    /// The first device for which `pick`, which does not sleep, says yes.
    fn find(&self, pick: impl Fn(&Device) -> bool) -> Option<Arc<RsiwDevice>> {
        let devices = self.devices.lock();
        devices.iter().find(|device| pick(device.verbs())).cloned()
    }

    /// Unregisters the devices for which `pick` returns `true`, and waits for their end. Process
    /// context; sleeps.
    fn unregister(&self, pick: impl Fn(&Device) -> bool) {
        while let Some(device) = self.find(&pick) {
            device.set_going();
            self.end(&device);
        }
    }

    /// Ends a device's registration, waits for a concurrent end, in the driver's code, too,
    /// and takes the device out of the list. Process context; sleeps.
    pub(super) fn end(&self, device: &Arc<RsiwDevice>) {
        device.verbs().core().unregister();
        self.devices
            .lock()
            .retain(|other| !core::ptr::eq(Arc::as_ptr(other), Arc::as_ptr(device)));
    }
}

global_lock! {
    /// What all devices have in common, from the start to the end of the module.
    // SAFETY: Initialised in `Registration::new`, before anything that uses it.
    unsafe(uninit) static GLOBALS: Mutex<Option<Arc<Globals>>> = None;
}

/// What all devices have in common; `ENODEV` when the module goes.
fn globals() -> Result<Arc<Globals>> {
    GLOBALS.lock().as_ref().cloned().ok_or(ENODEV)
}

/// Makes a device of that name on an interface. Process context; sleeps.
pub(super) fn add(name: &CStr, netdev: &Netdev<'_>) -> Result {
    if netdev.kind() == NetdevKind::Other {
        return Err(EOPNOTSUPP);
    }
    let globals = globals()?;
    let _adding = globals.adding.lock();
    if netdev.has_device() {
        return Err(EEXIST);
    }
    let id = gid::eui64(netdev.address().unwrap_or_else(random_address));
    let allocated = Allocated::<Rsiw>::new(netdev)?;
    let guid = globals.guid_for(id);
    let device = Device::new(allocated.reference()?, netdev, id, guid)?;
    let device = RsiwDevice::new(globals.clone(), device)?;
    // From here on events of the interface find the device in the list.
    let still = netdev.hold_still().ok_or(ENODEV)?;
    globals.devices.lock().push(device.clone(), GFP_KERNEL)?;
    drop(still);
    // On failure the core has called `removed`, which has the device taken out of the list.
    allocated.register(name, device.clone(), netdev, u64::from_ne_bytes(guid))?;
    if device.verbs().going() {
        // The interface of the device goes, or moves to another network namespace; the notifier may
        // have found that it could not be taken away yet.
        device.verbs().core().unregister();
        return Err(ENODEV);
    }
    // Addresses may have changed before the core knew the device's interface, without a
    // notification.
    if let Some(still) = netdev.hold_still() {
        device.verbs().look_again();
        drop(still);
    }
    device.verbs().refresh_speed();
    pr_debug!("rsiw: {name} on interface {}\n", netdev.ifindex());
    Ok(())
}

/// An address for an interface that has none: unicast, locally administered.
fn random_address() -> [u8; 6] {
    let [a, b, c, d] = random::u32().to_ne_bytes();
    let [e, f, ..] = random::u32().to_ne_bytes();
    [(a & 0xfe) | 2, b, c, d, e, f]
}

/// An event of an interface. Under the RTNL.
pub(super) fn netdev_event(event: NetdevEvent, netdev: &Netdev<'_>) {
    let Ok(globals) = globals() else {
        return;
    };
    let id = netdev.id();
    globals.for_each(|device| {
        if !device.verbs().is_on(id) {
            return;
        }
        match event {
            NetdevEvent::Gone => {
                device.set_going();
                device.verbs().core().unregister_queued();
            }
            NetdevEvent::Address => {
                if let Some(address) = netdev.address() {
                    device.verbs().set_address(address);
                }
            }
        }
    });
}

/// IP addresses, or the link, of some interface have changed. Process context.
pub(super) fn interfaces_changed() {
    let Ok(globals) = globals() else {
        return;
    };
    globals.for_each(|device| {
        device.verbs().refresh_addresses();
        device.verbs().set_speed_due();
    });
    // Not under the lock of the list: the RTNL is taken before it. Nothing is allocated, so that no
    // change is lost.
    while let Some(device) = globals.find(Device::take_speed_due) {
        device.verbs().refresh_speed();
    }
}

/// A network namespace is going: its devices go before its interfaces do.
pub(super) fn netns_exit(net: usize) {
    if let Ok(globals) = globals() {
        globals.unregister(|device| device.is_in(net));
    }
}

/// The right of devices to exist: dropping it ends them all, and waits for that.
struct Presence;

impl Presence {
    /// Lets devices be made.
    fn new() -> Result<Self> {
        // SAFETY: Called once, when the module starts.
        unsafe { GLOBALS.init() };
        *GLOBALS.lock() = Some(Globals::new()?);
        Ok(Self)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Ok(globals) = globals() {
            globals.unregister(|_| true);
        }
        let last = GLOBALS.lock().take();
        drop(last);
    }
}

/// The module's presence in the RDMA stack.
///
/// Fields are dropped in the order they are declared: no new devices, the end of existing ones,
/// then no events of interfaces.
#[pin_data]
pub(crate) struct Registration {
    /// Type `siw`, while the in-tree module is not there.
    #[pin]
    siw: SharedLinkType<Rsiw>,
    /// Type `rsiw`.
    #[pin]
    rsiw: LinkType<Rsiw>,
    /// The devices.
    presence: Presence,
    /// Events of interfaces and network namespaces.
    #[pin]
    notifiers: Notifiers<Rsiw>,
}

impl Registration {
    /// Lets devices be made. Process context; sleeps. Dropping ends all devices, and waits for it.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            presence: Presence::new()?,
            notifiers <- Notifiers::new(),
            rsiw <- LinkType::new(c"rsiw"),
            siw <- SharedLinkType::new(c"siw"),
        }? Error)
    }
}
