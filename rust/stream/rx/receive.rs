// SPDX-License-Identifier: GPL-2.0

//! From TCP's receive queue to whole, verified FPDUs (RFC 5044 sections 4 and 6).
//!
//! Every call processes all received octets, except a [held](super::rnr_hold) Send and the octets
//! after it. An FPDU that is whole in one socket buffer is verified and delivered in place. An
//! FPDU in parts, or with markers, passes through the reassembly buffer. Nothing is delivered
//! before its CRC is verified.

use iwarp_wire::{
    crc::Digest,
    mpa::fpdu::{
        Fpdu,
        Framer,
        Next,
        CRC_LEN,
        LENGTH_LEN, //
    },
    rdmap::terminate::{
        Terminate,
        TerminateReason, //
    },
    rx::{
        self,
        Receiver,
        HEAD_LEN, //
    },
    RtrKinds, //
};
use kernel::prelude::*;

use super::{
    reassembly::Reassembly,
    rnr_hold::Hold,
    source::Source, //
};
use crate::{
    stream::{
        config::{
            Config,
            Role, //
        },
        ctx::Ctx,
        read_queues::ReadQueues, //
    },
    sys::net::{
        skb::SkbView,
        socket::Locked, //
    },
    verbs::wq::wqe::RecvWqe, //
};

/// Octets of an FPDU that are copied to be parsed: the length field and the headers after it.
const PEEK: usize = LENGTH_LEN + HEAD_LEN;

/// The receive direction of a stream.
pub(in crate::stream) struct Rx {
    /// Finds the FPDUs.
    framer: Framer,
    /// Decides on the segments in the FPDUs.
    pub(in crate::stream) receiver: Receiver,
    /// An incomplete FPDU.
    pub(in crate::stream) reassembly: Reassembly,
    /// The receive work request of the current message.
    pub(in crate::stream) recv: Option<RecvWqe>,
    /// A Send that waits for a receive; octets after it are not read.
    pub(in crate::stream) hold: Option<Hold>,
    /// TCP may have octets that were not processed since the end of the stream.
    pub(in crate::stream) unread: bool,
    /// The first FPDU, or the negotiated ready-to-receive frame, was received.
    pub(in crate::stream) ready: bool,
    /// A message was received that the owner of the queue pair may answer.
    pub(in crate::stream) rx_since_kick: bool,
    /// Octets that were read together with the start-up frame.
    initial: KVec<u8>,
    /// Octets of `initial` that were processed.
    initial_taken: usize,
}

impl Rx {
    /// Makes the receive state of a new stream.
    pub(in crate::stream) fn new(config: Config) -> Self {
        let (responder, rtr) = match config.role {
            Role::Initiator { .. } => (false, RtrKinds::NONE),
            Role::Responder { rtr } => (true, rtr),
        };
        Self {
            framer: Framer::new(config.rx_markers, config.crc),
            receiver: Receiver::new(rx::Config {
                responder,
                rtr,
                immediate: false,
                atomics: false,
            }),
            reassembly: Reassembly::new(),
            recv: None,
            hold: None,
            unread: false,
            ready: false,
            rx_since_kick: false,
            initial: config.initial,
            initial_taken: 0,
        }
    }

    /// Whether the stream is at an FPDU boundary.
    pub(in crate::stream) fn at_boundary(&self) -> bool {
        self.reassembly.is_empty() && self.initial.is_empty()
    }
}

/// The first [`PEEK`] of `left` octets at offset `off`, or all if there are fewer.
///
/// The octets are copied, since a sender on this host may share their memory. Contiguous octets
/// are copied as one array, which stays in registers.
#[inline]
fn peek<'p, S: Source + ?Sized>(
    src: &S,
    off: usize,
    left: usize,
    front: &'p mut [u8; PEEK],
) -> Result<&'p [u8]> {
    if let Some(here) = src.piece(off, PEEK).first_chunk() {
        *front = here;
        return Ok(front);
    }
    let seen = front.get_mut(..left.min(PEEK)).unwrap_or_default();
    src.copy(off, seen)?;
    Ok(seen)
}

impl Rx {
    /// Processes received octets, or discards them if `discard`. Returns the number of octets
    /// read and not yet reported to TCP. TCP keeps `seen` octets that were read before.
    ///
    /// A reason to end the stream is stored in the context.
    pub(in crate::stream) fn receive(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        locked: &mut Locked,
        seen: usize,
        discard: bool,
    ) -> usize {
        if self.hold.is_some() && !self.look_for_receive(ctx, reads) {
            return 0;
        }
        if !self.initial.is_empty() {
            self.receive_initial(ctx, reads, locked, discard);
            if self.is_held(ctx) {
                return 0;
            }
        }
        let mut taken = locked.receive_walk(seen, |skb| self.take_in(ctx, reads, skb, discard));
        while ctx.charge_reassembly(locked) {
            let seen = seen.saturating_add(taken);
            let more = locked.receive_walk(seen, |skb| self.take_in(ctx, reads, skb, discard));
            taken = taken.saturating_add(more);
        }
        taken
    }

    /// Processes a socket buffer; returns the octets taken.
    #[inline]
    fn take_in(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        skb: &SkbView<'_>,
        discard: bool,
    ) -> usize {
        if skb.is_readable() {
            return self.feed(ctx, reads, skb, skb.len(), discard);
        }
        if self.is_held(ctx) {
            return 0;
        }
        // The octets are in device memory, which no CPU reads.
        ctx.fail(Terminate::bare(TerminateReason::RdmapCatastrophic));
        skb.len()
    }

    /// Processes the octets that were read together with the start-up frame.
    #[cold]
    fn receive_initial(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        locked: &mut Locked,
        discard: bool,
    ) {
        let initial = core::mem::replace(&mut self.initial, KVec::new());
        let rest = initial.get(self.initial_taken..).unwrap_or_default();
        let mut taken = self.feed(ctx, reads, rest, rest.len(), discard);
        while taken < rest.len() && ctx.charge_reassembly(locked) {
            let more = rest.get(taken..).unwrap_or_default();
            taken = taken.saturating_add(self.feed(ctx, reads, more, more.len(), discard));
        }
        if taken == rest.len() {
            return;
        }
        if self.is_held(ctx) {
            self.initial_taken = self.initial_taken.saturating_add(taken);
            self.initial = initial;
            return;
        }
        // Memory was missing for a part of the octets. As this is rare, the connection ends.
        ctx.fail(Terminate::bare(TerminateReason::RdmapCatastrophic));
    }

    /// Whether a Send is held, and the stream does not end.
    fn is_held(&self, ctx: &Ctx<'_>) -> bool {
        self.hold.is_some() && !ctx.is_stopped()
    }

    /// Processes the `len` octets of `src`, and returns the number taken. It is less than `len`
    /// only if memory is missing, or a Send is held.
    fn feed<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        src: &S,
        len: usize,
        discard: bool,
    ) -> usize {
        let mut off = 0;
        while off < len {
            if discard || ctx.is_stopped() {
                return len;
            }
            // Also at the start of a socket buffer: a held FPDU may end with the one before it.
            if self.hold.is_some() {
                return off;
            }
            let left = len.wrapping_sub(off);
            let taken = match self.reassembly.is_empty() {
                true => self.take_whole(ctx, reads, src, off, left),
                false => self.take_part(ctx, reads, src, off, left),
            };
            match taken {
                Ok(taken) => off = off.wrapping_add(taken),
                Err(_) => {
                    // A charge that is missing may be granted at once.
                    ctx.shared.deferred.retry |= !ctx.shared.excess.is_wanted();
                    return off;
                }
            }
        }
        len
    }

    /// Takes an FPDU at offset `off` if it is complete and free of markers, else moves its
    /// beginning to the reassembly buffer. Returns the octets taken.
    #[inline]
    fn take_whole<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        src: &S,
        off: usize,
        left: usize,
    ) -> Result<usize> {
        let mut front = [0; PEEK];
        let seen = peek(src, off, left, &mut front)?;
        match self.framer.next(seen) {
            Next::Fpdu(fpdu) if fpdu.wire_len() <= left && fpdu.is_plain() => {
                let head = seen.get(LENGTH_LEN..).unwrap_or_default();
                self.verified(ctx, reads, src, off, head, &fpdu);
                if self.hold.is_some() {
                    // The FPDU stays in TCP's queue.
                    return Ok(0);
                }
                self.framer.advance(&fpdu);
                ctx.shared.tally.received(fpdu.wire_len());
                Ok(fpdu.wire_len())
            }
            _ => self.take_part(ctx, reads, src, off, left),
        }
    }

    /// Verifies the CRC of an FPDU without markers, and delivers it.
    #[inline]
    fn verified<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        src: &S,
        off: usize,
        head: &[u8],
        fpdu: &Fpdu,
    ) {
        if self.framer.crc() {
            let mut field = [0; CRC_LEN];
            let crc = src.crc32c(off, fpdu.crc_len(), Digest::new().raw());
            let checked = crc
                .and_then(|crc| {
                    src.copy(off.wrapping_add(fpdu.crc_len()), &mut field)?;
                    Ok(Digest::from_raw(crc))
                })
                .map_err(|_| TerminateReason::RdmapCatastrophic)
                .and_then(|digest| fpdu.check_crc(digest, field));
            if let Err(reason) = checked {
                ctx.fail(Terminate::bare(reason));
                return;
            }
        }
        let ulpdu = off.wrapping_add(LENGTH_LEN);
        self.deliver(ctx, reads, src, ulpdu, head, fpdu.ulpdu_len());
        if let Some(hold) = &mut self.hold {
            hold.describe(head, fpdu.ulpdu_len());
        }
    }

    /// Moves octets of an incomplete FPDU to the reassembly buffer, and delivers the FPDU when it
    /// is complete. Returns the octets taken.
    fn take_part<S: Source + ?Sized>(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        src: &S,
        off: usize,
        left: usize,
    ) -> Result<usize> {
        let mut taken: usize = 0;
        loop {
            let next = self.framer.next(self.reassembly.octets());
            let total = match &next {
                Next::Need(total) => *total,
                Next::Fpdu(fpdu) => fpdu.wire_len(),
            };
            let missing = total.saturating_sub(self.reassembly.len());
            if let (Next::Fpdu(fpdu), 0) = (next, missing) {
                let whole = core::mem::replace(&mut self.reassembly, Reassembly::new());
                self.framer.advance(&fpdu);
                ctx.shared.tally.received(fpdu.wire_len());
                self.reassembled(ctx, reads, whole, &fpdu);
                return Ok(taken);
            }
            let now = missing.min(left.saturating_sub(taken));
            if now == 0 {
                return Ok(taken);
            }
            // Octets that were moved stay in the buffer, even if memory is missing now.
            let footprint = self.reassembly.footprint(total);
            let moved = match ctx.shared.excess.reassemble(footprint) {
                true => self.reassembly.reserve(total),
                false => Err(ENOMEM),
            };
            let moved =
                moved.and_then(|()| self.reassembly.fill(src, off.wrapping_add(taken), now));
            match moved {
                Ok(()) => taken = taken.wrapping_add(now),
                Err(_) if taken != 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
    }

    /// Verifies an FPDU that arrived in parts, and delivers or keeps it.
    fn reassembled(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        mut whole: Reassembly,
        fpdu: &Fpdu,
    ) {
        self.deliver_reassembled(ctx, reads, &mut whole, fpdu);
        match &mut self.hold {
            // The memory of the FPDU stays counted until the hold ends.
            Some(hold) => hold.keep(whole, fpdu.head_len(), fpdu.ulpdu_len()),
            None => {
                ctx.shared.excess.reassemble(0);
            }
        }
    }

    /// Verifies an FPDU that arrived in parts, and delivers it.
    fn deliver_reassembled(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        whole: &mut Reassembly,
        fpdu: &Fpdu,
    ) {
        if fpdu.is_plain() {
            let octets = whole.octets();
            let head = octets.get(LENGTH_LEN..).unwrap_or_default();
            return self.verified(ctx, reads, octets, 0, head, fpdu);
        }
        if self.framer.crc() {
            if let Err(reason) = fpdu.check::<crate::sys::crc::Kernel>(whole.octets()) {
                ctx.fail(Terminate::bare(reason));
                return;
            }
        }
        match fpdu.strip(whole.octets_mut()) {
            Ok(ulpdu) => {
                self.deliver(ctx, reads, ulpdu, 0, ulpdu, fpdu.ulpdu_len());
                if let Some(hold) = &mut self.hold {
                    hold.describe(ulpdu, fpdu.ulpdu_len());
                }
            }
            Err(reason) => {
                ctx.fail(Terminate::bare(reason));
            }
        }
    }
}

#[kunit_tests(rsiw_stream_receive)]
mod tests {
    use super::*;
    use crate::sys::mm::octets::Octets;

    /// Octets in two pieces, the first one with `cut` octets, as in a socket buffer.
    struct Cut<'a> {
        octets: &'a [u8],
        cut: usize,
    }

    impl Source for Cut<'_> {
        fn piece(&self, off: usize, max: usize) -> Octets<'_> {
            let end = if off < self.cut {
                self.cut
            } else {
                self.octets.len()
            };
            Octets::from(self.octets.get(off..end).unwrap_or_default()).up_to(max)
        }

        fn copy(&self, off: usize, dst: &mut [u8]) -> Result {
            self.octets.copy(off, dst)
        }

        fn crc32c(&self, off: usize, len: usize, seed: u32) -> Result<u32> {
            self.octets.crc32c(off, len, seed)
        }

        fn chunks<E>(
            &self,
            off: usize,
            len: usize,
            f: impl FnMut(Octets<'_>) -> Result<(), E>,
        ) -> Result<(), E> {
            Source::chunks(self.octets, off, len, f)
        }
    }

    /// MPA-52: where socket buffers and their fragments begin says nothing about FPDUs, so the
    /// headers are seen whole wherever they are cut.
    #[test]
    fn headers_are_seen_whole_wherever_they_are_cut() -> Result {
        let mut octets = [0u8; 3 * PEEK];
        for (octet, value) in octets.iter_mut().zip(1..) {
            *octet = value;
        }
        for cut in 0..=octets.len() {
            let src = Cut {
                octets: &octets,
                cut,
            };
            for off in 0..octets.len() {
                let left = octets.len() - off;
                let mut front = [0; PEEK];
                let seen = peek(&src, off, left, &mut front)?;
                assert_eq!(Some(seen), octets.get(off..off + left.min(PEEK)));
            }
        }
        Ok(())
    }

    #[test]
    fn what_is_not_there_is_not_seen() {
        let octets = [7u8; PEEK - 1];
        let mut front = [0; PEEK];
        assert!(peek(&octets[..], 0, PEEK, &mut front).is_err());
        assert!(peek(&octets[..], PEEK, 1, &mut front).is_err());
        assert!(peek(&octets[..], usize::MAX, PEEK, &mut front).is_err());
    }
}
