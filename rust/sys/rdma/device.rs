// SPDX-License-Identifier: GPL-2.0

//! A device: allocation, registration, and its end.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    impl_has_work,
    new_work,
    prelude::*,
    str::CStr,
    sync::Arc,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use crate::sys::{
    bindings,
    net::NetNs,
    rdma::{
        driver::Driver,
        iwcm::CmOps, //
        netdev::Netdev,
        objects::DeviceObject,
        vtable::Vtable,
    },
    sync::work, //
};

/// A counted reference to the memory of a device, registered or not.
///
/// The driver's objects drop it in any context, RCU callbacks included. `ib_core` frees a device in
/// process context only: below `ib_device_release()` it takes `netdev_lock` as a plain spin lock. So
/// the count goes down in a work item.
pub(crate) struct DeviceRef(Arc<Counted>);

/// The count, and the work item that takes it down.
///
/// # Invariants
///
/// The reference is counted by the device's `struct device`, until the work item runs, once.
#[pin_data]
struct Counted {
    /// The device.
    device: NonNull<bindings::ib_device>,
    /// Takes the count down.
    #[pin]
    put: Work<Counted>,
}

// SAFETY: References may be dropped by any task.
unsafe impl Send for Counted {}
// SAFETY: As above.
unsafe impl Sync for Counted {}

impl_has_work! {
    impl HasWork<Self> for Counted { self.put }
}

impl WorkItem for Counted {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: By the invariant of the type; queued once, by the end of the one `DeviceRef`.
        unsafe { bindings::rsiw_device_put(this.device.as_ptr()) }
    }
}

impl DeviceRef {
    /// Counts another reference.
    ///
    /// # Safety
    ///
    /// `device` is alive.
    unsafe fn new(device: NonNull<bindings::ib_device>) -> Result<Self> {
        let counted = Arc::pin_init(
            pin_init!(Counted {
                device,
                put <- new_work!("rsiw_device_put"),
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: Counted here.
        // SAFETY: The caller's promise.
        unsafe { bindings::rsiw_device_get(device.as_ptr()) };
        Ok(Self(counted))
    }

    /// The device.
    fn as_ptr(&self) -> *mut bindings::ib_device {
        self.0.device.as_ptr()
    }

    /// Ends the registration and waits until all users are gone. Process context; sleeps. Does
    /// nothing more than wait when another context ends it or has ended it.
    pub(crate) fn unregister(&self) {
        // SAFETY: By the invariant of the type; `dealloc_driver` is set, so that the core frees
        // what it made.
        unsafe { bindings::ib_unregister_device(self.as_ptr()) }
    }

    /// Has the registration ended by a work item, if there is one. Any process context, also
    /// under the RTNL.
    pub(crate) fn unregister_queued(&self) {
        // SAFETY: By the invariant of the type; only called while registered.
        unsafe {
            if bindings::rsiw_device_try_get(self.as_ptr()) {
                bindings::ib_unregister_device_queued(self.as_ptr());
                bindings::ib_device_put(self.as_ptr());
            }
        }
    }

    /// The table of GIDs has changed. Any context.
    pub(crate) fn gids_changed(&self) {
        // SAFETY: As above.
        unsafe {
            if bindings::rsiw_device_try_get(self.as_ptr()) {
                let mut event: bindings::ib_event = pin_init::zeroed();
                event.device = self.as_ptr();
                event.event = bindings::ib_event_type_IB_EVENT_GID_CHANGE;
                event.element.port_num = 1;
                bindings::ib_dispatch_event(&event);
                bindings::ib_device_put(self.as_ptr());
            }
        }
    }

    /// Shows the interface to `f`; `None` when it is on its way out. Process context.
    pub(crate) fn with_netdev<R>(&self, f: impl FnOnce(&Netdev<'_>) -> R) -> Option<R> {
        // SAFETY: By the invariant of the type; the interface is held as long as it is shown.
        unsafe {
            let held = bindings::ib_device_get_netdev(self.as_ptr(), 1);
            let result = Netdev::new(held.cast()).map(|netdev| f(&netdev));
            if !held.is_null() {
                bindings::rsiw_netdev_put(held.cast());
            }
            result
        }
    }

    /// Whether the core gives the device to the network namespace `net`. It does in shared mode. In
    /// exclusive mode it does if the device is in that namespace. Any context.
    pub(crate) fn is_accessible_in(&self, net: usize) -> bool {
        // SAFETY: By the invariant of the type; the namespace is compared only.
        unsafe { bindings::rdma_dev_access_netns(self.as_ptr(), net as *const bindings::net) }
    }

    /// The network namespace of the interface; `None` when either is on its way out. Process
    /// context.
    pub(crate) fn netns(&self) -> Option<NetNs> {
        self.with_netdev(|netdev| netdev.netns()).flatten()
    }
}

impl Drop for DeviceRef {
    /// Any context.
    fn drop(&mut self) {
        let _ = work::devices().enqueue(self.0.clone());
    }
}

/// A device that is not registered yet.
pub(crate) struct Allocated<D: Driver> {
    /// The device; the one reference that `ib_dealloc_device()` drops.
    device: NonNull<bindings::ib_device>,
    /// Its network namespace, which the core names in it without a reference: once the device is
    /// registered, the end of the namespace takes it along. Taken by [`register`](Self::register).
    netns: Option<NetNs>,
    /// The driver.
    _driver: PhantomData<D>,
}

impl<D: CmOps> Allocated<D> {
    /// A device for an interface, in the interface's network namespace.
    ///
    /// `ENODEV`: the namespace is on its way out.
    pub(crate) fn new(netdev: &Netdev<'_>) -> Result<Self> {
        let netns = netdev.netns().ok_or(ENODEV)?;
        // SAFETY: The size is that of our object, which begins with an `ib_device`; the namespace is
        // held.
        let device = unsafe {
            bindings::_ib_alloc_device(size_of::<DeviceObject<D>>(), netns.as_ptr().cast())
        };
        let device = NonNull::new(device).ok_or(ENOMEM)?;
        // SAFETY: Fresh; the core copies the table.
        unsafe {
            bindings::ib_set_device_ops(device.as_ptr(), &Vtable::<D>::OPS);
            Vtable::<D>::add_settings(device.as_ptr());
        }
        Ok(Self {
            device,
            netns: Some(netns),
            _driver: PhantomData,
        })
    }

    /// A reference of any lifetime.
    pub(crate) fn reference(&self) -> Result<DeviceRef> {
        // SAFETY: Alive.
        unsafe { DeviceRef::new(self.device) }
    }

    /// Registers the device as `name` for the driver's `inner`, with a port on `netdev`.
    ///
    /// Process context; sleeps. `EEXIST` when the name is taken. On failure
    /// [`removed`](Driver::removed) has been called.
    pub(crate) fn register(
        mut self,
        name: &CStr,
        inner: Arc<D::Device>,
        netdev: &Netdev<'_>,
        guid: u64,
    ) -> Result {
        // Kept until the core knows the device.
        let _netns = self.netns.take();
        let device = self.device.as_ptr();
        core::mem::forget(self);
        // SAFETY: Alive and not registered: others may know it, but do not use these fields yet,
        // and no reference to the whole is made. On failure it is deallocated as
        // `ib_register_device()` demands.
        unsafe {
            DeviceObject::<D>::fill(device, inner, None, [None, None]);
            (*device).node_type = bindings::RDMA_NODE_RNIC as u8;
            (*device).phys_port_cnt = 1;
            (*device).num_comp_vectors = bindings::rsiw_num_cpus();
            (*device).local_dma_lkey = 0;
            (*device).node_guid = guid;
            (*device).uverbs_cmd_mask |=
                1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND;
            (*device).iw_driver_flags = bindings::iw_flags_IW_F_NO_PORT_MAP;
            (*device).name_assign_type =
                bindings::rdma_nl_name_assign_type_RDMA_NAME_ASSIGN_TYPE_USER;
            fill_chars(&mut (*device).node_desc, D::DESCRIPTION.to_bytes());
            fill_chars(&mut (*device).iw_ifname, netdev.name());
            let result = to_result(bindings::ib_device_set_netdev(
                device,
                netdev.as_ptr().cast(),
                1,
            ))
            .and_then(|()| {
                to_result(bindings::ib_register_device(
                    device,
                    name.as_char_ptr(),
                    core::ptr::null_mut(),
                ))
            });
            if result.is_err() {
                bindings::ib_dealloc_device(device);
            }
            // The core's word for a name that is taken.
            result.map_err(|error| if error == ENFILE { EEXIST } else { error })
        }
    }
}

impl<D: Driver> Drop for Allocated<D> {
    fn drop(&mut self) {
        // SAFETY: Never registered.
        unsafe { bindings::ib_dealloc_device(self.device.as_ptr()) }
    }
}

/// Copies octets into a C array, cut short if need be, with a NUL at the end.
fn fill_chars(to: &mut [kernel::ffi::c_char], from: &[u8]) {
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().take(room).zip(from) {
        *to = *from as kernel::ffi::c_char;
    }
}
