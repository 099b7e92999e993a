// SPDX-License-Identifier: GPL-2.0

//! Memory that TCP reserves for a stream during bulk transfers.
//!
//! TCP accounts the memory of its buffers in pages, in one counter of all sockets. Every burst
//! charges and uncharges pages at both ends. A stream in a bulk transfer reserves memory for some
//! bursts, as `SO_RESERVE_MEM` does for programs (socket(7)). The reservation ends after a time
//! without bulk data, or when memory is short. An idle stream reserves nothing.

/// The octets in one batch that count as bulk data: more are likely to follow.
const BULK: u64 = 32 << 10;

/// The reserved octets: one burst, and TCP's own records of it. Twice as many were no faster.
pub(super) const RESERVED: u32 = 256 << 10;

/// Milliseconds between two checks.
pub(super) const LOOK_MS: u32 = 2_000;

/// The reservation of a stream.
#[derive(Default)]
pub(super) struct Reserve {
    /// Memory is reserved.
    held: bool,
    /// Bulk data has moved since the last check.
    used: bool,
}

impl Reserve {
    /// Notes `octets` octets that one batch moved in one direction. Returns whether the caller
    /// tries to reserve memory. After a success the caller calls [`Self::is_held`].
    #[inline]
    pub(super) fn moved(&mut self, octets: u64) -> bool {
        if octets < BULK {
            return false;
        }
        self.used = true;
        !self.held
    }

    /// Notes that TCP has reserved the memory.
    #[inline]
    pub(super) fn is_held(&mut self) {
        self.held = true;
    }

    /// Whether memory is reserved.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.held
    }

    /// Checks the reservation, every [`LOOK_MS`] milliseconds. `false`: the caller ends it,
    /// because no bulk data has moved, or memory is not `plenty`.
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
