// SPDX-License-Identifier: GPL-2.0

//! A cache of memory regions, which one batch pins once.
//!
//! A lookup with a pin costs two atomic operations, and the segments of a batch mostly name the
//! same region. [`MrCache`] keeps the last few regions pinned until the socket lock is released.
//! Rights and bounds are checked for every segment (RFC 5041 section 7.1, RFC 5040 section 7.2).

use iwarp_wire::rdmap::terminate;
use kernel::prelude::*;

use crate::{
    sys::mm::octets::Octets,
    verbs::{
        mr::{
            Access,
            AccessError,
            Invalidator,
            LocalBuf,
            PinnedRegion, //
        },
        qp_queues::QpQueues,
        wq::wqe::{
            Sge,
            Sgl, //
        },
        Stag, //
    }, //
};

/// The access error of `iwarp_wire` for a Terminate.
pub(super) fn to_wire(error: AccessError) -> terminate::AccessError {
    match error {
        AccessError::InvalidStag => terminate::AccessError::InvalidStag,
        AccessError::Bounds => terminate::AccessError::Bounds,
        AccessError::Rights => terminate::AccessError::Rights,
        AccessError::NotAssociated => terminate::AccessError::NotAssociated,
        AccessError::Wrap => terminate::AccessError::Wrap,
    }
}

/// Regions pinned for one batch under the socket lock.
///
/// Pins end with the batch, and before a region is invalidated: a revocation waits for the pins
/// of the region.
pub(super) struct MrCache<'q> {
    /// The queue pair with which the memory must be associated.
    queues: &'q QpQueues,
    /// Regions that the peer has named, the last used one first.
    remote: [Option<PinnedRegion>; 2],
    /// Memory of work requests of this end, the last used one first.
    local: [Option<LocalBuf>; 2],
}

impl<'q> MrCache<'q> {
    /// Makes an empty cache.
    #[inline]
    pub(super) fn new(queues: &'q QpQueues) -> Self {
        Self {
            queues,
            remote: [None, None],
            local: [None, None],
        }
    }

    /// The region `stag`, pinned and checked for an access of kind `need` to `len` octets at
    /// `addr`.
    ///
    /// `len` is not zero: zero-length operations are not checked (RFC 5041 section 5.2).
    #[inline]
    pub(super) fn remote(
        &mut self,
        stag: Stag,
        addr: u64,
        len: u32,
        need: Access,
    ) -> Result<&PinnedRegion, AccessError> {
        if !matches!(self.remote.first(), Some(Some(r)) if r.stag() == stag) {
            let [first, second] = &mut self.remote;
            core::mem::swap(first, second);
            if !matches!(first, Some(r) if r.stag() == stag) {
                *first = None;
                *first = Some(self.queues.regions().pin(stag, self.queues.association())?);
            }
        }
        let [Some(region), _] = &self.remote else {
            return Err(AccessError::InvalidStag);
        };
        region.check(addr, len, need)?;
        Ok(region)
    }

    /// The memory of a scatter-gather element of this end, after a check of the whole element.
    #[inline]
    fn local(&mut self, sge: &Sge, need: Access) -> Result<&LocalBuf, AccessError> {
        let [first, second] = &mut self.local;
        if !matches!(first, Some(buf) if buf.is_for(sge)) {
            core::mem::swap(first, second);
        }
        match first {
            Some(buf) if buf.is_for(sge) => buf.check(sge, need)?,
            _ => {
                *first = None;
                *first = Some(self.queues.local(sge, need)?);
            }
        }
        first.as_ref().ok_or(AccessError::InvalidStag)
    }

    /// Unpins all regions.
    #[inline]
    pub(super) fn release(&mut self) {
        self.remote = [None, None];
        self.local = [None, None];
    }

    /// Invalidates `stag`, and waits for concurrent accesses to its memory to end. Returns
    /// whether this call has removed access rights.
    pub(super) fn invalidate(&mut self, stag: Stag, by: Invalidator) -> Result<bool, AccessError> {
        self.release();
        self.queues.regions().invalidate(stag, by)
    }

    /// Checks that all elements of a list permit an access of kind `need`.
    pub(super) fn check_list(&mut self, list: &Sgl, need: Access) -> Result<(), AccessError> {
        for sge in list.as_slice().iter().filter(|sge| sge.len != 0) {
            self.local(sge, need)?;
        }
        Ok(())
    }

    /// Copies octets `off..off + dst.len()` of the memory of `list` to `dst`.
    /// [`AccessError::Bounds`]: the list is too short.
    #[inline]
    pub(super) fn gather(
        &mut self,
        list: &Sgl,
        off: u32,
        dst: &mut [u8],
    ) -> Result<(), AccessError> {
        let mut dst = dst;
        for (sge, addr, len) in pieces(list, off, dst.len()) {
            let (now, rest) = dst.split_at_mut_checked(len).ok_or(AccessError::Bounds)?;
            self.local(sge, Access::NONE)?.read_at(addr, now)?;
            dst = rest;
        }
        match dst.is_empty() {
            true => Ok(()),
            false => Err(AccessError::Bounds),
        }
    }

    /// Copies `src` to octets `off..off + src.len()` of the memory of `list`.
    /// [`AccessError::Bounds`]: the list is too short.
    #[inline]
    pub(super) fn scatter(
        &mut self,
        list: &Sgl,
        off: u32,
        src: Octets<'_>,
    ) -> Result<(), AccessError> {
        let mut src = src;
        for (sge, addr, len) in pieces(list, off, src.len()) {
            let (now, rest) = src.split_at_checked(len).ok_or(AccessError::Bounds)?;
            self.local(sge, Access::LOCAL_WRITE)?.write_at(addr, now)?;
            src = rest;
        }
        match src.is_empty() {
            true => Ok(()),
            false => Err(AccessError::Bounds),
        }
    }
}

/// The elements of `list` that contain its octets `off..off + len`, with address and length of
/// each part.
#[inline]
fn pieces(list: &Sgl, off: u32, len: usize) -> impl Iterator<Item = (&Sge, u64, usize)> {
    let mut skip = off;
    let mut left = len;
    list.as_slice().iter().filter_map(move |sge| {
        if left == 0 {
            return None;
        }
        let Some(avail) = sge.len.checked_sub(skip).filter(|&n| n != 0) else {
            skip = skip.saturating_sub(sge.len);
            return None;
        };
        let addr = sge.addr.wrapping_add(u64::from(skip));
        let now = left.min(avail as usize);
        skip = 0;
        left = left.saturating_sub(now);
        Some((sge, addr, now))
    })
}
