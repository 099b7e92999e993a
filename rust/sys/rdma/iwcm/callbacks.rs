// SPDX-License-Identifier: GPL-2.0

//! The functions of the table of verbs that `iw_cm` calls.

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

/// The C callbacks for driver `D`.
pub(crate) struct Callbacks<D>(PhantomData<D>);

/// The driver's device of an identifier.
///
/// # Safety
///
/// `id` is an identifier of a device of `D` that lives as long as `'a`.
unsafe fn device<'a, D: CmOps>(id: NonNull<bindings::iw_cm_id>) -> Result<&'a Arc<D::Device>> {
    // SAFETY: The caller's promise.
    unsafe { objects::device::<D>((*id.as_ptr()).device) }
}

/// The driver's handle in an identifier.
///
/// # Safety
///
/// `id` is an identifier that lives during the call.
unsafe fn handle(id: NonNull<bindings::iw_cm_id>) -> Result<Handle> {
    // SAFETY: The caller's promise.
    let provider_data = unsafe { (*id.as_ptr()).provider_data };
    Handle::from_provider_data(provider_data).ok_or(EINVAL)
}

/// What the user wants.
///
/// # Safety
///
/// `param` is valid as long as `'a`, and so are the octets it points to; `id` is an identifier that
/// lives during the call.
unsafe fn conn_param<'a>(
    id: NonNull<bindings::iw_cm_id>,
    param: *const bindings::iw_cm_conn_param,
) -> Result<ConnParam<'a>> {
    // SAFETY: The caller's promise.
    let param = unsafe { param.as_ref() }.ok_or(EINVAL)?;
    // SAFETY: As above.
    let private_data = unsafe { octets(param.private_data, param.private_data_len.into()) };
    Ok(ConnParam {
        qpn: param.qpn,
        // SAFETY: As above.
        own_qp: unsafe { bindings::rsiw_cm_own_qp(id.as_ptr()) }.addr(),
        ird: param.ird,
        ord: param.ord,
        private_data,
    })
}

/// Octets by pointer and length; the pointer counts only if there are any.
///
/// # Safety
///
/// If `len` is not 0, `data` points to that many octets that do not change as long as `'a`.
unsafe fn octets<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: The caller's promise.
    unsafe { slice::from_raw_parts(data.cast(), len) }
}

/// The type of service that is asked for.
///
/// # Safety
///
/// `id` is an identifier that lives during the call.
unsafe fn tos(id: NonNull<bindings::iw_cm_id>) -> Option<u8> {
    let id = id.as_ptr();
    // SAFETY: The caller's promise; no reference to what `iw_cm` may change is made.
    unsafe { bindings::iw_cm_id::tos_set_raw(id).then_some((*id).tos) }
}

impl<D: CmOps> Callbacks<D> {
    /// Connects.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with an identifier of a device of `D` and what the user wants.
    pub(crate) unsafe extern "C" fn connect(
        id: *mut bindings::iw_cm_id,
        param: *mut bindings::iw_cm_conn_param,
    ) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: The caller's promise; the device waits for the calls to it to end.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: The caller's promise.
            let param = unsafe { conn_param(id, param)? };
            // The port mapper may have put other addresses behind those that the user knows.
            // SAFETY: The caller's promise: there are no writes to them during the call.
            let peers = unsafe {
                Peers {
                    local: from_storage(&(*id.as_ptr()).m_local_addr)?,
                    remote: from_storage(&(*id.as_ptr()).m_remote_addr)?,
                }
            };
            // SAFETY: The caller's promise.
            let (cm, tos) = unsafe { (CmId::new(id)?, tos(id)) };
            D::connect(device, ConnectCall::new(cm, peers, tos), &param)?;
            Ok(0)
        })
    }

    /// Accepts.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with an identifier that it has made for a request of ours, and what the
    /// user wants.
    pub(crate) unsafe extern "C" fn accept(
        id: *mut bindings::iw_cm_id,
        param: *mut bindings::iw_cm_conn_param,
    ) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: The caller's promise; the device waits for the calls to it to end.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: The caller's promise.
            let (handle, param) = unsafe { (handle(id)?, conn_param(id, param)?) };
            // SAFETY: The caller's promise.
            let call = AcceptCall::new(unsafe { CmId::new(id)? });
            D::accept(device, handle, call, &param)?;
            Ok(0)
        })
    }

    /// Refuses.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with an identifier that it has made for a request of ours, and octets for
    /// the peer.
    pub(crate) unsafe extern "C" fn reject(
        id: *mut bindings::iw_cm_id,
        private_data: *const c_void,
        len: u8,
    ) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: The caller's promise; the device waits for the calls to it to end.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: The caller's promise.
            let (handle, data) = unsafe { (handle(id)?, octets(private_data, len.into())) };
            D::reject(device, handle, data)?;
            Ok(0)
        })
    }

    /// Listens.
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
            // SAFETY: The caller's promise; the device waits for the calls to it to end.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: The caller's promise.
            let (local, v6_only) = unsafe {
                (
                    from_storage(&(*id.as_ptr()).m_local_addr)?,
                    bindings::iw_cm_id::afonly_raw(id.as_ptr()),
                )
            };
            // SAFETY: The caller's promise.
            let (cm, tos) = unsafe { (CmId::new(id)?, tos(id)) };
            let call = ListenCall::new(cm, local, v6_only, tos);
            let handle = D::listen(device, call, u32::try_from(backlog).unwrap_or(0))?;
            // SAFETY: The caller's promise: the field is the driver's.
            unsafe { (*id.as_ptr()).provider_data = handle.to_provider_data() };
            Ok(0)
        })
    }

    /// Ends listening.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it once with an identifier that [`create_listen`](Self::create_listen) has
    /// succeeded with.
    pub(crate) unsafe extern "C" fn destroy_listen(id: *mut bindings::iw_cm_id) -> c_int {
        from_result(|| {
            let id = NonNull::new(id).ok_or(EINVAL)?;
            // SAFETY: The caller's promise; the device waits for the calls to it to end.
            let device = unsafe { device::<D>(id)? };
            // SAFETY: The caller's promise.
            D::unlisten(device, unsafe { handle(id)? });
            Ok(0)
        })
    }

    /// Finds a queue pair and takes the reference that `iw_cm` asks for in its next call.
    ///
    /// Between the two nothing would keep a process from destroying the queue pair.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it with a device of `D`, and then [`add_ref`](Self::add_ref).
    pub(crate) unsafe extern "C" fn get_qp(
        device: *mut bindings::ib_device,
        number: c_int,
    ) -> *mut bindings::ib_qp {
        // SAFETY: The caller's promise; the device waits for the calls to it to end.
        let Ok(device) = (unsafe { objects::device::<D>(device) }) else {
            return core::ptr::null_mut();
        };
        u32::try_from(number)
            .ok()
            .and_then(|number| D::find_qp(device, number))
            .map_or(core::ptr::null_mut(), objects::leak_qp)
    }

    /// Takes a reference to a queue pair: [`get_qp`](Self::get_qp) has done so.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it right after `get_qp` and nowhere else.
    pub(crate) unsafe extern "C" fn add_ref(_qp: *mut bindings::ib_qp) {}

    /// Gives a reference to a queue pair back.
    ///
    /// # Safety
    ///
    /// `iw_cm` calls it once for each call of [`add_ref`](Self::add_ref).
    pub(crate) unsafe extern "C" fn rem_ref(qp: *mut bindings::ib_qp) {
        // SAFETY: The caller's promise: `get_qp` has left it counted.
        unsafe { objects::put_qp::<D>(qp) };
    }
}
