// SPDX-License-Identifier: GPL-2.0

//! Rate limits: leaky buckets.

use core::net::IpAddr;

use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// The maximum number of peers in a [`PeerBudgets`].
const PEERS: usize = 256;

/// A rate limit.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    /// The amount by which one event raises the level, in nanoseconds.
    cost: i64,
    /// The highest level at which one more event is allowed, in nanoseconds.
    most: i64,
}

impl Rate {
    /// Makes a limit of `BURST` events at once, and of `PER_SECOND` events a second in the long
    /// run.
    pub(crate) const fn new<const BURST: i64, const PER_SECOND: i64>() -> Self {
        const { assert!(BURST > 0 && PER_SECOND > 0 && PER_SECOND <= SECOND) };
        let cost = const { SECOND / PER_SECOND };
        Self {
            cost,
            most: const { SECOND / PER_SECOND * (BURST - 1) },
        }
    }
}

/// A leaky bucket.
pub(crate) struct Bucket {
    /// Nanoseconds until the bucket is empty.
    level: i64,
    /// The time for which `level` was computed.
    since: Instant<Monotonic>,
}

impl Bucket {
    /// An empty bucket.
    pub(crate) fn new() -> Self {
        Self {
            level: 0,
            since: Instant::now(),
        }
    }

    /// Updates and returns the level.
    fn drain(&mut self) -> i64 {
        let gone = self.since.elapsed().as_nanos();
        self.since = Instant::now();
        self.level = self.level.saturating_sub(gone).max(0);
        self.level
    }

    /// Whether one more event is allowed.
    fn has_room(&mut self, rate: &Rate) -> bool {
        self.drain() <= rate.most
    }

    /// Counts an event.
    fn add(&mut self, rate: &Rate) {
        self.level = self.drain().saturating_add(rate.cost);
    }

    /// Counts an event if it is allowed; returns whether it is.
    pub(crate) fn try_add(&mut self, rate: &Rate) -> bool {
        let room = self.has_room(rate);
        if room {
            self.add(rate);
        }
        room
    }
}

/// Buckets of up to [`PEERS`] peers. A new peer replaces the one whose bucket is emptiest.
pub(crate) struct PeerBudgets {
    /// Buckets by address of the peer.
    peers: KVec<(IpAddr, Bucket)>,
    /// The rate limit of each peer.
    rate: Rate,
}

impl PeerBudgets {
    /// Makes an empty set. Process context; may sleep.
    pub(crate) fn new(rate: Rate) -> Result<Self> {
        Ok(Self {
            peers: KVec::with_capacity(PEERS, GFP_KERNEL)?,
            rate,
        })
    }

    /// Whether one more event of `peer` is allowed.
    pub(crate) fn has_room(&mut self, peer: IpAddr) -> bool {
        let rate = self.rate;
        let found = self.peers.iter_mut().find(|(ip, _)| *ip == peer);
        found.is_none_or(|(_, bucket)| bucket.has_room(&rate))
    }

    /// Counts an event of `peer`. Process context; may sleep.
    pub(crate) fn add(&mut self, peer: IpAddr) {
        let rate = self.rate;
        if let Some((_, bucket)) = self.peers.iter_mut().find(|(ip, _)| *ip == peer) {
            bucket.add(&rate);
            return;
        }
        if self.peers.len() >= PEERS {
            let emptiest = self
                .peers
                .iter_mut()
                .map(|(_, bucket)| bucket.drain())
                .enumerate()
                .min_by_key(|(_, level)| *level);
            if let Some((at, _)) = emptiest {
                let _ = self.peers.remove(at);
            }
        }
        let mut bucket = Bucket::new();
        bucket.add(&rate);
        // The capacity suffices.
        let _ = self.peers.push((peer, bucket), GFP_KERNEL);
    }
}

#[kunit_tests(rsiw_cm_budget)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const RATE: Rate = Rate::new::<3, 1>();

    fn peer(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(n))
    }

    #[test]
    fn holds_a_burst() {
        let mut bucket = Bucket::new();
        for _ in 0..3 {
            assert!(bucket.try_add(&RATE));
        }
        assert!(!bucket.try_add(&RATE));
    }

    #[test]
    fn peers_do_not_pay_for_each_other() -> Result {
        let mut budgets = PeerBudgets::new(RATE)?;
        for _ in 0..3 {
            assert!(budgets.has_room(peer(1)));
            budgets.add(peer(1));
        }
        assert!(!budgets.has_room(peer(1)));
        assert!(budgets.has_room(peer(2)));
        Ok(())
    }

    #[test]
    fn the_emptiest_makes_room() -> Result {
        let mut budgets = PeerBudgets::new(RATE)?;
        for _ in 0..3 {
            budgets.add(peer(0));
        }
        for n in 1..=PEERS as u32 {
            budgets.add(peer(n));
        }
        assert_eq!(budgets.peers.len(), PEERS);
        assert!(!budgets.has_room(peer(0)));
        Ok(())
    }
}
