// SPDX-License-Identifier: GPL-2.0

//! The module's own work queues (docs/locking.md).
//!
//! A queued item owns an [`Arc`] of its object but no reference to the module. So the module has
//! queues of its own, and empties them before its code goes. Items of [`process`] may sleep. Those
//! of [`bh`] run in softirq context on the CPU that queued them, those of [`highpri`] in a thread
//! there of a higher priority. A `Work` belongs to one of them: lockdep takes one that runs in
//! different contexts for a deadlock.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use core::ptr;

use kernel::{
    container_of,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
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
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

use super::timer;
use crate::sys::bindings;

/// The queue whose items run in process context, many at a time: an item that sleeps delays none.
static PROCESS: Queue = Queue::none();

/// The queue whose items run in softirq context.
static BH: Queue = Queue::none();

/// The queue whose items run one after the other in a thread of the CPU, before others.
static HIGHPRI: Queue = Queue::none();

/// The queue whose items wait for `ib_core` to be through with a device.
static DEVICES: Queue = Queue::none();

/// The queue for items that wait for `ib_core`'s locks of devices. Only the end of the module waits for
/// it. Calls of processes wait for the other queues, with `ib_core`'s locks of processes held.
pub(crate) fn devices() -> &'static Queue {
    &DEVICES
}

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

/// The queue for work that is to be done before anything else than interrupts and softirqs, on the
/// CPU of the caller. Its items end within about a millisecond, and queue themselves again: other
/// items of that kind wait for them.
#[inline]
pub(crate) fn highpri() -> &'static Queue {
    &HIGHPRI
}

/// One of the work queues.
///
/// # Invariants
///
/// `raw` is null, or a work queue. One that was taken out of `raw` is destroyed after an RCU grace
/// period, and when there are no `flushers` any more.
pub(crate) struct Queue {
    /// The C object; null while there is no [`Queues`].
    raw: Atomic<*mut bindings::workqueue_struct>,
    /// Contexts that wait for items, and may have read `raw`.
    flushers: Atomic<i32>,
}

impl Queue {
    /// No queue yet.
    const fn none() -> Self {
        // INVARIANT: Null.
        Self {
            raw: Atomic::new(ptr::null_mut()),
            flushers: Atomic::new(0),
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
        // INVARIANT: Just made.
        self.raw.store(raw, Release);
        Ok(())
    }

    /// Empties the queue and frees it. Process context; sleeps.
    fn destroy(&self) {
        let raw = self.raw.xchg(ptr::null_mut(), Full);
        if raw.is_null() {
            return;
        }
        // SAFETY: Process context.
        unsafe { bindings::synchronize_rcu() };
        while self.flushers.load(Acquire) != 0 {
            fsleep(Delta::from_millis(1));
        }
        // SAFETY: By the type invariant a work queue, and the contexts that have read it are through.
        unsafe { bindings::destroy_workqueue(raw) };
    }

    /// The queue as the `kernel` crate has it, as long as `guard` lives.
    #[inline]
    fn get<'g>(&self, guard: &'g rcu::Guard) -> Option<&'g workqueue::Queue> {
        let _ = guard;
        let raw = self.raw.load(Acquire);
        // SAFETY: By the type invariant it is valid until the end of the RCU section, if it is not null.
        (!raw.is_null()).then(|| unsafe { workqueue::Queue::from_raw(raw) })
    }

    /// Queues a work item; `false` if it was queued already, and will run for both. Any context.
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

    /// Queues a work item after `delay`; `false` if it was queued or waiting already, which
    /// changes nothing. Any context.
    pub(crate) fn enqueue_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies) -> bool
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        let guard = rcu::read_lock();
        let result = match self.get(&guard) {
            Some(queue) => queue.enqueue_delayed::<Arc<T>, ID>(item, delay),
            None => Err(item),
        };
        drop(guard);
        result.is_ok()
    }

    /// Queues a work item after `delay` from now, also if it was waiting already; whether it was.
    /// Any context.
    pub(crate) fn mod_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies) -> bool
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        let guard = rcu::read_lock();
        let raw = self.raw.load(Acquire);
        if raw.is_null() {
            return false;
        }
        // SAFETY: The RCU section keeps the queue. The closure says `false` only if the item was waiting or queued, and then owns
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
        drop(guard);
        queued.is_err()
    }

    /// Waits until everything that is queued now has run. Process context, sleeps; not from an
    /// item of this queue.
    pub(crate) fn flush(&self) {
        // Before `raw` is read, as `destroy` reads it after taking `raw` out.
        self.flushers.fetch_add(1, Full);
        let raw = self.raw.load(Acquire);
        if !raw.is_null() {
            // SAFETY: By the type invariant a work queue, which `flushers` keeps.
            unsafe { bindings::__flush_workqueue(raw) };
        }
        self.flushers.fetch_sub(1, Full);
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
/// When it is dropped, all sockets, devices and delayed items are gone. What they left in the
/// queues or to RCU still runs, and nothing runs after.
pub(crate) struct Queues(());

/// A [`Queues`] exists.
static THERE: Atomic<bool> = Atomic::new(false);

impl Queues {
    /// Makes the queues. Process context.
    ///
    /// `EBUSY`: they are there already.
    pub(crate) fn new() -> Result<Self> {
        if THERE.xchg(true, Full) {
            return Err(EBUSY);
        }
        // From here on an early end frees what was made.
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
        // The last references of objects are dropped by RCU and by any queue, and may leave work to
        // another one. Two rounds reach the end of each such chain.
        timer::wait_for_all();
        for _ in 0..2 {
            // SAFETY: Process context.
            unsafe { bindings::rcu_barrier() };
            BH.flush();
            HIGHPRI.flush();
            DEVICES.flush();
            PROCESS.flush();
        }
        BH.destroy();
        HIGHPRI.destroy();
        DEVICES.destroy();
        PROCESS.destroy();
        // SAFETY: Process context. What the last items left to RCU runs before the code goes.
        unsafe { bindings::rcu_barrier() };
        THERE.store(false, Release);
    }
}
