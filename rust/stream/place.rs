// SPDX-License-Identifier: GPL-2.0

//! From payload to memory and back: the memory a batch of segments touches.
//!
//! Looking a region up and pinning it costs two atomic operations; a batch of segments mostly
//! names the same region over and over. [`Pins`] keeps the last few pinned for the length of one
//! batch, that is, until the socket lock is given back. Rights and bounds are checked for every
//! segment (RFC 5041 section 7.1, RFC 5040 section 7.2), the lookup is not repeated.

use iwarp_wire::rdmap::terminate;
use kernel::prelude::*;

use crate::{
    sys::octets::Octets,
    verbs::{
        queue::wqe::{
            Sge,
            Sgl, //
        },
        region::{
            Access,
            AccessError,
            Invalidator,
            LocalBuf,
            PinnedRegion, //
        },
        Qp,
        Stag, //
    },
};

/// Octets that arrived and can be read again: in a socket buffer, or in a buffer of the stream.
pub(super) trait Source {
    /// The octets from offset `off` that lie in one piece, `max` at most.
    fn piece(&self, off: usize, max: usize) -> Octets<'_>;

    /// Copies `dst.len()` octets from offset `off`.
    fn copy(&self, off: usize, dst: &mut [u8]) -> Result;

    /// Continues the raw CRC-32C `seed` over `len` octets from offset `off`.
    fn crc32c(&self, off: usize, len: usize, seed: u32) -> Result<u32>;

    /// Hands out `len` octets from offset `off` piece by piece, in order, until `f` fails.
    fn chunks<E>(
        &self,
        off: usize,
        len: usize,
        f: impl FnMut(Octets<'_>) -> Result<(), E>,
    ) -> Result<(), E>;
}

impl Source for [u8] {
    #[inline]
    fn piece(&self, off: usize, max: usize) -> Octets<'_> {
        Octets::from(self.get(off..).unwrap_or_default()).up_to(max)
    }

    fn copy(&self, off: usize, dst: &mut [u8]) -> Result {
        let src = off
            .checked_add(dst.len())
            .and_then(|end| self.get(off..end))
            .ok_or(EINVAL)?;
        dst.copy_from_slice(src);
        Ok(())
    }

    fn crc32c(&self, off: usize, len: usize, seed: u32) -> Result<u32> {
        let data = off
            .checked_add(len)
            .and_then(|end| self.get(off..end))
            .ok_or(EINVAL)?;
        Ok(crate::sys::crc::crc32c(seed, data))
    }

    fn chunks<E>(
        &self,
        off: usize,
        len: usize,
        mut f: impl FnMut(Octets<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match off.checked_add(len).and_then(|end| self.get(off..end)) {
            Some(data) if !data.is_empty() => f(data.into()),
            _ => Ok(()),
        }
    }
}

/// Copies octets `off..off + dst.len()` of `src`.
pub(super) fn copy_from(src: &[u8], off: usize, dst: &mut [u8]) -> Result<(), AccessError> {
    src.copy(off, dst).map_err(|_| AccessError::Bounds)
}

/// The protocol's name of an access error, from which it derives what the peer is told.
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
/// Never kept beyond the batch, and never while something is invalidated: whoever revokes a
/// region waits for its pins to go.
pub(super) struct Pins<'q> {
    /// The queue pair that the memory has to be associated with.
    qp: &'q Qp,
    /// Regions named by the peer, the one used last in front.
    remote: [Option<PinnedRegion>; 2],
    /// Memory named by our own work requests, the one used last in front.
    local: [Option<LocalBuf>; 2],
}

impl<'q> Pins<'q> {
    /// Nothing is pinned yet.
    #[inline]
    pub(super) fn new(qp: &'q Qp) -> Self {
        Self {
            qp,
            remote: [None, None],
            local: [None, None],
        }
    }

    /// The region `stag` as the peer may use it, after the checks for `len` octets at `addr`.
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
                *first = Some(
                    self.qp
                        .device()
                        .regions()
                        .pin(stag, self.qp.association())?,
                );
            }
        }
        let [Some(region), _] = &self.remote else {
            return Err(AccessError::InvalidStag);
        };
        region.check(addr, len, need)?;
        Ok(region)
    }

    /// The memory of one of our own scatter-gather elements, checked as a whole.
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
                *first = Some(self.qp.local(sge, need)?);
            }
        }
        first.as_ref().ok_or(AccessError::InvalidStag)
    }

    /// Lets go of everything.
    #[inline]
    pub(super) fn release(&mut self) {
        self.remote = [None, None];
        self.local = [None, None];
    }

    /// Makes `stag` invalid; returns when nothing accesses its memory any more, whether it was this
    /// that did it.
    pub(super) fn invalidate(&mut self, stag: Stag, by: Invalidator) -> Result<bool, AccessError> {
        self.release();
        self.qp.device().regions().invalidate(stag, by)
    }

    /// Checks that a list names memory that may be used with `need`.
    pub(super) fn check_list(&mut self, list: &Sgl, need: Access) -> Result<(), AccessError> {
        for sge in list.as_slice().iter().filter(|sge| sge.len != 0) {
            self.local(sge, need)?;
        }
        Ok(())
    }

    /// Copies octets `off..off + dst.len()` of the memory a list describes into `dst`.
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

    /// Copies `src` to octets `off..off + src.len()` of the memory a list describes.
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

/// The parts of a list's elements that octets `off..off + len` of it cover.
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
