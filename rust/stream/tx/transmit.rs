// SPDX-License-Identifier: GPL-2.0

//! The transmit engine: bursts of FPDUs, each passed to TCP in one call.
//!
//! The engine runs under the socket lock, after a post, after received data, or in `write_space`.
//! It encodes as many FPDUs as fit into a burst: header, payload copied once, CRC over the copy.
//! It passes the burst to TCP, and completes the work requests whose octets TCP has accepted. The
//! rest of a burst is sent before any other octet. Every stop has a continuation: an
//! acknowledgment, a doorbell, received data, or a work item.

use iwarp_wire::{
    mpa::fpdu::FpduWriter,
    rdmap::terminate::TerminateOctets, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use super::{
    alignment::{
        Layout,
        Origin, //
    },
    encode::Encoded,
    send_queue::{
        Control,
        Job,
        Queued, //
    }, //
};
use crate::{
    stream::{
        config::{
            Config,
            EndReason,
            Role, //
        },
        ctx::{
            Ctx,
            Progress,
            Shared,
            Stop, //
        },
        excess::Excess,
        read_queues::ReadQueues, //
    },
    sys::{
        mm::{
            blocks::{
                BlockChain,
                PIECE, //
            },
            pages::{
                Reuse,
                BLOCK, //
            }, //
        },
        net::socket::Locked, //
    }, //
};

/// The size of the send buffer on a short path, in octets. So many octets stay in a CPU's cache,
/// and keep the CPU in softirq context for a short time only.
pub(in crate::stream) const SEND_BUFFER: u32 = 1 << 20;

/// The round trip time in microseconds above which a path is a long-RTT path. The congestion
/// window determines the size of the send buffer on such a path.
const LONG_RTT_US: u32 = 300;

/// The length in octets up to which TCP copies a burst. A copy is cheaper than page references,
/// and the block is free again at once.
const COPY_LIMIT: usize = 4096;

/// The octets of outstanding Reads from which Read Requests are batched on a short path. A fast
/// network carries so many octets in several round trips.
const PLENTY: u64 = 256 << 10;

/// The largest length of a burst in octets.
const MAX_BURST: u32 = 64 << 10;

/// Octets passed to TCP in one call: a part of the blocks in use.
pub(in crate::stream) struct Burst {
    /// The end of the burst, as an offset in the blocks.
    end: u32,
    /// The offset in the blocks of the first octet that TCP has not accepted.
    at: u32,
    /// TCP copies the octets.
    copy: bool,
}

/// The transmit direction of a stream.
pub(in crate::stream) struct Tx {
    /// The block of which TCP references a part, and the current burst after that part.
    blocks: BlockChain,
    /// The burst that TCP has not accepted as a whole.
    burst: Option<Burst>,
    /// The message that is being segmented.
    pub(in crate::stream) job: Option<Job>,
    /// The source of messages.
    pub(in crate::stream) queued: Queued,
    /// TCP had no free space, and calls `write_space` later.
    blocked: bool,
    /// The end of the last record, where a segment began.
    origin: Origin,
    /// FPDUs may be sent. A responder waits for the first received FPDU (RFC 5044 section 7.1.2).
    pub(in crate::stream) enabled: bool,
    /// The choice of burst buffers, a guess: see [`Self::note_receiver_cpu`].
    reuse: Reuse,
    /// The Terminate to send after the end of the stream.
    pub(in crate::stream) farewell: Option<TerminateOctets>,
    /// The peer has sent FIN: it answers no further Read.
    pub(in crate::stream) peer_closed: bool,
    /// FIN was passed to TCP.
    pub(in crate::stream) fin_sent: bool,
    /// Frames the FPDUs.
    pub(in crate::stream) writer: FpduWriter,
    /// Markers are inserted.
    pub(in crate::stream) markers: bool,
}

impl Tx {
    /// Makes the transmit state of a new stream.
    pub(in crate::stream) fn new(config: &Config) -> Self {
        Self {
            blocks: BlockChain::default(),
            burst: None,
            job: None,
            queued: Queued::new(config),
            blocked: false,
            origin: Origin::default(),
            enabled: matches!(config.role, Role::Initiator { .. }),
            reuse: Reuse::InTurn,
            farewell: None,
            peer_closed: false,
            fin_sent: false,
            writer: FpduWriter::new(config.tx_markers, config.crc),
            markers: config.tx_markers,
        }
    }

    /// Whether TCP has accepted every encoded octet.
    #[inline]
    pub(in crate::stream) fn is_flushed(&self) -> bool {
        self.burst.is_none()
    }

    /// Drops the block in use if TCP has no reference to it. Returns whether there is no block
    /// then.
    #[inline]
    pub(in crate::stream) fn give_up_free_block(&mut self) -> bool {
        if self.burst.is_none() && !self.blocks.is_empty() && self.blocks.is_exclusive() {
            self.blocks = BlockChain::default();
        }
        self.blocks.is_empty()
    }

    /// Drops all blocks, and the burst that was not passed to TCP.
    pub(in crate::stream) fn give_up(&mut self) {
        self.burst = None;
        self.blocks = BlockChain::default();
    }
}

impl Tx {
    /// Handles a burst that TCP has accepted as a whole. Blocks lent to their end are retired,
    /// and blocks without a lent octet are dropped.
    #[inline]
    fn burst_taken(&mut self, sent_octets: u64, excess: &mut Excess) {
        while let Some(unused) = self.blocks.pop_full() {
            excess.closed(sent_octets, unused);
        }
        self.blocks.trim();
        excess.set_in_use(u32::from(!self.blocks.is_empty()));
    }
}

/// The messages that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) enum TxSource {
    /// Full operation phase: Read Responses and work requests.
    Work,
    /// The stream has ended: the Terminate.
    Farewell,
    /// No new message; the one in progress is completed.
    Nothing,
}

/// The result of building a burst.
enum Built {
    /// A burst for TCP was built; `full` if more messages follow.
    Burst {
        /// There is more to send.
        full: bool,
    },
    /// There is nothing to send now.
    Nothing,
}

impl Tx {
    /// Sends up to `budget` bursts of the messages of `source`; with 0 the rest of the current
    /// burst. Work requests that are done complete.
    ///
    /// A reason to end the stream is stored in the context.
    pub(in crate::stream) fn transmit(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        locked: &mut Locked,
        budget: u32,
        source: TxSource,
    ) -> Progress {
        let progress = self.transmit_bursts(ctx, reads, locked, budget, source);
        ctx.retire();
        progress
    }

    /// [`Self::transmit`] without the completion of work requests.
    fn transmit_bursts(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        locked: &mut Locked,
        budget: u32,
        source: TxSource,
    ) -> Progress {
        if !self.push(ctx.shared, locked) {
            return Progress::Wait;
        }
        if budget == 0 && !self.has_something(ctx, reads) {
            return Progress::Wait;
        }
        self.queued.plenty = match locked.is_long_rtt(LONG_RTT_US) {
            true => u64::MAX,
            false => PLENTY,
        };
        for _ in 0..budget {
            if !self.has_room(locked) {
                return Progress::Wait;
            }
            let Built::Burst { full } = self.build(ctx, reads, locked, source) else {
                return Progress::Wait;
            };
            if !self.push(ctx.shared, locked) || !full {
                return Progress::Wait;
            }
        }
        Progress::More
    }

    /// Whether there may be something to send.
    fn has_something(&self, ctx: &Ctx<'_>, reads: &ReadQueues) -> bool {
        self.job.is_some() || self.queued.may_wait(reads) || ctx.queues.sq().is_pending()
    }

    /// Whether TCP has free space for a burst; if not, TCP calls `write_space` later.
    ///
    /// The layout of a burst depends on the unsent octets of TCP. If TCP refused a burst, it
    /// would send its last, short segment before it accepts the burst. The FPDUs of the burst
    /// would then straddle every boundary.
    fn has_room(&mut self, locked: &mut Locked) -> bool {
        let room = locked.has_room() || locked.fit_sndbuf(SEND_BUFFER, LONG_RTT_US);
        if !room {
            self.blocked = true;
            self.queued.not_looked();
        }
        room
    }

    /// Passes the current burst to TCP. Returns whether TCP has accepted it as a whole, and the
    /// next one may be built.
    fn push(&mut self, shared: &mut Shared, locked: &mut Locked) -> bool {
        if self.blocked && !locked.stream_writable() {
            return false;
        }
        self.blocked = false;
        while let Some(burst) = &mut self.burst {
            let (at, rest) = (
                burst.at as usize,
                burst.end.saturating_sub(burst.at) as usize,
            );
            let taken = match burst.copy {
                true => locked.send_copy(self.blocks.part(at, rest)),
                false => locked.send_pages(&mut self.blocks, at, rest),
            };
            match taken {
                Ok(n) if n != 0 => {
                    if burst.copy {
                        shared.excess.copied();
                    }
                    self.blocked = false;
                    burst.at = burst.at.saturating_add(n as u32);
                    shared.sent_octets = shared.sent_octets.wrapping_add(n as u64);
                    if burst.at >= burst.end {
                        self.burst = None;
                        self.burst_taken(shared.sent_octets, &mut shared.excess);
                    }
                }
                Ok(_) | Err(EAGAIN)
                    if locked.fit_sndbuf(SEND_BUFFER, LONG_RTT_US) && !self.blocked =>
                {
                    // Only once: memory may be missing.
                    self.blocked = true;
                }
                Ok(_) | Err(EAGAIN) => {
                    self.blocked = true;
                    // With nothing in flight no acknowledgment causes a callback: memory was
                    // missing.
                    shared.deferred.retry |= locked.write_queues_empty();
                    self.note_pending(shared, locked);
                    return false;
                }
                Err(error) => {
                    shared.stop.get_or_insert(Stop::End(EndReason::of(error)));
                    return false;
                }
            }
        }
        true
    }

    /// Counts all blocks of a burst that TCP has not accepted as a whole, until it has.
    ///
    /// A refused charge is tried again with the next attempt, and when memory is looked at.
    /// Little is missing, as [`Self::build`] has charged most blocks beyond the first one.
    #[cold]
    fn note_pending(&self, shared: &mut Shared, locked: &mut Locked) {
        let Shared {
            excess,
            sent_octets,
            ..
        } = shared;
        excess.set_in_use(self.blocks.count(usize::MAX));
        excess.acknowledged(*sent_octets, locked.outstanding());
        excess.charge_missing(locked);
    }

    /// Encodes the next burst.
    ///
    /// TCP may refuse the burst, and accounts none of its blocks then. The first block is free of
    /// charge. A burst ends with that block if the charge for a further one is refused. It goes on
    /// where the rest of that block is too short for an FPDU, or blocks are shorter than
    /// [`BLOCK`], since memory is fragmented.
    fn build(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        locked: &mut Locked,
        source: TxSource,
    ) -> Built {
        if !self.find_job(ctx, reads, source) {
            return Built::Nothing;
        }
        // While TCP references the block in use, the next burst is placed after the lent octets.
        // With a block for each burst, a short burst would pin a whole block.
        self.give_up_free_block();
        let mut blocks = core::mem::take(&mut self.blocks);
        // The first blocks are free only if TCP references none. A check of referenced blocks
        // costs more than their place in the cache saves.
        let reuse = match locked.write_queues_empty() {
            true => self.reuse,
            false => Reuse::InTurn,
        };
        let start = ctx.shared.sent_octets;
        let begin = blocks.lent();
        ctx.shared.excess.set_in_use(u32::from(begin != 0));
        let mut layout = self.lay_out(start, locked, begin);
        let mut at: u32 = 0;
        let mut full = false;
        // The end of the blocks that are charged or free of charge.
        let mut granted = BLOCK as usize;
        while self.find_job(ctx, reads, source) {
            let want = self.next_fpdu_wants(reads);
            let Some(room) = layout.room(at, want) else {
                full = true;
                break;
            };
            let place = begin.saturating_add(at as usize);
            let (want, mut room) = (want as usize, room as usize);
            let end = place.saturating_add(room.min(want));
            if end > granted {
                granted = granted.max(grant(ctx.shared, locked, end));
                match granted.saturating_sub(place) {
                    left if left >= PIECE => room = room.min(left),
                    _ if at != 0 => {
                        full = true;
                        break;
                    }
                    // The rest of the only block is too short, so the FPDU continues in another
                    // one.
                    _ => {}
                }
            }
            let encoded = blocks.fill(place, want, room, reuse, |out| {
                let encoded = self.encode(ctx, reads, out);
                (encoded.len(), encoded)
            });
            let Some(encoded) = encoded else {
                // Memory is missing.
                ctx.shared.deferred.retry |= at == 0;
                full = true;
                break;
            };
            match encoded {
                Encoded::Part(len) => {
                    at = at.saturating_add(len);
                    ctx.shared.tally.encoded(len);
                }
                Encoded::Last(len) => {
                    at = at.saturating_add(len);
                    ctx.shared.tally.encoded(len);
                    self.job_done(ctx, start.wrapping_add(u64::from(at)));
                }
                Encoded::Failed => self.job = None,
            }
        }
        self.blocks = blocks;
        if at == 0 {
            self.blocks.trim();
            return Built::Nothing;
        }
        let len = at as usize;
        let end = begin.saturating_add(len);
        // A burst that continues in another block is lent, even if it is short: a copy would
        // leave the rest of the first block unused.
        let blocks = self.blocks.count(end);
        let is_short = len <= COPY_LIMIT && blocks < 2;
        self.burst = Some(Burst {
            end: end as u32,
            at: begin as u32,
            copy: copies(ctx.shared, locked, is_short, blocks),
        });
        // The completions of this burst make room for further work requests.
        Built::Burst {
            full: full || self.queued.starved,
        }
    }

    /// The layout of a burst after the unsent octets of TCP. The burst begins at octet `start` of
    /// the stream, and at octet `begin` of a block.
    fn lay_out(&mut self, start: u64, locked: &mut Locked, begin: usize) -> Layout {
        let (mss, goal) = (locked.mss(), locked.size_goal());
        let unsent = self.origin.unsent(start, locked.unsent());
        let tail = locked.unsent_tail();
        let layout = Layout::new(mss, goal, unsent, tail, MAX_BURST);
        // A burst that begins within a page needs a fragment for the rest of the page.
        let room = match locked.tail_room() {
            u32::MAX => u32::MAX,
            room => room.saturating_sub((begin % PAGE_SIZE) as u32),
        };
        if let Some(layout) = layout.within(room) {
            return layout;
        }
        // TCP fills the last segment of an skb from the next one, if the skb has free fragments.
        // Their number is not known before the transmission: a part that is sent first frees its
        // fragments.
        locked.end_record();
        self.origin.begin(start);
        Layout::new(mss, goal, 0, 0, MAX_BURST)
    }

    /// Notes whether the receiver runs on this CPU. After the caller had sent, only softirqs ran
    /// on this CPU. If all octets are acknowledged, the receiver was one of them.
    pub(in crate::stream) fn note_receiver_cpu(&mut self, locked: &Locked) {
        self.reuse = match locked.write_queues_empty() {
            true => Reuse::First,
            false => Reuse::InTurn,
        };
    }

    /// Selects a message to send, if none is in progress; `false` if none may be sent now.
    #[inline(always)]
    fn find_job(&mut self, ctx: &mut Ctx<'_>, reads: &mut ReadQueues, source: TxSource) -> bool {
        self.job.is_some() || self.begin_job(ctx, reads, source)
    }

    /// Selects the next message to send; `false` if none may be sent now.
    #[inline(never)]
    fn begin_job(&mut self, ctx: &mut Ctx<'_>, reads: &mut ReadQueues, source: TxSource) -> bool {
        self.job = match source {
            // TCP accepts no octet after FIN, not even responses to requests that the peer sent
            // before FIN arrived. Such requests are no error of the peer.
            _ if self.fin_sent || ctx.is_stopped() => None,
            TxSource::Work => self.next_message(ctx, reads),
            TxSource::Farewell => self.next_farewell(),
            TxSource::Nothing => None,
        };
        self.job.is_some()
    }

    /// The message after the end of the stream: the Terminate.
    fn next_farewell(&mut self) -> Option<Job> {
        let octets = self.farewell.take()?;
        Some(Job::Control(Control::Terminate(octets)))
    }
}

/// Whether TCP may reference a burst in `blocks` blocks, instead of copying it. Memory beyond
/// TCP's accounting is charged if necessary; `false` if TCP's memory is short or the charge is
/// refused.
#[inline]
fn may_lend(shared: &mut Shared, locked: &mut Locked, blocks: u32) -> bool {
    let Shared {
        excess,
        sent_octets,
        ..
    } = shared;
    excess.acknowledged(*sent_octets, locked.outstanding());
    let missing = excess.missing_to_lend(blocks);
    if missing != 0 {
        if !locked.memory_is_plenty() || !locked.charge(missing) {
            return false;
        }
        excess.charged(missing);
    }
    true
}

/// The end of the blocks that a burst may fill up to octet `end`; 0 if a charge is refused.
#[inline(never)]
fn grant(shared: &mut Shared, locked: &mut Locked, end: usize) -> usize {
    let blocks = end.div_ceil(BLOCK as usize);
    match may_lend(shared, locked, blocks as u32) {
        true => blocks.saturating_mul(BLOCK as usize),
        false => 0,
    }
}

/// Whether TCP copies a burst in `blocks` blocks, instead of referencing it: a short one if that is
/// granted, and any if a reference is not. The fragments of a copy are charged if possible, also
/// where TCP's memory is too short for a reference.
#[inline]
fn copies(shared: &mut Shared, locked: &mut Locked, is_short: bool, blocks: u32) -> bool {
    if is_short && may_copy(shared, locked) {
        return true;
    }
    if may_lend(shared, locked, blocks) {
        return false;
    }
    if !is_short {
        may_copy(shared, locked);
    }
    true
}

/// Whether TCP may copy a burst into the socket's page fragments. They are charged as far as they
/// and the lent blocks exceed what is free of charge; `false` if the charge is refused.
#[inline]
fn may_copy(shared: &mut Shared, locked: &mut Locked) -> bool {
    let Shared {
        excess,
        sent_octets,
        ..
    } = shared;
    if excess.missing_to_copy() == 0 {
        return true;
    }
    excess.acknowledged(*sent_octets, locked.outstanding());
    let missing = excess.missing_to_copy();
    if missing != 0 {
        if !locked.charge(missing) {
            return false;
        }
        excess.charged(missing);
    }
    true
}

#[kunit_tests(rsiw_stream_burst)]
mod tests {
    use super::*;
    use crate::{
        sys::{
            net::socket::Socket,
            testing::{
                connected,
                eventually,
                with_short_tcp_memory, //
            }, //
        },
        verbs::limits::MAX_RD_ATOM, //
    };

    /// 64 KiB, the documented limit of memory without a charge.
    const FREE: u32 = 65_536;

    /// The transmit state of an initiator.
    fn initiator() -> Tx {
        Tx::new(&Config {
            crc: true,
            rx_markers: false,
            tx_markers: false,
            ird: MAX_RD_ATOM,
            ord: MAX_RD_ATOM,
            role: Role::Initiator { rtr: None },
            initial: KVec::new(),
            mirror: false,
        })
    }

    /// Gives `tx` a burst in `count` blocks, which fills none of the last one's second half. `None`
    /// where memory is too fragmented for whole blocks.
    fn burst(tx: &mut Tx, count: u32, copy: bool) -> Option<u32> {
        let end = (BLOCK * count - BLOCK / 2) as usize;
        let mut at = 0;
        while at < end {
            let len = 1024.min(end - at);
            at += tx
                .blocks
                .fill(at, len, len, Reuse::InTurn, |out| (out.len(), out.len()))?;
        }
        (tx.blocks.count(end) == count).then_some(())?;
        let end = end as u32;
        tx.burst = Some(Burst { end, at: 0, copy });
        Some(end)
    }

    /// Fills the send buffer of `socket`, and the receive buffer of its peer, which reads nothing.
    /// Returns whether the send buffer stays full.
    fn fill(socket: &Socket) -> bool {
        let mut full = 0;
        eventually(|| {
            let sock = socket.sock();
            let mut locked = sock.lock();
            locked.fit_sndbuf(SEND_BUFFER, LONG_RTT_US);
            match locked.send_copy(&[0x5a; 4096]) {
                // The peer has acknowledged octets.
                Ok(_) => {
                    full = 0;
                    while locked.send_copy(&[0x5a; 4096]).is_ok() {}
                }
                Err(_) => full += 1,
            }
            full == 50
        })
    }

    /// Pushes the burst until TCP has taken at least an octet: the send buffer grows in steps that
    /// are smaller than the burst. [`Tx::push`] makes it small again.
    ///
    /// The steps go up to 16 MiB. A busy machine makes a long-RTT path of loopback. The send buffer
    /// then contains what `net.ipv4.tcp_wmem` permits, which is more than [`SEND_BUFFER`].
    fn push_a_part(socket: &Socket, tx: &mut Tx, shared: &mut Shared) -> bool {
        (0..1920).any(|step| {
            socket.set_sndbuf_cap(SEND_BUFFER + step * 8192);
            tx.blocked = false;
            let _ = tx.push(shared, &mut socket.sock().lock());
            shared.sent_octets != 0
        })
    }

    /// A burst that TCP copies since its memory is too short for a reference. All free octets
    /// belong to the reassembly buffer.
    #[test]
    fn a_copy_in_place_of_a_reference_is_charged() -> Result {
        let (a, _b) = connected()?;
        let mut shared = Shared::new(false, 16)?;
        assert!(shared.excess.reassemble(FREE));
        let copy =
            with_short_tcp_memory(&a, || copies(&mut shared, &mut a.sock().lock(), false, 1));
        assert!(copy);
        shared.excess.copied();
        // Two fragments of TCP, of 32 KiB each.
        assert!(shared.excess.charge() >= 65_536);
        a.sock().lock().uncharge(shared.excess.end());
        Ok(())
    }

    #[test]
    fn a_burst_that_tcp_refuses_or_takes_in_part_counts_with_all_its_blocks() -> Result {
        for (copy, part) in [(false, false), (false, true), (true, true)] {
            let (a, _b) = connected()?;
            assert!(fill(&a));
            let mut shared = Shared::new(false, 16)?;
            let mut tx = initiator();
            let Some(end) = burst(&mut tx, 3, copy) else {
                return Ok(());
            };
            match part {
                true => assert!(push_a_part(&a, &mut tx, &mut shared)),
                false => assert!(!tx.push(&mut shared, &mut a.sock().lock())),
            }
            let taken = shared.sent_octets;
            assert!((taken != 0) == part && taken < u64::from(end));
            assert!(!tx.is_flushed());
            // Three blocks are pinned or kept: what exceeds 64 KiB is charged.
            assert!(shared.excess.charge() >= 3 * BLOCK - FREE);
            // A look returns no charge.
            assert_eq!(shared.excess.take_surplus(), 0);
            // The reassembly buffer gets no octet free of charge.
            assert!(!shared.excess.reassemble(1024));
            a.sock().lock().uncharge(shared.excess.end());
        }
        Ok(())
    }
}
