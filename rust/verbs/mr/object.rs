// SPDX-License-Identifier: GPL-2.0

//! Memory regions as verbs objects. The object keeps the region in the table of its device.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    sys::rdma::{
        driver::UserMr,
        memory::{
            Backing,
            KernelMemory,
            Segments, //
        },
        res::ResAttrs, //
    },
    verbs::{
        device::{
            Device,
            ObjectKind,
            ObjectSlot, //
        },
        limits,
        mr::{
            Access,
            Kind,
            Region, //
        },
        PdId,
        Stag, //
    }, //
};

/// The verbs object of a memory region. Dropping it removes the region.
pub(crate) struct Mr {
    /// Counts the region in the device.
    object_slot: ObjectSlot,
    region: Arc<Region>,
    /// The STag returned to the owner.
    stag: Stag,
}

impl Mr {
    /// Registers memory of a process. Process context; sleeps.
    pub(crate) fn user(device: &Arc<Device>, pd: PdId, request: UserMr) -> Result<Arc<Self>> {
        let this = Self::new(device, pd, Kind::User, None, request.key)?;
        let access = Access::from_ib(request.access);
        let backing = Backing::User(request.pages);
        this.region
            .publish(request.key, request.iova, request.len, access, backing)?;
        Ok(this)
    }

    /// Registers all kernel memory for local access. Process context; sleeps.
    pub(crate) fn dma(
        device: &Arc<Device>,
        pd: PdId,
        memory: KernelMemory,
        access: u32,
    ) -> Result<Arc<Self>> {
        let this = Self::new(device, pd, Kind::Dma, None, 0)?;
        this.region
            .publish_kernel(Access::from_ib(access), memory)?;
        Ok(this)
    }

    /// Makes a region for fast registration of at most `max` segments. Process context; sleeps.
    ///
    /// `EINVAL` when `max` is 0 or more than [`limits::MAX_FAST_REG`].
    pub(crate) fn fast(device: &Arc<Device>, pd: PdId, max: u32) -> Result<Arc<Self>> {
        if max == 0 || max > limits::MAX_FAST_REG {
            return Err(EINVAL);
        }
        let max = max as usize;
        let list = Region::segments(max, GFP_KERNEL)?;
        Self::new(device, pd, Kind::FastReg(max), Some(list), 0)
    }

    /// Makes an invalid region of `kind` and enters it into the table.
    fn new(
        device: &Arc<Device>,
        pd: PdId,
        kind: Kind,
        list: Option<Segments>,
        key: u8,
    ) -> Result<Arc<Self>> {
        let object_slot = ObjectSlot::take(device, ObjectKind::Mr)?;
        let region = device.regions().create(pd, kind, list)?;
        let stag = region.stag(key);
        let this = Self {
            object_slot,
            region,
            stag,
        };
        // On failure `this` is dropped, which removes the region from the table.
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The STag returned to the owner.
    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    /// Adds the driver attributes of the region (`rdma resource`). Process context.
    pub(crate) fn describe(&self, attrs: &mut ResAttrs<'_>) {
        self.region.describe(attrs);
    }

    /// Stages the segments for the next registration: `fill` receives the list and its largest
    /// length.
    /// Any context. Errors as of [`Region::stage`].
    pub(crate) fn stage<R>(&self, fill: impl FnOnce(&mut Segments, usize) -> R) -> Result<R> {
        let Kind::FastReg(max) = self.region.kind() else {
            return Err(EINVAL);
        };
        self.region.stage(|list| fill(list, max))
    }

    /// Removes the region. No access to its memory happens after the return. Process context;
    /// sleeps.
    pub(crate) fn retire(&self) {
        drop(self.object_slot.device().regions().remove(&self.region));
    }
}

impl Drop for Mr {
    /// Removes the region, unless [`retire`](Self::retire) has. Process context: the verbs object
    /// drops the last reference there.
    fn drop(&mut self) {
        self.retire();
    }
}
