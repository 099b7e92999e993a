// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of the parts of a stream that need neither socket nor queue pair.

use core::convert::Infallible;

use iwarp_wire::{
    mpa::{
        fpdu::FpduWriter,
        MIN_MULPDU, //
    },
    rdmap::SendKind,
    tx::{
        Message,
        Segmenter, //
    },
    Msn, //
};
use kernel::prelude::*;

use super::{
    inflight::{
        Due,
        SentQueue, //
        SentWr,
    },
    tx::alignment::{
        Layout,
        Origin,
        MIN_SEGMENT, //
    },
    tx::encode::{
        ulpdu_limit,
        wanted, //
    },
    Unfinished, //
};
use crate::{
    sys::crc::Kernel,
    verbs::cq::{
        WcOpcode,
        WcStatus, //
    }, //
};

/// A Send that is complete at `due`.
fn entry(id: u64, due: Due) -> SentWr {
    SentWr {
        id,
        due,
        bytes: 0,
        opcode: WcOpcode::Send,
        status: WcStatus::Success,
        signaled: true,
    }
}

/// Sizes of burst buffers in octets; the smaller ones occur where memory is scarce.
const CAPACITIES: [u32; 3] = [4096, 16384, 65536];

/// Checks that a burst of this layout has room for its first FPDU.
fn has_room(mss: u32, goal: u32, unsent: u32, tail: u32, capacity: u32) {
    let layout = Layout::new(mss, goal, unsent, tail, capacity);
    for places in [0, 4096, 8192, u32::MAX] {
        let anew = Layout::new(mss, goal, 0, 0, capacity);
        let mut layout = layout.within(places).unwrap_or(anew);
        for want in [8, 60, 1000, 65536, u32::MAX] {
            let room = layout.room(0, want).unwrap_or(0);
            assert!(room >= want.min(80));
            assert!(room <= capacity);
        }
    }
}

/// Encodes the beginning of a Send of `len` octets into the rest of a segment, as the transmit
/// engine does. An earlier FPDU has `words` 32-bit words.
fn send_fits(lead: u32, words: usize, len: u32, markers: bool) -> Result {
    let mut out = KVec::from_elem(0u8, 2048, GFP_KERNEL)?;
    let mut writer = FpduWriter::new(markers, false);
    let first = writer.write::<Kernel, Infallible>(&mut out, &[], 4 * words + 2, |_| Ok(()));
    first.map_err(|_| EINVAL)?;
    let mut layout = Layout::new(1448, 65160, lead, lead, 65536);
    let room = layout.room(0, wanted(len, markers)).ok_or(ENOSPC)? as usize;
    let kind = SendKind {
        solicited: false,
        invalidate: None,
    };
    let message = Message::Send {
        msn: Msn::FIRST,
        kind,
    };
    let step = Segmenter::new(message, len).peek(ulpdu_limit(room, markers));
    let step = step.ok_or(ENOENT)?;
    let out = out.get_mut(..room).ok_or(EMSGSIZE)?;
    let (header, len) = (&step.header, usize::from(step.len));
    let written = writer.write::<Kernel, Infallible>(out, header, len, |_| Ok(()));
    written.map(|_| ()).map_err(|_| EOVERFLOW)
}

/// Fills a burst with FPDUs of successive messages, as the transmit engine does. Returns the
/// octets used and the share of full segments, in percent, that begin with an FPDU.
fn lay_out(layout: &mut Layout, lead: u32, segment: u32, message: u32) -> (u32, u32) {
    let mut at: u32 = 0;
    let mut left = message;
    let (mut aligned, mut segments) = (0u32, 0u32);
    let mut next_boundary = (segment - lead) % segment;
    while let Some(room) = layout.room(at, left + 27) {
        if at == next_boundary {
            aligned += 1;
        }
        let now = left.min((room & !3) - 24);
        let end = at + ((now + 24 + 3) & !3);
        while next_boundary < end {
            segments += 1;
            next_boundary += segment;
        }
        at = end;
        left -= now;
        if left == 0 {
            left = message;
        }
    }
    (at, (aligned * 100).checked_div(segments).unwrap_or(100))
}

#[kunit_tests(rsiw_stream)]
mod suite {
    use super::*;

    /// A bulk message on an ordinary Ethernet fills the burst with whole segments.
    #[test]
    fn burst_of_whole_segments() {
        let mut layout = Layout::new(1448, 65160, 0, 0, 65536);
        assert_eq!(layout.room(0, 1 << 20), Some(1448));
        assert_eq!(layout.room(1448, 1 << 20), Some(1448));
        assert_eq!(layout.room(44 * 1448, 1 << 20), Some(1448));
        assert_eq!(layout.room(45 * 1448, 1 << 20), None);
    }

    /// After a short FPDU the next one fills the segment.
    #[test]
    fn fills_up_behind_a_short_fpdu() {
        let mut layout = Layout::new(1448, 65160, 0, 0, 65536);
        assert_eq!(layout.room(448, 1 << 20), Some(1000));
        // An FPDU that fits as a whole is not cut.
        assert_eq!(layout.room(1400, 40), Some(48));
        // Too little is left: one FPDU straddles the boundary, the next one fills its segment.
        let room = layout.room(1400, 1 << 20);
        assert_eq!(room, Some(48 + 724));
        assert_eq!(layout.room(1400 + 48 + 724, 1 << 20), Some(724));
    }

    /// No FPDU exceeds a segment, even where segments are so short that a straddling one might
    /// (DDP-20).
    #[test]
    fn no_fpdu_is_longer_than_a_segment() {
        for mss in (MIN_SEGMENT..512).step_by(4) {
            for lead in (0..mss).step_by(4) {
                let mut layout = Layout::new(mss, 16 * mss, lead, lead, 65536);
                for want in [40, 120, 1 << 20] {
                    assert!(layout.room(0, want).unwrap_or(0).min(want) <= mss);
                }
            }
        }
    }

    /// A part of a message that is cut has at least 128 octets of ULPDU, wherever the segment is
    /// (MPA-42, MPA-47). A message that fits whole may be shorter.
    #[test]
    fn no_part_is_shorter_than_the_least_mulpdu() {
        for mss in [48, 136, 144, 536, 1448, 8948] {
            let segment = (mss & !3).max(MIN_SEGMENT);
            for at in (0..segment).step_by(4) {
                for markers in [false, true] {
                    for payload in [1, 40, 80, 99, 105, 109, 112, 120, 400, 1 << 20] {
                        let want = wanted(payload, markers);
                        let mut layout = Layout::new(mss, 8 * segment, 0, 0, 65536);
                        let room = layout.room(at, want).unwrap_or(0);
                        let fits = want <= segment - at;
                        assert!(fits || ulpdu_limit(room as usize, markers) >= MIN_MULPDU);
                    }
                }
            }
        }
    }

    /// Most segments begin with an FPDU, whatever the message size.
    #[test]
    fn segments_begin_with_an_fpdu() {
        for message in [1 << 20, 65536, 16384] {
            let mut layout = Layout::new(1448, 65160, 0, 0, 65536);
            let (used, aligned) = lay_out(&mut layout, 0, 1448, message);
            assert!(used > 60000);
            assert!(aligned >= 95);
        }
    }

    /// A burst continues the segment that TCP has not sent yet.
    #[test]
    fn continues_an_unsent_segment() {
        let mut layout = Layout::new(1448, 65160, 448, 448, 65536);
        assert_eq!(layout.room(0, 1 << 20), Some(1000));
        assert_eq!(layout.room(1000, 1 << 20), Some(1448));
    }

    /// The segment to continue may have begun in an earlier buffer.
    #[test]
    fn continues_a_segment_of_two_buffers() {
        let mut layout = Layout::new(1448, 65160, 3 * 1448 + 448, 1240, 65536);
        assert_eq!(layout.room(0, 1 << 20), Some(1000));
        assert_eq!(layout.room(1000, 1 << 20), Some(1448));
        // The burst ends where a segment does: at the last one that has room in the buffer.
        assert_eq!(layout.room(1000 + 42 * 1448, 1 << 20), Some(1448));
        assert_eq!(layout.room(1000 + 43 * 1448, 1 << 20), None);
    }

    /// A full buffer ends with a segment.
    #[test]
    fn ends_a_full_buffer_with_a_segment() {
        let layout = Layout::new(1448, 65160, 448, 448, 65536);
        let within = layout.within(2 * 4096);
        let room = |at| within.and_then(|mut layout| layout.room(at, 1 << 20));
        assert_eq!(room(1000 + 3 * 1448), Some(1448));
        assert_eq!(room(1000 + 4 * 1448), None);
        // No segment of the burst ends within this room.
        assert!(layout.within(0).is_none());
        let jumbo = Layout::new(8948, 62636, 448, 448, 65536);
        assert!(jumbo.within(4096).is_none());
        // Links of this MTU do not cut.
        let uncut = Layout::new(65483, 65483, 448, 448, 65536);
        assert!(uncut.within(0).is_some());
    }

    /// After the end of a record segments are counted anew, until TCP has sent the record.
    #[test]
    fn counts_segments_anew() {
        let mut origin = Origin::default();
        assert_eq!(origin.unsent(0, 0), 0);
        assert_eq!(origin.unsent(70_000, 65_000), 65_000);
        origin.begin(70_000);
        assert_eq!(origin.unsent(70_000, 65_000), 0);
        assert_eq!(origin.unsent(70_448, 65_448), 448);
        // TCP has sent the octets before the end of the record, and some of those after it.
        assert_eq!(origin.unsent(80_000, 300), 300);
        assert_eq!(origin.unsent(u64::MAX, u32::MAX), u32::MAX);
        let mut layout = Layout::new(1448, 65160, origin.unsent(70_448, 65_448), 0, 65536);
        assert_eq!(layout.room(0, 1 << 20), Some(1000));
        assert_eq!(layout.room(1000, 1 << 20), Some(1448));
    }

    /// A burst has room for its first FPDU, whatever TCP reports.
    #[test]
    fn never_without_room() {
        for mss in [1, 48, 88, 536, 1448, 1459, 8948, 32740, 65483, 1 << 20] {
            for goal in [0, mss, 3 * mss, 65160, 1 << 22] {
                for tail in [0, 1, mss - 1, mss, goal, 65535] {
                    for unsent in [tail, tail + 1, tail + mss / 2, tail + (1 << 20)] {
                        for capacity in CAPACITIES {
                            has_room(mss, goal, unsent, tail, capacity);
                        }
                    }
                }
            }
        }
    }

    /// MPA-21: a small message gets the rest of a segment only if it fits, at any position of the
    /// peer's markers.
    #[test]
    fn small_sends_fit_with_markers() -> Result {
        for markers in [false, true] {
            for left in (4..=84).step_by(4) {
                for words in 0..128 {
                    for len in 0..=5 {
                        send_fits(1448 - left, words, len, markers)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Completions are in posting order, and an outstanding Read delays later ones.
    #[test]
    fn completes_in_order() -> Result {
        let mut queue = SentQueue::new(4)?;
        queue.push(entry(1, Due::Sent(100))).ok_or(ENOMEM)?;
        let read = queue.push(entry(2, Due::Open)).ok_or(ENOMEM)?;
        queue.push(entry(3, Due::Sent(200))).ok_or(ENOMEM)?;
        assert!(queue.pop_done(99).is_none());
        assert_eq!(queue.pop_done(300).map(|e| e.id), Some(1));
        assert!(queue.pop_done(300).is_none());
        queue.get_mut(read).ok_or(ENOENT)?.due = Due::Sent(0);
        assert_eq!(queue.pop_done(199).map(|e| e.id), Some(2));
        assert!(queue.pop_done(199).is_none());
        assert_eq!(queue.pop_done(200).map(|e| e.id), Some(3));
        assert!(queue.is_empty());
        assert!(queue.get_mut(read).is_none());
        Ok(())
    }

    /// A failed work request delays later completions, too, until the end of the stream.
    #[test]
    fn nothing_succeeds_after_an_error() -> Result {
        let mut queue = SentQueue::new(16)?;
        let failed = queue.push(entry(1, Due::Sent(1))).ok_or(ENOMEM)?;
        queue.push(entry(2, Due::Sent(1))).ok_or(ENOMEM)?;
        queue.get_mut(failed).ok_or(ENOENT)?.status = WcStatus::RemAccess;
        assert!(queue.pop_done(1).is_none());
        let mut unfinished = Unfinished::new(queue, Some((3, WcOpcode::Send)), Some(4));
        for (id, status) in [
            (1, WcStatus::RemAccess),
            (2, WcStatus::WrFlush),
            (3, WcStatus::WrFlush),
        ] {
            let next = unfinished.next_send();
            assert!(next.is_some_and(|(n, _, s)| (n, s) == (id, status)));
        }
        assert!(unfinished.next_send().is_none() && !unfinished.is_empty());
        assert_eq!(unfinished.next_recv(), Some(4));
        assert!(unfinished.is_empty());
        Ok(())
    }

    /// `take` returns all entries in order. The queue is empty afterwards, and accepts no entry.
    #[test]
    fn is_taken_away() -> Result {
        let mut queue = SentQueue::new(16)?;
        for id in 1..=3 {
            queue.push(entry(id, Due::Open)).ok_or(ENOMEM)?;
        }
        let mut taken = queue.take();
        assert!(queue.is_empty() && queue.is_full());
        assert!(queue.push(entry(4, Due::Open)).is_none());
        assert!(queue.pop_done(u64::MAX).is_none() && queue.pop().is_none());
        for id in 1..=3 {
            assert_eq!(taken.pop().map(|e| e.id), Some(id));
        }
        assert!(taken.is_empty());
        Ok(())
    }

    /// A full queue accepts no entry, and its indices wrap around.
    #[test]
    fn goes_round() -> Result {
        let mut queue = SentQueue::new(16)?;
        for round in 0..100u64 {
            while !queue.is_full() {
                queue.push(entry(round, Due::Sent(round))).ok_or(ENOMEM)?;
            }
            assert!(queue.push(entry(round, Due::Open)).is_none());
            for _ in 0..16 {
                assert_eq!(queue.pop_done(round).map(|e| e.id), Some(round));
            }
            assert!(queue.pop().is_none());
        }
        Ok(())
    }
}
