// SPDX-License-Identifier: GPL-2.0

//! The memory of local scatter-gather elements.
//!
//! Key 0 is the local DMA key: it names kernel memory by address, for kernel users only
//! (requirements.md DDP-96). Any other key names a region.

use kernel::prelude::*;

use crate::{
    sys::{
        mm::octets::Octets, //
        rdma::memory::KernelMemory,
    },
    verbs::{
        mr::{
            Access,
            AccessError,
            PinnedRegion,
            RegionTable, //
        },
        wq::wqe::Sge,
        Association,
        Stag, //
    }, //
};

/// The local DMA key.
pub(crate) const LOCAL_DMA_LKEY: Stag = Stag::new(0);

/// Kernel memory named by the local DMA key.
pub(crate) struct KernelBuf {
    /// The right to access the addresses of a kernel user.
    memory: KernelMemory,
}

/// Memory of a local scatter-gather element.
pub(crate) enum LocalBuf {
    /// Kernel memory.
    Kernel(KernelBuf),
    /// Part of a region.
    Region(PinnedRegion),
}

impl LocalBuf {
    /// Finds the memory of `sge` and checks the whole element. Key 0 is valid only with `kernel`.
    #[inline]
    pub(crate) fn new(
        regions: &RegionTable,
        by: Association,
        kernel: Option<KernelMemory>,
        sge: &Sge,
        need: Access,
    ) -> Result<Self, AccessError> {
        let buf = match kernel {
            Some(memory) if sge.lkey == LOCAL_DMA_LKEY => Self::Kernel(KernelBuf { memory }),
            _ => Self::Region(regions.pin(sge.lkey, by)?),
        };
        buf.check(sge, need)?;
        Ok(buf)
    }

    /// Whether `sge` has the same key. Then [`check`](Self::check) is enough, without a new lookup.
    #[inline]
    pub(crate) fn is_for(&self, sge: &Sge) -> bool {
        match self {
            Self::Kernel(_) => sge.lkey == LOCAL_DMA_LKEY,
            Self::Region(region) => sge.lkey == region.stag(),
        }
    }

    /// Checks that the rights `need` cover the whole of `sge`.
    #[inline]
    pub(crate) fn check(&self, sge: &Sge, need: Access) -> Result<(), AccessError> {
        match self {
            Self::Kernel(_) => match sge.addr.checked_add(u64::from(sge.len)) {
                Some(_) => Ok(()),
                None => Err(AccessError::Wrap),
            },
            Self::Region(region) => region.check(sge.addr, sge.len, need),
        }
    }

    /// Copies `src` to `addr`, an address in a checked element.
    #[inline]
    pub(crate) fn write_at(&self, addr: u64, src: Octets<'_>) -> Result<(), AccessError> {
        match self {
            Self::Kernel(buf) => buf.memory.write(addr, src).map_err(|_| AccessError::Bounds),
            Self::Region(region) => region.write_at(addr, src),
        }
    }

    /// Copies from `addr`, an address in a checked element, to `dst`.
    #[inline]
    pub(crate) fn read_at(&self, addr: u64, dst: &mut [u8]) -> Result<(), AccessError> {
        match self {
            Self::Kernel(buf) => buf.memory.read(addr, dst).map_err(|_| AccessError::Bounds),
            Self::Region(region) => region.read_at(addr, dst),
        }
    }
}
