// SPDX-License-Identifier: GPL-2.0

//! The transmit engine: bursts of FPDUs, each handed to TCP in one call.
//!
//! It runs under the socket lock, in the context that posts, receives or is told of room. It encodes
//! as many FPDUs as fit into a burst: header, payload copied once, CRC over the copy. It gives the
//! burst to TCP, and reports what TCP took. The rest of a burst goes before everything else. Every
//! stop has a continuation: an acknowledgment, a doorbell, arriving data, or a work item.

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
            blocks::BlockChain,
            pages::Reuse, //
        },
        net::socket::Locked, //
    }, //
};

/// Octets TCP may hold for us on a short path. They stay in a CPU's cache, and do not keep the CPU in
/// softirq for long.
pub(in crate::stream) const SEND_BUFFER: u32 = 1 << 20;

/// Microseconds of a round trip above which a path is a long-RTT path. Its congestion window says how
/// much TCP may hold.
const LONG_RTT_US: u32 = 300;

/// A burst up to this many octets is copied by TCP: cheaper than page references, and the buffer
/// is free again at once.
const COPY_LIMIT: usize = 4096;

/// On a short path further Read Requests wait for each other while more octets than this are to
/// come of outstanding Reads. A fast network carries them in several round trips.
const PLENTY: u64 = 256 << 10;

/// The most octets of a burst.
const MAX_BURST: u32 = 64 << 10;

/// Octets handed to TCP in one call: a part of the blocks in use.
pub(in crate::stream) struct Burst {
    /// Where they end in the blocks.
    end: u32,
    /// Where those begin that TCP has not taken.
    at: u32,
    /// TCP gets a copy.
    copy: bool,
}

/// The outgoing half.
pub(in crate::stream) struct Tx {
    /// The block that TCP was lent a part of, and the burst behind that part.
    blocks: BlockChain,
    /// The burst TCP has not taken in whole.
    burst: Option<Burst>,
    /// The message being cut into FPDUs.
    pub(in crate::stream) job: Option<Job>,
    /// Where messages come from.
    pub(in crate::stream) queued: Queued,
    /// TCP had no room, and will call when it has.
    blocked: bool,
    /// Where segments began anew.
    origin: Origin,
    /// FPDUs may be sent: on the responder's side not before one came (RFC 5044 section 7.1.2).
    pub(in crate::stream) enabled: bool,
    /// Which buffers are good for bursts, a guess: see [`Self::note_receiver_cpu`].
    reuse: Reuse,
    /// The Terminate to send when the stream has ended.
    pub(in crate::stream) farewell: Option<TerminateOctets>,
    /// The peer has closed its half: it answers no Read any more.
    pub(in crate::stream) peer_closed: bool,
    /// FIN was given to TCP.
    pub(in crate::stream) fin_sent: bool,
    /// Frames the FPDUs.
    pub(in crate::stream) writer: FpduWriter,
    /// Markers are inserted.
    pub(in crate::stream) markers: bool,
}

impl Tx {
    /// Prepares the outgoing half.
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

    /// Every encoded octet is with TCP.
    #[inline]
    pub(in crate::stream) fn is_flushed(&self) -> bool {
        self.burst.is_none()
    }

    /// Gives the block in use up if TCP holds nothing of it; whether there is none then.
    #[inline]
    pub(in crate::stream) fn give_up_free_block(&mut self) -> bool {
        if self.burst.is_none() && !self.blocks.is_empty() && self.blocks.is_exclusive() {
            self.blocks = BlockChain::default();
        }
        self.blocks.is_empty()
    }

    /// Gives everything up that was not handed to TCP.
    pub(in crate::stream) fn give_up(&mut self) {
        self.burst = None;
        self.blocks = BlockChain::default();
    }
}

impl Tx {
    /// TCP has taken the whole burst. Blocks that it was lent to their end are given up, and those that
    /// it was lent nothing of.
    #[inline]
    fn burst_taken(&mut self, sent_octets: u64, excess: &mut Excess) {
        while let Some(unused) = self.blocks.pop_full() {
            excess.closed(sent_octets, unused);
        }
        self.blocks.trim();
        excess.set_lent(!self.blocks.is_empty());
    }
}

/// Where messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stream) enum TxSource {
    /// Full operation: answers and work requests.
    Work,
    /// The stream has ended: its Terminate.
    Farewell,
    /// No new message; the current one is finished.
    Nothing,
}

/// What came of building a burst.
enum Built {
    /// A burst waits to be handed over; `full` if more messages wait behind it.
    Burst {
        /// There is more to send.
        full: bool,
    },
    /// There is nothing to send now.
    Nothing,
}

impl Tx {
    /// Sends up to `budget` bursts of what `source` says; with a budget of 0 what TCP has not taken yet.
    ///
    /// What ends the stream is left in the context.
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

    /// Sends up to `budget` bursts; what became complete is still to be reported.
    fn transmit_bursts(
        &mut self,
        ctx: &mut Ctx<'_>,
        reads: &mut ReadQueues,
        locked: &mut Locked,
        budget: u32,
        source: TxSource,
    ) -> Progress {
        if !self.push(ctx, locked) {
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
            if !self.push(ctx, locked) || !full {
                return Progress::Wait;
            }
        }
        Progress::More
    }

    /// Whether there may be something to send.
    fn has_something(&self, ctx: &Ctx<'_>, reads: &ReadQueues) -> bool {
        self.job.is_some() || self.queued.may_wait(reads) || ctx.queues.sq().is_pending()
    }

    /// Whether TCP takes a burst now; if not, it calls when it does.
    ///
    /// A burst is laid out for what TCP has not sent. Were it built and then refused, TCP would send
    /// the last, short segment before it takes the burst, whose FPDUs would straddle every boundary.
    fn has_room(&mut self, locked: &mut Locked) -> bool {
        let room = locked.has_room() || locked.fit_sndbuf(SEND_BUFFER, LONG_RTT_US);
        if !room {
            self.blocked = true;
            self.queued.not_looked();
        }
        room
    }

    /// Hands the current burst to TCP; whether that is done and the next one may be built.
    fn push(&mut self, ctx: &mut Ctx<'_>, locked: &mut Locked) -> bool {
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
                    let Shared {
                        excess,
                        sent_octets,
                        ..
                    } = &mut *ctx.shared;
                    if burst.copy {
                        excess.copied();
                    }
                    self.blocked = false;
                    burst.at = burst.at.saturating_add(n as u32);
                    *sent_octets = sent_octets.wrapping_add(n as u64);
                    if burst.at >= burst.end {
                        self.burst = None;
                        self.burst_taken(*sent_octets, excess);
                    }
                }
                Ok(_) | Err(EAGAIN)
                    if locked.fit_sndbuf(SEND_BUFFER, LONG_RTT_US) && !self.blocked =>
                {
                    // Once: it may be memory that is missing.
                    self.blocked = true;
                }
                Ok(_) | Err(EAGAIN) => {
                    self.blocked = true;
                    // With nothing in flight no acknowledgment causes a callback: memory was
                    // missing.
                    ctx.shared.deferred.retry |= locked.write_queues_empty();
                    return false;
                }
                Err(error) => {
                    ctx.stop(Stop::End(EndReason::of(error)));
                    return false;
                }
            }
        }
        true
    }

    /// Encodes the next burst.
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
        // As long as TCP holds something of the block in use, the next burst lies behind that. A block
        // for each burst would be pinned as a whole by a short one.
        self.give_up_free_block();
        let mut blocks = core::mem::take(&mut self.blocks);
        // The first blocks are free only when TCP holds nothing. To look at those that it holds costs
        // more than their place in the cache saves.
        let reuse = match locked.write_queues_empty() {
            true => self.reuse,
            false => Reuse::InTurn,
        };
        let start = ctx.shared.sent_octets;
        let begin = blocks.lent();
        ctx.shared.excess.set_lent(begin != 0);
        let layout = self.lay_out(start, locked, begin);
        let mut at: u32 = 0;
        let mut full = false;
        while self.find_job(ctx, reads, source) {
            let want = self.next_fpdu_wants(reads);
            let Some(room) = layout.room(at, want) else {
                full = true;
                break;
            };
            let place = begin.saturating_add(at as usize);
            let encoded = blocks.fill(place, want as usize, room as usize, reuse, |out| {
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
        // A burst that reaches into another block is lent however short it is: copies would leave the
        // rest of the first block as it is.
        let blocks = self.blocks.count(end);
        let is_short = len <= COPY_LIMIT && blocks < 2;
        self.burst = Some(Burst {
            end: end as u32,
            at: begin as u32,
            copy: is_short || !may_lend(ctx, locked, blocks),
        });
        // Giving this burst to TCP completes work requests, which makes room for others.
        Built::Burst {
            full: full || self.queued.starved,
        }
    }

    /// Where segment boundaries will lie in a burst behind what TCP has not sent. The burst begins at octet
    /// `start` of the stream, and at octet `begin` of a block.
    fn lay_out(&mut self, start: u64, locked: &mut Locked, begin: usize) -> Layout {
        let (mss, goal) = (locked.mss(), locked.size_goal());
        let unsent = self.origin.unsent(start, locked.unsent());
        let tail = locked.unsent_tail();
        let layout = Layout::new(mss, goal, unsent, tail, MAX_BURST);
        // A burst that begins inside of a page takes a place for the rest of it.
        let room = match locked.tail_room() {
            u32::MAX => u32::MAX,
            room => room.saturating_sub((begin % PAGE_SIZE) as u32),
        };
        if let Some(layout) = layout.within(room) {
            return layout;
        }
        // TCP fills the last segment of a buffer up from the next one if there are places left in
        // it. That is not known before TCP sends it: a part that goes first leaves its places.
        locked.end_record();
        self.origin.begin(start);
        Layout::new(mss, goal, 0, 0, MAX_BURST)
    }

    /// Notices where the receiver works. The caller has sent, and then only let softirqs burst on
    /// this CPU: if everything has been acknowledged, the receiver was one of them.
    pub(in crate::stream) fn note_receiver_cpu(&mut self, locked: &Locked) {
        self.reuse = match locked.write_queues_empty() {
            true => Reuse::First,
            false => Reuse::InTurn,
        };
    }

    /// Makes sure that there is a message to send; `false` if none may be sent now.
    #[inline]
    fn find_job(&mut self, ctx: &mut Ctx<'_>, reads: &mut ReadQueues, source: TxSource) -> bool {
        if self.job.is_some() {
            return true;
        }
        self.job = match source {
            // Behind FIN TCP takes nothing, not even answers to requests that the peer sent before
            // FIN reached it. The peer is not at fault there.
            _ if self.fin_sent || ctx.is_stopped() => None,
            TxSource::Work => self.next_message(ctx, reads),
            TxSource::Farewell => self.next_farewell(),
            TxSource::Nothing => None,
        };
        self.job.is_some()
    }

    /// What is sent after the end: the Terminate.
    fn next_farewell(&mut self) -> Option<Job> {
        let octets = self.farewell.take()?;
        Some(Job::Control(Control::Terminate(octets)))
    }
}

/// Whether TCP may be lent a burst in `blocks` blocks, rather than get a copy. What it pins beyond what
/// it accounts is charged, if need be and if TCP has memory to spare.
#[inline]
fn may_lend(ctx: &mut Ctx<'_>, locked: &mut Locked, blocks: u32) -> bool {
    let Shared {
        excess,
        sent_octets,
        ..
    } = &mut *ctx.shared;
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
