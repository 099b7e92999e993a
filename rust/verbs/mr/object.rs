// SPDX-License-Identifier: GPL-2.0

//! Memory regions as verbs objects: what keeps a region in the table of its device.

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

/// A memory region that its owner can end.
pub(crate) struct Mr {
    /// Counts it in the device.
    object_slot: ObjectSlot,
    /// The region.
    region: Arc<Region>,
    /// The key which the owner got.
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

    /// Makes a region for fast registration. Process context; sleeps.
    pub(crate) fn fast(device: &Arc<Device>, pd: PdId, max: u32) -> Result<Arc<Self>> {
        if max == 0 || max > limits::MAX_FAST_REG {
            return Err(EINVAL);
        }
        let max = max as usize;
        let list = Region::segments(max, GFP_KERNEL)?;
        Self::new(device, pd, Kind::FastReg(max), Some(list), 0)
    }

    /// An invalid region of that kind.
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
        // Without memory for it the region goes out of the table again.
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// The key which the owner got.
    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    /// Adds what there is to tell. Process context.
    pub(crate) fn describe(&self, attrs: &mut ResAttrs<'_>) {
        self.region.describe(attrs);
    }

    /// Has `fill` take the pieces for the next registration. Any context.
    pub(crate) fn stage<R>(&self, fill: impl FnOnce(&mut Segments, usize) -> R) -> Result<R> {
        let Kind::FastReg(max) = self.region.kind() else {
            return Err(EINVAL);
        };
        self.region.stage(|list| fill(list, max))
    }

    /// Ends the region: nothing accesses its memory any more after this. Process context; sleeps.
    pub(crate) fn retire(&self) {
        drop(self.object_slot.device().regions().remove(&self.region));
    }
}

impl Drop for Mr {
    /// Ends the region if it has not been ended. The last reference goes in process context: it is that of
    /// the verbs object.
    fn drop(&mut self) {
        self.retire();
    }
}
