// SPDX-License-Identifier: GPL-2.0

//! The driver's objects inside of the memory that `ib_core` allocates.
//!
//! `ib_core` allocates its objects with as much room as the vtable says; ours begin with its
//! structure and hold an [`Arc`] of the driver's. That memory comes zeroed, which is an object
//! without anything in it.

use core::mem::offset_of;

use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use crate::sys::{
    bindings,
    rdma::{
        core_ref::{
            CoreHold,
            CoreRef, //
        },
        driver::Driver,
        event::{
            CoreCq,
            CoreQp,
            CoreSrq, //
        },
        mmap::Mapping, //
    }, //
};

/// An object of `ib_core`'s type `B` that stands for the driver's `T`.
///
/// `ib_core` changes its part at any time, so no reference to that part is made, and none to the whole
/// object while others know it. All zero is a valid value: no object of the driver, no mappings.
#[repr(C)]
pub(super) struct Object<B, T, C = ()> {
    /// What `ib_core` knows.
    base: Opaque<B>,
    /// What the driver knows.
    inner: Option<Arc<T>>,
    /// The users of `base`, where the driver has references to it.
    core: Option<Arc<CoreRef<C>>>,
    /// The entries under which a process maps the rings.
    maps: [Option<Mapping>; 2],
}

const _: () = assert!(offset_of!(Object<bindings::ib_pd, ()>, base) == 0);
const _: () = assert!(size_of::<Option<Arc<()>>>() == size_of::<*const ()>());
const _: () = assert!(size_of::<Option<Mapping>>() == size_of::<*const ()>());

const _: () = assert!(size_of::<Option<Arc<CoreRef<()>>>>() == size_of::<*const ()>());

impl<B, T, C> Object<B, T, C> {
    /// A fresh object around `base`, for those which the driver allocates.
    pub(super) fn new(base: B, inner: Arc<T>) -> Self {
        Self {
            base: Opaque::new(base),
            inner: Some(inner),
            core: None,
            maps: [None, None],
        }
    }

    /// Puts the driver's object and its mappings in.
    ///
    /// # Safety
    ///
    /// `base` is the beginning of such an object, zeroed or emptied, and not in use otherwise.
    pub(super) unsafe fn fill(
        base: *mut B,
        inner: Arc<T>,
        core: Option<Arc<CoreRef<C>>>,
        maps: [Option<Mapping>; 2],
    ) {
        let this = base.cast::<Self>();
        // SAFETY: The caller's promise: these fields are not in use otherwise.
        unsafe {
            (*this).inner = Some(inner);
            (*this).core = core;
            (*this).maps = maps;
        }
    }

    /// The users of the core's part.
    ///
    /// # Safety
    ///
    /// As of [`get`](Self::get).
    pub(super) unsafe fn core<'a>(base: *const B) -> Option<&'a Arc<CoreRef<C>>>
    where
        B: 'a,
        T: 'a,
        C: 'a,
    {
        let this = base.cast::<Self>();
        if this.is_null() {
            return None;
        }
        // SAFETY: The caller's promise: this field does not change within `'a`.
        unsafe { &(*this).core }.as_ref()
    }

    /// The driver's object.
    ///
    /// # Safety
    ///
    /// `base` is null or the beginning of such an object, which is not emptied within `'a`.
    pub(super) unsafe fn get<'a>(base: *const B) -> Result<&'a Arc<T>>
    where
        B: 'a,
        T: 'a,
        C: 'a,
    {
        let this = base.cast::<Self>();
        if this.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The caller's promise: this field does not change within `'a`.
        unsafe { &(*this).inner }.as_ref().ok_or(EINVAL)
    }

    /// Waits for the users of the core's part, ends the mappings and takes the driver's object out.
    /// Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `base` is the beginning of such an object, and only its counted users use it.
    pub(super) unsafe fn empty(base: *mut B) -> Option<Arc<T>> {
        // SAFETY: The caller's promise.
        if let Some(core) = unsafe { Self::core(base) } {
            core.retire();
        }
        let this = base.cast::<Self>();
        // SAFETY: The caller's promise: these fields are not in use any more.
        let (inner, core, maps) =
            unsafe { (&mut (*this).inner, &mut (*this).core, &mut (*this).maps) };
        *maps = [None, None];
        *core = None;
        inner.take()
    }
}

/// A device.
pub(super) type DeviceObject<D> = Object<bindings::ib_device, <D as Driver>::Device>;
/// A protection domain.
pub(super) type PdObject<D> = Object<bindings::ib_pd, <D as Driver>::Pd>;
/// A completion queue.
pub(super) type CqObject<D> = Object<bindings::ib_cq, <D as Driver>::Cq, CoreCq>;
/// A queue pair.
pub(super) type QpObject<D> = Object<bindings::ib_qp, <D as Driver>::Qp, CoreQp>;
/// A shared receive queue.
pub(super) type SrqObject<D> = Object<bindings::ib_srq, <D as Driver>::Srq, CoreSrq>;
/// A memory region.
pub(super) type MrObject<D> = Object<bindings::ib_mr, <D as Driver>::Mr>;

/// The driver's device.
///
/// # Safety
///
/// `device` is a registered device of `D` as long as `'a`.
pub(crate) unsafe fn device<'a, D: Driver>(
    device: *mut bindings::ib_device,
) -> Result<&'a Arc<D::Device>> {
    // SAFETY: The caller's promise.
    unsafe { DeviceObject::<D>::get(device) }
}

/// Leaves a queue pair counted as used, until [`put_qp`], and gives its pointer.
pub(crate) fn leak_qp(hold: CoreHold<CoreQp>) -> *mut bindings::ib_qp {
    hold.leak().ptr().as_ptr()
}

/// Gives back what [`leak_qp`] has left counted.
///
/// # Safety
///
/// `qp` is a pointer that it has given, to a queue pair of a device of `D`; once for each.
pub(crate) unsafe fn put_qp<D: Driver>(qp: *mut bindings::ib_qp) {
    // SAFETY: The caller's promise: destroying the queue pair waits for this.
    let core = unsafe { QpObject::<D>::core(qp) }.cloned();
    if let Some(core) = core {
        // SAFETY: The caller's promise. `core` outlasts the wait for this.
        unsafe { core.put_leaked() };
    }
}
