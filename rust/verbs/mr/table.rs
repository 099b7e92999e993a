// SPDX-License-Identifier: GPL-2.0

//! From STag to region, and the choice of STags.
//!
//! The index of an STag, its high 24 bits, is drawn at random, so that STags are sparse and hard to
//! predict (requirements.md DDP-90). The low octet, the key, belongs to the owner of the region.

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

/// Draws before the table is taken for full; at most one index in 16 is in use.
const DRAWS: u32 = 64;

/// The origin of an invalidation, and its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidator {
    /// A work request of our own.
    Local(Association),
    /// A Send with Invalidate of the peer.
    Remote(Association),
}

/// The regions of a device.
#[pin_data]
pub(crate) struct RegionTable {
    /// By index.
    #[pin]
    table: Table<Region>,
}

impl RegionTable {
    /// No regions.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            table <- Table::new(1..MAX_INDEX + 1),
        })
    }

    /// Makes an invalid region under a random index. Process context; sleeps.
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
                // Lost a race for the index: draw again, with the same list.
                Err(EBUSY) => spare = region.take_spare(),
                Err(error) => return Err(error),
            }
        }
        Err(ENOMEM)
    }

    /// Takes a region out, invalid; what is left of its memory is for the caller to drop, in
    /// process context. By the owner of the region.
    ///
    /// The second time nothing happens: its index may be another region's by then.
    pub(crate) fn remove(&self, region: &Region) -> Option<Backing> {
        let found = self.table.get_arc(region.index);
        if found.is_some_and(|found| core::ptr::eq(&*found, region)) {
            drop(self.table.remove(region.index));
        }
        region.retire()
    }

    /// Finds and pins the region of `stag` for the stream `by`.
    ///
    /// Any context with interrupts on; allocates nothing, takes no lock. Key 0 is never valid
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

    /// Makes the region of `stag` invalid; returns when nothing accesses its memory any more.
    ///
    /// Any context with interrupts on; the caller holds no [`PinnedRegion`]: two that each hold a
    /// pin and wait for the other's would never end.
    ///
    /// A region that is invalid already is no error. One that is valid under another key is one for our
    /// own user, and none for the peer, which may be late. A key that was registered on another queue pair is one for
    /// both. Only what was registered by a work request, for one stream, can be invalidated, not what
    /// others share (RFC 5040 section 8.1.1, requirements.md DDP-89, RDMAP-36).
    ///
    /// Whether this made it invalid. Otherwise no invalidation may be reported: the registration of
    /// that very key may be posted, and not executed yet.
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
            // The peer may have been first, which our user did not know of yet.
            (Err(_), Invalidator::Local(_)) if !region.is_valid() => Ok(false),
            // Or our user, which may have registered it again since: it keeps its registration.
            (Err(_), Invalidator::Remote(_)) => Ok(false),
            (result, _) => result.map(|()| true),
        }
    }

    /// Carries out a `REG_MR` work request for the stream `by`, which alone may use the key.
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

    /// Whatever index is drawn can be used.
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

    /// A member that is taken out twice, by its owner and by its end, takes no other out.
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
