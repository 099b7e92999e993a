// SPDX-License-Identifier: GPL-2.0

//! Sizes of FPDUs and bursts, so that TCP segments start with an FPDU (RFC 5044 section 5).
//!
//! A burst is the data that one call passes to TCP. TCP cuts it at multiples of the maximum
//! segment size, so FPDUs of exactly that size start every segment. The short last FPDU of a
//! message would shift all later ones. The next FPDU therefore fills the segment, which RFC 5044
//! section 5.1 allows when FPDUs are packed. If too little is left for a useful FPDU, one FPDU
//! straddles the boundary, and its size lets the next one fill the segment.

/// The least MULPDU (128, RFC 5044 section 4.5) with length field, CRC and a marker, in whole
/// 32-bit words.
const MIN_FPDU: u32 = 140;

/// The shortest rest of a segment, in octets, for a part of a message. A message that fits whole
/// may be shorter. A message that cannot be segmented fits: the longest one is a Terminate with all
/// copied headers. RFC 5040 section 4.8 gives it a ULPDU of 70 octets, framed 80 with a marker.
const MIN_FILL: u32 = MIN_FPDU;

/// The shortest segment, with or without markers.
pub(in crate::stream) const MIN_SEGMENT: u32 = MIN_FPDU;

/// The longest FPDU ever sent: MULPDU 64768 (RFC 5044 section 3), framed and padded.
pub(in crate::stream) const MAX_FPDU: u32 = 64776;

/// Segments longer than this are not filled. Such links do not cut, and a small FPDU between
/// large ones costs more than it saves.
const MAX_FILLED: u32 = 16384;

/// The end of the last record. A segment begins there, however many octets before it are unsent.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::stream) struct Origin(Option<u64>);

impl Origin {
    /// Notes that a segment begins at octet `sent` of the stream.
    #[inline]
    pub(in crate::stream) fn begin(&mut self, sent: u64) {
        self.0 = Some(sent);
    }

    /// The part of the `unsent` octets before octet `sent` that the next segments include.
    #[inline]
    pub(in crate::stream) fn unsent(self, sent: u64, unsent: u32) -> u32 {
        let since = self.0.map(|at| sent.wrapping_sub(at));
        since.map_or(unsent, |n| u32::try_from(n).unwrap_or(u32::MAX).min(unsent))
    }
}

/// The positions of segment boundaries in one burst.
#[derive(Clone, Copy, Debug)]
pub(in crate::stream) struct Layout {
    /// Octets of a segment that FPDUs use: the maximum segment size in whole 32-bit words.
    segment: u32,
    /// Octets before the burst in the segment that the burst continues.
    lead: u32,
    /// The largest length of the burst, in octets.
    limit: u32,
    /// The end of the segment with the next octet, counted from the beginning of the burst.
    boundary: u32,
}

impl Layout {
    /// Makes the layout of a burst.
    ///
    /// All arguments are in octets. `mss` is TCP's current segment size, `size_goal` the size of
    /// its largest skb. `unsent` are the unsent octets, and `tail` is the part of them in the
    /// last skb. `capacity` is the room for the burst.
    ///
    /// TCP fills a segment from the next skb before it sends the segment. Segments are therefore
    /// counted from the first unsent octet, and not from the beginning of the last skb. The end
    /// of a record is an exception ([`Origin`]).
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
            boundary: segment.saturating_sub(lead),
        }
    }

    /// Ends the burst at the end of a segment within `room` octets, for which TCP's last skb has
    /// free fragments. TCP would end the skb at a page, and cannot fill the last segment of an
    /// skb without free fragments. `None` if no segment worth a call ends within `room`: then the
    /// caller ends the record.
    pub(in crate::stream) fn within(mut self, room: u32) -> Option<Self> {
        if self.segment > MAX_FILLED {
            return Some(self);
        }
        let most = self.lead.saturating_add(room);
        let whole = most.saturating_sub(most.checked_rem(self.segment).unwrap_or(0));
        let limit = whole.saturating_sub(self.lead);
        // Every first FPDU needs room, even a straddling one.
        if limit < MIN_FILL.saturating_add((self.segment >> 1).max(MIN_SEGMENT)) {
            return None;
        }
        self.limit = self.limit.min(limit);
        Some(self)
    }

    /// The largest length of an FPDU at octet `at` of the burst, for a message that needs `want`
    /// octets as a single FPDU. `at` does not decrease from a call to the next. `None`: the burst
    /// is full.
    #[inline]
    pub(in crate::stream) fn room(&mut self, at: u32, want: u32) -> Option<u32> {
        let left_in_burst = self.limit.checked_sub(at).filter(|&n| n != 0)?;
        // An FPDU is not longer than a segment, so one step suffices. A division takes longer.
        while self.boundary <= at {
            self.boundary = self.boundary.saturating_add(self.segment);
        }
        let left = self.boundary.wrapping_sub(at);
        let room = if want <= left || left >= MIN_FILL {
            left
        } else {
            // At most the length of a segment (RFC 5041 section 5.2), however short segments are.
            left.saturating_add(((self.segment >> 1) & !3).max(MIN_SEGMENT))
                .min(self.segment)
        };
        // A straddling FPDU is not worth a new skb in TCP. A burst shorter than a segment, where
        // memory is scarce, is filled in any case.
        (at == 0 || room.min(want) <= left_in_burst).then_some(room.min(left_in_burst))
    }
}
