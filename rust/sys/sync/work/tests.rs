// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of the work queues.

use kernel::prelude::*;

#[kunit_tests(rsiw_sys_work)]
mod suite {
    use super::super::*;
    use crate::sys::sync::context::{
        in_shared_thread,
        processor_is_wanted,
        BhGuard, //
    };
    use kernel::sync::Completion;
    use kernel::time::msecs_to_jiffies;
    use kernel::workqueue::{
        impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork,
    };

    /// An item that counts its runs and its drops.
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
        #[pin]
        highpri: Work<Self, 3>,
        wanted: Atomic<bool>,
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
        impl HasWork<Self, 3> for Item { self.highpri }
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
        type Pointer = Delayed<Self>;
        fn run(this: Delayed<Self>) {
            let this = this.into_arc();
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

    impl WorkItem<3> for Item {
        type Pointer = Arc<Self>;
        fn run(this: Arc<Self>) {
            this.wanted
                .store(processor_is_wanted() && !in_shared_thread(), Release);
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
                highpri <- new_work!("rsiw_test::highpri"),
                wanted: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        Ok((item, gone))
    }

    /// Drops the test's reference; returns whether it was the last one.
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
            // The item cannot have run, so it is still queued.
            assert!(!bh().enqueue::<_, 2>(item.clone()));
        }
        item.ran.wait_for_completion();
        bh().flush();
        assert_eq!(item.runs.load(Acquire), 1);
        assert!(is_last(item, &gone));
        Ok(())
    }

    #[test]
    fn highpri_runs_in_process_context_and_lets_go() -> Result {
        let (item, gone) = item()?;
        assert!(highpri().enqueue::<_, 3>(item.clone()));
        highpri().flush();
        assert_eq!(item.runs.load(Acquire), 1);
        // The item ran in a runnable thread, and not in a softirq of a shared thread.
        assert!(item.wanted.load(Acquire));
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
        // After its run the item can be armed and cancelled again.
        assert!(!process().mod_delayed::<_, 1>(item.clone(), hour));
        assert!(cancel_delayed::<_, 1>(&item));
        assert!(is_last(item, &gone));
        Ok(())
    }

    /// A queue is freed only when its delayed items have run.
    #[test]
    fn end_waits_for_delayed_items() -> Result {
        static OWN: Queue = Queue::none();
        OWN.create(c"rsiw_test_own", bindings::wq_flags_WQ_UNBOUND)?;
        let (item, gone) = item()?;
        assert!(OWN.enqueue_delayed::<_, 1>(item.clone(), msecs_to_jiffies(50)));
        drop(OWN.close());
        assert_eq!(item.runs.load(Acquire), 1);
        assert!(!OWN.enqueue_delayed::<_, 1>(item.clone(), 0));
        assert!(!OWN.mod_delayed::<_, 1>(item.clone(), 0));
        assert_eq!(item.runs.load(Acquire), 1);
        assert!(is_last(item, &gone));
        Ok(())
    }
}
