// SPDX-License-Identifier: GPL-2.0

//! Memory that a stream holds beyond what TCP accounts to its socket.
//!
//! The socket lock guards [`Excess`], like all protocol state. TCP accounts the octets of a
//! buffer, but it pins the whole block that contains them until they are acknowledged. TCP does
//! not account the reassembly buffer at all. Up to [`FREE`] octets of both are not charged.
//! Further octets are charged to the socket, and so to `net.ipv4.tcp_mem` and the memory cgroup.
//! If the charge is refused, a burst ends with its first block. TCP gets a copy in place of a
//! reference, or a reference in place of a copy. Received octets stay in TCP's queue.
//!
//! Bursts fill blocks in order and without gaps ([`crate::sys::mm::blocks`]), so acknowledgments
//! free the blocks in order. Two terms bound the pinned memory beyond the octets themselves:
//!
//! - the oldest block that TCP references, of which all octets but one may be acknowledged,
//! - the block in use, the rest of which is not filled yet.
//!
//! Both together are at most [`FREE`] octets where a page has up to 32 KiB. A burst that TCP has
//! not accepted as a whole is in no account of TCP. All its blocks count until then. Another term
//! is small: unused octets at the end of a block. An FPDU longer than a block cannot continue in
//! the next one.
//!
//! TCP copies short bursts into the socket's page fragments of [`FRAGMENT`] octets, also in
//! order. Unacknowledged octets pin the rest of the oldest and of the newest fragment. They count
//! with the blocks: a copy after lent bursts is charged too.

use kernel::page::PAGE_SIZE;

use crate::sys::{
    mm::pages::BLOCK,
    net::socket::Locked, //
};

/// The octets that a stream may hold without a charge.
const FREE: u32 = 64 << 10;

/// The unit of charges, in octets. A large unit makes charges rare.
const STEP: u32 = 32 << 10;

/// The largest page fragment of TCP, in octets.
const FRAGMENT: u32 = if PAGE_SIZE as u32 > 32 << 10 {
    PAGE_SIZE as u32
} else {
    32 << 10
};

/// Retired blocks, which no later burst fills, up to a position of the stream.
#[derive(Clone, Copy, Default)]
struct Retired {
    /// TCP references none of these blocks when all octets before this position are acknowledged.
    end: u64,
    /// The unused octets at the ends of the blocks.
    unused: u32,
    /// Whether there are such blocks.
    any: bool,
}

/// The memory of a stream that TCP does not account, and the charge for it.
#[derive(Default)]
pub(super) struct Excess {
    /// Octets charged to the socket.
    charged: u32,
    /// The size of the reassembly buffer, in octets.
    reassembly: u32,
    /// Octets of a charge that the reassembly buffer waits for.
    wanted: u32,
    /// Octets of the fragments that are pinned or kept.
    fragments: u32,
    /// Blocks in use: TCP has references to a part of the only one, or they contain a burst that
    /// TCP has not accepted as a whole.
    in_use: u32,
    /// Blocks retired before those of `newer`.
    older: Retired,
    /// Blocks retired since `older` was empty. Two sums serve as a list. A block counts at most
    /// until twice the octets are acknowledged that were outstanding at its retirement.
    newer: Retired,
}

impl Excess {
    /// The largest number of octets that TCP does not account, for any next acknowledgment, with
    /// `in_use` blocks that are not retired.
    fn bound(&self, in_use: u32) -> u32 {
        let closed = self.older.any || self.newer.any;
        let blocks = u32::from(closed).saturating_add(in_use);
        BLOCK
            .saturating_mul(blocks)
            .saturating_add(self.older.unused)
            .saturating_add(self.newer.unused)
            .saturating_add(self.reassembly)
            .saturating_add(self.fragments)
    }

    /// The octets to charge in addition for `bound` octets: a multiple of [`STEP`].
    fn missing(&self, bound: u32) -> u32 {
        let due = bound.saturating_sub(FREE).saturating_sub(self.charged);
        due.checked_next_multiple_of(STEP).unwrap_or(u32::MAX)
    }

    /// The octets to charge before a burst fills `blocks` blocks, or TCP gets references to them;
    /// mostly 0.
    #[inline]
    pub(super) fn missing_to_lend(&self, blocks: u32) -> u32 {
        self.missing(self.bound(blocks))
    }

    /// The octets to charge before TCP copies a burst; mostly 0.
    #[inline]
    pub(super) fn missing_to_copy(&self) -> u32 {
        let more = FRAGMENT.saturating_mul(2).saturating_sub(self.fragments);
        self.missing(self.bound(self.in_use).saturating_add(more))
    }

    /// Charges what is missing for all that is counted, if the socket's charge is not refused.
    #[cold]
    pub(super) fn charge_missing(&mut self, locked: &mut Locked) {
        let missing = self.missing(self.bound(self.in_use));
        if missing != 0 && locked.charge(missing) {
            self.charged(missing);
        }
    }

    /// Notes a further charge of `octets` octets to the socket.
    pub(super) fn charged(&mut self, octets: u32) {
        self.charged = self.charged.saturating_add(octets);
    }

    /// Notes the number of blocks in use.
    #[inline]
    pub(super) fn set_in_use(&mut self, blocks: u32) {
        self.in_use = blocks;
    }

    /// Notes that TCP has copied a burst.
    #[inline]
    pub(super) fn copied(&mut self) {
        self.fragments = FRAGMENT.saturating_mul(2);
    }

    /// Notes that the socket has no page fragment, and that no copied octet is unacknowledged.
    pub(super) fn no_fragment(&mut self) {
        self.fragments = 0;
    }

    /// Retires the block in use at position `end` of the stream, with `unused` octets at its end.
    #[inline]
    pub(super) fn closed(&mut self, end: u64, unused: u32) {
        self.in_use = 0;
        self.newer = Retired {
            end,
            unused: self.newer.unused.saturating_add(unused),
            any: true,
        };
    }

    /// Notes that all but the last `outstanding` of the first `sent` octets of the stream are
    /// acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, sent: u64, outstanding: u32) {
        let acked = sent.saturating_sub(u64::from(outstanding));
        if outstanding == 0 {
            // The socket keeps one fragment.
            self.fragments = self.fragments.min(FRAGMENT);
        }
        for _ in 0..2 {
            if !self.older.any || self.older.end <= acked {
                self.older = core::mem::take(&mut self.newer);
            }
        }
    }

    /// Sets the size of the reassembly buffer to `octets` octets. Without the necessary charge
    /// the old size stays, the result is `false`, and [`Self::take_wanted`] returns the missing
    /// octets.
    pub(super) fn reassemble(&mut self, octets: u32) -> bool {
        let before = core::mem::replace(&mut self.reassembly, octets);
        self.wanted = match octets <= before {
            true => 0,
            false => self.missing(self.bound(self.in_use)),
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

    /// Takes the number of octets to charge before the reassembly buffer gets its memory.
    pub(super) fn take_wanted(&mut self) -> u32 {
        core::mem::take(&mut self.wanted)
    }

    /// Whether a later check may release memory: octets are charged, or blocks are in use.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.charged != 0 || self.in_use != 0
    }

    /// Whether the socket keeps a page fragment, or TCP has references to parts of some.
    #[inline]
    pub(super) fn has_fragment(&self) -> bool {
        self.fragments != 0
    }

    /// Removes the charge that is no longer needed. The caller uncharges the returned octets.
    pub(super) fn take_surplus(&mut self) -> u32 {
        let due = self.bound(self.in_use).saturating_sub(FREE);
        let due = due.checked_next_multiple_of(STEP).unwrap_or(u32::MAX);
        let surplus = self.charged.saturating_sub(due);
        self.charged = self.charged.saturating_sub(surplus);
        surplus
    }

    /// The octets charged to the socket.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn charge(&self) -> u32 {
        self.charged
    }

    /// Resets the state after the release of all memory; returns all charged octets.
    pub(super) fn end(&mut self) -> u32 {
        core::mem::take(self).charged
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_excess)]
mod tests {
    use super::*;

    /// 64 KiB, the documented limit.
    const KIB64: u32 = 65_536;

    /// Charges the missing octets; returns the total charge.
    fn lend(excess: &mut Excess) -> u32 {
        let missing = excess.missing_to_lend(1);
        excess.charged(missing);
        excess.set_in_use(1);
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
        // The charge covers the pinned octets, and at most twice the unused ends of blocks.
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
        excess.set_in_use(1);
        let beyond = KIB64 - BLOCK.min(KIB64) + 2048;
        assert!(!excess.reassemble(beyond));
        assert!(excess.is_wanted());
        let wanted = excess.take_wanted();
        assert!(wanted >= 2048);
        assert!(!excess.is_wanted());
        // Refused until the octets are charged.
        assert!(!excess.reassemble(beyond));
        excess.charged(wanted);
        assert!(excess.reassemble(beyond));
        assert!(!excess.is_wanted());
        // A smaller size is always granted.
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
    fn a_copy_behind_lent_blocks_is_charged() {
        let mut excess = Excess::default();
        assert_eq!(
            excess.missing_to_copy(),
            (2 * FRAGMENT).saturating_sub(KIB64)
        );
        // A block that the peer pins by one octet, and a second one that is filled in part.
        lend(&mut excess);
        excess.closed(BLOCK.into(), 0);
        lend(&mut excess);
        excess.acknowledged(u64::from(BLOCK) + 1000, 1001);
        let beyond = (2 * BLOCK + 2 * FRAGMENT).saturating_sub(KIB64);
        let missing = excess.missing_to_copy();
        assert_eq!(missing, (beyond - excess.charged).next_multiple_of(STEP));
        excess.charged(missing);
        excess.copied();
        assert_eq!(excess.missing_to_copy(), 0);
        // With the first block acknowledged, a part of the charge is surplus.
        excess.acknowledged(u64::from(BLOCK) + 1000, 1000);
        assert_eq!(excess.take_surplus(), BLOCK);
        assert_eq!(excess.missing_to_copy(), 0);
    }

    #[test]
    fn all_blocks_of_a_burst_count_until_tcp_has_accepted_it() {
        let mut excess = Excess::default();
        excess.closed(BLOCK.into(), 0);
        excess.acknowledged(BLOCK.into(), 1);
        let missing = excess.missing_to_lend(3);
        assert_eq!(missing, (4 * BLOCK).saturating_sub(KIB64));
        excess.charged(missing);
        excess.set_in_use(3);
        excess.acknowledged(BLOCK.into(), 0);
        assert_eq!(excess.take_surplus(), BLOCK);
        assert_eq!(excess.missing_to_lend(3), 0);
        excess.set_in_use(1);
        assert_eq!(excess.take_surplus(), 3 * BLOCK - KIB64.max(BLOCK));
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
