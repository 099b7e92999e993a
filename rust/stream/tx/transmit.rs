// SPDX-License-Identifier: GPL-2.0

//! The transmit engine: bursts of FPDUs, each handed to TCP in one call.
//!
//! It runs under the socket lock, in the context that posts, receives or is told of room. It encodes
//! as many FPDUs as fit into a burst: header, payload copied once, CRC over the copy. It gives the
//! burst to TCP, and reports what TCP took. The rest of a burst goes before everything else. Every
//! stop has a continuation: an acknowledgment, a doorbell, arriving data, or a work item.

use iwarp_wire::mpa::fpdu::FpduWriter;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use crate::stream::{
    batch::{
        Batch, //
        Progress,
        Proto,
        StreamPhase,
    },
    excess::Excess,
    tx::alignment::{
        Layout,
        Origin, //
    },
    tx::encode::Encoded,
    tx::send_queue::{
        Job,
        Queued, //
    },
    Config,
    EndReason,
    Role,
    LONG_RTT_US,
    SEND_BUFFER, //
};
use crate::sys::{
    pages::{
        BurstBuf, //
        Reuse,
    },
    socket::Locked, //
};

/// A burst up to this many octets is copied by TCP: cheaper than page references, and the buffer
/// is free again at once.
const COPY_LIMIT: usize = 4096;

/// Octets still to come of outstanding Reads while which, on a short way, further requests wait for
/// each other: what a fast network carries in several round trips.
const PLENTY: u64 = 256 << 10;

/// Octets left in a block below which no burst is begun there: at MTU 1500 a burst in more of them is
/// longer than [`COPY_LIMIT`], so that every such burst fills the block further.
const LEFT_LIMIT: usize = 8192;

/// Octets handed to TCP in one call: a part of the block in use.
pub(in crate::stream) struct Burst {
    /// Where they end in the block.
    end: usize,
    /// Where those begin that TCP has not taken.
    at: usize,
    /// TCP gets a copy.
    copy: bool,
}

/// The outgoing half.
pub(in crate::stream) struct Tx {
    /// The block in use: what TCP was lent of it, and the burst.
    block: Option<BurstBuf>,
    /// The burst TCP has not taken in whole.
    burst: Option<Burst>,
    /// The message being cut into FPDUs.
    pub(in crate::stream) job: Option<Job>,
    /// Where messages come from.
    pub(in crate::stream) queued: Queued,
    /// Octets of FPDU stream TCP has taken.
    sent: u64,
    /// TCP had no room, and will call when it has.
    blocked: bool,
    /// Where segments began anew.
    origin: Origin,
    /// FPDUs may be sent: on the responder's side not before one came (RFC 5044 section 7.1.2).
    pub(in crate::stream) enabled: bool,
    /// Which buffers are good for bursts, a guess: see [`Batch::note_receiver_cpu`].
    reuse: Reuse,
    /// FIN was given to TCP.
    pub(in crate::stream) fin_sent: bool,
    /// Frames the FPDUs.
    pub(in crate::stream) writer: FpduWriter,
    /// Markers are inserted.
    pub(in crate::stream) markers: bool,
}

impl Tx {
    /// Prepares the outgoing half. May sleep.
    pub(in crate::stream) fn new(config: &Config) -> Result<Self> {
        Ok(Self {
            block: None,
            burst: None,
            job: None,
            queued: Queued::new(config)?,
            sent: 0,
            blocked: false,
            origin: Origin::default(),
            enabled: matches!(config.role, Role::Initiator { .. }),
            reuse: Reuse::InTurn,
            fin_sent: false,
            writer: FpduWriter::new(config.tx_markers, config.crc),
            markers: config.tx_markers,
        })
    }

    /// Octets of FPDU stream TCP has taken.
    #[inline]
    pub(in crate::stream) fn sent(&self) -> u64 {
        self.sent
    }

    /// Every encoded octet is with TCP.
    #[inline]
    pub(in crate::stream) fn is_flushed(&self) -> bool {
        self.burst.is_none()
    }

    /// Gives the block in use up if TCP holds nothing of it; whether there is none then.
    pub(in crate::stream) fn give_up_free_block(&mut self) -> bool {
        if self.burst.is_none() {
            self.block.take_if(|block| block.is_exclusive());
        }
        self.block.is_none()
    }

    /// Gives everything up that was not handed to TCP.
    pub(in crate::stream) fn give_up(&mut self) {
        self.burst = None;
        self.block = None;
    }
}

impl Tx {
    /// The block for the next burst.
    ///
    /// As long as TCP holds something of the one in use, the next burst lies behind it: a block for
    /// each burst would be pinned for as little as the burst has.
    #[inline]
    fn take_block(&mut self) -> Option<BurstBuf> {
        self.give_up_free_block();
        self.block.take().or_else(|| BurstBuf::get(self.reuse))
    }

    /// TCP has taken the whole burst. A block that it holds nothing of is free for other streams, and
    /// one that is as good as full is given up.
    #[inline]
    fn burst_taken(&mut self, excess: &mut Excess) {
        let Some(block) = &mut self.block else {
            return;
        };
        let (lent, left) = (block.lent(), block.space().len());
        if lent != 0 && left >= LEFT_LIMIT {
            excess.set_lent(true);
            return;
        }
        if lent != 0 {
            excess.closed(self.sent, u32::try_from(left).unwrap_or(u32::MAX));
        }
        self.block = None;
    }
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

impl Batch<'_> {
    /// Sends up to `budget` bursts; with a budget of 0 what TCP has not taken yet.
    pub(in crate::stream) fn transmit(&mut self, locked: &mut Locked, budget: u32) -> Progress {
        let progress = self.transmit_bursts(locked, budget);
        self.retire();
        progress
    }

    /// Sends up to `budget` bursts; what became complete is still to be reported.
    fn transmit_bursts(&mut self, locked: &mut Locked, budget: u32) -> Progress {
        if !self.push(locked) {
            return Progress::Wait;
        }
        if budget == 0 && !self.has_something() {
            return Progress::Wait;
        }
        self.proto.tx.queued.plenty = match locked.is_long_rtt(LONG_RTT_US) {
            true => u64::MAX,
            false => PLENTY,
        };
        for _ in 0..budget {
            if !self.has_room(locked) {
                return Progress::Wait;
            }
            let Built::Burst { full } = self.build(locked) else {
                return Progress::Wait;
            };
            if !self.push(locked) || !full {
                return Progress::Wait;
            }
        }
        Progress::More
    }

    /// Whether there may be something to send.
    fn has_something(&self) -> bool {
        let tx = &self.proto.tx;
        tx.job.is_some() || tx.queued.may_wait() || self.queues.sq().is_pending()
    }

    /// Whether TCP takes a burst now; if not, it calls when it does.
    ///
    /// A burst is laid out for what TCP has not sent. Were it built and then refused, TCP would send
    /// the last, short segment before it takes the burst, whose FPDUs would straddle every boundary.
    fn has_room(&mut self, locked: &mut Locked) -> bool {
        let room = locked.has_room() || locked.fit_sndbuf(SEND_BUFFER, LONG_RTT_US);
        if !room {
            self.proto.tx.blocked = true;
            self.proto.tx.queued.not_looked();
        }
        room
    }

    /// Hands the current burst to TCP; whether that is done and the next one may be built.
    fn push(&mut self, locked: &mut Locked) -> bool {
        let Proto { tx, excess, .. } = &mut *self.proto;
        if tx.blocked && !locked.stream_writable() {
            return false;
        }
        tx.blocked = false;
        while let (Some(burst), Some(block)) = (&mut tx.burst, &mut tx.block) {
            let rest = burst.end.saturating_sub(burst.at);
            let copied = burst.copy || rest <= COPY_LIMIT;
            let taken = match copied {
                true => locked.send_copy(block.part(burst.at, rest).unwrap_or_default()),
                false => locked.send_pages(block, burst.at, rest),
            };
            match taken {
                Ok(n) if n != 0 => {
                    if copied {
                        excess.copied();
                    }
                    tx.blocked = false;
                    burst.at = burst.at.saturating_add(n);
                    tx.sent = tx.sent.wrapping_add(n as u64);
                    if burst.at >= burst.end {
                        tx.burst = None;
                        tx.burst_taken(excess);
                    }
                }
                Ok(_) | Err(EAGAIN)
                    if locked.fit_sndbuf(SEND_BUFFER, LONG_RTT_US) && !tx.blocked =>
                {
                    // Once: it may be memory that is missing.
                    tx.blocked = true;
                }
                Ok(_) | Err(EAGAIN) => {
                    tx.blocked = true;
                    // Without anything under way no acknowledgment will come to call us back:
                    // it was memory that was missing.
                    self.proto.deferred.retry |= locked.write_queues_empty();
                    return false;
                }
                Err(error) => {
                    self.end(EndReason::of(error));
                    return false;
                }
            }
        }
        true
    }

    /// Encodes the next burst.
    fn build(&mut self, locked: &mut Locked) -> Built {
        if !self.find_job() {
            return Built::Nothing;
        }
        let Some(mut buf) = self.proto.tx.take_block() else {
            self.proto.deferred.retry = true;
            return Built::Nothing;
        };
        let start = self.proto.tx.sent;
        let begin = buf.lent();
        self.proto.excess.set_lent(begin != 0);
        let space = buf.space();
        let layout = self.lay_out(locked, begin, space.len());
        let mut at = 0;
        let mut full = false;
        while self.find_job() {
            let want = self.next_fpdu_wants();
            let Some(room) = layout.room(at, want) else {
                full = true;
                break;
            };
            let fpdu = (at as usize)
                .checked_add(room as usize)
                .and_then(|end| space.get_mut(at as usize..end))
                .unwrap_or_default();
            match self.encode(fpdu) {
                Encoded::Part(len) => {
                    at = at.saturating_add(len);
                    self.proto.tally.encoded(len);
                }
                Encoded::Last(len) => {
                    at = at.saturating_add(len);
                    self.proto.tally.encoded(len);
                    self.job_done(start.wrapping_add(u64::from(at)));
                }
                // What comes next may be a Terminate.
                Encoded::Failed => self.proto.tx.job = None,
            }
        }
        self.proto.tx.block = (at != 0 || begin != 0).then_some(buf);
        if at == 0 {
            return Built::Nothing;
        }
        let len = at as usize;
        self.proto.tx.burst = Some(Burst {
            end: begin.saturating_add(len),
            at: begin,
            copy: len <= COPY_LIMIT || !self.may_lend(locked),
        });
        // Giving this burst to TCP completes work requests, which makes room for others.
        Built::Burst {
            full: full || self.proto.tx.queued.starved,
        }
    }

    /// Whether TCP may be lent the block in use, rather than get a copy: what it MR cache beyond what it
    /// accounts is charged, if need be and if TCP has memory to spare.
    #[inline]
    fn may_lend(&mut self, locked: &mut Locked) -> bool {
        let Proto { tx, excess, .. } = &mut *self.proto;
        excess.acknowledged(tx.sent, locked.outstanding());
        let missing = excess.missing_to_lend();
        if missing != 0 {
            if !locked.memory_is_plenty() || !locked.charge(missing) {
                return false;
            }
            excess.charged(missing);
        }
        true
    }

    /// Where segment boundaries will lie in a burst behind what TCP has not sent. The burst begins at
    /// octet `begin` of a block, in front of `left` octets.
    fn lay_out(&mut self, locked: &mut Locked, begin: usize, left: usize) -> Layout {
        let start = self.proto.tx.sent;
        let (mss, goal) = (locked.mss(), locked.size_goal());
        let capacity = u32::try_from(left).unwrap_or(u32::MAX);
        let block = u32::try_from(begin.saturating_add(left)).unwrap_or(u32::MAX);
        let unsent = self.proto.tx.origin.unsent(start, locked.unsent());
        let tail = locked.unsent_tail();
        // As in a whole block, to fill TCP's last buffer up, but for what does not fit.
        let layout = Layout::new(mss, goal, unsent, tail, block)
            .within(capacity)
            .filter(|layout| layout.fits(capacity))
            .unwrap_or_else(|| Layout::new(mss, goal, unsent, tail, capacity));
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
        self.proto.tx.origin.begin(start);
        Layout::new(mss, goal, 0, 0, capacity)
    }

    /// Notices where the receiver works. The caller has sent, and then only let softirqs burst on
    /// this CPU: if everything has been acknowledged, the receiver was one of them.
    pub(in crate::stream) fn note_receiver_cpu(&mut self, locked: &Locked) {
        self.proto.tx.reuse = match locked.write_queues_empty() {
            true => Reuse::First,
            false => Reuse::InTurn,
        };
    }

    /// Makes sure that there is a message to send; `false` if none may be sent now.
    #[inline]
    fn find_job(&mut self) -> bool {
        if self.proto.tx.job.is_some() {
            return true;
        }
        self.proto.tx.job = match self.proto.phase {
            // TCP takes nothing any more, also no answer to what the peer asked before it knew; and
            // that it does not is not the peer's doing.
            _ if self.proto.tx.fin_sent => None,
            StreamPhase::Open | StreamPhase::Closing => self.next_message(),
            StreamPhase::Ended => self.next_farewell(),
            StreamPhase::Starting | StreamPhase::Leaving | StreamPhase::Over => None,
        };
        self.proto.tx.job.is_some()
    }
}
