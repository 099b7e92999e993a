// SPDX-License-Identifier: GPL-2.0

//! The connections and listeners of a device, by the handles that `iw_cm` stores.
//!
//! A number is never assigned twice, so a late call for an ended connection finds nothing. The
//! device outlives its connections and listeners.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        CondVar,
        Mutex, //
    }, //
};

use super::{
    budget::{
        Bucket,
        Rate, //
    },
    device::CmDevice,
    endpoint::Endpoint,
    listen::Listener, //
};
use crate::sys::rdma::iwcm::Handle;

/// The rate limit of rendezvous attempts of a device.
const ATTEMPTS: Rate = Rate::new::<1_000, 1_000>();

/// The maximum number of attempts of a device that are in progress, about as many as begin in a
/// second. An attempt with a peer that answers ends in a few round trips. So only silent peers can
/// exhaust the limit, for a time-out.
const MOST_ATTEMPTS: u32 = 1_024;

/// A connection or a listener.
#[derive(Clone)]
pub(crate) enum Member {
    /// A connection, from its first step to its last.
    Endpoint(Arc<Endpoint>),
    /// A listener, until it is stopped.
    Listener(Arc<Listener>),
}

impl Member {
    /// Aborts the member, without waiting.
    fn abort(&self) {
        match self {
            Self::Endpoint(endpoint) => endpoint.abort(),
            Self::Listener(listener) => listener.stop(),
        }
    }
}

/// State that the registry's lock protects.
struct RegistryState {
    members: RBTree<Handle, Member>,
    /// The last number that was assigned.
    last: usize,
    /// No new member is admitted.
    closed: bool,
}

/// Limits the rendezvous attempts of a device.
struct Attempts {
    /// The bucket of begun attempts.
    began: Bucket,
    /// Attempts in progress.
    under_way: u32,
}

impl Attempts {
    /// Counts an attempt that begins, if the limits allow it.
    fn try_begin(&mut self, rate: &Rate) -> bool {
        let begins = self.under_way < MOST_ATTEMPTS && self.began.try_add(rate);
        if begins {
            self.under_way = self.under_way.saturating_add(1);
        }
        begins
    }

    /// Counts the end of an attempt.
    fn over(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}

/// The count of one rendezvous attempt, from the start of TCP's connection to that of the stream,
/// or until it has failed.
pub(crate) struct AttemptSlot(Arc<CmDevice>);

impl AttemptSlot {
    /// Begins an attempt; `None` if the limits of the device do not allow it. Process context,
    /// sleeps.
    pub(crate) fn begin(device: &Arc<CmDevice>) -> Option<Self> {
        let begins = device.registry().attempts.lock().try_begin(&ATTEMPTS);
        begins.then(|| Self(device.clone()))
    }
}

impl Drop for AttemptSlot {
    fn drop(&mut self) {
        self.0.registry().attempts.lock().over();
    }
}

/// The registry of a device.
#[pin_data]
pub(crate) struct Registry {
    /// The members.
    #[pin]
    inner: Mutex<RegistryState>,
    /// Notified when no member is left.
    #[pin]
    empty: CondVar,
    /// Rendezvous attempts.
    #[pin]
    attempts: Mutex<Attempts>,
}

impl Registry {
    /// Makes a registry without members.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- new_mutex!(
                RegistryState {
                    members: RBTree::new(),
                    last: 0,
                    closed: false,
                },
                "rsiw_cm_registry"
            ),
            empty <- new_condvar!("rsiw_cm_empty"),
            attempts <- new_mutex!(
                Attempts {
                    began: Bucket::new(),
                    under_way: 0,
                },
                "rsiw_cm_attempts"
            ),
        })
    }

    /// Refuses new members from now on, and aborts all members, without waiting for their end.
    /// Process context, sleeps.
    pub(crate) fn abort_all(&self) {
        self.inner.lock().closed = true;
        // Members leave at any time, under the lock.
        let mut after = None;
        while let Some((handle, member)) = self.next(after) {
            member.abort();
            after = Some(handle);
        }
    }

    /// As [`abort_all`](Self::abort_all), and waits until the last member has released the device.
    /// Process context, sleeps; not from the process work queue.
    pub(crate) fn shut_down(&self) {
        self.abort_all();
        let mut registry = self.inner.lock();
        while !registry.members.is_empty() {
            self.empty.wait(&mut registry);
        }
    }

    /// The member with the next handle after `after`; without `after` the first one.
    fn next(&self, after: Option<Handle>) -> Option<(Handle, Member)> {
        let registry = self.inner.lock();
        let Some(after) = after else {
            let cursor = registry.members.cursor_front()?;
            let (handle, member) = cursor.current();
            return Some((*handle, member.clone()));
        };
        let cursor = registry.members.cursor_lower_bound(&after)?;
        let (handle, member) = match cursor.current() {
            (handle, _) if *handle == after => cursor.peek_next()?,
            next => next,
        };
        Some((*handle, member.clone()))
    }

    /// Admits a member, which `make` makes for its handle. Process context, sleeps.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device is being removed. Other errors are those of `make`.
    pub(crate) fn admit<T>(&self, make: impl FnOnce(Handle) -> Result<(Member, T)>) -> Result<T> {
        let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let handle = {
            let mut registry = self.inner.lock();
            registry.last = registry.last.checked_add(1).ok_or(ENOSPC)?;
            Handle::new(registry.last).ok_or(EINVAL)?
        };
        let (member, result) = make(handle)?;
        let mut registry = self.inner.lock();
        if registry.closed {
            return Err(ENODEV);
        }
        registry.members.insert(room.into_node(handle, member));
        Ok(result)
    }

    /// The connection or listener of that number.
    pub(crate) fn member(&self, handle: Handle) -> Option<Member> {
        self.inner.lock().members.get(&handle).cloned()
    }

    /// The connection of that number.
    pub(crate) fn endpoint(&self, handle: Handle) -> Option<Arc<Endpoint>> {
        match self.inner.lock().members.get(&handle) {
            Some(Member::Endpoint(endpoint)) => Some(endpoint.clone()),
            _ => None,
        }
    }

    /// The listener of that number.
    pub(crate) fn listener(&self, handle: Handle) -> Option<Arc<Listener>> {
        match self.inner.lock().members.get(&handle) {
            Some(Member::Listener(listener)) => Some(listener.clone()),
            _ => None,
        }
    }

    /// Removes a member. Process context, sleeps.
    pub(crate) fn leave(&self, handle: Handle) {
        let (member, empty) = {
            let mut registry = self.inner.lock();
            let member = registry.members.remove(&handle);
            (member, registry.members.is_empty())
        };
        drop(member);
        if empty {
            self.empty.notify_all();
        }
    }
}

#[kunit_tests(rsiw_cm_registry)]
mod tests {
    use super::*;
    use kernel::time::{Instant, Monotonic};

    #[test]
    fn attempts_under_way_are_limited() {
        let often = Rate::new::<2_048, 1>();
        let mut attempts = Attempts {
            began: Bucket::new(),
            under_way: 0,
        };
        for _ in 0..1_024 {
            assert!(attempts.try_begin(&often));
        }
        assert!(!attempts.try_begin(&often));
        attempts.over();
        assert!(attempts.try_begin(&often));
        assert!(!attempts.try_begin(&often));
    }

    /// 1,000 begin at once, and one more in each millisecond.
    #[test]
    fn a_thousand_attempts_begin_in_a_second() {
        let mut attempts = Attempts {
            began: Bucket::new(),
            under_way: 0,
        };
        let since = Instant::<Monotonic>::now();
        let mut begun = 0;
        for _ in 0..5_000 {
            if attempts.try_begin(&ATTEMPTS) {
                attempts.over();
                begun += 1;
            }
        }
        assert!(begun >= 1_000);
        assert!(begun <= 1_001 + since.elapsed().as_millis());
    }

    #[test]
    fn attempts_begin_at_a_limited_rate() {
        let rarely = Rate::new::<2, 1>();
        let mut attempts = Attempts {
            began: Bucket::new(),
            under_way: 0,
        };
        for _ in 0..2 {
            assert!(attempts.try_begin(&rarely));
            attempts.over();
        }
        assert!(!attempts.try_begin(&rarely));
    }

    #[test]
    fn numbers_are_new_each_time() -> Result {
        let state = Arc::pin_init(Registry::new(), GFP_KERNEL)?;
        let mut numbers = KVec::new();
        for _ in 0..3 {
            // No member is added, and the number is not assigned again.
            let result: Result<()> = state.admit(|handle| {
                numbers.push(handle, GFP_KERNEL)?;
                Err(EPERM)
            });
            assert!(result == Err(EPERM));
        }
        assert!(numbers.windows(2).all(|pair| pair.first() < pair.last()));
        for handle in &numbers {
            assert!(state.endpoint(*handle).is_none());
            assert!(state.listener(*handle).is_none());
        }
        // There is no member to wait for.
        state.shut_down();
        Ok(())
    }
}
