// SPDX-License-Identifier: GPL-2.0

//! The verbs of shared receive queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use core::ptr::NonNull;

use kernel::{
    error::from_result,
    prelude::*, //
};

use crate::sys::{
    bindings,
    errno::EOPNOTSUPP,
    rdma::{
        core_ref::{
            CoreRef,
            RetireOnDrop, //
        },
        driver::{
            Driver,
            SrqAttr, //
        },
        event::CoreSrq,
        objects::{
            DeviceObject,
            PdObject,
            SrqObject, //
        },
        queue_verbs::{
            key,
            map,
            post, //
        },
        udata::Udata,
        vtable::Vtable, //
    }, //
};

impl<D: Driver> Vtable<D> {
    /// `create_srq`: creates a shared receive queue. `EOPNOTSUPP`: the type is not `IB_SRQT_BASIC`.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with zeroed memory of `size_ib_srq` octets that names its device and
    /// domain, and with writable attributes.
    pub(super) unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        init: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `srq` names its device and domain, and `init` is
            // writable.
            let (device, pd, init, udata) = unsafe {
                (
                    DeviceObject::<D>::get((*srq).device)?,
                    PdObject::<D>::get((*srq).pd)?,
                    &mut *init,
                    Udata::new(udata),
                )
            };
            if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
                return Err(EOPNOTSUPP);
            }
            let attr = SrqAttr {
                max_wr: init.attr.max_wr,
                max_sge: init.attr.max_sge,
                limit: init.attr.srq_limit,
            };
            let srq_object = NonNull::new(srq).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the object lives until its destruction, which
            // retires the reference first.
            let core = CoreRef::new(unsafe { CoreSrq::new(srq_object) })?;
            let unmade = RetireOnDrop(&core);
            // SAFETY: `udata` is that of the current call.
            let owner = unsafe { Udata::owner(udata) };
            let inner = D::create_srq(device, pd, attr, owner, core.clone())?;
            let ring = D::srq_ring(&inner);
            // SAFETY: The new object owns the mapping.
            let mapping = unsafe { map(udata, Some(ring))? };
            if let Some(udata) = udata {
                udata.reply(&bindings::siw_uresp_create_srq {
                    num_rqe: ring.slots(),
                    pad: 0,
                    srq_key: key(&mapping),
                })?;
            }
            let attr = D::query_srq(&inner);
            init.attr.max_wr = attr.max_wr;
            init.attr.max_sge = attr.max_sge;
            core::mem::forget(unmade);
            // SAFETY: By this function's contract `srq` is a new object that no other context uses.
            unsafe { SrqObject::<D>::fill(srq, inner, Some(core), [mapping, None]) };
            Ok(0)
        })
    }

    /// `modify_srq`: arms the limit event. `EOPNOTSUPP` for a resize.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a queue of this driver and readable attributes.
    pub(super) unsafe extern "C" fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `srq` is a live queue, and `attr` is readable.
            let (inner, attr) = unsafe { (SrqObject::<D>::get(srq)?, &*attr) };
            if mask & !bindings::ib_srq_attr_mask_IB_SRQ_LIMIT != 0 {
                return Err(EOPNOTSUPP);
            }
            if mask & bindings::ib_srq_attr_mask_IB_SRQ_LIMIT != 0 {
                D::limit_srq(inner, attr.srq_limit)?;
            }
            Ok(0)
        })
    }

    /// `query_srq`: reads the attributes of a shared receive queue.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a queue of this driver and a writable structure.
    pub(super) unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `srq` is a live queue, and `attr` is writable.
            let (inner, attr) = unsafe { (SrqObject::<D>::get(srq)?, &mut *attr) };
            let now = D::query_srq(inner);
            attr.max_wr = now.max_wr;
            attr.max_sge = now.max_sge;
            attr.srq_limit = now.limit;
            Ok(0)
        })
    }

    /// `destroy_srq`: destroys a shared receive queue.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it once, with a queue that [`create_srq`](Self::create_srq) has filled in.
    pub(super) unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // The object stays filled during this call: a running event handler may post.
        // SAFETY: By this function's contract `srq` is filled in, and not emptied before the call
        // below.
        if let Ok(inner) = unsafe { SrqObject::<D>::get(srq) } {
            D::destroy_srq(inner);
        }
        // SAFETY: As above; after the call above only holders of counted references use the object.
        drop(unsafe { SrqObject::<D>::empty(srq) });
        0
    }

    /// `post_srq_recv`: posts receive work requests to a shared receive queue. Any context.
    ///
    /// # Safety
    ///
    /// `ib_core` or a kernel user calls it with a queue of this driver, a valid chain, and a null or
    /// writable `bad`.
    pub(super) unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: By this function's contract `srq` is a live queue; `ib_core` has set the field
        // before the creation.
        let (inner, from_kernel) = unsafe { (SrqObject::<D>::get(srq), (*srq).uobject.is_null()) };
        match inner {
            // SAFETY: By this function's contract `wr` is a valid chain, and `bad` is null or
            // writable.
            Ok(inner) => unsafe { post(wr, bad, from_kernel, |wrs| D::post_srq(inner, wrs)) },
            Err(error) => error.to_errno(),
        }
    }
}
