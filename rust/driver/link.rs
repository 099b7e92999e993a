// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`, the removal of devices, and the state that all devices share.
//!
//! The module keeps a list of its own devices. `ib_core` can unregister all devices of a driver id,
//! but the in-tree soft-iWARP driver has the same id.

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

/// The state that all devices of the module share.
#[pin_data]
pub(super) struct Globals {
    /// Queue pairs by number.
    qps: Arc<QpTable>,
    /// Devices that are registered, or are being registered or unregistered.
    #[pin]
    devices: Mutex<KVec<Arc<RsiwDevice>>>,
    /// Rendezvous listeners.
    rendezvous: Arc<RendezvousListeners>,
    /// Serializes the creation of devices. An interface without a device, and an unused GUID, must
    /// not change between check and registration.
    #[pin]
    adding: Mutex<()>,
}

impl Globals {
    /// Makes the state without devices. Process context; sleeps.
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

    /// The highest standing of `gid` with the devices of network namespace `net`. Process context;
    /// sleeps.
    ///
    /// The order is address, name, foreign. Devices that are being removed do not count.
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

    /// The GUID of a new device: the identifier `id` of its interface, or a random one if another
    /// device has that GUID.
    ///
    /// VLANs and bridges have the hardware address of a lower interface. NVMe and iSER treat
    /// devices with the same GUID as one device.
    fn guid_for(&self, id: [u8; 8]) -> [u8; 8] {
        let devices = self.devices.lock();
        let mut guid = id;
        while devices.iter().any(|device| device.verbs().has_guid(guid)) {
            guid = gid::eui64(random_address());
        }
        guid
    }

    /// Calls `f` with every device, under the lock of the list. `f` does not sleep for long.
    fn for_each(&self, f: impl Fn(&Arc<RsiwDevice>)) {
        self.devices.lock().iter().for_each(f);
    }

    /// The first device for which `pick` returns `true`. `pick` does not sleep.
    fn find(&self, pick: impl Fn(&Device) -> bool) -> Option<Arc<RsiwDevice>> {
        let devices = self.devices.lock();
        devices.iter().find(|device| pick(device.verbs())).cloned()
    }

    /// Unregisters the devices for which `pick` returns `true`, and waits until they are
    /// unregistered. Process context; sleeps.
    fn unregister(&self, pick: impl Fn(&Device) -> bool) {
        while let Some(device) = self.find(&pick) {
            device.set_going();
            self.end(&device);
        }
    }

    /// Unregisters a device and removes it from the list. Process context; sleeps.
    ///
    /// The call waits for a concurrent unregistration, including the driver's callback `removed`.
    pub(super) fn end(&self, device: &Arc<RsiwDevice>) {
        device.verbs().core().unregister();
        self.devices
            .lock()
            .retain(|other| !core::ptr::eq(Arc::as_ptr(other), Arc::as_ptr(device)));
    }
}

global_lock! {
    /// The state that all devices share, from loading to unloading of the module.
    // SAFETY: `Presence::new` initialises the lock before any registration whose callback uses it.
    unsafe(uninit) static GLOBALS: Mutex<Option<Arc<Globals>>> = None;
}

/// The state that all devices share; `ENODEV` if the module is being unloaded. Process context.
fn globals() -> Result<Arc<Globals>> {
    GLOBALS.lock().as_ref().cloned().ok_or(ENODEV)
}

/// Makes and registers device `name` on an interface. Process context; sleeps.
///
/// # Errors
///
/// `EOPNOTSUPP`: the hardware type of the interface is not supported. `EEXIST`: the interface has a
/// device with driver id `RDMA_DRIVER_SIW`, or the name is in use. `ENODEV`: the interface or the
/// module is being removed. `ENOMEM`.
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
    // Under the RTNL, so that every later event of the interface finds the device in the list.
    let still = netdev.hold_still().ok_or(ENODEV)?;
    globals.devices.lock().push(device.clone(), GFP_KERNEL)?;
    drop(still);
    // On failure `ib_core` has called `removed`, which queues the removal from the list.
    allocated.register(name, device.clone(), netdev, u64::from_ne_bytes(guid))?;
    if device.verbs().going() {
        // The interface is being removed, or moves to another network namespace. The notifier may
        // have run before the registration, when it could not unregister the device.
        device.verbs().core().unregister();
        return Err(ENODEV);
    }
    // Addresses may have changed before `ib_core` associated the interface with the device. The
    // device was not notified of such a change.
    if let Some(still) = netdev.hold_still() {
        device.verbs().look_again();
        drop(still);
    }
    device.verbs().refresh_speed();
    pr_debug!("rsiw: {name} on interface {}\n", netdev.ifindex());
    Ok(())
}

/// A random hardware address, unicast and locally administered, for an interface without one.
fn random_address() -> [u8; 6] {
    let [a, b, c, d] = random::u32().to_ne_bytes();
    let [e, f, ..] = random::u32().to_ne_bytes();
    [(a & 0xfe) | 2, b, c, d, e, f]
}

/// Handles an event of an interface. Process context, under the RTNL.
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

/// Handles changed IP addresses or a changed link of any interface. Process context; sleeps.
pub(super) fn interfaces_changed() {
    let Ok(globals) = globals() else {
        return;
    };
    globals.for_each(|device| {
        device.verbs().refresh_addresses();
        device.verbs().set_speed_due();
    });
    // The lock of the list is not held: the RTNL, which the call takes, precedes it in the lock
    // order. The loop allocates no memory, so that no change is lost.
    while let Some(device) = globals.find(Device::take_speed_due) {
        device.verbs().refresh_speed();
    }
}

/// Handles the removal of a network namespace: unregisters its devices before its interfaces are
/// removed. Process context; sleeps.
pub(super) fn netns_exit(net: usize) {
    if let Ok(globals) = globals() {
        globals.unregister(|device| device.is_in(net));
    }
}

/// The lifetime of the shared state. Dropping the value unregisters all devices, and waits until
/// they are unregistered.
struct Presence;

impl Presence {
    /// Makes the shared state, without which no device can be added.
    fn new() -> Result<Self> {
        // SAFETY: Module initialisation calls this function once, before any use of the lock.
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

/// The module's registrations: link types, devices and notifiers.
///
/// Fields are dropped in the order of declaration. The link types precede the devices, so that no
/// device is added any more. The notifiers follow the devices.
#[pin_data]
pub(crate) struct Registration {
    /// Link type `siw`, registered while the in-tree module is not loaded.
    #[pin]
    siw: SharedLinkType<Rsiw>,
    /// Link type `rsiw`.
    #[pin]
    rsiw: LinkType<Rsiw>,
    /// The devices.
    presence: Presence,
    /// Events of interfaces and network namespaces.
    #[pin]
    notifiers: Notifiers<Rsiw>,
}

impl Registration {
    /// Registers notifiers and link types. Process context; sleeps. Dropping the value unregisters
    /// all devices, and waits until they are unregistered.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            presence: Presence::new()?,
            notifiers <- Notifiers::new(),
            rsiw <- LinkType::new(c"rsiw"),
            siw <- SharedLinkType::new(c"siw"),
        }? Error)
    }
}
