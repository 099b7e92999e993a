// SPDX-License-Identifier: GPL-2.0

//! Driver data in verbs calls of processes: request and response (`struct ib_udata`).
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

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
/// The pointer is valid during `'call`, the time of the verbs call.
#[derive(Clone, Copy)]
pub(super) struct Udata<'call>(NonNull<bindings::ib_udata>, PhantomData<&'call ()>);

impl<'call> Udata<'call> {
    /// Wraps the data of a verbs call; `None` for a call of a kernel user.
    ///
    /// # Safety
    ///
    /// `udata` is null, or the data of the current call, which lasts at least for `'call`.
    pub(super) unsafe fn new(udata: *mut bindings::ib_udata) -> Option<Self> {
        // INVARIANT: By this function's contract the data is that of the current call.
        NonNull::new(udata).map(|udata| Self(udata, PhantomData))
    }

    /// Wraps the data of a verbs call in ioctl style; `None` for a call of a kernel user.
    ///
    /// # Safety
    ///
    /// `attrs` is null, or the attributes of the current call, which lasts at least for `'call`.
    pub(super) unsafe fn of_attrs(attrs: *mut bindings::uverbs_attr_bundle) -> Option<Self> {
        if attrs.is_null() {
            return None;
        }
        // SAFETY: By this function's contract the attributes are those of the current call.
        unsafe { Self::new(bindings::rsiw_attrs_udata(attrs)) }
    }

    /// The owner of the object that the call creates.
    ///
    /// # Safety
    ///
    /// `this` is the data of a verbs call, as [`new`](Self::new) has returned it. `None` permits the
    /// use of kernel addresses.
    pub(super) unsafe fn owner(this: Option<Self>) -> Owner {
        match this {
            Some(_) => Owner::User,
            // SAFETY: By this function's contract the call is that of a kernel user.
            None => unsafe { Owner::kernel() },
        }
    }

    /// The user context of the process. `EINVAL`: the call has none.
    pub(super) fn context(self) -> Result<NonNull<bindings::ib_ucontext>> {
        // SAFETY: By the type invariant the pointer is valid.
        NonNull::new(unsafe { bindings::rsiw_udata_context(self.0.as_ptr()) }).ok_or(EINVAL)
    }

    /// Copies the request of the process; `None` if it is too short. Process context; sleeps.
    ///
    /// A longer request of a newer library is accepted if its additional octets are zero. `EFAULT`:
    /// the request is not readable. `EOPNOTSUPP`: additional octets are not zero.
    pub(super) fn request<T: FromBytes>(self) -> Result<Option<T>> {
        // SAFETY: By the type invariant the pointer is valid.
        let len = unsafe { (*self.0.as_ptr()).inlen };
        if len < size_of::<T>() {
            return Ok(None);
        }
        let mut request = T::new_zeroed();
        // SAFETY: `request` has `size_of::<T>()` octets, and any octets are a value (`FromBytes`).
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

    /// Copies the response to the process. Process context; sleeps. `EINVAL`: the buffer of the
    /// process is too short. `EFAULT`: the buffer is not writable.
    pub(super) fn reply<T: IntoBytes + Immutable>(self, reply: &T) -> Result {
        // SAFETY: By the type invariant the pointer is valid.
        let room = unsafe { (*self.0.as_ptr()).outlen };
        if room < size_of::<T>() {
            return Err(EINVAL);
        }
        // SAFETY: `reply` has `size_of::<T>()` octets, all of them initialised (`IntoBytes`).
        to_result(unsafe {
            bindings::_ib_respond_udata(
                self.0.as_ptr(),
                core::ptr::from_ref(reply).cast(),
                size_of::<T>(),
            )
        })
    }
}
