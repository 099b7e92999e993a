// SPDX-License-Identifier: GPL-2.0

//! The verbs callbacks of completion queues and queue pairs.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use core::ptr::NonNull;

use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};

use crate::sys::{
    bindings,
    errno::EOPNOTSUPP,
    rdma::{
        attr::{
            Cap,
            Change, //
        },
        core_ref::{
            CoreRef,
            RetireOnDrop, //
        },
        driver::{
            Arm,
            CqRequest,
            Driver,
            QpRequest, //
        },
        event::{
            CoreCq,
            CoreQp, //
        },
        mmap::Mapping,
        objects::{
            self,
            CqObject,
            DeviceObject,
            PdObject,
            QpObject,
            SrqObject, //
        },
        ring::Ring,
        udata::Udata,
        vtable::Vtable,
        wr::{
            Chain,
            Chained,
            WcRoom, //
        }, //
    }, //
};

/// Makes a mapping of a ring for the process of a verbs call; `None` for kernel users. Process
/// context; sleeps.
///
/// # Safety
///
/// The object that the current call creates owns the mapping, or the mapping is dropped before the
/// call returns.
pub(super) unsafe fn map(
    udata: Option<Udata<'_>>,
    ring: Option<&Arc<Ring>>,
) -> Result<Option<Mapping>> {
    match (udata, ring) {
        (Some(udata), Some(ring)) => {
            let context = udata.context()?;
            // SAFETY: The context is that of the current call. By this function's contract an object
            // of the context owns the mapping. `ib_core` destroys all objects of a context first.
            Ok(Some(unsafe { Mapping::new(context, ring.clone())? }))
        }
        _ => Ok(None),
    }
}

/// The `mmap()` offset of a mapping in octets; 0 without a mapping.
pub(super) fn key(mapping: &Option<Mapping>) -> u64 {
    mapping.as_ref().map_or(0, Mapping::key)
}

/// Passes a chain of work requests to `post`, and stores the refused one in `*bad`. `EINVAL`: the
/// object is that of a process, whose requests have addresses of the process (`ib_uverbs_post_send`
/// and the like).
///
/// # Safety
///
/// `head` is a valid chain during the call; `bad` is null or writable. With `from_kernel` the chain
/// is that of a kernel user.
pub(super) unsafe fn post<T: Chained>(
    head: *const T,
    bad: *mut *const T,
    from_kernel: bool,
    post: impl FnOnce(&mut Chain<'_, T>) -> Result,
) -> c_int {
    // SAFETY: By this function's contract `head` is a valid chain during the call.
    let mut chain = unsafe { Chain::new(head) };
    let result = match from_kernel {
        true => post(&mut chain),
        false => Err(EINVAL),
    };
    if result.is_err() && !bad.is_null() {
        // SAFETY: By this function's contract `bad` is writable, as it is not null.
        unsafe { *bad = chain.bad() };
    }
    from_result(|| result.map(|()| 0))
}

impl<D: Driver> Vtable<D> {
    /// `create_cq`: creates a completion queue. `EOPNOTSUPP`: a creation flag is set.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with zeroed memory of `size_ib_cq` octets that names its device, and with
    /// readable attributes.
    pub(super) unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `cq` names its device, and the attributes are
            // readable.
            let (device, attr, udata) = unsafe {
                (
                    DeviceObject::<D>::get((*cq).device)?,
                    &*attr,
                    Udata::of_attrs(attrs),
                )
            };
            if attr.flags != 0 {
                return Err(EOPNOTSUPP);
            }
            let cq_object = NonNull::new(cq).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the object lives until its destruction, which
            // retires the reference first.
            let core = CoreRef::new(unsafe { CoreCq::new(cq_object) })?;
            let unmade = RetireOnDrop(&core);
            let request = CqRequest {
                entries: attr.cqe,
                // SAFETY: `udata` is that of the current call.
                owner: unsafe { Udata::owner(udata) },
                core: core.clone(),
            };
            let inner = D::create_cq(device, request)?;
            let (number, ring) = D::cq_info(&inner);
            let entries = ring.slots();
            // SAFETY: The new object owns the mapping.
            let mapping = unsafe { map(udata, Some(ring))? };
            if let Some(udata) = udata {
                udata.reply(&bindings::siw_uresp_create_cq {
                    cq_id: number,
                    num_cqe: entries,
                    cq_key: key(&mapping),
                })?;
            }
            core::mem::forget(unmade);
            // SAFETY: By this function's contract `cq` is a new object that no other context uses.
            unsafe {
                (*cq).cqe = entries as c_int;
                CqObject::<D>::fill(cq, inner, Some(core), [mapping, None]);
            }
            Ok(0)
        })
    }

    /// `destroy_cq`: destroys a completion queue.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it once, with a queue that [`create_cq`](Self::create_cq) has filled in.
    pub(super) unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // The object stays filled during this call: a running handler may poll the queue.
        // SAFETY: By this function's contract `cq` is filled in, and not emptied before the call
        // below.
        if let Ok(inner) = unsafe { CqObject::<D>::get(cq) } {
            D::destroy_cq(inner);
        }
        // SAFETY: As above; after the call above only holders of counted references use the object.
        drop(unsafe { CqObject::<D>::empty(cq) });
        0
    }

    /// `poll_cq`: moves completions to a kernel user. Any context.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a queue of this driver and an array of `n` completions.
    pub(super) unsafe extern "C" fn poll_cq(
        cq: *mut bindings::ib_cq,
        n: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `cq` is a live queue, and `wc` has `n` elements.
            let (device, inner, mut room) = unsafe {
                (
                    objects::device::<D>((*cq).device)?,
                    CqObject::<D>::get(cq)?,
                    WcRoom::new(wc, n),
                )
            };
            D::poll_cq(device, inner, &mut room);
            Ok(c_int::try_from(room.used())?)
        })
    }

    /// `req_notify_cq`: arms a completion queue for a kernel user. Any context.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a queue of this driver.
    pub(super) unsafe extern "C" fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `cq` is a live queue.
            let inner = unsafe { CqObject::<D>::get(cq)? };
            let kind = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK;
            let arm = if kind == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED {
                Arm::Solicited
            } else {
                Arm::Next
            };
            let waiting = D::arm_cq(inner, arm);
            let report = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
            Ok(c_int::from(report && waiting))
        })
    }

    /// `create_qp`: creates a queue pair. `EOPNOTSUPP`: the type is not `IB_QPT_RC`, or a creation
    /// flag is set.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with zeroed memory of `size_ib_qp` octets that names its device, and with
    /// queues and a domain of that device. `init` is writable.
    pub(super) unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        init: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `qp` names its device, and `init` is writable.
            let (device, init, udata) = unsafe {
                (
                    DeviceObject::<D>::get((*qp).device)?,
                    &mut *init,
                    Udata::new(udata),
                )
            };
            if init.qp_type != bindings::ib_qp_type_IB_QPT_RC || init.create_flags != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: As above; a null completion queue is an error (`EINVAL`).
            let (pd, send_cq, recv_cq, srq) = unsafe {
                (
                    PdObject::<D>::get((*qp).pd)?,
                    CqObject::<D>::get(init.send_cq)?.clone(),
                    CqObject::<D>::get(init.recv_cq)?.clone(),
                    match NonNull::new(init.srq) {
                        Some(srq) => Some(SrqObject::<D>::get(srq.as_ptr())?.clone()),
                        None => None,
                    },
                )
            };
            let qp_object = NonNull::new(qp).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the object lives until its destruction, which
            // retires the reference first.
            let core = CoreRef::new(unsafe { CoreQp::new(qp_object) })?;
            let unmade = RetireOnDrop(&core);
            let inner = D::create_qp(
                device,
                QpRequest {
                    pd,
                    send_cq,
                    recv_cq,
                    srq,
                    cap: Cap::from_raw(&init.cap),
                    signal_all: init.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
                    // SAFETY: `udata` is that of the current call.
                    owner: unsafe { Udata::owner(udata) },
                    core: core.clone(),
                },
            )?;
            // SAFETY: By this function's contract `qp` is a new object, and `init` is writable.
            let result = unsafe { Self::finish_qp(qp, init, udata, &inner, &core) };
            match result {
                Ok(()) => core::mem::forget(unmade),
                Err(_) => D::destroy_qp(device, &inner),
            }
            result.map(|()| 0)
        })
    }

    /// Replies to the process, and stores the queue pair in its `ib_qp`.
    ///
    /// # Safety
    ///
    /// As for [`create_qp`](Self::create_qp).
    unsafe fn finish_qp(
        qp: *mut bindings::ib_qp,
        init: &mut bindings::ib_qp_init_attr,
        udata: Option<Udata<'_>>,
        inner: &Arc<D::Qp>,
        core: &Arc<CoreRef<CoreQp>>,
    ) -> Result {
        let info = D::qp_info(inner);
        // SAFETY: The new queue pair owns both mappings.
        let (sq, rq) = unsafe { (map(udata, Some(info.sq))?, map(udata, info.rq)?) };
        if let Some(udata) = udata {
            udata.reply(&bindings::siw_uresp_create_qp {
                qp_id: info.number,
                num_sqe: info.sq.slots(),
                num_rqe: info.rq.map_or(0, |ring| ring.slots()),
                pad: 0,
                sq_key: key(&sq),
                rq_key: key(&rq),
            })?;
        }
        info.cap.fill(&mut init.cap);
        // SAFETY: By this function's contract `qp` is a new object that no other context uses.
        unsafe {
            (*qp).qp_num = info.number;
            QpObject::<D>::fill(qp, inner.clone(), Some(core.clone()), [sq, rq]);
        }
        D::qp_is_made(inner);
        Ok(())
    }

    /// `modify_qp`: changes attributes of a queue pair.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a queue pair of this driver and attributes that it has prepared.
    pub(super) unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        from_result(|| {
            if mask as u32 & !bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: By this function's contract `qp` is a live queue pair, and `attr` is
            // readable.
            let (device, inner, attr) = unsafe {
                (
                    objects::device::<D>((*qp).device)?,
                    QpObject::<D>::get(qp)?,
                    &*attr,
                )
            };
            // SAFETY: By this function's contract `ib_core` has prepared `attr` for `modify_qp`.
            let change = unsafe { Change::from_raw(attr, mask as u32) };
            D::modify_qp(device, inner, &change)?;
            Ok(0)
        })
    }

    /// `query_qp`: reads the attributes of a queue pair.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it with a queue pair of this driver and writable structures.
    pub(super) unsafe extern "C" fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's contract `qp` is a live queue pair, and the structures are
            // writable.
            let (inner, attr, init) = unsafe { (QpObject::<D>::get(qp)?, &mut *attr, &mut *init) };
            *attr = pin_init::zeroed();
            *init = pin_init::zeroed();
            // SAFETY: The queue pair and its device are alive during the call.
            unsafe {
                let info = bindings::rsiw_port_info((*qp).device);
                D::query_qp(inner).fill(info.mtu, attr, init);
                init.event_handler = (*qp).event_handler;
                init.qp_context = (*qp).qp_context;
                init.send_cq = (*qp).send_cq;
                init.recv_cq = (*qp).recv_cq;
                init.srq = (*qp).srq;
            }
            Ok(0)
        })
    }

    /// `destroy_qp`: destroys a queue pair.
    ///
    /// # Safety
    ///
    /// `ib_core` calls it once, with a queue pair that [`create_qp`](Self::create_qp) has filled
    /// in.
    pub(super) unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // The object is emptied only after the wait: `iw_cm` may use it until it drops its
        // references.
        // SAFETY: By this function's contract `qp` is filled in, and not emptied before the call
        // below.
        let found = unsafe { (objects::device::<D>((*qp).device), QpObject::<D>::get(qp)) };
        if let (Ok(device), Ok(inner)) = found {
            D::destroy_qp(device, inner);
        }
        // SAFETY: As above; after the call above only holders of counted references use the object.
        drop(unsafe { QpObject::<D>::empty(qp) });
        0
    }

    /// `post_send`: posts send work requests; a null chain is the doorbell of a process. Any
    /// context.
    ///
    /// # Safety
    ///
    /// `ib_core` or a kernel user calls it with a queue pair of this driver, and a valid chain or
    /// null. `bad` is null or writable.
    pub(super) unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: By this function's contract `qp` is a live queue pair.
        let inner = match unsafe { QpObject::<D>::get(qp) } {
            Ok(inner) => inner,
            Err(error) => return error.to_errno(),
        };
        if wr.is_null() {
            D::doorbell(inner);
            return 0;
        }
        // SAFETY: By this function's contract `qp` is a live queue pair; `ib_core` has set the field
        // before the creation.
        let from_kernel = unsafe { (*qp).uobject.is_null() };
        // SAFETY: By this function's contract `wr` is a valid chain, and `bad` is null or writable.
        unsafe { post(wr, bad, from_kernel, |wrs| D::post_send(inner, wrs)) }
    }

    /// `post_recv`: posts receive work requests. Any context.
    ///
    /// # Safety
    ///
    /// `ib_core` or a kernel user calls it with a queue pair of this driver and a valid chain.
    /// `bad` is null or writable.
    pub(super) unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        wr: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: By this function's contract `qp` is a live queue pair; `ib_core` has set the field
        // before the creation.
        let (inner, from_kernel) = unsafe { (QpObject::<D>::get(qp), (*qp).uobject.is_null()) };
        match inner {
            // SAFETY: By this function's contract `wr` is a valid chain, and `bad` is null or
            // writable.
            Ok(inner) => unsafe { post(wr, bad, from_kernel, |wrs| D::post_recv(inner, wrs)) },
            Err(error) => error.to_errno(),
        }
    }
}
