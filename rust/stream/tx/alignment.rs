// SPDX-License-Identifier: GPL-2.0

//! Sizes of FPDUs and bursts, so that TCP segments start with an FPDU (RFC 5044 section 5).
//!
//! A burst is what one call hands to TCP. TCP cuts it at multiples of the maximum segment size, so
//! FPDUs of exactly that size start every segment. The short last FPDU of a message would shift
//! everything behind it. So the FPDU that follows is made to fill the segment up, which RFC 5044
//! section 5.1 allows when FPDUs are packed. Where too little is left for a useful FPDU, one
//! straddles the boundary. It is sized so that the next one can fill up again.

/// A segment's rest below this many octets gets no FPDU of its own. The longest message that can
/// not be cut has to fit in: a Terminate with all it may quote. RFC 5040 section 4.8 gives it a
/// ULPDU of 70 octets, framed 76, 80 with a marker.
const MIN_FILL: u32 = 80;

/// The shortest segment: the least MULPDU (128, RFC 5044 section 3.2) with length field, pad and
/// CRC, in whole 32-bit words.
const MIN_SEGMENT: u32 = 136;

/// The longest FPDU ever sent: MULPDU 64768 (RFC 5044 section 3.2), framed and padded.
pub(in crate::stream) const MAX_FPDU: u32 = 64776;

/// Segments longer than this are not filled up. Such links do not cut, and a small FPDU between
/// large ones costs more than it saves.
const MAX_FILLED: u32 = 16384;

/// Where segments begin anew, however much in front of it TCP has not sent: where a record was ended.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::stream) struct Origin(Option<u64>);

impl Origin {
    /// Segments begin anew at octet `sent` of the stream.
    #[inline]
    pub(in crate::stream) fn begin(&mut self, sent: u64) {
        self.0 = Some(sent);
    }

    /// The part of the `unsent` octets in front of octet `sent` that a segment beginning there may
    /// continue.
    #[inline]
    pub(in crate::stream) fn unsent(self, sent: u64, unsent: u32) -> u32 {
        let since = self.0.map(|at| sent.wrapping_sub(at));
        since.map_or(unsent, |n| u32::try_from(n).unwrap_or(u32::MAX).min(unsent))
    }
}

/// Where segment boundaries lie in one burst.
#[derive(Clone, Copy, Debug)]
pub(in crate::stream) struct Layout {
    /// Octets of a segment that FPDUs use: the maximum segment size in whole 32-bit words.
    segment: u32,
    /// Octets in front of the burst in the segment it continues.
    lead: u32,
    /// Octets the burst may have.
    limit: u32,
}

impl Layout {
    /// Lays a burst out.
    ///
    /// All are in octets. `mss` is TCP's current segment size, `size_goal` its largest buffer.
    /// `unsent` is what it holds unsent, `tail` the part of that in its last buffer. `capacity` is
    /// the room for the burst.
    ///
    /// TCP fills a segment from the next buffer before it sends it. So segments are counted from the
    /// first unsent octet, not from where the last buffer begins. The exception is [`Origin`]'s.
    pub(in crate::stream) fn new(
        mss: u32,
        size_goal: u32,
        unsent: u32,
        tail: u32,
        capacity: u32,
    ) -> Self {
        let segment = (mss & !3).clamp(MIN_SEGMENT, MAX_FPDU);
        let whole = |len: u32| {
            len.checked_div(segment)
                .unwrap_or(0)
                .saturating_mul(segment)
        };
        let goal = whole(size_goal.min(capacity)).max(segment);
        let used = tail.checked_rem(goal).unwrap_or(0);
        let lead = match segment > MAX_FILLED {
            true => 0,
            false => unsent.checked_rem(segment).unwrap_or(0),
        };
        let left = goal.saturating_sub(used);
        let limit = match segment > MAX_FILLED {
            true => size_goal.min(capacity).max(segment) & !3,
            // Less than two segments are not worth a call of their own.
            false if left < segment.saturating_mul(2) => {
                goal.max(segment.saturating_mul(2)).saturating_sub(lead)
            }
            false => whole(lead.saturating_add(left)).saturating_sub(lead),
        };
        Self {
            segment,
            lead,
            limit: limit.min(capacity),
        }
    }

    /// Ends the burst with a segment where TCP's last buffer has no page slot for more than `room`
    /// octets. It would end the buffer at a page, and cannot fill up the last segment of a buffer
    /// without slots. `None` if no segment worth a call ends before: then a record has to end.
    pub(in crate::stream) fn within(mut self, room: u32) -> Option<Self> {
        if self.segment > MAX_FILLED {
            return Some(self);
        }
        let most = self.lead.saturating_add(room);
        let whole = most.saturating_sub(most.checked_rem(self.segment).unwrap_or(0));
        let limit = whole.saturating_sub(self.lead);
        // Any first FPDU, a straddling one too, has to find room.
        if limit < MIN_FILL.saturating_add((self.segment >> 1).max(MIN_SEGMENT)) {
            return None;
        }
        self.limit = self.limit.min(limit);
        Some(self)
    }

    /// The longest FPDU to encode at octet `at` of the burst for a message that wants `want` octets
    /// as a single FPDU. `None` when the burst is full.
    #[inline]
    pub(in crate::stream) fn room(&self, at: u32, want: u32) -> Option<u32> {
        let left_in_burst = self.limit.checked_sub(at).filter(|&n| n != 0)?;
        let used = self.lead.wrapping_add(at).checked_rem(self.segment)?;
        let left = self.segment.wrapping_sub(used);
        let room = if want <= left || left >= MIN_FILL {
            left
        } else {
            // No more than a segment has (RFC 5041 section 5.2), however short segments are.
            left.saturating_add(((self.segment >> 1) & !3).max(MIN_SEGMENT))
                .min(self.segment)
        };
        // The straddling FPDU is not worth opening a new buffer in TCP. A burst shorter than a
        // segment, as memory may be scarce, is filled all the same.
        (at == 0 || room.min(want) <= left_in_burst).then_some(room.min(left_in_burst))
    }
}
