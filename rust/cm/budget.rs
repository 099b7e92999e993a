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

/// The most peers in a [`PeerBudgets`].
const PEERS: usize = 256;

/// A rate limit.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    /// Nanoseconds that one event costs.
    cost: i64,
    /// The highest level at which there is room for one more.
    most: i64,
}

impl Rate {
    /// `BURST` at once, and `PER_SECOND` a second in the long run.
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
    /// The time of that level.
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

    /// The level now.
    fn drain(&mut self) -> i64 {
        let gone = self.since.elapsed().as_nanos();
        self.since = Instant::now();
        self.level = self.level.saturating_sub(gone).max(0);
        self.level
    }

    /// Whether there is room for one more.
    fn has_room(&mut self, rate: &Rate) -> bool {
        self.drain() <= rate.most
    }

    /// Counts one.
    fn add(&mut self, rate: &Rate) {
        self.level = self.drain().saturating_add(rate.cost);
    }

    /// Counts one if there is room for it.
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
    /// All empty. May sleep.
    pub(crate) fn new(rate: Rate) -> Result<Self> {
        Ok(Self {
            peers: KVec::with_capacity(PEERS, GFP_KERNEL)?,
            rate,
        })
    }

    /// Whether there is room for one more of `peer`.
    pub(crate) fn has_room(&mut self, peer: IpAddr) -> bool {
        let rate = self.rate;
        let found = self.peers.iter_mut().find(|(ip, _)| *ip == peer);
        found.is_none_or(|(_, bucket)| bucket.has_room(&rate))
    }

    /// Counts one of `peer`. May sleep.
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
        // There is room.
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
