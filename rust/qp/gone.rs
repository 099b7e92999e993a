// SPDX-License-Identifier: GPL-2.0

//! Notification that a queue pair is destroyed.

use kernel::sync::Arc;

use super::Qp;

/// An object that outlives a queue pair, and is notified of its destruction.
pub(crate) trait DestroyNotify: Send + Sync {
    /// The owner has destroyed the queue pair. Process context; may sleep.
    fn qp_destroyed(&self);
}

impl Qp {
    /// Registers `on_destroy` for the destruction of the queue pair. Process context.
    ///
    /// Only an [attached](Self::attach) user may register, once: the queue pair is not destroyed
    /// before the user detaches.
    pub(crate) fn notify_on_destroy(&self, on_destroy: Arc<dyn DestroyNotify>) {
        let old = self.inner.lock().on_destroy.replace(on_destroy);
        drop(old);
    }

    /// Notifies the registered object, if any. Process context; sleeps.
    pub(super) fn notify_destroyed(&self) {
        let on_destroy = self.inner.lock().on_destroy.take();
        if let Some(on_destroy) = on_destroy {
            on_destroy.qp_destroyed();
        }
    }
}
