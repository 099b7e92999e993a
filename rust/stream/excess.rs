// SPDX-License-Identifier: GPL-2.0

//! Memory that a stream holds beyond what TCP accounts to its socket.
//!
//! [`Excess`] belongs to the holder of the socket, as all protocol state does. TCP accounts the
//! octets of a buffer, but it pins the whole block in which they lie until they are acknowledged.
//! The reassembly buffer is not TCP's at all. Up to [`FREE`] octets of both are not charged. What
//! exceeds them is charged to the socket, so `net.ipv4.tcp_mem` and the memory cgroup see it. Where
//! the charge is refused, TCP gets a copy, or the octets that arrived wait in its queue.
//!
//! Bursts lie one behind the other in blocks without a gap ([`crate::sys::mm::blocks`]), so
//! acknowledgments free the blocks in order. Two terms bound what is pinned beyond the octets themselves:
//!
//! - the oldest block that TCP holds, of which all but an octet may be acknowledged,
//! - the block in use, the rest of which is not filled yet.
//!
//! Both are at most [`FREE`] octets where a page has up to 32 KiB. A third term is small: octets at
//! the end of a block that were left out, as an FPDU longer than a block cannot continue in the next.
//!
//! TCP copies short bursts into the socket's page fragments of [`FRAGMENT`] octets, one behind the
//! other as well. What is unacknowledged pins the rest of the oldest and of the newest fragment.

use kernel::page::PAGE_SIZE;

use crate::sys::mm::pages::BLOCK;

/// Octets a stream may hold without a charge.
const FREE: u32 = 64 << 10;

/// Charges are multiples of this, so that few are made.
const STEP: u32 = 32 << 10;

/// Octets of a fragment of TCP's, at most.
const FRAGMENT: u32 = if PAGE_SIZE as u32 > 32 << 10 {
    PAGE_SIZE as u32
} else {
    32 << 10
};

/// Octets of blocks that were given up, up to a position of the stream.
#[derive(Clone, Copy, Default)]
struct Closed {
    /// TCP holds none of these blocks when everything before this position is acknowledged.
    end: u64,
    /// The octets at the ends of the blocks that hold nothing.
    unused: u32,
    /// There are such blocks.
    any: bool,
}

/// What a stream holds, and how much of it is charged.
#[derive(Default)]
pub(super) struct Excess {
    /// Octets charged to the socket.
    charged: u32,
    /// Octets of memory of the reassembly buffer.
    reassembly: u32,
    /// Octets of a charge that the reassembly buffer waits for.
    wanted: u32,
    /// Octets of the fragments that are pinned or kept.
    fragments: u32,
    /// TCP was lent a part of the block in use.
    lent: bool,
    /// Blocks given up before those of `newer`.
    older: Closed,
    /// Blocks given up since `older` was empty. Two sums serve as a list: a block counts at most
    /// until as much again is acknowledged as was outstanding when it was given up.
    newer: Closed,
}

impl Excess {
    /// The most octets that TCP does not account, whatever is acknowledged next, if it holds parts of
    /// `in_use` blocks that are not given up.
    fn bound(&self, in_use: u32) -> u32 {
        let closed = self.older.any || self.newer.any;
        let blocks = u32::from(closed).saturating_add(in_use).min(2);
        BLOCK
            .saturating_mul(blocks)
            .saturating_add(self.older.unused)
            .saturating_add(self.newer.unused)
            .saturating_add(self.reassembly)
            .saturating_add(self.fragments)
    }

    /// The charge to be made in addition for `bound` octets.
    fn missing(&self, bound: u32) -> u32 {
        let due = bound.saturating_sub(FREE).saturating_sub(self.charged);
        due.checked_next_multiple_of(STEP).unwrap_or(u32::MAX)
    }

    /// The octets to be charged before TCP is lent a burst that lies in `blocks` blocks; mostly 0.
    #[inline]
    pub(super) fn missing_to_lend(&self, blocks: u32) -> u32 {
        self.missing(self.bound(blocks))
    }

    /// `octets` more were charged to the socket.
    pub(super) fn charged(&mut self, octets: u32) {
        self.charged = self.charged.saturating_add(octets);
    }

    /// Whether TCP holds a part of the block in use, as far as is known.
    #[inline]
    pub(super) fn set_lent(&mut self, lent: bool) {
        self.lent = lent;
    }

    /// TCP has copied something.
    #[inline]
    pub(super) fn copied(&mut self) {
        self.fragments = FRAGMENT.saturating_mul(2);
    }

    /// The socket's fragment was given up, and no copy is unacknowledged.
    pub(super) fn no_fragment(&mut self) {
        self.fragments = 0;
    }

    /// The block in use is given up at position `end` of the stream, `unused` octets of it empty.
    #[inline]
    pub(super) fn closed(&mut self, end: u64, unused: u32) {
        self.lent = false;
        self.newer = Closed {
            end,
            unused: self.newer.unused.saturating_add(unused),
            any: true,
        };
    }

    /// Of the first `sent` octets of the stream all but the last `outstanding` are acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, sent: u64, outstanding: u32) {
        let acked = sent.saturating_sub(u64::from(outstanding));
        if outstanding == 0 {
            // The one that the socket keeps.
            self.fragments = self.fragments.min(FRAGMENT);
        }
        for _ in 0..2 {
            if !self.older.any || self.older.end <= acked {
                self.older = core::mem::take(&mut self.newer);
            }
        }
    }

    /// The reassembly buffer is to have `octets` of memory. If a charge is missing for them,
    /// nothing changes, and [`Self::take_wanted`] tells how much.
    pub(super) fn reassemble(&mut self, octets: u32) -> bool {
        let before = core::mem::replace(&mut self.reassembly, octets);
        self.wanted = match octets <= before {
            true => 0,
            false => self.missing(self.bound(u32::from(self.lent))),
        };
        if self.wanted != 0 {
            self.reassembly = before;
        }
        self.wanted == 0
    }

    /// Whether the reassembly buffer waits for a charge.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted != 0
    }

    /// The octets to be charged before the reassembly buffer gets its memory, once.
    pub(super) fn take_wanted(&mut self) -> u32 {
        core::mem::take(&mut self.wanted)
    }

    /// Something is held that a later look may give back.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.charged != 0 || self.lent
    }

    /// The socket keeps a page fragment, or TCP holds parts of some.
    #[inline]
    pub(super) fn has_fragment(&self) -> bool {
        self.fragments != 0
    }

    /// The octets whose charge is not needed any more; the caller takes it back.
    pub(super) fn take_surplus(&mut self) -> u32 {
        let due = self.bound(u32::from(self.lent)).saturating_sub(FREE);
        let due = due.checked_next_multiple_of(STEP).unwrap_or(u32::MAX);
        let surplus = self.charged.saturating_sub(due);
        self.charged = self.charged.saturating_sub(surplus);
        surplus
    }

    /// Everything was given up; returns all octets that are charged.
    pub(super) fn end(&mut self) -> u32 {
        core::mem::take(self).charged
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_excess)]
mod tests {
    use super::*;

    /// 64 KiB, as the design promises.
    const KIB64: u32 = 65_536;

    /// Charges what is missing, and tells how much is charged in all.
    fn lend(excess: &mut Excess) -> u32 {
        let missing = excess.missing_to_lend(1);
        excess.charged(missing);
        excess.set_lent(true);
        assert_eq!(excess.missing_to_lend(1), 0);
        excess.charged
    }

    #[test]
    fn two_blocks_of_32_kib_are_free_and_more_is_charged() {
        let beyond = (2 * BLOCK).saturating_sub(KIB64);
        let mut excess = Excess::default();
        assert_eq!(lend(&mut excess), 0);
        assert!(excess.missing_to_lend(2) >= beyond);
        assert!(beyond != 0 || excess.missing_to_lend(2) == 0);
        excess.closed(60_000, 0);
        assert!(lend(&mut excess) >= beyond);
        assert!(beyond != 0 || excess.charged == 0);
        excess.closed(90_000, 5_536);
        assert!(lend(&mut excess) >= beyond + 5_536);
        assert!(excess.charged <= beyond + KIB64);
    }

    #[test]
    fn acknowledged_blocks_count_no_more() {
        let beyond = (2 * BLOCK).saturating_sub(KIB64);
        let mut excess = Excess::default();
        let mut sent = 0;
        for _ in 0..1000 {
            lend(&mut excess);
            sent += 65_160;
            excess.closed(sent, 376);
            // Sixteen bursts are outstanding.
            excess.acknowledged(sent, 16 * 65_160);
        }
        // At least what is pinned is charged, and no more than twice the ends of blocks.
        assert!(excess.charged >= beyond + 15 * 376);
        assert!(excess.charged <= beyond + 32 * 376 + STEP);
        excess.acknowledged(sent, 1);
        assert!(excess.older.any);
        excess.acknowledged(sent, 0);
        assert!(!excess.older.any && !excess.newer.any);
        assert!(excess.is_some());
        let charged = excess.charged;
        assert_eq!(excess.take_surplus(), charged);
        assert!(!excess.is_some());
        assert_eq!(excess.take_surplus(), 0);
    }

    #[test]
    fn a_block_counts_until_its_last_octet_is_acknowledged() {
        let mut excess = Excess::default();
        for end in [100_000, 200_000, 300_000] {
            excess.closed(end, 1000);
            excess.acknowledged(end, 250_000);
        }
        for (outstanding, blocks) in [(300_000, true), (1, true), (0, false)] {
            excess.acknowledged(300_000, outstanding);
            assert_eq!(excess.older.any || excess.newer.any, blocks);
        }
        // More outstanding than was sent: the start-up frames.
        excess.closed(10, 0);
        excess.acknowledged(10, 4000);
        assert!(excess.older.any);
    }

    #[test]
    fn reassembly_counts_into_the_same_octets() {
        let mut excess = Excess::default();
        assert!(excess.reassemble(KIB64));
        assert!(excess.missing_to_lend(1) >= BLOCK);
        assert!(excess.reassemble(0));
        assert_eq!(excess.missing_to_lend(1), 0);
        excess.set_lent(true);
        let beyond = KIB64 - BLOCK.min(KIB64) + 2048;
        assert!(!excess.reassemble(beyond));
        assert!(excess.is_wanted());
        let wanted = excess.take_wanted();
        assert!(wanted >= 2048);
        assert!(!excess.is_wanted());
        // Refused for good as long as it is not charged.
        assert!(!excess.reassemble(beyond));
        excess.charged(wanted);
        assert!(excess.reassemble(beyond));
        assert!(!excess.is_wanted());
        // Less is always granted.
        assert!(excess.reassemble(64));
    }

    #[test]
    fn copies_count_two_fragments_at_most() {
        let mut excess = Excess::default();
        assert!(!excess.has_fragment());
        excess.copied();
        excess.copied();
        assert!(excess.has_fragment() && !excess.is_some());
        let both = BLOCK + 2 * FRAGMENT - KIB64;
        assert!(excess.missing_to_lend(1) >= both);
        assert!(excess.missing_to_lend(1) < both + STEP);
        // The rest of an FPDU of 1 KiB counts with them.
        assert!(!excess.reassemble(1024));
        assert!(excess.take_wanted() >= 1024);
        excess.acknowledged(100, 1);
        assert!(excess.missing_to_lend(1) >= both);
        excess.acknowledged(100, 0);
        assert!(excess.missing_to_lend(1) >= both - FRAGMENT);
        assert!(excess.missing_to_lend(1) < both - FRAGMENT + STEP);
        assert!(excess.has_fragment());
        excess.no_fragment();
        assert_eq!(excess.missing_to_lend(1), BLOCK.saturating_sub(KIB64));
        assert!(!excess.has_fragment());
    }

    #[test]
    fn the_end_returns_the_whole_charge() {
        let mut excess = Excess::default();
        excess.closed(1, 5000);
        let charged = lend(&mut excess);
        assert!(charged != 0);
        assert_eq!(excess.end(), charged);
        assert!(!excess.is_some());
        assert_eq!(excess.end(), 0);
    }
}
