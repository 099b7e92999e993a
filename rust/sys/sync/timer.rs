// SPDX-License-Identifier: GPL-2.0

//! High-resolution timers with callbacks in softirq context.
//!
//! A delayed work item has the resolution of a jiffy, some milliseconds; [`SoftTimer`] has that of
//! an hrtimer. Like a work item, a running timer owns an [`Arc`] of its object but no reference to
//! the module. So the module calls [`wait_for_all`] before its code is unloaded.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use core::{
    marker::PhantomData,
    ptr, //
};

use kernel::{
    container_of,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque, //
};

use crate::sys::bindings;

/// The number of running timers.
static RUNNING: Atomic<i32> = Atomic::new(0);

/// The monotonic time in nanoseconds (`ktime_get()`). Any context.
#[inline]
pub(crate) fn now_ns() -> i64 {
    // SAFETY: The function has no requirements.
    unsafe { bindings::ktime_get() }
}

/// The owner of a timer; `ID` is the number of the timer in the owner.
pub(crate) trait Timed<const ID: u64 = 0>: Send + Sync + Sized + 'static {
    /// The timer has expired. Softirq context; `this` may be the last reference.
    fn time_is_up(this: Arc<Self>);
}

/// An object with [`SoftTimer`] number `ID` as a field; implemented by [`impl_has_soft_timer!`].
///
/// # Safety
///
/// `soft_timer` returns the same field of the object at each call.
pub(crate) unsafe trait HasSoftTimer<const ID: u64 = 0>: Timed<ID> {
    /// The timer.
    fn soft_timer(&self) -> &SoftTimer<Self, ID>;
}

/// Implements [`HasSoftTimer`] for a type whose named field is the timer.
macro_rules! impl_has_soft_timer {
    (impl HasSoftTimer$(<$id:tt>)? for $owner:ty { self.$field:ident }) => {
        // SAFETY: The pattern binds the field of that name in the object itself. An expression
        // `self.field` could bind a field behind a `Deref`.
        unsafe impl $crate::sys::sync::timer::HasSoftTimer$(<$id>)? for $owner {
            #[inline]
            fn soft_timer(&self) -> &$crate::sys::sync::timer::SoftTimer<Self $(, $id)?> {
                let Self { $field, .. } = self;
                // A tuple prevents a coercion by `Deref`: the compiler coerces a reference only.
                let field = ($field,);
                let (timer,): (&$crate::sys::sync::timer::SoftTimer<Self $(, $id)?>,) = field;
                timer
            }
        }
    };
}
pub(crate) use impl_has_soft_timer;

/// A timer in an object. A running timer owns a reference to the object.
///
/// # Invariants
///
/// `owner` is null, or an `Arc<T>` from [`Arc::into_raw`] with this timer as a field. `owner` is
/// not null while the C timer is queued.
#[pin_data]
pub(crate) struct SoftTimer<T: Timed<ID>, const ID: u64 = 0> {
    /// The C object.
    #[pin]
    raw: Opaque<bindings::hrtimer>,
    /// The object whose function is called.
    owner: Atomic<*mut c_void>,
    _owner: PhantomData<Arc<T>>,
}

// SAFETY: The C functions lock; an `Arc<T>` may be moved to the CPU of the callback.
unsafe impl<T: Timed<ID>, const ID: u64> Send for SoftTimer<T, ID> {}
// SAFETY: As above.
unsafe impl<T: Timed<ID>, const ID: u64> Sync for SoftTimer<T, ID> {}

impl<T: Timed<ID>, const ID: u64> SoftTimer<T, ID> {
    /// Makes a stopped timer.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: `owner` is null, and the timer is not queued.
        pin_init!(Self {
            // SAFETY: `raw` is memory for a timer; `expired` is the callback for this type.
            raw <- Opaque::ffi_init(|raw| unsafe {
                bindings::hrtimer_setup(
                    raw,
                    Some(Self::expired),
                    bindings::CLOCK_MONOTONIC as bindings::clockid_t,
                    bindings::hrtimer_mode_HRTIMER_MODE_REL_SOFT,
                );
            }),
            owner: Atomic::new(ptr::null_mut()),
            _owner: PhantomData,
        })
    }

    /// Starts the timer of `owner`, which expires after `nanos` nanoseconds. Returns `false`,
    /// without an effect, if the timer is running. Any context.
    pub(crate) fn start(owner: Arc<T>, nanos: u32) -> bool
    where
        T: HasSoftTimer<ID>,
    {
        let timer = owner.soft_timer();
        let hrtimer = timer.raw.get();
        let raw = Arc::as_ptr(&owner).cast_mut().cast::<c_void>();
        // If the timer is running, its callback must see the caller's earlier stores. A failed
        // exchange implies no ordering, except on x86.
        if !cfg!(CONFIG_X86) {
            full_barrier();
        }
        if timer.owner.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
            return false;
        }
        // INVARIANT: The timer now owns the reference `owner`.
        core::mem::forget(owner);
        RUNNING.add(1, Relaxed);
        // SAFETY: `new` has set the timer up. The timer is a field of the object (`HasSoftTimer`).
        // Its reference keeps the object at least until the timer is queued.
        unsafe {
            bindings::hrtimer_start_range_ns(
                hrtimer,
                i64::from(nanos),
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_REL_SOFT,
            )
        };
        true
    }

    /// Stops the timer; returns `false` if it was not queued. Does not wait for
    /// [`Timed::time_is_up`]. Any context; the caller has a reference to the owner.
    pub(crate) fn cancel(&self) -> bool {
        // SAFETY: `new` has set the timer up.
        let queued = unsafe { bindings::hrtimer_try_to_cancel(self.raw.get()) } == 1;
        if queued {
            drop(self.take());
        }
        queued
    }

    /// Starts the timer of `owner` anew, so that it expires after `nanos` nanoseconds. Any context.
    ///
    /// Returns `false` if the timer may expire later: its callback, or a concurrent call, has
    /// started it, and can not be cancelled before it returns.
    pub(crate) fn restart(owner: &Arc<T>, nanos: u32) -> bool
    where
        T: HasSoftTimer<ID>,
    {
        let timer = owner.soft_timer();
        timer.cancel();
        if Self::start(owner.clone(), nanos) {
            return true;
        }
        // The timer was started after `cancel`.
        timer.cancel();
        Self::start(owner.clone(), nanos)
    }

    /// Takes the reference out of the timer.
    fn take(&self) -> Option<Arc<T>> {
        let raw = self.owner.xchg(ptr::null_mut(), Full);
        if raw.is_null() {
            return None;
        }
        RUNNING.add(-1, Relaxed);
        // SAFETY: By the type invariant the pointer is from `Arc::into_raw`; the exchange takes it
        // once.
        Some(unsafe { Arc::from_raw(raw.cast_const().cast::<T>()) })
    }

    /// The callback of the C timer.
    ///
    /// # Safety
    ///
    /// `raw` is the field of a timer of this type.
    unsafe extern "C" fn expired(raw: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let raw = Opaque::<bindings::hrtimer>::cast_from(raw);
        // SAFETY: By this function's contract; the timer was queued, so the reference in `owner`
        // keeps its object.
        let this = unsafe { &*container_of!(raw, Self, raw) };
        if let Some(owner) = this.take() {
            <T as Timed<ID>>::time_is_up(owner);
        }
        // The timer may be freed here. C does not access a timer after `HRTIMER_NORESTART`.
        // SAFETY: The function has no requirements.
        unsafe { bindings::rsiw_hrtimer_norestart() }
    }
}

/// A full memory barrier (`smp_mb()`).
#[inline]
fn full_barrier() {
    #[cfg(rsiw_linux_7_3)]
    kernel::sync::barrier::smp_mb(Full);
    #[cfg(not(rsiw_linux_7_3))]
    kernel::sync::barrier::smp_mb();
}

/// Waits until no timer runs. The caller makes sure that none is started. Process context; sleeps.
pub(crate) fn wait_for_all() {
    while RUNNING.load(Acquire) != 0 {
        fsleep(Delta::from_micros(100));
    }
    // SAFETY: Process context. Softirqs are RCU readers, so the last callbacks have returned.
    unsafe { bindings::synchronize_rcu() };
}

#[kunit_tests(rsiw_sys_timer)]
mod tests {
    use super::*;
    use crate::sys::testing::eventually;

    /// An object that counts its callbacks. The first one starts the timer again if `repeats`.
    #[pin_data]
    struct Clock {
        told: Atomic<u32>,
        repeats: bool,
        /// A restart during the callback succeeded.
        restarted: Atomic<bool>,
        #[pin]
        timer: SoftTimer<Clock>,
    }

    impl_has_soft_timer! {
        impl HasSoftTimer for Clock { self.timer }
    }

    impl Timed for Clock {
        fn time_is_up(this: Arc<Self>) {
            if this.repeats && this.told.load(Relaxed) == 0 {
                SoftTimer::<_, 0>::start(this.clone(), 30_000_000);
                let restarted = SoftTimer::<_, 0>::restart(&this, 1);
                this.restarted.store(restarted, Relaxed);
            }
            this.told.add(1, Relaxed);
        }
    }

    fn clock() -> Result<Arc<Clock>> {
        clock_that(false)
    }

    fn clock_that(repeats: bool) -> Result<Arc<Clock>> {
        Arc::pin_init(
            pin_init!(Clock {
                told: Atomic::new(0),
                repeats,
                restarted: Atomic::new(false),
                timer <- SoftTimer::new(),
            }),
            GFP_KERNEL,
        )
    }

    #[test]
    fn tells_once_for_each_start() -> Result {
        let clock = clock()?;
        for round in 1..=3 {
            assert!(SoftTimer::<_, 0>::start(clock.clone(), 200_000));
            assert!(eventually(|| clock.told.load(Relaxed) == round));
        }
        wait_for_all();
        assert_eq!(clock.told.load(Relaxed), 3);
        assert!(!clock.timer.cancel());
        assert!(Arc::into_unique_or_drop(clock).is_some());
        Ok(())
    }

    #[test]
    fn runs_once_and_can_be_stopped() -> Result {
        let clock = clock()?;
        // Three seconds.
        assert!(SoftTimer::<_, 0>::start(clock.clone(), 3_000_000_000));
        assert!(!SoftTimer::<_, 0>::start(clock.clone(), 1_000));
        assert!(clock.timer.cancel());
        assert!(!clock.timer.cancel());
        assert_eq!(clock.told.load(Relaxed), 0);
        assert!(Arc::into_unique_or_drop(clock).is_some());
        Ok(())
    }

    #[test]
    fn a_restart_cancels_the_earlier_start() -> Result {
        let clock = clock()?;
        assert!(SoftTimer::<_, 0>::start(clock.clone(), 3_000_000_000));
        assert!(SoftTimer::<_, 0>::restart(&clock, 100_000));
        assert!(eventually(|| clock.told.load(Relaxed) == 1));
        wait_for_all();
        assert_eq!(clock.told.load(Relaxed), 1);
        assert!(Arc::into_unique_or_drop(clock).is_some());
        Ok(())
    }

    #[test]
    fn a_start_by_the_running_callback_lasts() -> Result {
        let clock = clock_that(true)?;
        let begun = now_ns();
        assert!(SoftTimer::<_, 0>::start(clock.clone(), 100_000));
        assert!(eventually(|| clock.told.load(Relaxed) == 2));
        assert!(now_ns() - begun >= 30_000_000);
        assert!(!clock.restarted.load(Relaxed));
        wait_for_all();
        assert!(Arc::into_unique_or_drop(clock).is_some());
        Ok(())
    }

    #[test]
    fn may_hold_the_last_reference() -> Result {
        let clock = clock()?;
        let told = clock.clone();
        assert!(SoftTimer::<_, 0>::start(clock.clone(), 100_000));
        drop(clock);
        assert!(eventually(|| told.told.load(Relaxed) == 1));
        wait_for_all();
        assert!(Arc::into_unique_or_drop(told).is_some());
        Ok(())
    }
}
