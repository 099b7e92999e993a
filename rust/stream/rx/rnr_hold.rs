// SPDX-License-Identifier: GPL-2.0

//! Receiver not ready: the hold of a Send until a receive is posted.
//!
//! A held Send stays in TCP's receive queue or, if it arrived in parts, in the reassembly buffer.
//! Octets after it are not read, so TCP's window closes. Each batch that receives checks for a
//! receive first. A process posts a receive by a store to its ring, so a timer starts such a
//! batch, at short and then growing intervals. A kernel user's post starts the timer at once.
//! After the time limit of the queue pair
//! ([`rnr_limit`](crate::verbs::qp_queues::QpQueues::rnr_limit)) the stream ends with the
//! Terminate of RFC 5041 section 7.2: no buffer available.
//!
//! The socket lock guards the state.

use iwarp_wire::{
    rdmap::terminate::{
        Terminate,
        TerminateReason, //
    },
    rx::SendSegment, //
};

use super::{
    reassembly::Reassembly,
    receive::Rx, //
};
use crate::{
    stream::{
        ctx::{
            Ctx,
            Stop, //
        },
        read_queues::ReadQueues, //
    },
    sys::sync::timer::now_ns,
    verbs::counters::Counter, //
};

/// Nanoseconds until the first check for a receive.
const FIRST_LOOK: i64 = 20_000;

/// The most nanoseconds between two checks in the first quarter of a second of a hold.
const LAST_LOOK: i64 = 4_000_000;

/// The most nanoseconds between two checks.
const LONGEST_LOOK: i64 = 32_000_000;

/// Nanoseconds of a hold until a FIN after the held Send is reported to the user.
const FIN_WAITS: i64 = 500_000_000;

/// Nanoseconds of a microsecond.
const NS_PER_US: i64 = 1_000;

/// A Send that waits for a receive.
pub(in crate::stream) struct Hold {
    /// When the hold began, in nanoseconds.
    since: i64,
    /// The latest end of the hold, in nanoseconds; `None`: no limit.
    until: Option<i64>,
    /// The time up to which the device's counter includes the hold.
    counted: i64,
    /// The Terminate for a hold that ends without a receive.
    refusal: Terminate,
    /// The FPDU, if it arrived in parts: TCP does not have it any more.
    kept: Option<HeldFpdu>,
}

/// A verified FPDU in the reassembly buffer, without markers in its ULPDU.
struct HeldFpdu {
    fpdu: Reassembly,
    /// The offset of the ULPDU.
    start: usize,
    /// Octets of the ULPDU.
    len: u16,
}

impl HeldFpdu {
    /// The octets between the MPA header and the CRC: a DDP segment.
    fn ulpdu(&self) -> &[u8] {
        let octets = self.fpdu.octets().get(self.start..).unwrap_or_default();
        octets.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl Hold {
    /// Makes a hold that begins `now`, for `limit` nanoseconds or without limit.
    fn new(now: i64, limit: Option<u64>, segment: &SendSegment) -> Self {
        let mut hold = Self {
            since: now,
            until: None,
            counted: now,
            refusal: Terminate::bare(segment.no_buffer()),
            kept: None,
        };
        hold.set_limit(limit);
        hold
    }

    /// Sets the limit of the whole hold in nanoseconds; `None`: no limit.
    fn set_limit(&mut self, limit: Option<u64>) {
        self.until = limit.map(|limit| self.since.saturating_add_unsigned(limit));
    }

    /// Notes the held segment: its ULPDU has `len` octets and begins with `head`.
    pub(in crate::stream) fn describe(&mut self, head: &[u8], len: u16) {
        self.refusal = Terminate::for_segment(self.refusal.reason(), head, len);
    }

    /// Keeps the FPDU, whose ULPDU of `len` octets begins at `start`.
    pub(in crate::stream) fn keep(&mut self, fpdu: Reassembly, start: usize, len: u16) {
        self.kept = Some(HeldFpdu { fpdu, start, len });
    }

    /// Nanoseconds until the next check: an eighth of the hold so far, within limits that grow
    /// with it, and no later than its end.
    fn next_look(&self, now: i64) -> u32 {
        let held = now.saturating_sub(self.since);
        let most = (held / 64).clamp(LAST_LOOK, LONGEST_LOOK);
        let look = (held / 8).max(FIRST_LOOK).min(most);
        let left = self
            .until
            .map_or(i64::MAX, |until| until.saturating_sub(now));
        u32::try_from(look.min(left.max(1))).unwrap_or(u32::MAX)
    }

    /// Whether a FIN after the held Send is reported to the user before the delivery of the Send:
    /// possibly no receive will be posted.
    pub(in crate::stream) fn tells_fin(&self, now: i64) -> bool {
        now.saturating_sub(self.since) >= FIN_WAITS
    }

    /// Microseconds of the hold since the last call, for the device's counter.
    fn count(&mut self, now: i64) -> u64 {
        let micros = now.saturating_sub(self.counted).max(0) / NS_PER_US;
        self.counted = self
            .counted
            .saturating_add(micros.saturating_mul(NS_PER_US));
        micros.unsigned_abs()
    }
}

impl Rx {
    /// Holds the Send that `segment` begins, for which no receive is posted.
    ///
    /// # Errors
    ///
    /// The reason of the Terminate, if the limit of the queue pair is 0.
    #[cold]
    pub(super) fn hold(
        &mut self,
        ctx: &mut Ctx<'_>,
        segment: &SendSegment,
    ) -> Result<(), TerminateReason> {
        let limit = ctx.queues.rnr_limit();
        if limit == Some(0) {
            ctx.count(Counter::RnrTimeouts);
            return Err(segment.no_buffer());
        }
        let hold = Hold::new(now_ns(), limit, segment);
        self.receiver.defer(segment);
        ctx.shared.deferred.look_for_receive = Some(hold.next_look(hold.since));
        self.hold = Some(hold);
        ctx.count(Counter::RnrHolds);
        ctx.queues.set_held(true);
        Ok(())
    }

    /// Checks for a receive for the held Send; `false` if the Send is still held, and nothing may
    /// be read.
    #[cold]
    #[inline(never)]
    pub(super) fn look_for_receive(&mut self, ctx: &mut Ctx<'_>, reads: &mut ReadQueues) -> bool {
        match ctx.queues.rq().take() {
            Some(Ok(recv)) => {
                self.recv = Some(recv);
                self.release(ctx, reads);
                return true;
            }
            Some(Err(bad)) => {
                self.recv_failed(ctx, bad.id, bad.status);
                ctx.fail(Terminate::bare(TerminateReason::DdpCatastrophic));
                return true;
            }
            None => {}
        }
        if ctx.queues.is_closed() {
            ctx.stop(Stop::OwnerFailed);
            return true;
        }
        let now = now_ns();
        let Some(hold) = &mut self.hold else {
            return true;
        };
        let micros = hold.count(now);
        // The owner may have changed the attributes since: `RTS` is the first to set `rnr_retry`.
        hold.set_limit(ctx.queues.rnr_limit());
        let over = hold.until.is_some_and(|until| until <= now);
        let refusal = over.then_some(hold.refusal);
        ctx.shared.deferred.look_for_receive = Some(hold.next_look(now));
        ctx.add(Counter::RnrHeldUs, micros);
        match refusal {
            Some(refusal) => {
                ctx.count(Counter::RnrTimeouts);
                ctx.fail(refusal);
                true
            }
            None => false,
        }
    }

    /// Ends the hold: its receive has been taken. An FPDU in the reassembly buffer is delivered.
    fn release(&mut self, ctx: &mut Ctx<'_>, reads: &mut ReadQueues) {
        let kept = self.drop_hold(ctx);
        if let Some(kept) = kept {
            let ulpdu = kept.ulpdu();
            self.deliver(ctx, reads, ulpdu, 0, ulpdu, kept.len);
        }
    }

    /// Ends the hold, if there is one, and returns its reassembled FPDU.
    fn drop_hold(&mut self, ctx: &mut Ctx<'_>) -> Option<HeldFpdu> {
        let mut hold = self.hold.take()?;
        let micros = hold.count(now_ns());
        ctx.add(Counter::RnrHeldUs, micros);
        ctx.shared.deferred.look_for_receive = None;
        ctx.queues.set_held(false);
        if hold.kept.is_some() {
            // Nothing was read during the hold, so the reassembly buffer has no other octets.
            ctx.shared.excess.reassemble(0);
        }
        hold.kept
    }

    /// Drops the hold at the end of the stream: batches then discard the octets in TCP's receive
    /// queue.
    pub(in crate::stream) fn abandon_hold(&mut self, ctx: &mut Ctx<'_>) {
        self.unread |= self.hold.is_some();
        drop(self.drop_hold(ctx));
    }
}

#[kernel::macros::kunit_tests(rsiw_stream_hold)]
mod tests {
    use super::*;

    const SEGMENT: SendSegment = SendSegment {
        first: true,
        mo: 0,
        len: 1,
        last: true,
        solicited: false,
        invalidate: None,
    };

    #[test]
    fn looks_come_soon_at_first_and_then_more_rarely() {
        let hold = Hold::new(1_000, None, &SEGMENT);
        let look = |held| i64::from(hold.next_look(hold.since + held));
        assert_eq!(look(0), FIRST_LOOK);
        assert_eq!(look(8 * 50_000), 50_000);
        assert_eq!(look(200_000_000), LAST_LOOK);
        assert_eq!(look(640_000_000), 10_000_000);
        assert_eq!(look(3600 * 1_000_000_000), LONGEST_LOOK);
    }

    #[test]
    fn the_last_look_is_at_the_end() {
        let hold = Hold::new(0, Some(30_000), &SEGMENT);
        assert_eq!(hold.next_look(0), 20_000);
        assert_eq!(hold.next_look(20_000), 10_000);
        assert_eq!(hold.next_look(30_000), 1);
        assert_eq!(hold.next_look(40_000), 1);
    }

    #[test]
    fn a_changed_limit_counts_from_the_beginning() {
        let mut hold = Hold::new(1_000, Some(30_000), &SEGMENT);
        assert_eq!(hold.until, Some(31_000));
        hold.set_limit(Some(0));
        assert_eq!(hold.until, Some(1_000));
        assert_eq!(hold.next_look(2_000), 1);
        hold.set_limit(None);
        assert_eq!(hold.until, None);
        assert_eq!(hold.next_look(1_000), 20_000);
    }

    #[test]
    fn a_fin_is_told_within_a_second() {
        let hold = Hold::new(7, None, &SEGMENT);
        assert!(!hold.tells_fin(7));
        assert!(!hold.tells_fin(100_000_000));
        assert!(hold.tells_fin(1_000_000_000));
    }

    #[test]
    fn no_time_is_counted_twice() {
        let mut hold = Hold::new(500, None, &SEGMENT);
        assert_eq!(hold.count(1_999), 1);
        assert_eq!(hold.count(2_499), 0);
        assert_eq!(hold.count(2_500), 1);
        assert_eq!(hold.count(2_000), 0);
        assert_eq!(hold.count(10_500), 8);
    }
}
