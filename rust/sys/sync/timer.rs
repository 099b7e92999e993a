// SPDX-License-Identifier: GPL-2.0

//! A short delay in softirq context, exact to microseconds.
//!
//! A delayed work item counts in jiffies, milliseconds long; [`SoftTimer`] is for what has to
//! happen sooner. As with work items, a timer that runs owns an [`Arc`] of its object but no
//! reference to the module. So [`wait_for_all`] is called before the code goes.
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

/// Timers that run.
static RUNNING: Atomic<i32> = Atomic::new(0);

/// The time since the start of the machine, in nanoseconds. Any context.
#[inline]
pub(crate) fn now_ns() -> i64 {
    // SAFETY: No requirements.
    unsafe { bindings::ktime_get() }
}

/// Whose timer it is, number `ID` of its timers.
pub(crate) trait Timed<const ID: u64 = 0>: Send + Sync + Sized + 'static {
    /// The time is up. Softirq context; `this` may be the last reference.
    fn time_is_up(this: Arc<Self>);
}

/// An object with a [`SoftTimer`] number `ID` in it; implemented by [`impl_has_soft_timer!`].
///
/// # Safety
///
/// `soft_timer` returns a field of the object, the same one at each call.
pub(crate) unsafe trait HasSoftTimer<const ID: u64 = 0>: Timed<ID> {
    /// The timer.
    fn soft_timer(&self) -> &SoftTimer<Self, ID>;
}

/// Names the field of an object that is its [`SoftTimer`].
macro_rules! impl_has_soft_timer {
    (impl HasSoftTimer$(<$id:tt>)? for $owner:ty { self.$field:ident }) => {
        // SAFETY: The field of that name: a pattern, other than `self.field`, follows no `Deref`.
        unsafe impl $crate::sys::sync::timer::HasSoftTimer$(<$id>)? for $owner {
            #[inline]
            fn soft_timer(&self) -> &$crate::sys::sync::timer::SoftTimer<Self $(, $id)?> {
                let Self { $field, .. } = self;
                // The compiler would coerce a reference by `Deref`, but no tuple of one.
                let field = ($field,);
                let (timer,): (&$crate::sys::sync::timer::SoftTimer<Self $(, $id)?>,) = field;
                timer
            }
        }
    };
}
pub(crate) use impl_has_soft_timer;

/// A timer in an object, which keeps the object while it runs.
///
/// # Invariants
///
/// `owner` is null, or an `Arc<T>` given up by [`Arc::into_raw`] whose timer this is; it is not null
/// while the C timer is queued.
#[pin_data]
pub(crate) struct SoftTimer<T: Timed<ID>, const ID: u64 = 0> {
    /// The C object.
    #[pin]
    raw: Opaque<bindings::hrtimer>,
    /// The object that is told.
    owner: Atomic<*mut c_void>,
    /// The type of `owner`.
    _owner: PhantomData<Arc<T>>,
}

// SAFETY: The C functions lock; an `Arc<T>` may be moved to the CPU on which the time is up.
unsafe impl<T: Timed<ID>, const ID: u64> Send for SoftTimer<T, ID> {}
// SAFETY: As above.
unsafe impl<T: Timed<ID>, const ID: u64> Sync for SoftTimer<T, ID> {}

impl<T: Timed<ID>, const ID: u64> SoftTimer<T, ID> {
    /// A timer that does not run.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: Null, and not queued.
        pin_init!(Self {
            // SAFETY: Memory for a timer; the function fits what it is embedded in.
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

    /// Runs the timer of `owner` for `nanos` nanoseconds, and then tells `owner`; `false` if it runs
    /// already, which changes nothing. Any context but hard interrupts.
    pub(crate) fn start(owner: Arc<T>, nanos: u32) -> bool
    where
        T: HasSoftTimer<ID>,
    {
        let timer = owner.soft_timer();
        let hrtimer = timer.raw.get();
        let raw = Arc::as_ptr(&owner).cast_mut().cast::<c_void>();
        // A caller that finds the timer running relies on it to see the caller's earlier stores. An
        // exchange that fails orders nothing by itself but on x86.
        if !cfg!(CONFIG_X86) {
            full_barrier();
        }
        if timer.owner.cmpxchg(ptr::null_mut(), raw, Full).is_err() {
            return false;
        }
        // INVARIANT: The reference of `owner` now belongs to the timer.
        core::mem::forget(owner);
        RUNNING.add(1, Relaxed);
        // SAFETY: `new` has set the timer up. It is a field of the object (`HasSoftTimer`), which the
        // reference in the timer keeps at least until the timer is queued.
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

    /// Stops it; `false` if it did not run (any more). Does not wait for
    /// [`Timed::time_is_up`]. Any context but hard interrupts.
    pub(crate) fn cancel(&self) -> bool {
        // SAFETY: `new` has set the timer up.
        let queued = unsafe { bindings::hrtimer_try_to_cancel(self.raw.get()) } == 1;
        if queued {
            drop(self.take());
        }
        queued
    }

    /// Takes the reference back.
    fn take(&self) -> Option<Arc<T>> {
        let raw = self.owner.xchg(ptr::null_mut(), Full);
        if raw.is_null() {
            return None;
        }
        RUNNING.add(-1, Relaxed);
        // SAFETY: By the type invariant; taken out once.
        Some(unsafe { Arc::from_raw(raw.cast_const().cast::<T>()) })
    }

    /// What C calls.
    ///
    /// # Safety
    ///
    /// `raw` is that of a timer of this type.
    unsafe extern "C" fn expired(raw: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let raw = Opaque::<bindings::hrtimer>::cast_from(raw);
        // SAFETY: By this function's contract; the timer was queued, so the reference in `owner`
        // keeps its object.
        let this = unsafe { &*container_of!(raw, Self, raw) };
        if let Some(owner) = this.take() {
            <T as Timed<ID>>::time_is_up(owner);
        }
        // The timer may be gone by now: for this answer C does not look at it again.
        // SAFETY: No requirements.
        unsafe { bindings::rsiw_hrtimer_norestart() }
    }
}

/// Orders all accesses before it against all after it (`smp_mb()`).
#[inline]
fn full_barrier() {
    #[cfg(rsiw_linux_7_3)]
    kernel::sync::barrier::smp_mb(Full);
    #[cfg(not(rsiw_linux_7_3))]
    kernel::sync::barrier::smp_mb();
}

/// Waits until no timer runs; none is started any more. Process context, sleeps.
pub(crate) fn wait_for_all() {
    while RUNNING.load(Acquire) != 0 {
        fsleep(Delta::from_micros(100));
    }
    // SAFETY: Process context. Softirqs are readers of RCU: what was told last is through.
    unsafe { bindings::synchronize_rcu() };
}

#[kunit_tests(rsiw_sys_timer)]
mod tests {
    use super::*;
    use crate::sys::testing::eventually;

    /// Counts.
    #[pin_data]
    struct Clock {
        told: Atomic<u32>,
        #[pin]
        timer: SoftTimer<Clock>,
    }

    impl_has_soft_timer! {
        impl HasSoftTimer for Clock { self.timer }
    }

    impl Timed for Clock {
        fn time_is_up(this: Arc<Self>) {
            this.told.add(1, Relaxed);
        }
    }

    fn clock() -> Result<Arc<Clock>> {
        Arc::pin_init(
            pin_init!(Clock {
                told: Atomic::new(0),
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
