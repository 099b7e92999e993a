// SPDX-License-Identifier: GPL-2.0

//! Counted references to `struct iw_cm_id`, the identifier of a connection or a listener.

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
/// The pointer names an identifier that `iw_cm` has allocated. The value owns one reference to it.
pub(super) struct CmId(NonNull<bindings::iw_cm_id>);

// SAFETY: The counter of references is atomic, and `iw_cm` takes its own lock for events.
// `ConnectCall::commit` writes the handle before other contexts share the value.
unsafe impl Send for CmId {}
// SAFETY: As above.
unsafe impl Sync for CmId {}

impl CmId {
    /// Takes a reference. Any context.
    ///
    /// # Safety
    ///
    /// `id` is an identifier that `iw_cm` has allocated and that is alive during this call.
    pub(super) unsafe fn new(id: NonNull<bindings::iw_cm_id>) -> Result<Self> {
        // SAFETY: By this function's contract `id` is alive.
        let add_ref = unsafe { (*id.as_ptr()).add_ref }.ok_or(EINVAL)?;
        // SAFETY: As above; `add_ref` is the function of this identifier.
        unsafe { add_ref(id.as_ptr()) };
        // INVARIANT: The call above has taken the reference.
        Ok(Self(id))
    }

    /// Stores the driver's handle of a connection for
    /// [`CmOps::describe_cm_id`](super::CmOps::describe_cm_id). Process context.
    pub(super) fn set_handle(&self, handle: Handle) {
        // SAFETY: By the type invariant the identifier is alive. `iw_cm` does not use
        // `provider_data` itself. The store is volatile, since a dump of resources may read it
        // concurrently.
        unsafe {
            (&raw mut (*self.0.as_ptr()).provider_data).write_volatile(handle.to_provider_data())
        };
    }

    /// Delivers an event to `iw_cm`, which copies the event and its private data, and processes it
    /// in a work item. Any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: `iw_cm` has no memory for the private data, or no free work entry. The event is
    /// not queued then.
    ///
    /// # Safety
    ///
    /// `event` is valid as the next event of this identifier, and its private data is readable
    /// during the call.
    pub(super) unsafe fn deliver(&self, event: &mut bindings::iw_cm_event) -> Result {
        let id = self.0.as_ptr();
        // SAFETY: By the type invariant the identifier is alive.
        let handler = unsafe { (*id).event_handler }.ok_or(EINVAL)?;
        // SAFETY: By the type invariant the identifier is alive. By this function's contract the
        // event is valid as the next one.
        to_result(unsafe { handler(id, event) })
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let id = self.0.as_ptr();
        // SAFETY: By the type invariant the identifier is alive.
        if let Some(rem_ref) = unsafe { (*id).rem_ref } {
            // SAFETY: By the type invariant this value owns the reference that the call drops.
            unsafe { rem_ref(id) };
        }
    }
}
