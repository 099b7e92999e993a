// SPDX-License-Identifier: GPL-2.0

//! Access to the memory of a region that can not be revoked under the copy.
//!
//! requirements.md DDP-83: once a revocation has returned, nothing is written or read any more.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    sys::{
        mm::octets::Octets, //
        rdma::pin::Pinned,
    },
    verbs::{
        mr::{
            Access,
            AccessError,
            Region, //
        },
        Association,
        Stag, //
    }, //
};

/// A valid region that stays valid as long as this value lives.
///
/// Bottom halves are disabled meanwhile, and a revocation of the region spins: hold it for a bounded
/// number of copies only.
pub(crate) struct PinnedRegion {
    /// The pin.
    pin: Pinned<Region>,
    /// The key it was pinned with.
    stag: Stag,
}

impl PinnedRegion {
    /// Pins `region` if it is valid under the key of `stag` and serves `by`.
    #[inline]
    pub(super) fn new(
        region: Arc<Region>,
        stag: Stag,
        by: Association,
    ) -> Result<Self, AccessError> {
        let pin = Pinned::new(region, stag.key()).ok_or(AccessError::InvalidStag)?;
        match pin.owner().pd() == by.pd && pin.serves(by) {
            true => Ok(Self { pin, stag }),
            false => Err(AccessError::NotAssociated),
        }
    }

    /// The key it was pinned with.
    #[inline]
    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    /// Whether `len` octets at `addr` may be accessed in the way of `need`.
    ///
    /// Asked in the order rights, wrap, bounds; octet granular. The association was asked before.
    #[inline]
    pub(crate) fn check(&self, addr: u64, len: u32, need: Access) -> Result<(), AccessError> {
        self.pin.check(addr, len, need)
    }

    /// Copies into the region at `addr`, after a successful [`check`](Self::check).
    #[inline]
    pub(crate) fn write_at(&self, addr: u64, src: Octets<'_>) -> Result<(), AccessError> {
        let offset = self.pin.offset(addr)?;
        let backing = self.pin.backing.as_ref().ok_or(AccessError::InvalidStag)?;
        backing.write(offset, src).map_err(|_| AccessError::Bounds)
    }

    /// Copies from the region at `addr`, after a successful [`check`](Self::check).
    #[inline]
    pub(crate) fn read_at(&self, addr: u64, dst: &mut [u8]) -> Result<(), AccessError> {
        let offset = self.pin.offset(addr)?;
        let backing = self.pin.backing.as_ref().ok_or(AccessError::InvalidStag)?;
        backing.read(offset, dst).map_err(|_| AccessError::Bounds)
    }
}
