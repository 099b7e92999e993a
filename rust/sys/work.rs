// SPDX-License-Identifier: GPL-2.0

//! The module's own work queues (design.md section 3, lifetime).
//!
//! A queued item owns an [`Arc`] of its object but no reference to the module, so the module has
//! queues of its own and empties them before its code goes. [`process`] sleeps if it must, [`bh`]
//! runs in softirq context on the CPU that queued. A `Work` belongs to one of the two: lockdep
//! takes one that runs in both contexts for a deadlock.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::ptr;

use kernel::{
    container_of,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
    time::Jiffies,
    workqueue::{
        self,
        HasDelayedWork,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

use super::{
    bindings,
    timer, //
};

/// The queue whose items run in process context, many at a time: an item that sleeps delays none.
static PROCESS: Queue = Queue::none();

/// The queue whose items run in softirq context.
static BH: Queue = Queue::none();

/// The queue for work that sleeps. Its items also run while memory is being reclaimed.
#[inline]
pub(crate) fn process() -> &'static Queue {
    &PROCESS
}

/// The queue for work in softirq context, on the CPU of the caller.
#[inline]
pub(crate) fn bh() -> &'static Queue {
    &BH
}

/// One of the two work queues.
///
/// # Invariants
///
/// `raw` is null, or a work queue that lives until nobody uses this one any more.
pub(crate) struct Queue {
    /// The C object; null while there is no [`Queues`].
    raw: Atomic<*mut bindings::workqueue_struct>,
}

impl Queue {
    /// No queue yet.
    const fn none() -> Self {
        // INVARIANT: Null.
        Self {
            raw: Atomic::new(ptr::null_mut()),
        }
    }

    /// Makes the C object.
    fn create(&self, name: &'static CStr, flags: bindings::wq_flags) -> Result {
        // SAFETY: A format without conversions and no arguments for it; 0 means the usual limit
        // of running items.
        let raw = unsafe { bindings::alloc_workqueue_noprof(name.as_char_ptr(), flags, 0) };
        if raw.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: Just made; `destroy` is called last.
        self.raw.store(raw, Release);
        Ok(())
    }

    /// Empties the queue and frees it. The last use.
    fn destroy(&self) {
        let raw = self.raw.xchg(ptr::null_mut(), kernel::sync::atomic::Full);
        if !raw.is_null() {
            // SAFETY: By the type invariant a work queue, and nobody else uses it any more.
            unsafe { bindings::destroy_workqueue(raw) };
        }
    }

    /// The queue as the `kernel` crate has it.
    #[inline]
    fn get(&self) -> Option<&workqueue::Queue> {
        let raw = self.raw.load(Acquire);
        // SAFETY: By the type invariant it is valid if it is not null.
        (!raw.is_null()).then(|| unsafe { workqueue::Queue::from_raw(raw) })
    }

    /// Queues a work item; `false` if it was queued already, and will run for both. Any context.
    #[inline]
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W) -> bool
    where
        W: RawWorkItem<ID, EnqueueOutput = Result<(), W>> + Send + 'static,
    {
        self.get()
            .is_some_and(|queue| queue.enqueue::<W, ID>(item).is_ok())
    }

    /// Queues a work item after `delay`; `false` if it was queued or waiting already, which
    /// changes nothing. Any context.
    pub(crate) fn enqueue_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies) -> bool
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        self.get()
            .is_some_and(|queue| queue.enqueue_delayed::<Arc<T>, ID>(item, delay).is_ok())
    }

    /// Queues a work item after `delay` from now, also if it was waiting already; whether it was.
    /// Any context.
    pub(crate) fn mod_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies) -> bool
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        let raw = self.raw.load(Acquire);
        if raw.is_null() {
            return false;
        }
        // SAFETY: The closure says `false` only if the item was waiting or queued, and then owns
        // a reference already. `HasDelayedWork` promises that the `work_struct` is that of a
        // `delayed_work`. `Arc<T>` is `Send` and without lifetimes.
        let queued = unsafe {
            <Arc<T> as RawWorkItem<ID>>::__enqueue(item, |work| {
                !bindings::mod_delayed_work_on(
                    bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                    raw,
                    container_of!(work, bindings::delayed_work, work),
                    delay,
                )
            })
        };
        queued.is_err()
    }

    /// Waits until everything that is queued now has run. Process context, sleeps; not from an
    /// item of this queue.
    pub(crate) fn flush(&self) {
        let raw = self.raw.load(Acquire);
        if !raw.is_null() {
            // SAFETY: By the type invariant a work queue.
            unsafe { bindings::__flush_workqueue(raw) };
        }
    }
}

/// Takes a waiting item off; whether it was still waiting, so that it will not run. Does not wait
/// for one that runs. Any context.
pub(crate) fn cancel_delayed<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
{
    // SAFETY: `delayed_work` is that of a live object.
    let waiting = unsafe { bindings::cancel_delayed_work(delayed_work::<T, ID>(item)) };
    if waiting {
        // SAFETY: The item had been given a reference when it was queued, and will not run.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
    }
    waiting
}

/// The `delayed_work` of an object; valid as long as the object.
fn delayed_work<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::delayed_work
where
    T: HasDelayedWork<T, ID>,
{
    // SAFETY: The pointer is that of a live object.
    let work = unsafe { T::raw_get_work(Arc::as_ptr(item).cast_mut()) };
    // SAFETY: As above.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: `HasDelayedWork` promises that the `work_struct` is that of a `delayed_work`.
    unsafe { container_of!(work, bindings::delayed_work, work) }
}

/// The life of the queues: from the start of the module to its end.
///
/// When it is dropped, all sockets, devices and delayed items are gone; what they left in the
/// queues or to RCU still runs, and nothing runs after.
pub(crate) struct Queues(());

impl Queues {
    /// Makes the queues. Once; process context.
    pub(crate) fn new() -> Result<Self> {
        // From here on an early end frees what was made.
        let queues = Self(());
        PROCESS.create(
            c"rsiw",
            bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM,
        )?;
        BH.create(
            c"rsiw_bh",
            bindings::wq_flags_WQ_BH | bindings::wq_flags_WQ_PERCPU,
        )?;
        Ok(queues)
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // The last references of objects are dropped by RCU and by either queue, and may leave
        // work to the other one: twice around reaches the end of each such chain.
        timer::wait_for_all();
        for _ in 0..2 {
            // SAFETY: Process context.
            unsafe { bindings::rcu_barrier() };
            BH.flush();
            PROCESS.flush();
        }
        BH.destroy();
        PROCESS.destroy();
        // SAFETY: Process context. What the last items left to RCU runs before the code goes.
        unsafe { bindings::rcu_barrier() };
    }
}

#[kunit_tests(rsiw_sys_work)]
mod tests {
    use super::*;
    use crate::sys::context::BhGuard;
    use kernel::sync::Completion;
    use kernel::time::msecs_to_jiffies;
    use kernel::workqueue::{
        impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork,
    };

    /// Counts its runs and its end.
    #[pin_data(PinnedDrop)]
    struct Item {
        runs: Atomic<u32>,
        gone: Arc<Atomic<u32>>,
        #[pin]
        ran: Completion,
        #[pin]
        soon: Work<Self, 0>,
        #[pin]
        later: DelayedWork<Self, 1>,
        #[pin]
        soft: Work<Self, 2>,
    }

    #[pinned_drop]
    impl PinnedDrop for Item {
        fn drop(self: Pin<&mut Self>) {
            self.gone.add(1, kernel::sync::atomic::Relaxed);
        }
    }

    impl_has_work! {
        impl HasWork<Self, 0> for Item { self.soon }
        impl HasWork<Self, 2> for Item { self.soft }
    }
    impl_has_delayed_work! {
        impl HasDelayedWork<Self, 1> for Item { self.later }
    }

    impl WorkItem<0> for Item {
        type Pointer = Arc<Self>;
        fn run(this: Arc<Self>) {
            this.runs.add(1, kernel::sync::atomic::Relaxed);
            this.ran.complete_all();
        }
    }

    impl WorkItem<1> for Item {
        type Pointer = Arc<Self>;
        fn run(this: Arc<Self>) {
            this.runs.add(1, kernel::sync::atomic::Relaxed);
            this.ran.complete_all();
        }
    }

    impl WorkItem<2> for Item {
        type Pointer = Arc<Self>;
        fn run(this: Arc<Self>) {
            this.runs.add(1, kernel::sync::atomic::Relaxed);
            this.ran.complete_all();
        }
    }

    fn item() -> Result<(Arc<Item>, Arc<Atomic<u32>>)> {
        let gone = Arc::new(Atomic::new(0u32), GFP_KERNEL)?;
        let items = gone.clone();
        let item = Arc::pin_init(
            pin_init!(Item {
                runs: Atomic::new(0),
                gone: items,
                ran <- Completion::new(),
                soon <- new_work!("rsiw_test::soon"),
                later <- new_delayed_work!("rsiw_test::later"),
                soft <- new_work!("rsiw_test::soft"),
            }),
            GFP_KERNEL,
        )?;
        Ok((item, gone))
    }

    /// Whether the test's own reference is the last one; gives it up.
    fn is_last(item: Arc<Item>, gone: &Atomic<u32>) -> bool {
        drop(item);
        gone.load(Acquire) == 1
    }

    #[test]
    fn runs_and_lets_go() -> Result {
        let (item, gone) = item()?;
        assert!(process().enqueue::<_, 0>(item.clone()));
        process().flush();
        assert_eq!(item.runs.load(Acquire), 1);
        assert!(is_last(item, &gone));
        Ok(())
    }

    #[test]
    fn bottom_half_runs_and_lets_go() -> Result {
        let (item, gone) = item()?;
        {
            let _bh = BhGuard::new();
            assert!(bh().enqueue::<_, 2>(item.clone()));
            // It can not have run, so it is still queued.
            assert!(!bh().enqueue::<_, 2>(item.clone()));
        }
        item.ran.wait_for_completion();
        bh().flush();
        assert_eq!(item.runs.load(Acquire), 1);
        assert!(is_last(item, &gone));
        Ok(())
    }

    #[test]
    fn cancelled_does_not_run() -> Result {
        let (item, gone) = item()?;
        let hour = msecs_to_jiffies(3_600_000);
        assert!(process().enqueue_delayed::<_, 1>(item.clone(), hour));
        assert!(!process().enqueue_delayed::<_, 1>(item.clone(), hour));
        assert!(cancel_delayed::<_, 1>(&item));
        assert!(!cancel_delayed::<_, 1>(&item));
        assert_eq!(item.runs.load(Acquire), 0);
        assert!(is_last(item, &gone));
        Ok(())
    }

    #[test]
    fn moved_runs_once_and_early() -> Result {
        let (item, gone) = item()?;
        let hour = msecs_to_jiffies(3_600_000);
        assert!(!process().mod_delayed::<_, 1>(item.clone(), hour));
        assert!(process().mod_delayed::<_, 1>(item.clone(), hour));
        assert!(process().mod_delayed::<_, 1>(item.clone(), 0));
        item.ran.wait_for_completion();
        process().flush();
        assert_eq!(item.runs.load(Acquire), 1);
        // It ran, so it can be armed again, and given up again.
        assert!(!process().mod_delayed::<_, 1>(item.clone(), hour));
        assert!(cancel_delayed::<_, 1>(&item));
        assert!(is_last(item, &gone));
        Ok(())
    }
}
