// SPDX-License-Identifier: GPL-2.0

//! ACK batching: deferred `tcp_read_done`.
//!
//! If bursts are reported to TCP one at a time, TCP acknowledges each: a packet for every 64 KiB.
//! In bulk transfers several bursts arrive together, and are reported together. At the latest a
//! bottom-half work item reports them, after the softirqs that deliver the bursts. Small messages
//! are reported at once: their sender may wait for the acknowledgment, or for a larger window.

/// The octets of one batch from which more are likely to arrive in the same softirqs.
const BULK: usize = 16 << 10;

/// The largest number of octets that are read and not reported to TCP, before those of the
/// current batch are added. It is less than four whole bursts at MTU 1500, so that the fourth one
/// flushes. So many octets stay in a CPU's cache, and are a small part of the peer's window.
const MOST: usize = 240 << 10;

/// The number of octets that are read and not reported to TCP. The socket lock guards it.
#[derive(Default)]
pub(in crate::stream) struct AckBatch(usize);

impl AckBatch {
    /// The number of octets that are not reported.
    #[inline]
    pub(in crate::stream) fn octets(&self) -> usize {
        self.0
    }

    /// Adds `taken` octets, and returns the number of octets to report to TCP now. If some are
    /// left, a work item has to [`flush`](Self::flush) them.
    #[inline]
    pub(in crate::stream) fn read(&mut self, taken: usize) -> usize {
        self.0 = self.0.saturating_add(taken);
        match taken < BULK || self.0 >= MOST {
            true => self.flush(),
            false => 0,
        }
    }

    /// Takes the number of octets that are not reported to TCP yet; the caller reports them.
    #[inline]
    pub(in crate::stream) fn flush(&mut self) -> usize {
        core::mem::take(&mut self.0)
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_ack_batch)]
mod tests {
    use super::*;

    /// A whole burst at MTU 1500.
    const BURST: usize = 45 * 1448;

    #[test]
    fn small_messages_are_flushed_at_once() {
        let mut ack_batch = AckBatch::default();
        for taken in [1, 64, BULK - 1] {
            assert_eq!(ack_batch.read(taken), taken);
            assert_eq!(ack_batch.octets(), 0);
        }
    }

    #[test]
    fn bursts_are_flushed_four_at_a_time() {
        let mut ack_batch = AckBatch::default();
        for _ in 0..3 {
            for bursts in 1..4 {
                assert_eq!(ack_batch.read(BURST), 0);
                assert_eq!(ack_batch.octets(), bursts * BURST);
            }
            assert_eq!(ack_batch.read(BURST), 4 * BURST);
        }
    }

    #[test]
    fn a_small_message_flushes_what_was_before_it() {
        let mut ack_batch = AckBatch::default();
        assert_eq!(ack_batch.read(BURST), 0);
        assert_eq!(ack_batch.read(0), BURST);
        assert_eq!(ack_batch.read(BURST), 0);
        assert_eq!(ack_batch.read(100), BURST + 100);
        assert_eq!(ack_batch.flush(), 0);
    }

    #[test]
    fn nothing_is_flushed_twice() {
        let mut ack_batch = AckBatch::default();
        assert_eq!(ack_batch.read(BURST), 0);
        assert_eq!(ack_batch.flush(), BURST);
        assert_eq!(ack_batch.flush(), 0);
        assert_eq!(ack_batch.read(MOST), MOST);
    }
}
