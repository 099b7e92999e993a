// SPDX-License-Identifier: GPL-2.0

//! Types of `rdma link add`.
//!
//! Only one module may register a type. On a second registration `ib_core` warns and ignores the
//! entry. It crashes when that entry is unregistered. So the module registers type `siw` only while
//! the in-tree module of that name is not loaded. The module unregisters the type before the
//! in-tree module is loaded.
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

/// A registered type of `rdma link add`.
///
/// # Invariants
///
/// `ops` is in the list of `ib_core` from the end of initialisation until the value is dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct LinkType<D: Driver> {
    /// The entry in the list of `ib_core`.
    #[pin]
    ops: Opaque<bindings::rdma_link_ops>,
    /// The driver of the devices.
    _driver: PhantomData<D>,
}

// SAFETY: After initialisation only `ib_core` accesses the entry, under its own lock.
unsafe impl<D: Driver> Send for LinkType<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for LinkType<D> {}

impl<D: Driver> LinkType<D> {
    /// Registers type `name`. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `EEXIST`: another module has registered the type.
    pub(crate) fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ops: Opaque::new(bindings::rdma_link_ops {
                type_: name.as_char_ptr(),
                newlink: Some(Self::newlink),
                ..pin_init::zeroed()
            }),
            _driver: PhantomData,
            // The entry is pinned, so its address is final here.
            _: {
                // SAFETY: The entry is pinned, and `drop` unregisters it.
                if !unsafe { bindings::rsiw_link_register(ops.get()) } {
                    return Err(EEXIST);
                }
            },
        })
    }

    /// `newlink`: makes a device (`rdma link add`). Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a NUL-terminated name and an interface, which both stay valid during
    /// the call.
    unsafe extern "C" fn newlink(
        name: *const kernel::ffi::c_char,
        netdev: *mut bindings::net_device,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract the name and the interface are valid during the
            // call.
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
        // SAFETY: By the type invariant the entry is registered. The call waits for running calls
        // of `newlink`.
        unsafe { bindings::rdma_link_unregister(self.ops.get()) }
    }
}

/// A type of `rdma link add` that is unregistered while another module needs it.
///
/// # Invariants
///
/// The notifier is registered from the end of initialisation until the value is dropped.
#[pin_data(PinnedDrop)]
pub(crate) struct SharedLinkType<D: Driver> {
    /// The notifier of loaded and unloaded modules.
    #[pin]
    block: Opaque<bindings::notifier_block>,
    /// The name of the type and of the other module.
    name: &'static CStr,
    /// The registration; `None` while the other module is loaded, or after a failed registration.
    #[pin]
    link: Mutex<Option<Pin<KBox<LinkType<D>>>>>,
}

// SAFETY: Only the notifier chain accesses the block, under its own lock. The name is constant, and
// a mutex protects the registration.
unsafe impl<D: Driver> Send for SharedLinkType<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for SharedLinkType<D> {}

impl<D: Driver> SharedLinkType<D> {
    /// Registers type `name` whenever no module of that name is loaded. Process context; sleeps.
    pub(crate) fn new(name: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            block: Opaque::new(bindings::notifier_block {
                notifier_call: Some(Self::module_event),
                ..pin_init::zeroed()
            }),
            name,
            link <- new_mutex!(None, "rsiw_shared_link"),
            // The block is pinned, so its address is final here.
            _: {
                // SAFETY: The block is pinned, and `drop` unregisters it.
                to_result(unsafe { bindings::register_module_notifier(block.get()) })?;
                // SAFETY: The name is a NUL-terminated string.
                if !unsafe { bindings::rsiw_module_present(name.as_char_ptr()) } {
                    *link.lock() = Self::register(name);
                }
            },
        })
    }

    /// Registers the type; `None` on failure, which is not reported. Process context; sleeps.
    fn register(name: &'static CStr) -> Option<Pin<KBox<LinkType<D>>>> {
        KBox::pin_init(LinkType::new(name), GFP_KERNEL).ok()
    }

    /// The module notifier: a module is loaded or unloaded. Process context.
    ///
    /// # Safety
    ///
    /// The chain of module events calls it with the block of this type and a `struct module`.
    unsafe extern "C" fn module_event(
        block: *mut bindings::notifier_block,
        event: kernel::ffi::c_ulong,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: The block is a field of a value that exists as long as the block is registered.
        let this = unsafe { &*container_of!(Opaque::cast_from(block), Self, block) };
        // SAFETY: The data of this chain is a `struct module`, and the name is NUL-terminated.
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
        // SAFETY: By the type invariant the block is registered. No callback runs after the call.
        unsafe { bindings::unregister_module_notifier(self.block.get()) };
    }
}
