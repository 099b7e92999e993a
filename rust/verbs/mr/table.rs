// SPDX-License-Identifier: GPL-2.0

//! The table of memory regions: lookup by STag, and the allocation of STags.
//!
//! The index of an STag, its high 24 bits, is random, so that STags are sparse and hard to predict
//! (requirements.md DDP-90). The owner of the region chooses the low octet, the key.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    sys::{
        random,
        rdma::memory::{
            Backing,
            Segments, //
        },
        sync::table::Table, //
    },
    verbs::{
        limits,
        mr::{
            AccessError,
            Kind,
            PinnedRegion,
            RegMr,
            Region, //
        },
        Association,
        PdId,
        Stag, //
    }, //
};

/// The largest index.
const MAX_INDEX: u32 = 0x00ff_ffff;

/// The number of random indices tried before `ENOMEM`; at most one index in 16 is in use.
const DRAWS: u32 = 64;

/// The origin of an invalidation, with the association of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidator {
    /// A local work request.
    Local(Association),
    /// A Send with Invalidate of the peer.
    Remote(Association),
}

/// The regions of a device.
#[pin_data]
pub(crate) struct RegionTable {
    /// The regions by STag index.
    #[pin]
    table: Table<Region>,
}

impl RegionTable {
    /// Makes an empty table.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            table <- Table::new(1..MAX_INDEX + 1),
        })
    }

    /// Makes an invalid region under a random index. Process context; sleeps.
    ///
    /// `ENOMEM` without memory, or when no tried index was free.
    pub(crate) fn create(
        &self,
        pd: PdId,
        kind: Kind,
        mut spare: Option<Segments>,
    ) -> Result<Arc<Region>> {
        for _ in 0..DRAWS {
            let index = random::u32() & MAX_INDEX;
            if index == 0 || self.table.contains(index) {
                continue;
            }
            let region = Arc::pin_init(Region::new(index, pd, kind, spare.take()), GFP_KERNEL)?;
            match self.table.insert_at(index, region.clone()) {
                Ok(()) => return Ok(region),
                // Another context has used the index since the check: the loop tries another index,
                // with the same list.
                Err(EBUSY) => spare = region.take_spare(),
                Err(error) => return Err(error),
            }
        }
        Err(ENOMEM)
    }

    /// Invalidates a region and removes it from the table. Process context.
    ///
    /// Returns the memory of the region, which the caller drops in process context. The caller owns
    /// the region. A second call removes no entry: the index may belong to another region by then.
    pub(crate) fn remove(&self, region: &Region) -> Option<Backing> {
        let found = self.table.get_arc(region.index);
        if found.is_some_and(|found| core::ptr::eq(&*found, region)) {
            drop(self.table.remove(region.index));
        }
        region.retire()
    }

    /// Finds and pins the region of `stag` for the stream `by`.
    ///
    /// Any context with interrupts on; allocates nothing, takes no lock. STag 0 is never valid
    /// (DDP-96).
    #[inline]
    pub(crate) fn pin(&self, stag: Stag, by: Association) -> Result<PinnedRegion, AccessError> {
        let region = self.find(stag)?;
        PinnedRegion::new(region, stag, by)
    }

    /// The region under the index of `stag`, valid or not.
    #[inline]
    fn find(&self, stag: Stag) -> Result<Arc<Region>, AccessError> {
        self.table
            .get_arc(stag.index())
            .ok_or(AccessError::InvalidStag)
    }

    /// Makes the region of `stag` invalid. No access to its memory happens after the return.
    ///
    /// Any context with interrupts on. The caller holds no [`PinnedRegion`]: two callers that each
    /// hold a pin would wait for each other forever.
    ///
    /// Only a region registered by a work request can be invalidated (RFC 5040 section 8.1.1,
    /// requirements.md DDP-89, RDMAP-36, RDMAP-37).
    ///
    /// | the region is | local work request | Send with Invalidate |
    /// | --- | --- | --- |
    /// | valid under `stag` for this stream | `Ok(true)` | `Ok(true)` |
    /// | invalid | `Ok(false)` | `Ok(false)` |
    /// | valid under another key | error | `Ok(false)`: the peer may be late |
    /// | registered for another stream, or shared | error | error |
    ///
    /// The caller reports an invalidation only for `Ok(true)`: after `Ok(false)` a posted
    /// registration of the same STag may be waiting for its execution.
    pub(crate) fn invalidate(&self, stag: Stag, by: Invalidator) -> Result<bool, AccessError> {
        let region = self.find(stag)?;
        let (Invalidator::Local(stream) | Invalidator::Remote(stream)) = by;
        if region.pd() != stream.pd {
            return Err(AccessError::NotAssociated);
        }
        if !matches!(region.kind(), Kind::FastReg(_)) {
            return Err(AccessError::Rights);
        }
        match (region.invalidate(stag.key(), stream), by) {
            (Err(AccessError::NotAssociated), _) => Err(AccessError::NotAssociated),
            // The peer has invalidated the region first; the local user may not have polled the
            // completion yet.
            (Err(_), Invalidator::Local(_)) if !region.is_valid() => Ok(false),
            // The local user was first, and may have registered the region again. The new
            // registration stays valid.
            (Err(_), Invalidator::Remote(_)) => Ok(false),
            (result, _) => result.map(|()| true),
        }
    }

    /// Executes a `REG_MR` work request for the stream `by`; only that stream may use the STag.
    ///
    /// Any context with interrupts on.
    pub(crate) fn register(&self, by: Association, reg: &RegMr) -> Result<(), AccessError> {
        let region = self.find(reg.stag)?;
        if region.pd() != by.pd {
            return Err(AccessError::NotAssociated);
        }
        region.register(by.stream, reg)
    }
}

const _: () = assert!(limits::MAX_MR <= MAX_INDEX / 16);

#[kunit_tests(rsiw_verbs_region_table)]
mod tests {
    use super::*;
    use crate::verbs::ids;

    const PD: PdId = PdId::new(1);

    fn table() -> Result<Arc<RegionTable>> {
        Arc::pin_init(RegionTable::new(), GFP_KERNEL)
    }

    fn enter(table: &RegionTable, index: u32) -> Result<Arc<Region>> {
        let region = Arc::pin_init(Region::new(index, PD, Kind::User, None), GFP_KERNEL)?;
        table.table.insert_at(index, region.clone())?;
        Ok(region)
    }

    /// The smallest and the largest index can be entered.
    #[test]
    fn every_index_has_a_place() -> Result {
        let table = table()?;
        for index in [1, MAX_INDEX] {
            let region = enter(&table, index)?;
            assert!(table.find(ids::stag(index, 0)).is_ok());
            drop(table.remove(&region));
            assert!(table.find(ids::stag(index, 0)).is_err());
        }
        Ok(())
    }

    /// A second removal of a region leaves the region that has the index by then.
    #[test]
    fn a_successor_stays() -> Result {
        let table = table()?;
        let first = enter(&table, 7)?;
        drop(table.remove(&first));
        let second = enter(&table, 7)?;
        drop(table.remove(&first));
        let found = table.find(ids::stag(7, 0)).map_err(|_| ENOENT)?;
        assert!(core::ptr::eq(&*found, &*second));
        Ok(())
    }
}
