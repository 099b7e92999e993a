// SPDX-License-Identifier: GPL-2.0

//! Pins of a region. A revocation waits until the pins of the region are dropped.
//!
//! requirements.md DDP-83: no access to the memory happens after a revocation has returned.

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

/// A pin of a valid region, which stays valid while the pin exists.
///
/// While the pin exists, bottom halves are disabled, and a revocation of the region spins. So a pin
/// covers only a bounded number of copies.
pub(crate) struct PinnedRegion {
    pin: Pinned<Region>,
    /// The STag of the lookup.
    stag: Stag,
}

impl PinnedRegion {
    /// Pins `region` if it is valid under the key of `stag` and `by` may use it.
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

    /// The STag of the lookup.
    #[inline]
    pub(crate) fn stag(&self) -> Stag {
        self.stag
    }

    /// Checks that the rights `need` cover `len` octets at `addr`.
    ///
    /// The order of checks is rights, wrap, bounds; the granularity is one octet. The association
    /// was checked when the region was pinned.
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
