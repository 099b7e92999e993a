// SPDX-License-Identifier: GPL-2.0

//! Spin locks for data that softirqs, or hardware interrupts, use too.
//!
//! The `kernel` crate's [`SpinLock`](kernel::sync::SpinLock) does not change interrupts and bottom
//! halves. The locks of this module disable bottom halves, or interrupts, while they are held.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use kernel::{
    ffi::c_ulong,
    prelude::*,
    sync::lock::{
        Backend,
        Lock, //
    }, //
};

use crate::sys::bindings;

/// A lock for process and softirq context; disables bottom halves. Not with interrupts off.
pub(crate) type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// A lock for any context; disables interrupts. The release restores the earlier interrupt state.
pub(crate) type SpinLockIrq<T> = Lock<T, SpinLockIrqBackend>;

/// The backend of `spin_lock_bh()`.
pub(crate) struct SpinLockBhBackend;

/// The backend of `spin_lock_irqsave()`.
pub(crate) struct SpinLockIrqBackend;

// SAFETY: `spinlock_t` admits one owner; `relock` has the default implementation, which calls
// `lock`.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const kernel::ffi::c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: By this function's contract `ptr` is writable, and name and key stay valid.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) {
        // SAFETY: The caller has initialized the lock.
        unsafe { bindings::rsiw_spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<()> {
        // SAFETY: The caller has initialized the lock.
        unsafe { bindings::rsiw_spin_trylock_bh(ptr) }.then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, (): &()) {
        // SAFETY: The caller holds the lock, taken by `lock` or `try_lock`.
        unsafe { bindings::rsiw_spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller has initialized the lock.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

// SAFETY: `spinlock_t` admits one owner; `relock` has the default implementation, which calls
// `lock` and stores the new interrupt state.
unsafe impl Backend for SpinLockIrqBackend {
    type State = bindings::spinlock_t;
    type GuardState = c_ulong;

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const kernel::ffi::c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: By this function's contract `ptr` is writable, and name and key stay valid.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> c_ulong {
        // SAFETY: The caller has initialized the lock.
        unsafe { bindings::rsiw_spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<c_ulong> {
        let mut flags = 0;
        // SAFETY: The caller has initialized the lock; `flags` is writable.
        unsafe { bindings::rsiw_spin_trylock_irqsave(ptr, &mut flags) }.then_some(flags)
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, flags: &c_ulong) {
        // SAFETY: The caller holds the lock, and `flags` is the result of taking it.
        unsafe { bindings::rsiw_spin_unlock_irqrestore(ptr, *flags) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The caller has initialized the lock.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

/// Makes an initializer of a [`SpinLockBh`]; each use of the macro is a lock class of its own.
macro_rules! new_spinlock_bh {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sys::sync::lock::SpinLockBh::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_spinlock_bh;

/// Makes an initializer of a [`SpinLockIrq`]; each use of the macro is a lock class of its own.
macro_rules! new_spinlock_irq {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sys::sync::lock::SpinLockIrq::new(
            $inner,
            ::kernel::optional_name!($($name)?),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_spinlock_irq;

#[kunit_tests(rsiw_sys_lock)]
mod tests {
    use super::*;
    use crate::sys::sync::context::irqs_off;
    use kernel::sync::Arc;

    #[test]
    fn bh_lock_excludes_and_gives_back() -> Result {
        let lock = Arc::pin_init(new_spinlock_bh!(1u32), GFP_KERNEL)?;
        {
            let mut guard = lock.lock();
            assert!(lock.try_lock().is_none());
            assert!(!irqs_off());
            *guard = 2;
        }
        assert_eq!(*lock.try_lock().ok_or(EBUSY)?, 2);
        assert!(lock.try_lock().is_some());
        Ok(())
    }

    #[test]
    fn irq_lock_turns_interrupts_off_and_back() -> Result {
        let outer = Arc::pin_init(new_spinlock_irq!(1u32), GFP_KERNEL)?;
        let inner = Arc::pin_init(new_spinlock_irq!(5u32, "rsiw_test_inner"), GFP_KERNEL)?;
        assert!(!irqs_off());
        {
            let mut first = outer.lock();
            assert!(irqs_off());
            assert!(outer.try_lock().is_none());
            {
                let second = inner.lock();
                *first = first.wrapping_add(*second);
            }
            // The inner lock restores the state that it found: interrupts off.
            assert!(irqs_off());
        }
        assert!(!irqs_off());
        {
            let guard = outer.try_lock().ok_or(EBUSY)?;
            assert!(irqs_off());
            assert_eq!(*guard, 6);
        }
        assert!(!irqs_off());
        Ok(())
    }
}
