// SPDX-License-Identifier: GPL-2.0

//! Notification that a queue pair is destroyed.

use kernel::sync::Arc;

use super::Qp;

/// An object that outlives a queue pair, and is notified of its end.
pub(crate) trait DestroyNotify: Send + Sync {
    /// The owner has destroyed the queue pair. Process context; may sleep.
    fn qp_destroyed(&self);
}

impl Qp {
    /// Has `on_destroy` notified when the queue pair is destroyed. Only an
    /// [attached](Self::attach) user may ask for that, once: the queue pair is not destroyed before it
    /// detaches. Process context.
    pub(crate) fn notify_on_destroy(&self, on_destroy: Arc<dyn DestroyNotify>) {
        let old = self.inner.lock().on_destroy.replace(on_destroy);
        drop(old);
    }

    /// Notifies it. Process context; sleeps.
    pub(super) fn notify_destroyed(&self) {
        let on_destroy = self.inner.lock().on_destroy.take();
        if let Some(on_destroy) = on_destroy {
            on_destroy.qp_destroyed();
        }
    }
}
