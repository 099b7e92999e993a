// SPDX-License-Identifier: GPL-2.0

//! Who is told when a queue pair is gone.

use kernel::sync::Arc;

use super::Qp;

/// What outlives a queue pair, and wants to know.
pub(crate) trait Survivor: Send + Sync {
    /// The owner has destroyed the queue pair. Process context; may sleep.
    fn qp_gone(&self);
}

impl Qp {
    /// Has somebody told when the queue pair is gone. Only who is [attached](Self::attach) may ask
    /// for that, once: until it has detached the queue pair can not go. Process context.
    pub(crate) fn tell_when_gone(&self, survivor: Arc<dyn Survivor>) {
        let old = self.inner.lock().survivor.replace(survivor);
        drop(old);
    }

    /// Tells it. Process context; sleeps.
    pub(super) fn tell_survivor(&self) {
        let survivor = self.inner.lock().survivor.take();
        if let Some(survivor) = survivor {
            survivor.qp_gone();
        }
    }
}
