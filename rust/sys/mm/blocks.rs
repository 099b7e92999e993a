// SPDX-License-Identifier: GPL-2.0

//! A chain of burst buffers.
//!
//! Bursts fill the buffers of a [`BlockChain`] in order. An FPDU that does not fit into the rest of
//! a buffer continues in the next one, so buffers have no unused ends. TCP, or a receiver on this
//! host, holds a contiguous range of the stream. Beyond its octets that range pins a part of its
//! first buffer and a part of its last one: less than two buffers.

use kernel::prelude::*;

use super::pages::{
    BurstBuf,
    Reuse, //
};
use crate::sys::bindings;

/// The largest number of buffers in a chain: a partly lent buffer, and 64 KiB in two further ones.
const BLOCKS: usize = bindings::RSIW_MAX_PARTS as usize;

/// The shortest rest of a buffer, in octets, for an FPDU of its own. It has the least MULPDU (128,
/// RFC 5044 section 4.5), length field, CRC and a marker, in whole 32-bit words. Where a charge
/// is refused, a burst ends before a shorter rest.
///
/// Applies if no FPDU can continue in the next buffer. An FPDU that cannot be segmented is shorter:
/// a Terminate has 80 octets (RFC 5040 section 4.8).
pub(crate) const PIECE: usize = 140;

/// The longest FPDU that is moved to continue in the next buffer, in octets. A longer one is cut:
/// a further FPDU costs less time than a move of its octets.
const MOST_MOVED: usize = 2048;

/// A chain of buffers. Offsets count octets from the beginning of the first buffer.
///
/// # Invariants
///
/// Every `None` slot follows the buffers. A buffer after the last lent octet has no lent octet.
#[derive(Default)]
pub(crate) struct BlockChain {
    /// The buffers in order.
    blocks: [Option<BurstBuf>; BLOCKS],
}

impl BlockChain {
    /// Whether there is no buffer.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.first().is_none_or(Option::is_none)
    }

    /// Whether TCP has no reference to any buffer.
    #[inline]
    pub(crate) fn is_exclusive(&self) -> bool {
        self.blocks.iter().flatten().all(BurstBuf::is_exclusive)
    }

    /// The number of octets lent to TCP, which is the offset of the next burst.
    #[inline]
    pub(crate) fn lent(&self) -> usize {
        self.blocks
            .iter()
            .flatten()
            .fold(0, |sum, block| sum.wrapping_add(block.lent()))
    }

    /// The number of buffers that contain octets `..end`.
    #[inline]
    pub(crate) fn count(&self, end: usize) -> u32 {
        let mut count: u32 = 0;
        let mut left = end;
        for block in self.blocks.iter().flatten() {
            if left == 0 {
                break;
            }
            count = count.wrapping_add(1);
            left = left.saturating_sub(block.capacity());
        }
        count
    }

    /// The index of the buffer with octet `at`, and the offset in it. After the last buffer: the
    /// next free slot.
    #[inline]
    fn find(&self, at: usize) -> (usize, usize) {
        let mut off = at;
        for (index, slot) in self.blocks.iter().enumerate() {
            match slot {
                Some(block) if off >= block.capacity() => {
                    off = off.wrapping_sub(block.capacity());
                }
                _ => return (index, off),
            }
        }
        (BLOCKS, off)
    }

    /// The buffer `index`, which is added if the slot is empty; `None` without memory or slot.
    #[inline]
    fn block(&mut self, index: usize, reuse: Reuse) -> Option<&mut BurstBuf> {
        let slot = self.blocks.get_mut(index)?;
        if slot.is_none() {
            *slot = BurstBuf::get(reuse);
        }
        slot.as_mut()
    }

    /// Calls `f` to write up to `room` octets, which become those from `at`. Adds buffers as
    /// needed.
    ///
    /// `f` returns the number of octets that it wrote; fewer than `want` suffice. Any context with
    /// interrupts on; does not sleep. `None`: there is no memory, or octet `at` is lent already;
    /// `f` was not called.
    #[inline]
    pub(crate) fn fill<T>(
        &mut self,
        at: usize,
        want: usize,
        room: usize,
        reuse: Reuse,
        f: impl FnOnce(&mut [u8]) -> (usize, T),
    ) -> Option<T> {
        let (index, off) = self.find(at);
        let need = room.min(want);
        let block = self.block(index, reuse)?;
        let left = block.capacity().checked_sub(off)?;
        let place = match need <= left {
            true => Place {
                index,
                off,
                len: room.min(left),
                before: None,
            },
            false => self.place_across(index, off, need, room, reuse)?,
        };
        let (front, behind) = self.blocks.split_at_mut_checked(place.index)?;
        let out = rest(behind.first_mut()?.as_mut()?, place.off)?.get_mut(..place.len)?;
        let before = match place.before {
            Some(off) => rest(front.last_mut()?.as_mut()?, off)?,
            None => &mut [],
        };
        // The octets that `f` has written count, so no failure may follow the call.
        let (written, value) = f(out);
        if !before.is_empty() {
            move_back(before, out, written);
        }
        Some(value)
    }

    /// The place for an FPDU if less than `need` octets fit into the buffer `index` from `off`.
    #[inline(never)]
    fn place_across(
        &mut self,
        index: usize,
        off: usize,
        need: usize,
        room: usize,
        reuse: Reuse,
    ) -> Option<Place> {
        let behind = index.wrapping_add(1);
        let next = self.block(behind, reuse).map(|next| next.capacity());
        let block = self.blocks.get_mut(index)?.as_mut()?;
        let left = block.capacity().saturating_sub(off);
        let place = |index, off, len, before| Place {
            index,
            off,
            len,
            before,
        };
        match next {
            // The FPDU is written into the next buffer, and then moved to `off` of this one.
            Some(next) if need <= next.min(MOST_MOVED) || need <= next && left < PIECE => {
                Some(place(behind, 0, room.min(next), Some(off)))
            }
            // A move takes longer, no buffer is long enough, or there is no memory: a shorter FPDU
            // fills this one.
            _ if left >= PIECE => Some(place(index, off, left, None)),
            Some(next) => {
                block.end_at(off);
                Some(place(behind, 0, room.min(next), None))
            }
            None => None,
        }
    }

    /// Octets `at..at + len`, cut at the end of the buffer.
    #[inline]
    pub(crate) fn part(&self, at: usize, len: usize) -> &[u8] {
        let (index, off) = self.find(at);
        let block = self.blocks.get(index).and_then(Option::as_ref);
        block
            .and_then(|block| block.part(off, len.min(block.capacity().saturating_sub(off))))
            .unwrap_or_default()
    }

    /// Lends octets `at..at + len` to TCP; returns their parts and the number of parts. `None`, and
    /// no octet is lent, if the range is empty or leaves the chain.
    #[inline]
    pub(in crate::sys) fn lend(
        &mut self,
        at: usize,
        len: usize,
    ) -> Option<([bindings::rsiw_part; BLOCKS], u32)> {
        let mut parts = [const {
            bindings::rsiw_part {
                page: core::ptr::null_mut(),
                off: 0,
                len: 0,
            }
        }; BLOCKS];
        let (first, mut off) = self.find(at);
        let mut left = len;
        let mut count: u32 = 0;
        let blocks = self.blocks.get(first..)?;
        for (block, part) in blocks.iter().flatten().zip(&mut parts) {
            if left == 0 {
                break;
            }
            let here = block.capacity().checked_sub(off)?.min(left);
            part.page = block.page();
            part.off = off as u32;
            part.len = here as u32;
            left = left.wrapping_sub(here);
            off = 0;
            count = count.wrapping_add(1);
        }
        if left != 0 || len == 0 {
            return None;
        }
        let mut end = at.checked_add(len)?;
        for block in self.blocks.iter_mut().flatten() {
            block.lend(end);
            end = end.saturating_sub(block.capacity());
        }
        Some((parts, count))
    }

    /// Removes the first buffer if all of it was lent; returns the number of unused octets at its
    /// end.
    pub(crate) fn pop_full(&mut self) -> Option<u32> {
        let first = self.blocks.first_mut()?;
        let full = first.take_if(|block| block.lent() >= block.capacity())?;
        self.blocks.rotate_left(1);
        Some(full.unused())
    }

    /// Removes buffers of which no octet was lent.
    #[inline]
    pub(crate) fn trim(&mut self) {
        for slot in &mut self.blocks {
            slot.take_if(|block| block.lent() == 0);
        }
    }
}

/// The place to which [`BlockChain::fill`] writes.
struct Place {
    /// The index of the buffer.
    index: usize,
    /// The offset of the first octet in the buffer.
    off: usize,
    /// The largest number of octets.
    len: usize,
    /// The octets are moved to this offset of the previous buffer, and the rest after it.
    before: Option<usize>,
}

/// The octets of `block` from `off`; `None` if octet `off` is lent.
#[inline]
fn rest(block: &mut BurstBuf, off: usize) -> Option<&mut [u8]> {
    let skipped = off.checked_sub(block.lent())?;
    block.space().get_mut(skipped..)
}

/// Moves the first `written` octets of `out`, the beginning of a buffer, to `before`, the end of
/// the previous buffer. Octets that do not fit are moved to the beginning of `out`.
#[inline(never)]
fn move_back(before: &mut [u8], out: &mut [u8], written: usize) {
    let (src, _) = out.split_at_mut(written.min(out.len()));
    let (dst, _) = before.split_at_mut(src.len().min(before.len()));
    dst.copy_from_slice(src.get(..dst.len()).unwrap_or_default());
    src.copy_within(dst.len().., 0);
}

#[kunit_tests(rsiw_sys_blocks)]
mod tests {
    use super::*;
    use crate::sys::mm::pages::BLOCK;

    /// The length of a block in octets.
    const LEN: usize = BLOCK as usize;

    /// Writes `len` octets from `at`, each the low octet of its offset.
    fn write(
        chain: &mut BlockChain,
        at: usize,
        want: usize,
        room: usize,
        len: usize,
    ) -> Option<usize> {
        chain.fill(at, want, room, Reuse::InTurn, |out| {
            let len = len.min(out.len());
            for (octet, position) in out.iter_mut().zip(at..).take(len) {
                *octet = position as u8;
            }
            (len, len)
        })
    }

    /// Whether octets `..end` have the values of [`write`].
    fn is_right(chain: &BlockChain, end: usize) -> bool {
        let mut at = 0;
        while at < end {
            let part = chain.part(at, end - at);
            if part.is_empty() || !part.iter().zip(at..).all(|(&octet, at)| octet == at as u8) {
                return false;
            }
            at += part.len();
        }
        true
    }

    /// A chain that begins with two whole blocks, or `None` where memory is too fragmented.
    fn chain() -> Option<BlockChain> {
        let mut chain = BlockChain::default();
        write(&mut chain, 0, LEN, LEN, 1)?;
        write(&mut chain, LEN, LEN, LEN, 1)?;
        let whole = chain
            .blocks
            .iter()
            .flatten()
            .all(|block| block.capacity() == LEN);
        whole.then_some(chain)
    }

    #[test]
    fn what_does_not_fit_continues_in_the_next_block() {
        let Some(mut chain) = chain() else {
            return;
        };
        let mut at = 0;
        while at + 1448 < 2 * LEN {
            assert_eq!(write(&mut chain, at, 5000, 1448, 1448), Some(1448));
            at += 1448;
        }
        assert!(is_right(&chain, at));
        assert!(chain.count(at) == 2 && chain.count(LEN) == 1 && chain.count(0) == 0);
        assert_eq!(chain.part(0, at).len(), LEN);
        // No octet was lent, so no buffer is full, and all can be written again.
        assert_eq!(chain.lent(), 0);
        assert!(chain.pop_full().is_none());
        chain.trim();
        assert!(chain.is_empty() && chain.is_exclusive());
    }

    #[test]
    fn less_than_wanted_leaves_the_next_block_empty() {
        let Some(mut chain) = chain() else {
            return;
        };
        for at in 0..LEN / 64 - 1 {
            assert_eq!(write(&mut chain, at * 64, 64, 64, 64), Some(64));
        }
        // `f` writes 64 of 100 wanted octets: they end the first block.
        assert_eq!(write(&mut chain, LEN - 64, 100, 1448, 64), Some(64));
        assert!(is_right(&chain, LEN));
        // `f` writes no octet.
        assert_eq!(write(&mut chain, LEN - 64, 100, 1448, 0), Some(0));
        assert!(is_right(&chain, LEN));
    }

    #[test]
    fn an_fpdu_longer_than_a_block_is_cut_at_its_end() {
        let Some(mut chain) = chain() else {
            return;
        };
        assert_eq!(write(&mut chain, 0, 2 * LEN, 2 * LEN, 2 * LEN), Some(LEN));
        assert_eq!(write(&mut chain, LEN, LEN, LEN, LEN - 100), Some(LEN - 100));
        // The rest is too short for an FPDU that cannot continue, and stays unused.
        assert_eq!(
            write(&mut chain, 2 * LEN - 100, 2 * LEN, 2 * LEN, 500),
            Some(500)
        );
        assert!(is_right(&chain, 2 * LEN + 400));
        let unused: u32 = chain.blocks.iter().flatten().map(BurstBuf::unused).sum();
        assert_eq!(unused, 100);
        // There are no more than three blocks.
        let end = 3 * LEN - 100;
        assert_eq!(
            write(&mut chain, 2 * LEN + 400, LEN, LEN, LEN),
            Some(LEN - 500)
        );
        assert!(is_right(&chain, end));
        assert_eq!(write(&mut chain, end, 100, 100, 100), None);
    }

    #[test]
    fn a_long_fpdu_is_cut_and_a_short_one_moved() {
        for (want, left, written) in [
            (MOST_MOVED, 1000, MOST_MOVED),
            (MOST_MOVED + 4, 1000, 1000),
            (8948, PIECE, PIECE),
            // The rest is too short for a part of a message.
            (8948, PIECE - 4, 8948),
        ] {
            let Some(mut chain) = chain() else {
                return;
            };
            let at = LEN - left;
            assert_eq!(write(&mut chain, 0, at, at, at), Some(at));
            assert_eq!(write(&mut chain, at, want, want, want), Some(written));
            assert!(is_right(&chain, at + written));
        }
    }

    #[test]
    fn without_a_next_block_the_rest_waits() -> Result {
        let Some(mut chain) = chain() else {
            return Ok(());
        };
        // Three blocks are written but for 100 octets. There is no fourth one.
        let end = 3 * LEN - 100;
        for at in [0, LEN] {
            assert_eq!(write(&mut chain, at, LEN, LEN, LEN), Some(LEN));
        }
        let Some(written) = write(&mut chain, 2 * LEN, LEN - 100, LEN - 100, LEN - 100) else {
            return Ok(());
        };
        assert_eq!(written, LEN - 100);
        assert_eq!(write(&mut chain, end, 500, 1448, 500), None);
        assert!(is_right(&chain, end));
        // An FPDU that fits into the rest is written.
        assert_eq!(write(&mut chain, end, 60, 1448, 60), Some(60));
        // TCP has taken a block, so there is room for the FPDU that did not fit.
        chain.lend(0, LEN).ok_or(EINVAL)?;
        assert_eq!(chain.pop_full(), Some(0));
        let end = end + 60 - LEN;
        let filled = chain.fill(end, 500, 1448, Reuse::InTurn, |out| {
            out.fill(7);
            (500, out.len())
        });
        assert_eq!(filled, Some(1448));
        assert_eq!(chain.part(end, 500).len(), 40);
        assert!(chain.part(end, 40).iter().all(|&octet| octet == 7));
        assert!(chain.part(end + 40, 460).iter().all(|&octet| octet == 7));
        Ok(())
    }

    #[test]
    fn only_octets_behind_what_was_lent_are_written() -> Result {
        let Some(mut chain) = chain() else {
            return Ok(());
        };
        assert_eq!(write(&mut chain, 0, 1000, 1000, 1000), Some(1000));
        let (parts, count) = chain.lend(0, 1000).ok_or(EINVAL)?;
        assert!(
            count == 1
                && parts
                    .first()
                    .is_some_and(|part| part.off == 0 && part.len == 1000)
        );
        assert_eq!(chain.lent(), 1000);
        assert_eq!(write(&mut chain, 999, 10, 10, 10), None);
        assert_eq!(write(&mut chain, 1000, LEN, LEN, LEN), Some(LEN - 1000));
        assert_eq!(write(&mut chain, LEN, 1000, 1000, 1000), Some(1000));
        let (parts, count) = chain.lend(1000, LEN).ok_or(EINVAL)?;
        let total: u32 = parts.iter().take(count as usize).map(|part| part.len).sum();
        assert!(count == 2 && total as usize == LEN);
        assert!(is_right(&chain, 1000 + LEN));
        // All of the first block is lent, and 1000 octets of the second.
        assert_eq!(chain.pop_full(), Some(0));
        assert_eq!(chain.pop_full(), None);
        chain.trim();
        assert!(!chain.is_empty());
        assert_eq!(chain.lent(), 1000);
        assert!(chain.lend(1000, 3 * LEN).is_none());
        assert!(chain.lend(1000, 0).is_none());
        assert_eq!(chain.lent(), 1000);
        Ok(())
    }
}
