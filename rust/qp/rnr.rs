// SPDX-License-Identifier: GPL-2.0

//! Receiver not ready (RNR): the time for which a Send waits for a receive.
//!
//! InfiniBand's responder answers such a Send with a negative acknowledgment that carries
//! `min_rnr_timer`. The requester retries the Send after that time, up to `rnr_retry` times. Here
//! the receiving end holds the Send for the same total time, from its own two attributes.

use super::modify::KeptAttributes;
use crate::params;

/// The value of `rnr_retry` for no limit.
const RETRY_FOR_EVER: u8 = 7;

/// The unit of [`TIMES`], in nanoseconds.
const UNIT_NS: u64 = 10_000;

/// The times of the codes of `min_rnr_timer` (InfiniBand Architecture Specification, volume 1,
/// encoding of the RNR NAK timer field).
const TIMES: [u16; 32] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The time of code 0 in [`UNIT_NS`], which a `u16` of [`TIMES`] can not hold.
const TIME_OF_CODE_0: u64 = 65_536;

/// Whether this `rnr_retry` lets a message wait for a receive of the peer without a time limit.
pub(super) fn is_for_ever(rnr_retry: Option<u8>) -> bool {
    rnr_retry == Some(RETRY_FOR_EVER)
}

/// The time for which a Send is held with these two attributes, in nanoseconds; `None`: no limit.
fn limit_ns(timer: u8, retries: u8) -> Option<u64> {
    if retries == RETRY_FOR_EVER {
        return None;
    }
    let time = match timer {
        0 => TIME_OF_CODE_0,
        code => TIMES.get(usize::from(code)).copied().unwrap_or(0).into(),
    };
    Some(time.wrapping_mul(UNIT_NS).wrapping_mul(retries.into()))
}

/// The time for which a Send may wait for a receive, in nanoseconds; `None`: no limit. The
/// parameter `rnr_timeout_ms` applies unless the owner has set both attributes, as with a
/// connection manager.
pub(super) fn limit(attrs: &KeptAttributes) -> Option<u64> {
    match (attrs.min_rnr_timer, attrs.rnr_retry) {
        (Some(timer), Some(retries)) => limit_ns(timer, retries),
        _ => Some(u64::from(params::rnr_timeout_ms()).wrapping_mul(1_000_000)),
    }
}

#[kernel::macros::kunit_tests(rsiw_verbs_rnr)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_specification() {
        let ms = |code, retries| limit_ns(code, retries).map(|ns| ns / 10_000);
        assert_eq!(ms(0, 1), Some(65_536));
        assert_eq!(ms(1, 6), Some(6));
        assert_eq!(ms(12, 3), Some(3 * 64));
        assert_eq!(ms(14, 1), Some(128));
        assert_eq!(ms(31, 6), Some(6 * 49_152));
        assert_eq!(ms(31, 0), Some(0));
        assert_eq!(ms(1, 7), None);
    }
}
