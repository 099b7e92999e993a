// SPDX-License-Identifier: GPL-2.0

//! The module's own work queues (docs/locking.md).
//!
//! A queued item owns an [`Arc`] of its object but no reference to the module. So the module has
//! its own queues, and flushes them before its code is unloaded.
//!
//! - [`process`]: items may sleep
//! - [`bh`]: items run in softirq context on the CPU that queued them
//! - [`highpri`]: items run in a high-priority thread of the CPU that queued them
//! - [`devices`]: items wait for `ib_core`'s locks of devices
//!
//! A `Work` is always queued to the same queue: lockdep reports an item that runs in different
//! contexts as a deadlock.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    container_of,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Jiffies, //
    },
    workqueue::{
        self,
        HasDelayedWork,
        RawDelayedWorkItem,
        RawWorkItem,
        Work,
        WorkItem,
        WorkItemPointer, //
    }, //
};

use super::timer;
use crate::sys::bindings;

/// The queue whose items run concurrently in process context: a sleeping item delays no other.
static PROCESS: Queue = Queue::none();

/// The queue whose items run in softirq context.
static BH: Queue = Queue::none();

/// The queue whose items run one after the other in a high-priority thread of the CPU.
static HIGHPRI: Queue = Queue::none();

/// The queue whose items wait for `ib_core`'s locks of devices.
static DEVICES: Queue = Queue::none();

/// The queue for items that wait for `ib_core`'s locks of devices. Only the unloading of the module
/// flushes it. Calls of processes, which hold other locks of `ib_core`, flush the other queues.
pub(crate) fn devices() -> &'static Queue {
    &DEVICES
}

/// The queue for work that sleeps. Its items make progress under memory pressure
/// (`WQ_MEM_RECLAIM`).
#[inline]
pub(crate) fn process() -> &'static Queue {
    &PROCESS
}

/// The queue for work in softirq context, on the CPU of the caller.
#[inline]
pub(crate) fn bh() -> &'static Queue {
    &BH
}

/// The queue for work in a high-priority thread on the CPU of the caller (`WQ_HIGHPRI`). Other
/// items of the queue wait, so an item returns within about a millisecond, and queues itself again.
#[inline]
pub(crate) fn highpri() -> &'static Queue {
    &HIGHPRI
}

/// One of the work queues.
///
/// # Invariants
///
/// `raw` is null, or a work queue. [`close`](Self::close) removes a queue from `raw`, and returns
/// it after an RCU grace period, when `flushers` is 0.
pub(crate) struct Queue {
    /// The C object; null while there is no [`Queues`].
    raw: Atomic<*mut bindings::workqueue_struct>,
    /// The number of contexts that flush the queue, and may have read `raw`.
    flushers: Atomic<i32>,
}

impl Queue {
    /// A value without a queue.
    const fn none() -> Self {
        // INVARIANT: `raw` is null.
        Self {
            raw: Atomic::new(ptr::null_mut()),
            flushers: Atomic::new(0),
        }
    }

    /// Makes the C object; `ENOMEM` without memory. Process context; sleeps.
    fn create(&self, name: &'static CStr, flags: bindings::wq_flags) -> Result {
        // SAFETY: The format has one conversion, of a string, which the call passes; 0 is the
        // default limit of running items.
        let raw = unsafe {
            bindings::alloc_workqueue_noprof(c"%s".as_char_ptr(), flags, 0, name.as_char_ptr())
        };
        if raw.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: `raw` is a new work queue.
        self.raw.store(raw, Release);
        Ok(())
    }

    /// Refuses new items and waits for the contexts that use the C object, which is returned if
    /// there is one. Process context; sleeps.
    fn close(&self) -> Option<Closed> {
        let raw = NonNull::new(self.raw.xchg(ptr::null_mut(), Full))?;
        // SAFETY: Process context.
        unsafe { bindings::synchronize_rcu() };
        while self.flushers.load(Acquire) != 0 {
            fsleep(Delta::from_millis(1));
        }
        // INVARIANT: By the type invariant of `Queue` `raw` is a work queue. All contexts that read
        // the pointer have finished.
        Some(Closed(raw))
    }

    /// The queue as a type of the `kernel` crate, valid while `guard` exists.
    #[inline]
    fn get<'g>(&self, guard: &'g rcu::Guard) -> Option<&'g workqueue::Queue> {
        let _ = guard;
        let raw = self.raw.load(Acquire);
        // SAFETY: By the type invariant a non-null `raw` is valid until the end of the RCU section.
        (!raw.is_null()).then(|| unsafe { workqueue::Queue::from_raw(raw) })
    }

    /// Queues a work item. Returns `false` if the item was queued already: it runs once. Any
    /// context.
    #[inline]
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W) -> bool
    where
        W: RawWorkItem<ID, EnqueueOutput = Result<(), W>> + Send + 'static,
    {
        let guard = rcu::read_lock();
        let result = match self.get(&guard) {
            Some(queue) => queue.enqueue::<W, ID>(item),
            None => Err(item),
        };
        // An item that is not queued is dropped outside of the RCU section.
        drop(guard);
        result.is_ok()
    }

    /// Queues a work item after `delay`. Returns `false`, without an effect, if the item was queued
    /// or waiting already. Any context.
    pub(crate) fn enqueue_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies) -> bool
    where
        T: WorkItem<ID, Pointer = Delayed<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        let guard = rcu::read_lock();
        let result = match self.get(&guard) {
            Some(queue) => queue.enqueue_delayed::<Delayed<T>, ID>(Delayed(item), delay),
            None => Err(Delayed(item)),
        };
        drop(guard);
        result.is_ok()
    }

    /// Queues a work item after `delay` from now, even if the item was waiting already. Returns
    /// whether the item was waiting. Any context.
    pub(crate) fn mod_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies) -> bool
    where
        T: WorkItem<ID, Pointer = Delayed<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        let guard = rcu::read_lock();
        let raw = self.raw.load(Acquire);
        if raw.is_null() {
            return false;
        }
        // SAFETY: The RCU section keeps the queue. The closure returns `false` only if the item was
        // waiting or queued, and then owns a reference already. `HasDelayedWork` promises that the
        // `work_struct` is that of a `delayed_work`. `Arc<T>` is `Send` and without lifetimes.
        let queued = unsafe {
            <Delayed<T> as RawWorkItem<ID>>::__enqueue(Delayed(item), |work| {
                !bindings::mod_delayed_work_on(
                    bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                    raw,
                    container_of!(work, bindings::delayed_work, work),
                    delay,
                )
            })
        };
        drop(guard);
        queued.is_err()
    }

    /// Waits until all items that are queued now have run. Process context; sleeps. Not from an
    /// item of this queue.
    pub(crate) fn flush(&self) {
        // The increment precedes the load of `raw`: `destroy` clears `raw` before it reads
        // `flushers`.
        self.flushers.fetch_add(1, Full);
        let raw = self.raw.load(Acquire);
        if !raw.is_null() {
            // SAFETY: By the type invariant `raw` is a work queue, which `flushers` keeps.
            unsafe { bindings::__flush_workqueue(raw) };
        }
        self.flushers.fetch_sub(1, Full);
    }
}

/// Cancels a waiting item; returns whether it was waiting, and so will not run. Does not wait for a
/// running item. Any context.
pub(crate) fn cancel_delayed<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Delayed<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
{
    // SAFETY: The `delayed_work` is a field of the object, which `item` keeps.
    let waiting = unsafe { bindings::cancel_delayed_work(delayed_work::<T, ID>(item)) };
    if waiting {
        // SAFETY: The queue owned a reference, and the item will not run.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
        WAITING.fetch_sub(1, Release);
    }
    waiting
}

/// The number of delayed items that wait for their time or for a worker.
static WAITING: Atomic<i32> = Atomic::new(0);

/// Waits until no delayed item waits for its time or for a worker. Process context; sleeps.
fn wait_for_delayed() {
    while WAITING.load(Acquire) != 0 {
        fsleep(Delta::from_millis(1));
    }
}

/// The pointer type of delayed items (`WorkItem::Pointer`).
///
/// `destroy_workqueue()` does not wait for an item whose time has not come. So waiting items are
/// counted, and [`Queues`] waits for them. An item leaves the count when it begins to run, or is
/// cancelled.
pub(crate) struct Delayed<T>(Arc<T>);

impl<T> Delayed<T> {
    /// The object.
    #[inline]
    pub(crate) fn into_arc(self) -> Arc<T> {
        self.0
    }
}

// SAFETY: The `work_struct` is that of the object, whose reference belongs to the queue until
// `run`. `DelayedWork::new` has set it up with the function `run` of this type.
unsafe impl<T, const ID: u64> RawWorkItem<ID> for Delayed<T>
where
    T: WorkItem<ID, Pointer = Self> + HasDelayedWork<T, ID>,
{
    type EnqueueOutput = Result<(), Self>;

    unsafe fn __enqueue<F>(self, queue_work_on: F) -> Self::EnqueueOutput
    where
        F: FnOnce(*mut bindings::work_struct) -> bool,
    {
        let object = Arc::into_raw(self.0).cast_mut();
        // SAFETY: The pointer is that of an object which the reference keeps.
        let work = unsafe { T::raw_get_work(object) };
        // SAFETY: As above.
        let work = unsafe { Work::raw_get(work) };
        WAITING.fetch_add(1, Relaxed);
        if queue_work_on(work) {
            return Ok(());
        }
        WAITING.fetch_sub(1, Release);
        // SAFETY: The item was not queued, so the reference is still that of `self`.
        Err(Self(unsafe { Arc::from_raw(object) }))
    }
}

// SAFETY: `HasDelayedWork` promises that the `work_struct` is that of a `delayed_work`.
unsafe impl<T, const ID: u64> RawDelayedWorkItem<ID> for Delayed<T> where
    T: WorkItem<ID, Pointer = Self> + HasDelayedWork<T, ID>
{
}

// SAFETY: `run` takes the reference that `__enqueue` has left to the queue.
unsafe impl<T, const ID: u64> WorkItemPointer<ID> for Delayed<T>
where
    T: WorkItem<ID, Pointer = Self> + HasDelayedWork<T, ID>,
{
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // `Work` is a transparent type around the C object.
        let work = work.cast::<Work<T, ID>>();
        // SAFETY: `__enqueue` has passed the `work_struct` of an object of this type.
        let object = unsafe { T::work_container_of(work) };
        // SAFETY: The queue owned the reference, and gives it up now.
        let item = Self(unsafe { Arc::from_raw(object) });
        // The queue drains running items before it is freed.
        WAITING.fetch_sub(1, Release);
        T::run(item);
    }
}

/// A work queue that takes no further items. Its drop runs those that it has.
///
/// # Invariants
///
/// The pointer is a work queue. No context can queue an item to it or flush it.
struct Closed(NonNull<bindings::workqueue_struct>);

impl Drop for Closed {
    fn drop(&mut self) {
        wait_for_delayed();
        // SAFETY: By the type invariant the pointer is a work queue that nobody uses. No delayed
        // item waits, and none can follow. The function runs the items that are queued.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// The `delayed_work` of an object, valid as long as the object.
fn delayed_work<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::delayed_work
where
    T: HasDelayedWork<T, ID>,
{
    // SAFETY: The pointer is that of an object which `item` keeps.
    let work = unsafe { T::raw_get_work(Arc::as_ptr(item).cast_mut()) };
    // SAFETY: As above.
    let work = unsafe { Work::raw_get(work) };
    // SAFETY: `HasDelayedWork` promises that the `work_struct` is that of a `delayed_work`.
    unsafe { container_of!(work, bindings::delayed_work, work) }
}

/// The lifetime of the queues: from loading to unloading of the module.
///
/// The owner drops the value after all sockets and devices. Dropping it waits for timers and
/// delayed items, runs the remaining items and RCU callbacks; none runs afterwards.
pub(crate) struct Queues(());

/// A [`Queues`] exists.
static THERE: Atomic<bool> = Atomic::new(false);

impl Queues {
    /// Makes the queues. Process context; sleeps.
    ///
    /// `EBUSY`: the queues exist already. `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        if THERE.xchg(true, Full) {
            return Err(EBUSY);
        }
        // From here on an error drops the value, which frees the queues made so far.
        let queues = Self(());
        PROCESS.create(
            c"rsiw",
            bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM,
        )?;
        DEVICES.create(c"rsiw_devices", bindings::wq_flags_WQ_UNBOUND)?;
        BH.create(
            c"rsiw_bh",
            bindings::wq_flags_WQ_BH | bindings::wq_flags_WQ_PERCPU,
        )?;
        HIGHPRI.create(
            c"rsiw_highpri",
            bindings::wq_flags_WQ_HIGHPRI
                | bindings::wq_flags_WQ_PERCPU
                | bindings::wq_flags_WQ_MEM_RECLAIM,
        )?;
        Ok(queues)
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // RCU callbacks and work items may drop last references. Such a drop may queue work to
        // another queue. Two rounds complete each such chain.
        timer::wait_for_all();
        wait_for_delayed();
        for _ in 0..2 {
            // SAFETY: Process context.
            unsafe { bindings::rcu_barrier() };
            BH.flush();
            HIGHPRI.flush();
            DEVICES.flush();
            PROCESS.flush();
        }
        // All are closed before one is destroyed: a delayed item of any queue may wait.
        drop([&BH, &HIGHPRI, &DEVICES, &PROCESS].map(Queue::close));
        timer::wait_for_all();
        // SAFETY: Process context. RCU callbacks of the last items run before the code is unloaded.
        unsafe { bindings::rcu_barrier() };
        THERE.store(false, Release);
    }
}
