// SPDX-License-Identifier: GPL-2.0

//! Received octets, as receive code reads them: in a socket buffer or in a buffer of the stream.

use kernel::prelude::*;

use crate::sys::{
    mm::octets::Octets,
    net::skb::SkbView, //
};

/// Received octets that can be read again: in a socket buffer, or in a buffer of the stream.
pub(in crate::stream) trait Source {
    /// The octets from offset `off` that lie in one piece, `max` at most.
    fn piece(&self, off: usize, max: usize) -> Octets<'_>;

    /// Copies `dst.len()` octets from offset `off`.
    fn copy(&self, off: usize, dst: &mut [u8]) -> Result;

    /// Continues the raw CRC-32C `seed` over `len` octets from offset `off`.
    fn crc32c(&self, off: usize, len: usize, seed: u32) -> Result<u32>;

    /// Passes `len` octets from offset `off` to `f` piece by piece, in order, until `f` fails.
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

impl Source for SkbView<'_> {
    #[inline]
    fn piece(&self, off: usize, max: usize) -> Octets<'_> {
        self.chunk(off, max)
    }

    #[inline]
    fn copy(&self, off: usize, dst: &mut [u8]) -> Result {
        self.copy_bits(off, dst)
    }

    #[inline]
    fn crc32c(&self, off: usize, len: usize, seed: u32) -> Result<u32> {
        SkbView::crc32c(self, off, len, seed)
    }

    #[inline]
    fn chunks<E>(
        &self,
        off: usize,
        len: usize,
        f: impl FnMut(Octets<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.for_each_chunk(off, len, f)
    }
}
