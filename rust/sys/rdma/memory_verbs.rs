// SPDX-License-Identifier: GPL-2.0

//! The verbs callbacks of memory regions.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};

use crate::sys::{
    bindings,
    errno::EOPNOTSUPP,
    rdma::{
        driver::{
            Driver,
            UserMr, //
        },
        memory::{
            KernelMemory,
            UserPages, //
        },
        objects::{
            DeviceObject,
            MrObject,
            Object,
            PdObject, //
        },
        udata::Udata,
        vtable::Vtable, //
    }, //
};

/// Access flags that registrations accept. Rights to operations that the device lacks have no
/// effect. The optional range holds hints; a driver ignores unknown ones.
const ACCESS: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC
    | bindings::ib_access_flags_IB_ACCESS_MW_BIND
    | bindings::ib_access_flags_IB_ACCESS_HUGETLB
    | bindings::ib_access_flags_IB_ACCESS_OPTIONAL;

/// Access flags that give rights to the peer.
const REMOTE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;

/// The pointer of a result, or an error pointer (`ERR_PTR()`).
fn from_mr(result: Result<*mut bindings::ib_mr>) -> *mut bindings::ib_mr {
    match result {
        Ok(mr) => mr,
        Err(error) => error.to_ptr(),
    }
}

impl<D: Driver> Vtable<D> {
    /// Allocates the `ib_mr` of a region, with its keys. Process context; sleeps.
    fn wrap(inner: Arc<D::Mr>) -> Result<*mut bindings::ib_mr> {
        let key = D::mr_key(&inner);
        let mut base: bindings::ib_mr = pin_init::zeroed();
        base.lkey = key;
        base.rkey = key;
        let object = KBox::new(Object::new(base, inner.clone()), GFP_KERNEL);
        match object {
            Ok(object) => {
                let object: *mut MrObject<D> = KBox::into_raw(object);
                Ok(object.cast())
            }
            Err(error) => {
                D::dereg_mr(&inner);
                Err(error.into())
            }
        }
    }

    /// `get_dma_mr`: registers all kernel memory, for local access.
    ///
    /// Remote access rights are refused with `EOPNOTSUPP`: the region has no bounds.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a protection domain of this driver.
    pub(super) unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        from_mr((|| {
            // SAFETY: By this function's contract `pd` is a live domain of this driver.
            let (device, domain) = unsafe {
                (
                    DeviceObject::<D>::get((*pd).device)?,
                    PdObject::<D>::get(pd)?,
                )
            };
            if access as u32 & REMOTE != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: `ib_core` calls `get_dma_mr` for kernel users only, so the addresses are
            // theirs.
            let memory = unsafe { KernelMemory::new() };
            Self::wrap(D::reg_dma_mr(device, domain, memory, access as u32)?)
        })())
    }

    /// `reg_user_mr`: registers memory of a process.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: an unknown access flag, or a DMA handle. `EINVAL`: the range is empty or
    /// wraps. Errors of [`UserPages::pin`].
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a protection domain of this driver, in the context of the process.
    /// `udata` is null or the data of the call.
    pub(super) unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        from_mr((|| {
            // SAFETY: By this function's contract `pd` is a live domain, and `udata` is that of the
            // call.
            let (core, device, domain, udata) = unsafe {
                (
                    (*pd).device,
                    DeviceObject::<D>::get((*pd).device)?,
                    PdObject::<D>::get(pd)?,
                    Udata::new(udata),
                )
            };
            let access = access as u32;
            if !dmah.is_null() || access & !ACCESS != 0 {
                return Err(EOPNOTSUPP);
            }
            if length == 0 || iova.checked_add(length.wrapping_sub(1)).is_none() {
                return Err(EINVAL);
            }
            let request: Option<bindings::siw_ureq_reg_mr> = match udata {
                Some(udata) => udata.request()?,
                None => None,
            };
            let inner = D::reg_user_mr(
                device,
                domain,
                UserMr {
                    // SAFETY: `core` is the device of the current call.
                    pages: unsafe { UserPages::pin(core, start, length, access)? },
                    key: request.map_or(0, |request| request.stag_key),
                    iova,
                    len: length,
                    access,
                },
            )?;
            if let Some(udata) = udata {
                let reply = bindings::siw_uresp_reg_mr {
                    stag: D::mr_key(&inner),
                    pad: 0,
                };
                if let Err(error) = udata.reply(&reply) {
                    D::dereg_mr(&inner);
                    return Err(error);
                }
            }
            Self::wrap(inner)
        })())
    }

    /// `alloc_mr`: creates a region for fast registration. `EOPNOTSUPP`: the type is neither
    /// `IB_MR_TYPE_MEM_REG` nor `IB_MR_TYPE_SG_GAPS`.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a protection domain of this driver.
    pub(super) unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        max: u32,
    ) -> *mut bindings::ib_mr {
        from_mr((|| {
            // SAFETY: By this function's contract `pd` is a live domain of this driver.
            let (device, domain) = unsafe {
                (
                    DeviceObject::<D>::get((*pd).device)?,
                    PdObject::<D>::get(pd)?,
                )
            };
            match kind {
                bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
                | bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => {
                    Self::wrap(D::alloc_mr(device, domain, max)?)
                }
                _ => Err(EOPNOTSUPP),
            }
        })())
    }

    /// `map_mr_sg`: stages the segments of the next registration. Any context.
    ///
    /// Segments need neither be page aligned nor adjacent.
    ///
    /// # Safety
    ///
    /// A kernel user calls it with a region of this driver, and a list of `nents` mapped entries.
    /// `offset` is null or writable.
    pub(super) unsafe extern "C" fn map_mr_sg(
        mr: *mut bindings::ib_mr,
        sg: *mut bindings::scatterlist,
        nents: c_int,
        offset: *mut kernel::ffi::c_uint,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `mr` is a live region of this driver.
            let inner = unsafe { MrObject::<D>::get(mr)? };
            let nents = usize::try_from(nents)?;
            // SAFETY: By this function's contract `offset` is null or readable.
            let skip = unsafe { offset.as_ref() }.copied().unwrap_or(0);
            let (taken, first, total) = D::stage_mr(inner, |segments, max| {
                // SAFETY: By this function's contract the list has `nents` entries, mapped for a
                // device with virtual DMA.
                let (taken, first) = unsafe { segments.fill(sg, nents, skip, max) };
                (taken, first, segments.total())
            })?;
            // SAFETY: By this function's contract only the caller uses these fields of `mr`, and
            // `offset` is null or writable.
            unsafe {
                (*mr).iova = first;
                (*mr).length = total;
                if let Some(offset) = offset.as_mut() {
                    *offset = 0;
                }
            }
            Ok(c_int::try_from(taken)?)
        })
    }

    /// `dereg_mr`: removes a region.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it once, with a region that a callback of this file has created.
    pub(super) unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `wrap` has allocated the object, which is freed only below.
        if let Ok(inner) = unsafe { MrObject::<D>::get(mr) } {
            D::dereg_mr(inner);
        }
        // SAFETY: As above; this call is the only one that frees the object.
        drop(unsafe { KBox::from_raw(mr.cast::<MrObject<D>>()) });
        0
    }
}
