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
    ib::{
        driver::Driver,
        mmap::Mapping, //
    },
};

/// An object of `ib_core`'s type `B` that stands for the driver's `T`.
///
/// `ib_core` changes its part at any time, so no reference to that part is made, and none to the whole
/// object while others know it. All zero is a valid value: no object of the driver, no mappings.
#[repr(C)]
pub(super) struct Object<B, T> {
    /// What `ib_core` knows.
    base: Opaque<B>,
    /// What the driver knows.
    inner: Option<Arc<T>>,
    /// The entries under which a process maps the rings.
    maps: [Option<Mapping>; 2],
}

const _: () = assert!(offset_of!(Object<bindings::ib_pd, ()>, base) == 0);
const _: () = assert!(size_of::<Option<Arc<()>>>() == size_of::<*const ()>());
const _: () = assert!(size_of::<Option<Mapping>>() == size_of::<*const ()>());

impl<B, T> Object<B, T> {
    /// A fresh object around `base`, for those which the driver allocates.
    pub(super) fn new(base: B, inner: Arc<T>) -> Self {
        Self {
            base: Opaque::new(base),
            inner: Some(inner),
            maps: [None, None],
        }
    }

    /// Puts the driver's object and its mappings in.
    ///
    /// # Safety
    ///
    /// `base` is the beginning of such an object, zeroed or emptied, and nobody else uses it.
    pub(super) unsafe fn fill(base: *mut B, inner: Arc<T>, maps: [Option<Mapping>; 2]) {
        let this = base.cast::<Self>();
        // SAFETY: The caller's promise: nobody else uses these two fields.
        unsafe {
            (*this).inner = Some(inner);
            (*this).maps = maps;
        }
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
    {
        let this = base.cast::<Self>();
        if this.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The caller's promise: nobody changes this field within `'a`.
        unsafe { &(*this).inner }.as_ref().ok_or(EINVAL)
    }

    /// Ends the mappings and takes the driver's object out.
    ///
    /// # Safety
    ///
    /// `base` is the beginning of such an object, and nobody else uses it.
    pub(super) unsafe fn empty(base: *mut B) -> Option<Arc<T>> {
        let this = base.cast::<Self>();
        // SAFETY: The caller's promise: nobody else uses these two fields.
        let (inner, maps) = unsafe { (&mut (*this).inner, &mut (*this).maps) };
        *maps = [None, None];
        inner.take()
    }
}

/// A device.
pub(super) type DeviceObject<D> = Object<bindings::ib_device, <D as Driver>::Device>;
/// A protection domain.
pub(super) type PdObject<D> = Object<bindings::ib_pd, <D as Driver>::Pd>;
/// A completion queue.
pub(super) type CqObject<D> = Object<bindings::ib_cq, <D as Driver>::Cq>;
/// A queue pair.
pub(super) type QpObject<D> = Object<bindings::ib_qp, <D as Driver>::Qp>;
/// A shared receive queue.
pub(super) type SrqObject<D> = Object<bindings::ib_srq, <D as Driver>::Srq>;
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

/// The driver's queue pair.
///
/// # Safety
///
/// `qp` is a queue pair of a device of `D`, and not destroyed within `'a`.
pub(crate) unsafe fn qp<'a, D: Driver>(qp: *mut bindings::ib_qp) -> Result<&'a Arc<D::Qp>> {
    // SAFETY: The caller's promise.
    unsafe { QpObject::<D>::get(qp) }
}
