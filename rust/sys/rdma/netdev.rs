// SPDX-License-Identifier: GPL-2.0

//! Network interfaces of verbs devices, and notifiers of their events.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    container_of,
    error::to_result,
    impl_has_work,
    new_work,
    prelude::*,
    sync::Arc,
    types::Opaque,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use crate::sys::{
    bindings,
    net::NetNs,
    rdma::driver::Driver,
    sync::work, //
};

/// The hardware type of an interface (`ARPHRD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetdevKind {
    /// Ethernet, also veth, bridge, dummy and similar.
    Ethernet,
    /// IEEE 802.
    Ieee802,
    /// An interface without link layer address, as tun.
    Bare,
    /// The loopback interface.
    Loopback,
    /// Any other type.
    Other,
}

/// The held RTNL: no interface is removed, or moves to another network namespace, meanwhile.
///
/// The value is dropped in the task that has taken the lock.
pub(crate) struct Still(PhantomData<*mut ()>);

impl Drop for Still {
    fn drop(&mut self) {
        // SAFETY: The lock was taken when the value was made, in the same task.
        unsafe { bindings::rsiw_netdev_let_move() };
    }
}

/// An interface that is borrowed for `'a`.
pub(crate) struct Netdev<'a> {
    netdev: NonNull<bindings::net_device>,
    /// A copy of the attributes of the interface.
    info: bindings::rsiw_netdev_info,
    _kept: PhantomData<&'a ()>,
}

impl Netdev<'_> {
    /// Borrows an interface and copies its attributes; `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// `netdev` is null, or an interface that stays allocated as long as the value exists.
    pub(super) unsafe fn new(netdev: *mut bindings::net_device) -> Option<Self> {
        let netdev = NonNull::new(netdev)?;
        let mut info: bindings::rsiw_netdev_info = pin_init::zeroed();
        // SAFETY: By this function's contract `netdev` stays allocated as long as the value exists.
        unsafe { bindings::rsiw_netdev_info(netdev.as_ptr().cast(), &mut info) };
        Some(Self {
            netdev,
            info,
            _kept: PhantomData,
        })
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::net_device {
        self.netdev.as_ptr()
    }

    /// The current network namespace of the interface; `None` if that namespace is being removed.
    ///
    /// The interface may move concurrently, and its old namespace may be removed: both wait for
    /// RCU.
    pub(crate) fn netns(&self) -> Option<NetNs> {
        // SAFETY: The interface stays allocated, by the contract of `new`.
        let net = unsafe { bindings::rsiw_netdev_get_net(self.netdev.as_ptr().cast()) };
        // SAFETY: The call above has taken the reference, which the value takes over.
        NonNull::new(net).map(|net| unsafe { NetNs::from_owned(net.cast()) })
    }

    /// The identity of the interface, unique while the interface exists.
    pub(crate) fn id(&self) -> usize {
        self.netdev.as_ptr() as usize
    }

    /// The identity of the network namespace that `new` saw, unique while the namespace exists.
    pub(crate) fn net_id(&self) -> usize {
        self.info.net as usize
    }

    /// The index of the interface in its network namespace.
    pub(crate) fn ifindex(&self) -> u32 {
        self.info.ifindex
    }

    /// The index of the L3 master device (VRF) of the interface; 0: none.
    pub(crate) fn l3mdev(&self) -> u32 {
        // SAFETY: The interface stays allocated, by the contract of `new`.
        unsafe { bindings::rsiw_netdev_l3mdev(self.netdev.as_ptr().cast()) }
    }

    /// The link speed in megabits per second; 0: not known. Process context without the RTNL;
    /// sleeps.
    pub(crate) fn speed(&self) -> u32 {
        // SAFETY: The interface stays allocated, by the contract of `new`.
        unsafe { bindings::rsiw_netdev_speed(self.netdev.as_ptr().cast()) }
    }

    /// The name of the interface.
    pub(crate) fn name(&self) -> &[u8] {
        let name = &self.info.name;
        let len = name.iter().position(|c| *c == 0).unwrap_or(name.len());
        name.get(..len).unwrap_or(&[])
    }

    /// The hardware type.
    pub(crate) fn kind(&self) -> NetdevKind {
        match u32::from(self.info.kind) {
            bindings::ARPHRD_ETHER => NetdevKind::Ethernet,
            bindings::ARPHRD_IEEE802 => NetdevKind::Ieee802,
            bindings::ARPHRD_NONE => NetdevKind::Bare,
            bindings::ARPHRD_LOOPBACK => NetdevKind::Loopback,
            _ => NetdevKind::Other,
        }
    }

    /// The link layer address of 48 bits; `None` if the interface has none or only zeros.
    pub(crate) fn address(&self) -> Option<[u8; 6]> {
        let address = self.info.address;
        (self.info.addr_len == 6 && address != [0; 6]).then_some(address)
    }

    /// Writes the IP addresses of the interface as GIDs, up to the length of `room`; returns their
    /// number. Process context.
    pub(crate) fn gids(&self, room: &mut [[u8; 16]]) -> usize {
        // SAFETY: The interface stays allocated; the length is that of the slice.
        unsafe {
            bindings::rsiw_netdev_gids(self.netdev.as_ptr().cast(), room.as_mut_ptr(), room.len())
        }
    }

    /// Takes the RTNL; `None` if the interface is unregistered, or has left the network namespace
    /// that `new` saw. Process context; sleeps.
    pub(crate) fn hold_still(&self) -> Option<Still> {
        // SAFETY: The interface stays allocated; the pointer to the namespace is only compared.
        let held = unsafe {
            bindings::rsiw_netdev_hold_still(self.netdev.as_ptr().cast(), self.info.net.cast())
        };
        // Not then_some(): its argument is made in any case, and dropping it would unlock.
        held.then(|| Still(PhantomData))
    }

    /// Whether the interface has an RDMA device with driver id `RDMA_DRIVER_SIW`, of any driver.
    pub(crate) fn has_device(&self) -> bool {
        // SAFETY: The interface stays allocated; the reference to a found device is put.
        unsafe {
            let device = bindings::ib_device_get_by_netdev(
                self.netdev.as_ptr().cast(),
                bindings::rdma_driver_id_RDMA_DRIVER_SIW,
            );
            if device.is_null() {
                return false;
            }
            bindings::ib_device_put(device);
            true
        }
    }
}

/// An event of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetdevEvent {
    /// The interface is being removed, or moves to another network namespace.
    Gone,
    /// The link layer address has changed.
    Address,
}

/// The work item that reports changed IP addresses or links to the driver, in process context.
#[pin_data]
struct InterfaceNews<D: Driver> {
    #[pin]
    work: Work<InterfaceNews<D>>,
    _driver: PhantomData<fn() -> D>,
}

impl_has_work! {
    impl{D: Driver} HasWork<Self> for InterfaceNews<D> { self.work }
}

impl<D: Driver> WorkItem for InterfaceNews<D> {
    type Pointer = Arc<Self>;

    fn run(_: Arc<Self>) {
        D::interfaces_changed();
    }
}

/// Registered notifiers of interfaces, their addresses, and network namespaces.
///
/// # Invariants
///
/// The notifiers are registered from the end of initialisation until the value is dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct Notifiers<D: Driver> {
    /// The notifier of interfaces.
    #[pin]
    netdev: Opaque<bindings::notifier_block>,
    /// The notifier of IPv4 addresses.
    #[pin]
    inet: Opaque<bindings::notifier_block>,
    /// The notifier of IPv6 addresses.
    #[pin]
    inet6: Opaque<bindings::notifier_block>,
    /// The work item that the notifiers queue.
    news: Arc<InterfaceNews<D>>,
    /// The operations of network namespaces.
    #[pin]
    pernet: Opaque<bindings::pernet_operations>,
    _driver: PhantomData<D>,
}

// SAFETY: Only the notifier chains access the blocks, under their own locks.
unsafe impl<D: Driver> Send for Notifiers<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for Notifiers<D> {}

impl<D: Driver> Notifiers<D> {
    /// Registers the notifiers. Callbacks may run before initialisation ends. Process context;
    /// sleeps.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            netdev: Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::netdev_event),
                ..pin_init::zeroed()
            }),
            inet: Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::inet_event),
                ..pin_init::zeroed()
            }),
            inet6: Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::inet6_event),
                ..pin_init::zeroed()
            }),
            news: Arc::pin_init(
                pin_init!(InterfaceNews {
                    work <- new_work!("rsiw_interface_news"),
                    _driver: PhantomData,
                }),
                GFP_KERNEL,
            )?,
            pernet: Opaque::new(bindings::pernet_operations {
                pre_exit: Some(Self::netns_exit),
                ..pin_init::zeroed()
            }),
            _driver: PhantomData,
            // The blocks are pinned, so their addresses are final here.
            _: {
                // SAFETY: The blocks are pinned, and `drop` unregisters them.
                unsafe {
                    to_result(bindings::register_pernet_subsys(pernet.get()))?;
                    let ret = bindings::register_netdevice_notifier(netdev.get());
                    if ret != 0 {
                        bindings::unregister_pernet_subsys(pernet.get());
                        return Err(Error::from_errno(ret));
                    }
                    // Neither registration can fail.
                    bindings::register_inetaddr_notifier(inet.get());
                    bindings::rsiw_register_inet6addr_notifier(inet6.get());
                }
            },
        })
    }

    /// Handles an event of an interface.
    ///
    /// # Safety
    ///
    /// Called by the chain of interfaces with the block `netdev`, under the RTNL.
    unsafe extern "C" fn netdev_event(
        block: *mut bindings::notifier_block,
        event: kernel::ffi::c_ulong,
        data: *mut c_void,
    ) -> c_int {
        let event = match event as bindings::netdev_cmd {
            bindings::netdev_cmd_NETDEV_UNREGISTER => NetdevEvent::Gone,
            bindings::netdev_cmd_NETDEV_CHANGEADDR => NetdevEvent::Address,
            // The work item reads the speed: that may take a lock which the caller holds here.
            bindings::netdev_cmd_NETDEV_UP | bindings::netdev_cmd_NETDEV_CHANGE => {
                // SAFETY: The block is a field of a value that exists as long as the block is
                // registered.
                let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, netdev) };
                return this.queue_news();
            }
            _ => return bindings::NOTIFY_DONE as c_int,
        };
        // SAFETY: The data of this chain names an interface, which exists during the call.
        if let Some(netdev) = unsafe { Netdev::new(bindings::rsiw_notifier_netdev(data).cast()) } {
            D::netdev_event(event, &netdev);
        }
        bindings::NOTIFY_DONE as c_int
    }

    /// Handles an event of an IPv4 address.
    ///
    /// # Safety
    ///
    /// Called by the chain of IPv4 addresses with the block `inet`.
    unsafe extern "C" fn inet_event(
        block: *mut bindings::notifier_block,
        _event: kernel::ffi::c_ulong,
        _data: *mut c_void,
    ) -> c_int {
        // SAFETY: The block is a field of a value that exists as long as the block is registered.
        let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, inet) };
        this.queue_news()
    }

    /// Handles an event of an IPv6 address, in process or softirq context.
    ///
    /// # Safety
    ///
    /// Called by the chain of IPv6 addresses with the block `inet6`.
    unsafe extern "C" fn inet6_event(
        block: *mut bindings::notifier_block,
        _event: kernel::ffi::c_ulong,
        _data: *mut c_void,
    ) -> c_int {
        // SAFETY: The block is a field of a value that exists as long as the block is registered.
        let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, inet6) };
        this.queue_news()
    }

    /// Queues the report of changed addresses or links to the driver. Any context.
    fn queue_news(&self) -> c_int {
        let _ = work::process().enqueue(self.news.clone());
        bindings::NOTIFY_DONE as c_int
    }

    /// Handles the removal of a network namespace, before its interfaces and sockets are removed.
    ///
    /// # Safety
    ///
    /// Called by the network core in process context without the RTNL.
    unsafe extern "C" fn netns_exit(net: *mut bindings::net) {
        D::netns_exit(net as usize);
    }
}

#[pinned_drop]
impl<D: Driver> PinnedDrop for Notifiers<D> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the invariant of the type. No callback runs after these have returned.
        unsafe {
            bindings::rsiw_unregister_inet6addr_notifier(self.inet6.get());
            bindings::unregister_inetaddr_notifier(self.inet.get());
            bindings::unregister_netdevice_notifier(self.netdev.get());
            bindings::unregister_pernet_subsys(self.pernet.get());
        }
    }
}
