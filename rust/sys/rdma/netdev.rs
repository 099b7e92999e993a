// SPDX-License-Identifier: GPL-2.0

//! Network interfaces as the device of a link sees them, and what happens to them.
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

/// What an interface is (`ARPHRD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetdevKind {
    /// Ethernet, and all that looks so: veth, bridge, dummy, ...
    Ethernet,
    /// IEEE 802.
    Ieee802,
    /// No link layer address: tun.
    Bare,
    /// The loopback interface.
    Loopback,
    /// Anything else.
    Other,
}

/// All interfaces stay where they are as long as it lives: their notifiers wait (the RTNL).
///
/// Belongs to the task that made it.
pub(crate) struct Still(PhantomData<*mut ()>);

impl Drop for Still {
    fn drop(&mut self) {
        // SAFETY: The lock was taken when the value was made, in the same task.
        unsafe { bindings::rsiw_netdev_let_move() };
    }
}

/// An interface with a reference held meanwhile.
pub(crate) struct Netdev<'a> {
    /// The interface.
    netdev: NonNull<bindings::net_device>,
    /// A copy of what is of interest.
    info: bindings::rsiw_netdev_info,
    /// Borrowed.
    _kept: PhantomData<&'a ()>,
}

impl Netdev<'_> {
    /// Looks at an interface.
    ///
    /// # Safety
    ///
    /// `netdev` is null or an interface that stays as long as the value.
    pub(super) unsafe fn new(netdev: *mut bindings::net_device) -> Option<Self> {
        let netdev = NonNull::new(netdev)?;
        let mut info: bindings::rsiw_netdev_info = pin_init::zeroed();
        // SAFETY: The caller's promise.
        unsafe { bindings::rsiw_netdev_info(netdev.as_ptr().cast(), &mut info) };
        Some(Self {
            netdev,
            info,
            _kept: PhantomData,
        })
    }

    /// The interface.
    pub(super) fn as_ptr(&self) -> *mut bindings::net_device {
        self.netdev.as_ptr()
    }

    /// The network namespace it is in now; `None` if that has begun to end.
    ///
    /// The interface may move meanwhile, and the namespace it was in may end: both wait for RCU.
    pub(crate) fn netns(&self) -> Option<NetNs> {
        // SAFETY: The interface is kept.
        let net = unsafe { bindings::rsiw_netdev_get_net(self.netdev.as_ptr().cast()) };
        // SAFETY: The reference just taken is given on.
        NonNull::new(net).map(|net| unsafe { NetNs::from_owned(net.cast()) })
    }

    /// A number that no other interface has, as long as this one is there.
    pub(crate) fn id(&self) -> usize {
        self.netdev.as_ptr() as usize
    }

    /// A number that no other network namespace has, as long as this one is there.
    pub(crate) fn net_id(&self) -> usize {
        self.info.net as usize
    }

    /// The index of the interface in its network namespace.
    pub(crate) fn ifindex(&self) -> u32 {
        self.info.ifindex
    }

    /// The index of the L3 master device (VRF) that it is in; 0: none.
    pub(crate) fn l3mdev(&self) -> u32 {
        // SAFETY: The interface is kept.
        unsafe { bindings::rsiw_netdev_l3mdev(self.netdev.as_ptr().cast()) }
    }

    /// Megabits per second; 0: not known. Process context without the RTNL; sleeps.
    pub(crate) fn speed(&self) -> u32 {
        // SAFETY: The interface is kept.
        unsafe { bindings::rsiw_netdev_speed(self.netdev.as_ptr().cast()) }
    }

    /// The name of the interface.
    pub(crate) fn name(&self) -> &[u8] {
        let name = &self.info.name;
        let len = name.iter().position(|c| *c == 0).unwrap_or(name.len());
        name.get(..len).unwrap_or(&[])
    }

    /// What it is.
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

    /// Writes the IP addresses of the interface as GIDs, up to the size of `room`; returns how
    /// many. Process context.
    pub(crate) fn gids(&self, room: &mut [[u8; 16]]) -> usize {
        // SAFETY: The interface is kept; the length is that of the room.
        unsafe {
            bindings::rsiw_netdev_gids(self.netdev.as_ptr().cast(), room.as_mut_ptr(), room.len())
        }
    }

    /// Keeps it where it was seen; `None` if it is not there any more. Process context; sleeps.
    pub(crate) fn hold_still(&self) -> Option<Still> {
        // SAFETY: The interface is kept; the namespace it was seen in is only compared.
        let held = unsafe {
            bindings::rsiw_netdev_hold_still(self.netdev.as_ptr().cast(), self.info.net.cast())
        };
        // Not then_some(): what is made only to be dropped would unlock.
        held.then(|| Still(PhantomData))
    }

    /// Whether an RDMA device with our driver id sits on it already, ours or not.
    pub(crate) fn has_device(&self) -> bool {
        // SAFETY: The interface is kept; the device found is given back.
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

/// What happened to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetdevEvent {
    /// The interface goes, or moves to another network namespace.
    Gone,
    /// The link layer address has changed.
    Address,
}

/// Has the driver told, from process context, that IP addresses or links have changed.
#[pin_data]
struct InterfaceNews<D: Driver> {
    /// Tells it.
    #[pin]
    work: Work<InterfaceNews<D>>,
    /// The driver.
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
/// Registered from the end of initialisation until dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct Notifiers<D: Driver> {
    /// Of interfaces.
    #[pin]
    netdev: Opaque<bindings::notifier_block>,
    /// Of IPv4 addresses.
    #[pin]
    inet: Opaque<bindings::notifier_block>,
    /// Of IPv6 addresses.
    #[pin]
    inet6: Opaque<bindings::notifier_block>,
    /// What both of them queue.
    news: Arc<InterfaceNews<D>>,
    /// Of network namespaces.
    #[pin]
    pernet: Opaque<bindings::pernet_operations>,
    /// The driver.
    _driver: PhantomData<D>,
}

// SAFETY: The blocks belong to the chains.
unsafe impl<D: Driver> Send for Notifiers<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for Notifiers<D> {}

impl<D: Driver> Notifiers<D> {
    /// Registers them. The driver may be called before this returns.
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
            // The addresses are only final now.
            _: {
                // SAFETY: Pinned blocks that `drop` takes out again.
                unsafe {
                    to_result(bindings::register_pernet_subsys(pernet.get()))?;
                    let ret = bindings::register_netdevice_notifier(netdev.get());
                    if ret != 0 {
                        bindings::unregister_pernet_subsys(pernet.get());
                        return Err(Error::from_errno(ret));
                    }
                    // Both registrations can not fail.
                    bindings::register_inetaddr_notifier(inet.get());
                    bindings::rsiw_register_inet6addr_notifier(inet6.get());
                }
            },
        })
    }

    /// An event of an interface.
    ///
    /// # Safety
    ///
    /// Called by the chain of interfaces with our block, under the RTNL.
    unsafe extern "C" fn netdev_event(
        block: *mut bindings::notifier_block,
        event: kernel::ffi::c_ulong,
        data: *mut c_void,
    ) -> c_int {
        let event = match event as bindings::netdev_cmd {
            bindings::netdev_cmd_NETDEV_UNREGISTER => NetdevEvent::Gone,
            bindings::netdev_cmd_NETDEV_CHANGEADDR => NetdevEvent::Address,
            // The speed is asked for later: the lock that this takes may be held here.
            bindings::netdev_cmd_NETDEV_UP | bindings::netdev_cmd_NETDEV_CHANGE => {
                // SAFETY: The block is part of a value that stays as long as it is registered.
                let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, netdev) };
                return this.queue_news();
            }
            _ => return bindings::NOTIFY_DONE as c_int,
        };
        // SAFETY: The data of this chain names an interface, which stays during the call.
        if let Some(netdev) = unsafe { Netdev::new(bindings::rsiw_notifier_netdev(data).cast()) } {
            D::netdev_event(event, &netdev);
        }
        bindings::NOTIFY_DONE as c_int
    }

    /// An event of an IPv4 address.
    ///
    /// # Safety
    ///
    /// Called by the chain of IPv4 addresses with our block.
    unsafe extern "C" fn inet_event(
        block: *mut bindings::notifier_block,
        _event: kernel::ffi::c_ulong,
        _data: *mut c_void,
    ) -> c_int {
        // SAFETY: The block is part of a value that stays as long as it is registered.
        let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, inet) };
        this.queue_news()
    }

    /// An event of an IPv6 address, maybe in softirq.
    ///
    /// # Safety
    ///
    /// Called by the chain of IPv6 addresses with our block.
    unsafe extern "C" fn inet6_event(
        block: *mut bindings::notifier_block,
        _event: kernel::ffi::c_ulong,
        _data: *mut c_void,
    ) -> c_int {
        // SAFETY: The block is part of a value that stays as long as it is registered.
        let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, inet6) };
        this.queue_news()
    }

    /// Has the driver told that addresses or links have changed. Any context.
    fn queue_news(&self) -> c_int {
        let _ = work::process().enqueue(self.news.clone());
        bindings::NOTIFY_DONE as c_int
    }

    /// The end of a network namespace, before anything in it is gone.
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
