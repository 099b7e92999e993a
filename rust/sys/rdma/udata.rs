// SPDX-License-Identifier: GPL-2.0

//! The driver's data in verbs calls of processes: request and response.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    prelude::*, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

use crate::sys::{
    bindings,
    rdma::ring::Owner, //
};

/// The driver data of a process's verbs call.
///
/// # Invariants
///
/// The pointer is valid; the value is used only during the call.
#[derive(Clone, Copy)]
pub(super) struct Udata(NonNull<bindings::ib_udata>);

impl Udata {
    /// The data of a verbs call; `None` for calls of kernel users.
    ///
    /// # Safety
    ///
    /// `udata` is null or that of the current call.
    pub(super) unsafe fn new(udata: *mut bindings::ib_udata) -> Option<Self> {
        // INVARIANT: The caller's promise.
        NonNull::new(udata).map(Self)
    }

    /// The data of an ioctl-style call.
    ///
    /// # Safety
    ///
    /// `attrs` is null or the attributes of the current call.
    pub(super) unsafe fn of_attrs(attrs: *mut bindings::uverbs_attr_bundle) -> Option<Self> {
        if attrs.is_null() {
            return None;
        }
        // SAFETY: The caller's promise.
        unsafe { Self::new(bindings::rsiw_attrs_udata(attrs)) }
    }

    /// The owner of the object that the call creates.
    pub(super) fn owner(this: Option<Self>) -> Owner {
        match this {
            Some(_) => Owner::User,
            None => Owner::kernel(),
        }
    }

    /// The user context of the process.
    pub(super) fn context(self) -> Result<NonNull<bindings::ib_ucontext>> {
        // SAFETY: By the invariant of the type.
        NonNull::new(unsafe { bindings::rsiw_udata_context(self.0.as_ptr()) }).ok_or(EINVAL)
    }

    /// Copies the request of the process; `None` when it is too short.
    ///
    /// A longer request of a newer library is accepted if its additional octets are zero.
    pub(super) fn request<T: FromBytes>(self) -> Result<Option<T>> {
        // SAFETY: By the invariant of the type.
        let len = unsafe { (*self.0.as_ptr()).inlen };
        if len < size_of::<T>() {
            return Ok(None);
        }
        let mut request = T::new_zeroed();
        // SAFETY: `request` has that many octets, and any octets are a value (`FromBytes`).
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.0.as_ptr(),
                core::ptr::from_mut(&mut request).cast(),
                size_of::<T>(),
                size_of::<T>(),
            )
        })?;
        Ok(Some(request))
    }

    /// Copies the response to the process; `EINVAL` when its buffer is too short.
    pub(super) fn reply<T: IntoBytes + Immutable>(self, reply: &T) -> Result {
        // SAFETY: By the invariant of the type.
        let room = unsafe { (*self.0.as_ptr()).outlen };
        if room < size_of::<T>() {
            return Err(EINVAL);
        }
        // SAFETY: `reply` has that many octets, all of them initialized (`IntoBytes`).
        to_result(unsafe {
            bindings::_ib_respond_udata(
                self.0.as_ptr(),
                core::ptr::from_ref(reply).cast(),
                size_of::<T>(),
            )
        })
    }
}
