// SPDX-License-Identifier: GPL-2.0

//! Driver objects inside the structures that `ib_core` allocates.
//!
//! `ib_core` allocates objects of the size that the vtable states. An object begins with the
//! structure of `ib_core` and holds an [`Arc`] of the driver's object. `ib_core` zeroes the memory,
//! which is an empty object.

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

/// An object of `ib_core`'s type `B` that holds the driver's object `T`.
///
/// `ib_core` may change its part at any time. So the driver forms no reference to that part, and
/// none to the whole object while other contexts can access it. All zero is a valid value: no
/// object of the driver, no mappings.
#[repr(C)]
pub(super) struct Object<B, T, C = ()> {
    /// The structure of `ib_core`.
    base: Opaque<B>,
    /// The driver's object.
    inner: Option<Arc<T>>,
    /// The count of the driver's references to `base`; `None` for types without such references.
    core: Option<Arc<CoreRef<C>>>,
    /// The entries under which a process maps the rings.
    maps: [Option<Mapping>; 2],
}

const _: () = assert!(offset_of!(Object<bindings::ib_pd, ()>, base) == 0);
const _: () = assert!(size_of::<Option<Arc<()>>>() == size_of::<*const ()>());
const _: () = assert!(size_of::<Option<Mapping>>() == size_of::<*const ()>());

const _: () = assert!(size_of::<Option<Arc<CoreRef<()>>>>() == size_of::<*const ()>());

impl<B, T, C> Object<B, T, C> {
    /// Makes an object around `base`, for types that the driver allocates.
    pub(super) fn new(base: B, inner: Arc<T>) -> Self {
        Self {
            base: Opaque::new(base),
            inner: Some(inner),
            core: None,
            maps: [None, None],
        }
    }

    /// Stores the driver's object and its mappings.
    ///
    /// # Safety
    ///
    /// `base` is the beginning of an `Object`, zeroed or emptied. No other context uses the object.
    pub(super) unsafe fn fill(
        base: *mut B,
        inner: Arc<T>,
        core: Option<Arc<CoreRef<C>>>,
        maps: [Option<Mapping>; 2],
    ) {
        let this = base.cast::<Self>();
        // SAFETY: By this function's contract no other context uses these fields.
        unsafe {
            (*this).inner = Some(inner);
            (*this).core = core;
            (*this).maps = maps;
        }
    }

    /// The count of the driver's references to the part of `ib_core`.
    ///
    /// # Safety
    ///
    /// As for [`get`](Self::get).
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
        // SAFETY: By this function's contract this field does not change within `'a`.
        unsafe { &(*this).core }.as_ref()
    }

    /// The driver's object. `EINVAL`: `base` is null, or there is no object. Any context.
    ///
    /// # Safety
    ///
    /// `base` is null or the beginning of an `Object`, which is not emptied within `'a`.
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
        // SAFETY: By this function's contract this field does not change within `'a`.
        unsafe { &(*this).inner }.as_ref().ok_or(EINVAL)
    }

    /// Waits for the references to the part of `ib_core`, drops the mappings and takes the driver's
    /// object. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `base` is the beginning of an `Object`. Only holders of counted references use the object.
    pub(super) unsafe fn empty(base: *mut B) -> Option<Arc<T>> {
        // SAFETY: By this function's contract `base` is the beginning of an `Object`.
        if let Some(core) = unsafe { Self::core(base) } {
            core.retire();
        }
        let this = base.cast::<Self>();
        // SAFETY: By this function's contract only holders of counted references use the object.
        // After `retire` there are none.
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

/// The driver's object of a device. `EINVAL`: there is none. Any context.
///
/// # Safety
///
/// `device` is a registered device of `D` during `'a`.
pub(crate) unsafe fn device<'a, D: Driver>(
    device: *mut bindings::ib_device,
) -> Result<&'a Arc<D::Device>> {
    // SAFETY: By this function's contract the device is registered during `'a`.
    unsafe { DeviceObject::<D>::get(device) }
}

/// Converts a counted reference to a queue pair into a pointer. [`put_qp`] drops the reference.
pub(crate) fn leak_qp(hold: CoreHold<CoreQp>) -> *mut bindings::ib_qp {
    hold.leak().ptr().as_ptr()
}

/// Drops a reference of [`leak_qp`]. Any context.
///
/// # Safety
///
/// `qp` is from [`leak_qp`], a queue pair of a device of `D`. Each pointer is passed once.
pub(crate) unsafe fn put_qp<D: Driver>(qp: *mut bindings::ib_qp) {
    // SAFETY: By this function's contract the pointer is a counted reference, for which the
    // destruction of the queue pair waits.
    let core = unsafe { QpObject::<D>::core(qp) }.cloned();
    if let Some(core) = core {
        // SAFETY: By this function's contract the caller owns the leaked reference. The clone keeps
        // `core` alive until the call returns.
        unsafe { core.put_leaked() };
    }
}
