// SPDX-License-Identifier: GPL-2.0

//! Places for strangers: what listeners of both kinds do about peers that have connected and not
//! said what they want.
//!
//! Places are limited, and whoever has had one for a moment loses it to a newcomer: any number of
//! silent strangers holds a bounded amount of memory and keeps nobody out.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Places of a listener.
const PLACES: usize = 512;

/// Connections taken before others get their turn.
const BUDGET: u32 = 64;

/// Milliseconds until connections are taken again when there was no place or no memory.
pub(super) const RETRY_MS: u32 = 50;

/// Connections that may wait in TCP.
pub(super) const MAX_BACKLOG: u32 = 4096;

/// A stranger in its place.
struct Taken<T> {
    /// The stranger.
    who: T,
    /// When it came.
    since: Instant<Monotonic>,
}

impl<T> Taken<T> {
    /// Milliseconds since it came.
    fn age_ms(&self) -> i64 {
        self.since.elapsed().as_millis()
    }
}

/// The places of a listener.
pub(super) struct Places<T> {
    /// Those that are taken, in the order in which the strangers came.
    taken: KVec<Taken<T>>,
    /// Milliseconds for which a stranger may keep its place however many others come.
    stay_ms: i64,
}

impl<T> Places<T> {
    /// All free.
    pub(super) fn new(stay_ms: i64) -> Self {
        Self {
            taken: KVec::new(),
            stay_ms,
        }
    }

    /// Sees to it that a place is free, and returns who lost it.
    ///
    /// # Errors
    ///
    /// `EBUSY`: all are taken by newcomers.
    pub(super) fn make_room(&mut self) -> Result<Option<T>> {
        if !self.are_taken() {
            return Ok(None);
        }
        self.leave_after(self.stay_ms).map(Some).ok_or(EBUSY)
    }

    /// Gives a place out; there is one, since its caller alone makes room and gives places out.
    /// May sleep.
    pub(super) fn give(&mut self, who: T) -> Result {
        let since = Instant::now();
        self.taken.push(Taken { who, since }, GFP_KERNEL)?;
        Ok(())
    }

    /// Takes the place of the one who has been there for longest back, if that is so many
    /// milliseconds.
    pub(super) fn leave_after(&mut self, age_ms: i64) -> Option<T> {
        let oldest = self.taken.first()?;
        match oldest.age_ms() >= age_ms {
            true => self.taken.remove(0).ok().map(|taken| taken.who),
            false => None,
        }
    }

    /// Takes the place of the first stranger that `found` makes something of back.
    pub(super) fn leave<R>(&mut self, mut found: impl FnMut(&T) -> Option<R>) -> Option<(T, R)> {
        let (at, result) = self
            .taken
            .iter()
            .enumerate()
            .find_map(|(at, taken)| Some((at, found(&taken.who)?)))?;
        Some((self.taken.remove(at).ok()?.who, result))
    }

    /// Those who have a place.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.taken.iter().map(|taken| &taken.who)
    }

    /// Whether nobody is there.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Whether no place is free.
    pub(super) fn are_taken(&self) -> bool {
        self.taken.len() >= PLACES
    }
}

/// Has a work item that takes connections and gives them places.
pub(super) trait Reception {
    /// Takes a connection; whether there was one. Process context; sleeps.
    ///
    /// # Errors
    ///
    /// No place or no memory: to be tried again.
    fn take_one(self: &Arc<Self>) -> Result<bool>;

    /// Has the work item run, without waiting for the end of a delay. Any context.
    fn take_now(self: Arc<Self>);

    /// Has the work item run after [`RETRY_MS`], unless the listener has ended.
    fn take_later(self: &Arc<Self>);
}

/// What the work item does. Process context; sleeps.
pub(super) fn take_connections<R: Reception>(reception: Arc<R>) {
    for _ in 0..BUDGET {
        match reception.take_one() {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => return reception.take_later(),
        }
    }
    reception.take_now();
}

#[kunit_tests(rsiw_cm_places)]
mod tests {
    use super::*;

    /// As many as there is room for.
    fn full(stay_ms: i64) -> Result<Places<usize>> {
        let mut places = Places::new(stay_ms);
        for who in 0..PLACES {
            assert_eq!(places.make_room(), Ok(None));
            places.give(who)?;
        }
        Ok(places)
    }

    #[test]
    fn newcomers_wait_for_newcomers() -> Result {
        let mut places = full(3_600_000)?;
        assert!(places.are_taken());
        assert_eq!(places.make_room(), Err(EBUSY));
        assert_eq!(places.leave(|who| (*who == 7).then_some(())), Some((7, ())));
        assert!(!places.are_taken());
        assert_eq!(places.make_room(), Ok(None));
        Ok(())
    }

    #[test]
    fn the_first_makes_room() -> Result {
        let mut places = full(0)?;
        assert_eq!(places.make_room(), Ok(Some(0)));
        places.give(PLACES)?;
        assert_eq!(places.make_room(), Ok(Some(1)));
        assert_eq!(places.iter().next(), Some(&2));
        assert_eq!(places.iter().last(), Some(&PLACES));
        Ok(())
    }

    #[test]
    fn nobody_leaves_before_the_time() -> Result {
        let mut places = Places::new(0);
        places.give(1)?;
        assert_eq!(places.leave_after(3_600_000), None);
        assert_eq!(places.leave_after(0), Some(1));
        assert_eq!(places.leave_after(0), None);
        assert!(places.is_empty());
        Ok(())
    }

    #[test]
    fn only_who_is_found_leaves() -> Result {
        let mut places = Places::new(0);
        for who in [3_u32, 5, 8] {
            places.give(who)?;
        }
        assert_eq!(places.leave(|who| (*who > 9).then_some(())), None);
        assert_eq!(places.leave(|who| who.checked_sub(4)), Some((5, 1)));
        assert!(places.iter().eq(&[3, 8]));
        Ok(())
    }
}
