// SPDX-License-Identifier: GPL-2.0

//! Allocation, registration and removal of RDMA devices (`struct ib_device`).
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
/// The driver's objects drop the reference in any context, RCU callbacks included. `ib_core` frees
/// a device in process context only: `ib_device_release()` takes `netdev_lock` as a plain spin
/// lock. So a work item drops the counted reference.
pub(crate) struct DeviceRef(Arc<Counted>);

/// One counted reference to a `struct ib_device`, and the work item that drops it.
///
/// # Invariants
///
/// The value owns one reference to the `struct device` of `device` until the work item runs, once.
#[pin_data]
struct Counted {
    device: NonNull<bindings::ib_device>,
    /// Drops the counted reference.
    #[pin]
    put: Work<Counted>,
}

// SAFETY: The counter of a `struct device` is atomic, so any task may drop a reference.
unsafe impl Send for Counted {}
// SAFETY: As above; a shared reference gives access to the pointer only.
unsafe impl Sync for Counted {}

impl_has_work! {
    impl HasWork<Self> for Counted { self.put }
}

impl WorkItem for Counted {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: By the type invariant the reference is owned; only the drop of the one
        // `DeviceRef` queues the work item.
        unsafe { bindings::rsiw_device_put(this.device.as_ptr()) }
    }
}

impl DeviceRef {
    /// Takes a reference. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `device` is allocated and not freed.
    unsafe fn new(device: NonNull<bindings::ib_device>) -> Result<Self> {
        let counted = Arc::pin_init(
            pin_init!(Counted {
                device,
                put <- new_work!("rsiw_device_put"),
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The call below takes the reference.
        // SAFETY: By this function's contract `device` is alive.
        unsafe { bindings::rsiw_device_get(device.as_ptr()) };
        Ok(Self(counted))
    }

    /// The device.
    fn as_ptr(&self) -> *mut bindings::ib_device {
        self.0.device.as_ptr()
    }

    /// Unregisters the device, and waits until all users have released it. Process context; sleeps.
    ///
    /// If another context unregisters the device, or has done so, the call only waits for it.
    pub(crate) fn unregister(&self) {
        // SAFETY: The device is alive by the invariant of `Counted`. `dealloc_driver` is set, so
        // `ib_core` itself drops the reference of the registration.
        unsafe { bindings::ib_unregister_device(self.as_ptr()) }
    }

    /// Queues the unregistration of a registered device to a work item of `ib_core`. Otherwise it
    /// has no effect. Process context, also under the RTNL.
    pub(crate) fn unregister_queued(&self) {
        // SAFETY: The device is alive by the invariant of `Counted`. `rsiw_device_try_get` succeeds
        // only for a registered device, and keeps it registered until the put.
        unsafe {
            if bindings::rsiw_device_try_get(self.as_ptr()) {
                bindings::ib_unregister_device_queued(self.as_ptr());
                bindings::ib_device_put(self.as_ptr());
            }
        }
    }

    /// Dispatches `IB_EVENT_GID_CHANGE` of port 1, if the device is registered. Any context.
    pub(crate) fn gids_changed(&self) {
        // SAFETY: As above; the event outlives the call, which copies it.
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

    /// Calls `f` with the network interface of the device; `None` if the device has none any more.
    /// Process context.
    pub(crate) fn with_netdev<R>(&self, f: impl FnOnce(&Netdev<'_>) -> R) -> Option<R> {
        // SAFETY: The device is alive by the invariant of `Counted`. The reference that
        // `ib_device_get_netdev` takes is put after `f` has returned.
        unsafe {
            let held = bindings::ib_device_get_netdev(self.as_ptr(), 1);
            let result = Netdev::new(held.cast()).map(|netdev| f(&netdev));
            if !held.is_null() {
                bindings::rsiw_netdev_put(held.cast());
            }
            result
        }
    }

    /// Whether `ib_core` lets processes of network namespace `net` use the device
    /// (`rdma_dev_access_netns()`).
    ///
    /// In shared mode each namespace has access. In exclusive mode only the namespace of the device
    /// has. Any context.
    pub(crate) fn is_accessible_in(&self, net: usize) -> bool {
        // SAFETY: The device is alive by the invariant of `Counted`; `net` is only compared.
        unsafe { bindings::rdma_dev_access_netns(self.as_ptr(), net as *const bindings::net) }
    }

    /// The network namespace of the interface; `None` if the interface or the namespace is being
    /// removed. Process context.
    pub(crate) fn netns(&self) -> Option<NetNs> {
        self.with_netdev(|netdev| netdev.netns()).flatten()
    }
}

impl Drop for DeviceRef {
    /// Queues the work item that drops the counted reference. Any context.
    fn drop(&mut self) {
        let _ = work::devices().enqueue(self.0.clone());
    }
}

/// An allocated device that is not registered yet.
pub(crate) struct Allocated<D: Driver> {
    /// The device, with the reference that `ib_dealloc_device()` drops.
    device: NonNull<bindings::ib_device>,
    /// The network namespace of the device; [`register`](Self::register) takes it.
    ///
    /// `ib_core` stores a pointer to the namespace without a reference. Once the device is
    /// registered, the exit of the namespace removes the device.
    netns: Option<NetNs>,
    /// The driver of the device.
    _driver: PhantomData<D>,
}

impl<D: CmOps> Allocated<D> {
    /// Allocates a device in the network namespace of `netdev`. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the namespace is being removed. `ENOMEM`.
    pub(crate) fn new(netdev: &Netdev<'_>) -> Result<Self> {
        let netns = netdev.netns().ok_or(ENODEV)?;
        // SAFETY: The size is that of `DeviceObject`, which begins with an `ib_device`. `netns`
        // holds a reference to the namespace.
        let device = unsafe {
            bindings::_ib_alloc_device(size_of::<DeviceObject<D>>(), netns.as_ptr().cast())
        };
        let device = NonNull::new(device).ok_or(ENOMEM)?;
        // SAFETY: The device is new, and no other context uses it. `ib_set_device_ops` copies the
        // table.
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

    /// A reference to the device, which may outlive this value. Process context; sleeps.
    pub(crate) fn reference(&self) -> Result<DeviceRef> {
        // SAFETY: This value owns a reference to the device.
        unsafe { DeviceRef::new(self.device) }
    }

    /// Registers the device as `name` for the driver's object `inner`, with port 1 on `netdev` and
    /// node GUID `guid`. Process context; sleeps.
    ///
    /// On failure `ib_core` has called [`removed`](Driver::removed).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the name has a `%`, by which `ib_core` would number devices. `EEXIST`: a device has
    /// this name. Other errors of `ib_register_device()`.
    pub(crate) fn register(
        mut self,
        name: &CStr,
        inner: Arc<D::Device>,
        netdev: &Netdev<'_>,
        guid: u64,
    ) -> Result {
        check_name(name)?;
        // Held until the device is registered.
        let _netns = self.netns.take();
        let device = self.device.as_ptr();
        core::mem::forget(self);
        // SAFETY: The name is no format. The device is alive and not registered. Other contexts may
        // have references, but do not use these fields yet, and no reference to the whole structure
        // is formed. On failure the device is deallocated as `ib_register_device()` demands.
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
            // `ib_core` returns `ENFILE` for a name in use.
            result.map_err(|error| if error == ENFILE { EEXIST } else { error })
        }
    }
}

/// `EINVAL` for a name that `ib_register_device()` would use as a format. Any context.
fn check_name(name: &CStr) -> Result {
    if name.to_bytes().contains(&b'%') {
        return Err(EINVAL);
    }
    Ok(())
}

impl<D: Driver> Drop for Allocated<D> {
    fn drop(&mut self) {
        // SAFETY: The device was never registered, and this value owns the reference that the call
        // drops.
        unsafe { bindings::ib_dealloc_device(self.device.as_ptr()) }
    }
}

/// Copies octets into a zeroed C array. A NUL remains at the end; longer input is truncated.
fn fill_chars(to: &mut [kernel::ffi::c_char], from: &[u8]) {
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().take(room).zip(from) {
        *to = *from as kernel::ffi::c_char;
    }
}

#[kunit_tests(rsiw_sys_device)]
mod tests {
    use super::*;

    /// `ib_core` numbers devices by a name with a conversion.
    #[test]
    fn a_name_is_no_format() {
        assert!(check_name(c"rsiw0").is_ok());
        assert!(check_name(c"").is_ok());
        for name in [c"rsiw%d", c"%s", c"%", c"a%%"] {
            assert_eq!(check_name(name), Err(EINVAL));
        }
    }
}
