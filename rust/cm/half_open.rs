// SPDX-License-Identifier: GPL-2.0

//! The half-open backlog of a listener: connections whose Request has not arrived.
//!
//! Listeners of `iw_cm` and listeners of the rendezvous have one each. Its size is limited, and an
//! entry older than a fraction of a second is evicted for a new connection. So silent peers hold a
//! bounded amount of memory, and do not block other peers. The lock of the listener protects it.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// The maximum number of entries of a backlog.
const MAX_HALF_OPEN: usize = 512;

/// The maximum number of connections that one run of the work item accepts.
const BUDGET: u32 = 64;

/// Milliseconds until the work item retries an accept that found no free entry or no memory.
pub(crate) const RETRY_MS: u32 = 50;

/// The maximum backlog of the TCP socket, in connections.
pub(crate) const MAX_BACKLOG: u32 = 4096;

/// A half-open connection.
struct BacklogEntry<T> {
    /// The connection.
    item: T,
    /// When the connection arrived.
    since: Instant<Monotonic>,
}

impl<T> BacklogEntry<T> {
    /// Milliseconds since it arrived.
    fn age_ms(&self) -> i64 {
        self.since.elapsed().as_millis()
    }
}

/// The backlog: half-open connections with their ages.
pub(crate) struct HalfOpenBacklog<T> {
    /// The entries, oldest first.
    entries: KVec<BacklogEntry<T>>,
    /// Milliseconds before which an entry is not evicted.
    min_age_ms: i64,
}

impl<T> HalfOpenBacklog<T> {
    /// Makes an empty backlog.
    pub(crate) fn new(min_age_ms: i64) -> Self {
        Self {
            entries: KVec::new(),
            min_age_ms,
        }
    }

    /// Evicts the oldest entry if the backlog is full, and returns it.
    ///
    /// # Errors
    ///
    /// `EBUSY`: all entries are too young.
    pub(crate) fn evict_oldest(&mut self) -> Result<Option<T>> {
        if !self.is_full() {
            return Ok(None);
        }
        self.evict_older(self.min_age_ms).map(Some).ok_or(EBUSY)
    }

    /// Adds an entry. The backlog has a free entry, since only the caller evicts and inserts. May
    /// sleep.
    pub(crate) fn insert(&mut self, item: T) -> Result {
        let since = Instant::now();
        self.entries
            .push(BacklogEntry { item, since }, GFP_KERNEL)?;
        Ok(())
    }

    /// Evicts the oldest entry if it is at least `age_ms` milliseconds old.
    pub(crate) fn evict_older(&mut self, age_ms: i64) -> Option<T> {
        let oldest = self.entries.first()?;
        match oldest.age_ms() >= age_ms {
            true => self.entries.remove(0).ok().map(|entry| entry.item),
            false => None,
        }
    }

    /// Removes the first entry for which `found` returns a value.
    pub(crate) fn remove<R>(&mut self, mut found: impl FnMut(&T) -> Option<R>) -> Option<(T, R)> {
        let (at, result) = self
            .entries
            .iter()
            .enumerate()
            .find_map(|(at, entry)| Some((at, found(&entry.item)?)))?;
        Some((self.entries.remove(at).ok()?.item, result))
    }

    /// The connections, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.item)
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is no free entry.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_HALF_OPEN
    }
}

/// A listener whose work item accepts connections into a backlog.
pub(crate) trait AcceptLoop {
    /// Accepts a connection; `false` if none waits. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// No free entry or no memory: the caller retries.
    fn accept_one(self: &Arc<Self>) -> Result<bool>;

    /// Queues the work item at once, also if a delay is pending. Any context.
    fn queue_accept(self: Arc<Self>);

    /// Queues the work item after [`RETRY_MS`], unless the listener has ended. Process context;
    /// sleeps.
    fn queue_accept_later(self: &Arc<Self>);
}

/// The work item: accepts up to [`BUDGET`] connections. Process context; sleeps.
pub(crate) fn run_accept<R: AcceptLoop>(listener: Arc<R>) {
    for _ in 0..BUDGET {
        match listener.accept_one() {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => return listener.queue_accept_later(),
        }
    }
    listener.queue_accept();
}

#[kunit_tests(rsiw_cm_half_open)]
mod tests {
    use super::*;

    /// A full backlog.
    fn full(min_age_ms: i64) -> Result<HalfOpenBacklog<usize>> {
        let mut backlog = HalfOpenBacklog::new(min_age_ms);
        for item in 0..MAX_HALF_OPEN {
            assert_eq!(backlog.evict_oldest(), Ok(None));
            backlog.insert(item)?;
        }
        Ok(backlog)
    }

    #[test]
    fn a_young_entry_is_not_evicted() -> Result {
        let mut backlog = full(3_600_000)?;
        assert!(backlog.is_full());
        assert_eq!(backlog.evict_oldest(), Err(EBUSY));
        assert_eq!(
            backlog.remove(|item| (*item == 7).then_some(())),
            Some((7, ()))
        );
        assert!(!backlog.is_full());
        assert_eq!(backlog.evict_oldest(), Ok(None));
        Ok(())
    }

    #[test]
    fn the_oldest_is_evicted() -> Result {
        let mut backlog = full(0)?;
        assert_eq!(backlog.evict_oldest(), Ok(Some(0)));
        backlog.insert(MAX_HALF_OPEN)?;
        assert_eq!(backlog.evict_oldest(), Ok(Some(1)));
        assert_eq!(backlog.iter().next(), Some(&2));
        assert_eq!(backlog.iter().last(), Some(&MAX_HALF_OPEN));
        Ok(())
    }

    #[test]
    fn no_entry_expires_early() -> Result {
        let mut backlog = HalfOpenBacklog::new(0);
        backlog.insert(1)?;
        assert_eq!(backlog.evict_older(3_600_000), None);
        assert_eq!(backlog.evict_older(0), Some(1));
        assert_eq!(backlog.evict_older(0), None);
        assert!(backlog.is_empty());
        Ok(())
    }

    #[test]
    fn only_what_is_found_is_removed() -> Result {
        let mut backlog = HalfOpenBacklog::new(0);
        for item in [3_u32, 5, 8] {
            backlog.insert(item)?;
        }
        assert_eq!(backlog.remove(|item| (*item > 9).then_some(())), None);
        assert_eq!(backlog.remove(|item| item.checked_sub(4)), Some((5, 1)));
        assert!(backlog.iter().eq(&[3, 8]));
        Ok(())
    }
}
