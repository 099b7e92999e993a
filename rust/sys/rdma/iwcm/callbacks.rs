// SPDX-License-Identifier: GPL-2.0

//! The C callbacks of the verbs table that `iw_cm` calls.

use core::{
    marker::PhantomData,
    ptr::NonNull,
    slice, //
};

use kernel::{
    error::from_result,
    prelude::*,
    sync::Arc, //
};

use super::{
    event::{
        AcceptCall,
        Commitment,
        ConnectCall,
        ListenCall,
        Peers, //
    },
    id::CmId,
    CmOps,
    ConnParam,
    Handle, //
};
use crate::sys::{
    bindings,
    net::from_storage, //
    rdma::objects,
};

/// The C callbacks of `iw_cm` for driver `D`.
pub(crate) struct IwCmCallbacks<D>(PhantomData<D>);

/// The driver's device of an identifier.
///
/// # Safety
///
/// `id` is an identifier of a device of `D` that is alive during `'a`.
unsafe fn device<'a, D: CmOps>(id: NonNull<bindings::iw_cm_id>) -> Result<&'a Arc<D::Device>> {
    // SAFETY: By this function's contract `id` is alive, and its device is one of `D`.
    unsafe { objects::device::<D>((*id.as_ptr()).device) }
}

/// The driver's handle in an identifier.
///
/// # Safety
///
/// `id` is an identifier that is alive during the call.
unsafe fn handle(id: NonNull<bindings::iw_cm_id>) -> Result<Handle> {
    // SAFETY: By this function's contract `id` is alive.
    let provider_data = unsafe { (*id.as_ptr()).provider_data };
    Handle::from_provider_data(provider_data).ok_or(EINVAL)
}

/// Copies the parameters of the user, with a reference to the private data. `EINVAL`: `param` is
/// null.
///
/// # Safety
///
/// `param` is null, or valid during `'a` with its private data; `id` is an identifier that is alive
/// during the call.
unsafe fn conn_param<'a>(
    id: NonNull<bindings::iw_cm_id>,
    param: *const bindings::iw_cm_conn_param,
) -> Result<ConnParam<'a>> {
    // SAFETY: By this function's contract `param` is null or valid during `'a`.
    let param = unsafe { param.as_ref() }.ok_or(EINVAL)?;
    // SAFETY: By this function's contract the private data is valid during `'a`.
    let private_data = unsafe { octets(param.private_data, param.private_data_len.into()) };
    Ok(ConnParam {
        qpn: param.qpn,
        // SAFETY: By this function's contract `id` is alive.
        own_qp: unsafe { bindings::rsiw_cm_own_qp(id.as_ptr()) }.addr(),
        ird: param.ird,
        ord: param.ord,
        private_data,
    })
}

/// Wraps `len` octets at `data`; the pointer is not used if `len` is 0.
///
/// # Safety
///
/// If `len` is not 0, `data` is null or points to `len` octets that do not change during `'a`.
unsafe fn octets<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: By this function's contract the octets do not change during `'a`.
    unsafe { slice::from_raw_parts(data.cast(), len) }
}

/// The IP type of service of an identifier, if the user has set it.
///
/// # Safety
///
/// `id` is an identifier that is alive during the call.
unsafe fn tos(id: NonNull<bindings::iw_cm_id>) -> Option<u8> {
    let id = id.as_ptr();
    // SAFETY: By this function's contract `id` is alive. The code forms no reference to fields that
    // `iw_cm` may change.
    unsafe { bindings::iw_cm_id::tos_set_raw(id).then_some((*id).tos) }
}

impl<D: CmOps> IwCmCallbacks<D> {
    /// `iw_connect`: begins to connect. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with an identifier of a device of `D`, and the parameters of the user.
    pub(crate) unsafe extern "C" fn connect(
        id: *mut bindings::iw_cm_id,
        param: *mut bindings::iw_cm_conn_param,
    ) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the device is one of `D`. Its unregistration
            // waits for running calls.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: By this function's contract `id` is alive, and `param` is valid during the
            // call.
            let param = unsafe { conn_param(id, param)? };
            // The port mapper may have replaced the addresses that the user has passed, so these
            // are the mapped ones.
            // SAFETY: By this function's contract `id` is alive; `iw_cm` does not write the mapped
            // addresses during the call.
            let peers = unsafe {
                Peers {
                    local: from_storage(&(*id.as_ptr()).m_local_addr)?,
                    remote: from_storage(&(*id.as_ptr()).m_remote_addr)?,
                }
            };
            // SAFETY: By this function's contract `iw_cm` has allocated `id`, which is alive.
            let (cm, tos) = unsafe { (CmId::new(id)?, tos(id)) };
            let commitment = Commitment::new();
            let call = ConnectCall::new(&commitment, cm, peers, tos);
            commitment.result(D::connect(device, call, &param))?;
            Ok(0)
        })
    }

    /// `iw_accept`: accepts a connection. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with the identifier of a request that this driver has announced, and the
    /// parameters of the user.
    pub(crate) unsafe extern "C" fn accept(
        id: *mut bindings::iw_cm_id,
        param: *mut bindings::iw_cm_conn_param,
    ) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the device is one of `D`. Its unregistration
            // waits for running calls.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: By this function's contract `id` is alive, and `param` is valid during the
            // call.
            let (handle, param) = unsafe { (handle(id)?, conn_param(id, param)?) };
            // SAFETY: By this function's contract `iw_cm` has allocated `id`, which is alive.
            let cm = unsafe { CmId::new(id)? };
            let commitment = Commitment::new();
            let call = AcceptCall::new(&commitment, cm);
            commitment.result(D::accept(device, handle, call, &param))?;
            Ok(0)
        })
    }

    /// `iw_reject`: rejects a connection. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with the identifier of a request that this driver has announced, and
    /// private data for the peer.
    pub(crate) unsafe extern "C" fn reject(
        id: *mut bindings::iw_cm_id,
        private_data: *const c_void,
        len: u8,
    ) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the device is one of `D`. Its unregistration
            // waits for running calls.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: By this function's contract `id` is alive, and has `len` octets of private
            // data.
            let (handle, data) = unsafe { (handle(id)?, octets(private_data, len.into())) };
            D::reject(device, handle, data)?;
            Ok(0)
        })
    }

    /// `iw_create_listen`: begins to listen. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with an identifier of a device of `D`.
    pub(crate) unsafe extern "C" fn create_listen(
        id: *mut bindings::iw_cm_id,
        backlog: c_int,
    ) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the device is one of `D`. Its unregistration
            // waits for running calls.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: By this function's contract `id` is alive; `iw_cm` does not write these
            // fields now.
            let (local, v6_only) = unsafe {
                (
                    from_storage(&(*id.as_ptr()).m_local_addr)?,
                    bindings::iw_cm_id::afonly_raw(id.as_ptr()),
                )
            };
            // SAFETY: By this function's contract `iw_cm` has allocated `id`, which is alive.
            let (cm, tos) = unsafe { (CmId::new(id)?, tos(id)) };
            let call = ListenCall::new(cm, local, v6_only, tos);
            let handle = D::listen(device, call, u32::try_from(backlog).unwrap_or(0))?;
            // SAFETY: By this function's contract `id` is alive, and `provider_data` is a field for
            // the driver.
            unsafe { (*id.as_ptr()).provider_data = handle.to_provider_data() };
            Ok(0)
        })
    }

    /// `iw_destroy_listen`: stops listening. Process context; sleeps.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it once, with an identifier for which [`create_listen`](Self::create_listen)
    /// has succeeded.
    pub(crate) unsafe extern "C" fn destroy_listen(id: *mut bindings::iw_cm_id) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: By this function's contract the device is one of `D`. Its unregistration
            // waits for running calls.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: By this function's contract `id` is alive.
            D::unlisten(device, unsafe { handle(id)? });
            Ok(0)
        })
    }

    /// `iw_get_qp`: looks up a queue pair, and takes the reference for the next call,
    /// [`add_ref`](Self::add_ref).
    ///
    /// A process could destroy the queue pair between the two calls otherwise.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with a device of `D`, and then [`add_ref`](Self::add_ref).
    pub(crate) unsafe extern "C" fn get_qp(
        device: *mut bindings::ib_device,
        number: c_int,
    ) -> *mut bindings::ib_qp {
        // SAFETY: By this function's contract the device is one of `D`. Its unregistration waits
        // for running calls.
        let Ok(device) = (unsafe { objects::device::<D>(device) }) else {
            return core::ptr::null_mut();
        };
        u32::try_from(number)
            .ok()
            .and_then(|number| D::find_qp(device, number))
            .map_or(core::ptr::null_mut(), objects::leak_qp)
    }

    /// `iw_add_ref`: no effect, as [`get_qp`](Self::get_qp) has taken the reference.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it only directly after `get_qp`.
    pub(crate) unsafe extern "C" fn add_ref(_qp: *mut bindings::ib_qp) {}

    /// `iw_rem_ref`: drops a reference to a queue pair.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it once for each call of [`add_ref`](Self::add_ref).
    pub(crate) unsafe extern "C" fn rem_ref(qp: *mut bindings::ib_qp) {
        // SAFETY: By this function's contract `get_qp` has taken the reference that this call
        // drops.
        unsafe { objects::put_qp::<D>(qp) };
    }
}
