// SPDX-License-Identifier: GPL-2.0

//! Memory that TCP keeps accounted to a stream while it moves bulk.
//!
//! TCP accounts for the memory of its buffers by pages, in one account of all sockets. At both ends
//! every burst takes pages from the account and gives them back. A stream that moves burst after
//! burst has TCP keep what it needs for some of them, as `SO_RESERVE_MEM` lets programs do
//! (socket(7)). It gives the memory back when it has moved no bulk for a while, or when memory gets
//! short. An idle stream keeps nothing.

/// Octets in one batch that are bulk: more are likely to follow.
const BULK: u64 = 32 << 10;

/// Octets that are kept accounted: one burst, and TCP's own records of it. Twice as many were no
/// faster.
pub(super) const RESERVED: u32 = 256 << 10;

/// Milliseconds between two checks.
pub(super) const LOOK_MS: u32 = 2_000;

/// Whether a stream's memory is kept.
#[derive(Default)]
pub(super) struct Reserve {
    /// Memory is reserved.
    held: bool,
    /// Bulk has moved since the last check.
    used: bool,
}

impl Reserve {
    /// `octets` were moved in one batch, in one direction; whether to ask TCP for memory, and then
    /// to say what came of it by [`Self::is_held`].
    #[inline]
    pub(super) fn moved(&mut self, octets: u64) -> bool {
        if octets < BULK {
            return false;
        }
        self.used = true;
        !self.held
    }

    /// TCP keeps the memory.
    #[inline]
    pub(super) fn is_held(&mut self) {
        self.held = true;
    }

    /// Whether TCP keeps the memory.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.held
    }

    /// A look, every [`LOOK_MS`] while memory is kept: whether it stays so. If not, the caller
    /// releases it.
    pub(super) fn stays(&mut self, plenty: bool) -> bool {
        self.held = self.held && core::mem::take(&mut self.used) && plenty;
        self.held
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_reserve)]
mod tests {
    use super::*;

    #[test]
    fn small_things_reserve_nothing() {
        let mut reserve = Reserve::default();
        for octets in [0, 64, BULK - 1] {
            assert!(!reserve.moved(octets));
        }
        assert!(!reserve.stays(true));
    }

    #[test]
    fn bulk_asks_until_it_is_given() {
        let mut reserve = Reserve::default();
        assert!(reserve.moved(BULK));
        assert!(reserve.moved(BULK));
        reserve.is_held();
        assert!(!reserve.moved(BULK));
    }

    #[test]
    fn what_nobody_used_between_two_looks_goes_back() {
        let mut reserve = Reserve::default();
        assert!(reserve.moved(BULK));
        reserve.is_held();
        assert!(reserve.stays(true));
        assert!(!reserve.moved(BULK));
        assert!(reserve.stays(true));
        assert!(!reserve.moved(BULK - 1));
        assert!(!reserve.stays(true));
        // The memory can be reserved again.
        assert!(reserve.moved(BULK));
    }

    #[test]
    fn it_goes_back_where_memory_is_short() {
        let mut reserve = Reserve::default();
        assert!(reserve.moved(BULK));
        reserve.is_held();
        assert!(!reserve.stays(false));
        assert!(reserve.moved(BULK));
    }
}
