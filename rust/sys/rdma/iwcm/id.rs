// SPDX-License-Identifier: GPL-2.0

//! The object of `iw_cm` for a connection or a listener: `struct iw_cm_id`.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    prelude::*, //
};

use super::Handle;
use crate::sys::bindings;

/// A counted reference to a `struct iw_cm_id`.
///
/// # Invariants
///
/// Points to an identifier that `iw_cm` has made, of which one reference is owned.
pub(super) struct CmId(NonNull<bindings::iw_cm_id>);

// SAFETY: References are counted by atomics, and events are delivered under a lock of `iw_cm`;
// nothing else is done with the identifier.
unsafe impl Send for CmId {}
// SAFETY: As above.
unsafe impl Sync for CmId {}

impl CmId {
    /// Takes a reference. Any context.
    ///
    /// # Safety
    ///
    /// `id` is an identifier that `iw_cm` has made and that lives during this call.
    pub(super) unsafe fn new(id: NonNull<bindings::iw_cm_id>) -> Result<Self> {
        // SAFETY: The caller's promise.
        let add_ref = unsafe { (*id.as_ptr()).add_ref }.ok_or(EINVAL)?;
        // SAFETY: As above; it is made for this call.
        unsafe { add_ref(id.as_ptr()) };
        // INVARIANT: The reference just taken.
        Ok(Self(id))
    }

    /// Leaves the driver's name of a connection for
    /// [`CmOps::describe_cm_id`](super::CmOps::describe_cm_id). Process context.
    pub(super) fn set_handle(&self, handle: Handle) {
        // SAFETY: By the type invariant. `iw_cm` keeps it for the driver, and does not use it itself.
        unsafe {
            (&raw mut (*self.0.as_ptr()).provider_data).write_volatile(handle.to_provider_data())
        };
    }

    /// Delivers an event to `iw_cm`, which processes it later, and copies what the event points to.
    /// Any context.
    ///
    /// `ENOMEM` when it has no memory for that; the event has not happened then.
    ///
    /// # Safety
    ///
    /// `event` may come next for this identifier, and its private data is readable during the
    /// call.
    pub(super) unsafe fn deliver(&self, event: &mut bindings::iw_cm_event) -> Result {
        let id = self.0.as_ptr();
        // SAFETY: By the type invariant.
        let handler = unsafe { (*id).event_handler }.ok_or(EINVAL)?;
        // SAFETY: By the type invariant, and by the caller's promise.
        to_result(unsafe { handler(id, event) })
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let id = self.0.as_ptr();
        // SAFETY: By the type invariant.
        if let Some(rem_ref) = unsafe { (*id).rem_ref } {
            // SAFETY: By the type invariant the reference is ours.
            unsafe { rem_ref(id) };
        }
    }
}
