// SPDX-License-Identifier: GPL-2.0

//! Types of `rdma link add`.
//!
//! Two modules must not register the same type. The core warns, ignores the second one, and crashes
//! when that is taken out again. So the module has type `siw` only as long as the in-tree module of
//! that name is not loaded. The module unregisters the type before the in-tree module is loaded.
//!
//! C header: [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

use core::marker::PhantomData;

use kernel::{
    container_of,
    error::{
        from_result,
        to_result, //
    },
    new_mutex,
    prelude::*,
    str::CStr,
    sync::Mutex,
    types::Opaque, //
};

use crate::sys::{
    bindings,
    rdma::{
        driver::Driver,
        netdev::Netdev, //
    }, //
};

/// A registered type of link.
///
/// # Invariants
///
/// In the list of the core from the end of initialisation until dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct LinkType<D: Driver> {
    /// The entry.
    #[pin]
    ops: Opaque<bindings::rdma_link_ops>,
    /// The driver.
    _driver: PhantomData<D>,
}

// SAFETY: The entry belongs to the list.
unsafe impl<D: Driver> Send for LinkType<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for LinkType<D> {}

impl<D: Driver> LinkType<D> {
    /// Registers type `name`; `EEXIST` if it was taken after all.
    pub(crate) fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ops: Opaque::new(bindings::rdma_link_ops {
                type_: name.as_char_ptr(),
                newlink: Some(Self::newlink),
                ..pin_init::zeroed()
            }),
            _driver: PhantomData,
            // The address is only final now.
            _: {
                // SAFETY: A pinned entry that `drop` takes out again.
                if !unsafe { bindings::rsiw_link_register(ops.get()) } {
                    return Err(EEXIST);
                }
            },
        })
    }

    /// Makes a device.
    ///
    /// # Safety
    ///
    /// Called by the core with a name and an interface that stay during the call.
    unsafe extern "C" fn newlink(
        name: *const kernel::ffi::c_char,
        netdev: *mut bindings::net_device,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The caller's promise.
            let (name, netdev) = unsafe {
                (
                    CStr::from_char_ptr(name),
                    Netdev::new(netdev).ok_or(ENODEV)?,
                )
            };
            D::new_link(name, &netdev)?;
            Ok(0)
        })
    }
}

#[pinned_drop]
impl<D: Driver> PinnedDrop for LinkType<D> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the invariant of the type; waits for a `newlink` that is under way.
        unsafe { bindings::rdma_link_unregister(self.ops.get()) }
    }
}

/// A type of link that yields to another module.
///
/// # Invariants
///
/// The notifier is registered from the end of initialisation until dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct SharedLinkType<D: Driver> {
    /// The notifier of loaded and unloaded modules.
    #[pin]
    block: Opaque<bindings::notifier_block>,
    /// The name of the type, which is also that of the other module.
    name: &'static CStr,
    /// The registration, while the other module is not loaded.
    #[pin]
    link: Mutex<Option<Pin<KBox<LinkType<D>>>>>,
}

// SAFETY: The block belongs to the chain, the rest to a mutex.
unsafe impl<D: Driver> Send for SharedLinkType<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for SharedLinkType<D> {}

impl<D: Driver> SharedLinkType<D> {
    /// Registers type `name` while no module of that name is loaded.
    pub(crate) fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            block: Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::module_event),
                ..pin_init::zeroed()
            }),
            name,
            link <- new_mutex!(None, "rsiw_shared_link"),
            // The address is only final now.
            _: {
                // SAFETY: A pinned block that `drop` takes out again.
                to_result(unsafe { bindings::register_module_notifier(block.get()) })?;
                // SAFETY: A name.
                if !unsafe { bindings::rsiw_module_present(name.as_char_ptr()) } {
                    *link.lock() = Self::register(name);
                }
            },
        })
    }

    /// Registers the type; a failure is ignored.
    fn register(name: &'static CStr) -> Option<Pin<KBox<LinkType<D>>>> {
        KBox::pin_init(LinkType::new(name), GFP_KERNEL).ok()
    }

    /// A module is loaded or unloaded.
    ///
    /// # Safety
    ///
    /// Called by the chain of modules with our block and a module.
    unsafe extern "C" fn module_event(
        block: *mut bindings::notifier_block,
        event: kernel::ffi::c_ulong,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: The block is part of a value that stays as long as it is registered.
        let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, block) };
        // SAFETY: The data of this chain is a module.
        if unsafe { bindings::rsiw_module_is(data, this.name.as_char_ptr()) } {
            match event as bindings::module_state {
                bindings::module_state_MODULE_STATE_COMING => {
                    let link = this.link.lock().take();
                    drop(link);
                }
                bindings::module_state_MODULE_STATE_GOING => {
                    let mut link = this.link.lock();
                    if link.is_none() {
                        *link = Self::register(this.name);
                    }
                }
                _ => {}
            }
        }
        bindings::NOTIFY_DONE as c_int
    }
}

#[pinned_drop]
impl<D: Driver> PinnedDrop for SharedLinkType<D> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the invariant of the type; no callback runs after this has returned.
        unsafe { bindings::unregister_module_notifier(self.block.get()) };
    }
}
