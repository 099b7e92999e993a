// SPDX-License-Identifier: GPL-2.0

//! The ring of a completion queue, both ends of it.
//!
//! The owner, process or kernel user, is at one end, and clears the flag of an entry that it has
//! read; completions are made at the other. An entry is stored first, then the control word is
//! looked at, with a full barrier between: an owner who arms, and then looks for entries once more,
//! misses none.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    sys::{
        ib::{
            driver::Arm,
            ring::{
                Owner,
                Ring, //
            },
            wr::{
                IbWcOpcode,
                IbWcStatus, //
            },
        },
        lock::{
            new_spinlock_irq,
            SpinLockIrq,
            SpinLockIrqBackend, //
        },
    },
    verbs::{
        cq::completion::{
            Completion,
            WcOpcode,
            WcStatus, //
        },
        queue::abi::{
            flag,
            CQE_WORDS, //
        },
    },
};

/// What is asked of the control word (`enum siw_notify_flags`).
mod notify {
    /// Nothing.
    pub(super) const NOT: u32 = 0;
    /// A solicited completion, or an unsuccessful one.
    pub(super) const SOLICITED: u32 = 1;
    /// Any completion.
    pub(super) const NEXT_COMPLETION: u32 = 2;
}

/// Where the ring stands.
struct Ends {
    /// The next entry to fill, free running.
    put: u32,
    /// The next entry for a kernel user, free running.
    get: u32,
}

/// What came of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// There was no room.
    Full,
    /// It is there; nobody waits for it.
    Quiet,
    /// It is there, and the owner wants to be called.
    Fire,
}

/// An entry as a kernel user gets it.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The owner's name of the work request.
    pub(super) id: u64,
    /// How it ended.
    pub(super) status: IbWcStatus,
    /// What it was.
    pub(super) opcode: IbWcOpcode,
    /// Octets.
    pub(super) bytes: u32,
    /// The number of the queue pair.
    pub(super) qpn: u32,
    /// The key which the message has invalidated.
    pub(super) invalidated: Option<u32>,
}

/// The ring of a completion queue.
#[pin_data]
pub(super) struct Entries {
    /// The elements, and the control word behind them.
    ring: Arc<Ring>,
    /// Both ends. A leaf among the locks.
    #[pin]
    ends: SpinLockIrq<Ends>,
}

impl Entries {
    /// An empty ring of at least `n` elements. Process context; sleeps.
    pub(super) fn new(n: u32, owner: Owner) -> Result<impl PinInit<Self>> {
        let n = n.checked_next_power_of_two().ok_or(EINVAL)?;
        let ring = Ring::new(n, CQE_WORDS as u32, true, owner)?;
        Ok(pin_init!(Self {
            ring,
            ends <- new_spinlock_irq!(Ends { put: 0, get: 0 }, "rsiw_cq"),
        }))
    }

    /// The ring, to map it.
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Whether the element at `index` is in use.
    #[inline]
    fn is_valid(&self, index: u32) -> bool {
        self.ring.header(index) as u16 & flag::VALID != 0
    }

    /// Adds the end of a work request of queue pair `qpn`. Any context.
    pub(super) fn push(&self, qpn: u32, c: &Completion) -> Pushed {
        let mut flags = flag::VALID;
        if c.invalidated.is_some() && self.ring.owner() == Owner::Kernel {
            flags |= flag::REM_INVAL;
        }
        let header = u64::from(flags)
            | u64::from(c.opcode.to_ring()) << 8
            | u64::from(c.status as u16) << 16
            | u64::from(c.bytes) << 32;
        let key = c.invalidated.map_or(0, |stag| u64::from(stag.get()));
        let words = [c.id, 0, key, u64::from(qpn)];

        let mut ends = self.ends.lock();
        if self.is_valid(ends.put) {
            return Pushed::Full;
        }
        self.ring.write::<CQE_WORDS>(ends.put, &words);
        self.ring.publish(ends.put, header);
        ends.put = ends.put.wrapping_add(1);
        let armed = self.ring.control_load();
        let urgent = c.solicited || c.status != WcStatus::Success;
        if armed & notify::NEXT_COMPLETION != 0 || (armed & notify::SOLICITED != 0 && urgent) {
            self.ring.control_store(notify::NOT);
            return Pushed::Fire;
        }
        Pushed::Quiet
    }

    /// Begins to take entries out for a kernel user. Any context.
    pub(super) fn poll(&self) -> Poll<'_> {
        Poll {
            entries: self,
            ends: self.ends.lock(),
        }
    }

    /// Arms the queue for a kernel user; gives whether there are entries already. Any context.
    pub(super) fn arm(&self, arm: Arm) -> bool {
        let ends = self.ends.lock();
        let word = match arm {
            Arm::Solicited => notify::SOLICITED,
            Arm::Next => notify::SOLICITED | notify::NEXT_COMPLETION,
        };
        // A request for any completion is not weakened by a later one for solicited ones.
        self.ring.control_store(self.ring.control_load() | word);
        self.is_valid(ends.get)
    }
}

/// The owner's end of the ring, locked.
pub(super) struct Poll<'a> {
    /// The ring.
    entries: &'a Entries,
    /// Both ends.
    ends: kernel::sync::lock::Guard<'a, Ends, SpinLockIrqBackend>,
}

impl Poll<'_> {
    /// Takes the next entry out.
    pub(super) fn take(&mut self) -> Option<Entry> {
        let at = self.ends.get;
        let ring = &self.entries.ring;
        let header = ring.header(at);
        if header as u16 & flag::VALID == 0 {
            return None;
        }
        let [id, _, key, qpn] = ring.read::<CQE_WORDS>(at);
        ring.release(at);
        self.ends.get = at.wrapping_add(1);
        Some(Entry {
            id,
            status: WcStatus::to_ib((header >> 16) as u16),
            opcode: WcOpcode::to_ib((header >> 8) as u8),
            bytes: (header >> 32) as u32,
            qpn: qpn as u32,
            invalidated: (header as u16 & flag::REM_INVAL != 0).then_some(key as u32),
        })
    }
}

#[kunit_tests(rsiw_verbs_cq)]
mod tests {
    use super::*;
    use crate::verbs::Stag;

    fn ring(n: u32, owner: Owner) -> Result<Arc<Entries>> {
        Arc::pin_init(Entries::new(n, owner)?, GFP_KERNEL)
    }

    fn end(id: u64) -> Completion {
        Completion {
            id,
            opcode: WcOpcode::Send,
            status: WcStatus::Success,
            bytes: 0,
            invalidated: None,
            solicited: false,
        }
    }

    #[test]
    fn takes_out_what_was_put_in() -> Result {
        let cq = ring(4, Owner::Kernel)?;
        let full = Completion {
            id: u64::MAX,
            opcode: WcOpcode::Recv,
            status: WcStatus::LocLen,
            bytes: u32::MAX,
            invalidated: Some(Stag::new(0xfedc_ba98)),
            solicited: true,
        };
        assert_eq!(cq.push(0x00ff_ffff, &full), Pushed::Quiet);
        assert_eq!(cq.push(2, &end(1)), Pushed::Quiet);
        let mut poll = cq.poll();
        let first = poll.take().ok_or(ENOENT)?;
        assert_eq!(first.id, u64::MAX);
        assert_eq!(first.opcode, IbWcOpcode::Recv);
        assert_eq!(first.status, IbWcStatus::LocLen);
        assert_eq!(first.bytes, u32::MAX);
        assert_eq!(first.qpn, 0x00ff_ffff);
        assert_eq!(first.invalidated, Some(0xfedc_ba98));
        let second = poll.take().ok_or(ENOENT)?;
        assert_eq!(second.id, 1);
        assert_eq!(second.invalidated, None);
        assert!(poll.take().is_none());
        Ok(())
    }

    #[test]
    fn every_opcode_and_status_survives() -> Result {
        let cq = ring(1, Owner::Kernel)?;
        for (opcode, as_ib) in [
            (WcOpcode::Send, IbWcOpcode::Send),
            (WcOpcode::Write, IbWcOpcode::Write),
            (WcOpcode::Read, IbWcOpcode::Read),
            (WcOpcode::LocalInv, IbWcOpcode::LocalInv),
            (WcOpcode::RegMr, IbWcOpcode::RegMr),
            (WcOpcode::Recv, IbWcOpcode::Recv),
        ] {
            let _ = cq.push(2, &Completion { opcode, ..end(0) });
            assert_eq!(cq.poll().take().ok_or(ENOENT)?.opcode, as_ib);
        }
        for (status, as_ib) in [
            (WcStatus::LocProt, IbWcStatus::LocProt),
            (WcStatus::LocQpOp, IbWcStatus::LocQpOp),
            (WcStatus::WrFlush, IbWcStatus::WrFlush),
            (WcStatus::LocAccess, IbWcStatus::LocAccess),
            (WcStatus::RemAccess, IbWcStatus::RemAccess),
            (WcStatus::RemInvReq, IbWcStatus::RemInvReq),
            (WcStatus::General, IbWcStatus::General),
        ] {
            let _ = cq.push(2, &Completion { status, ..end(0) });
            assert_eq!(cq.poll().take().ok_or(ENOENT)?.status, as_ib);
        }
        Ok(())
    }

    #[test]
    fn overflow_loses_only_what_does_not_fit() -> Result {
        let cq = ring(3, Owner::Kernel)?;
        assert_eq!(cq.ring().slots(), 4);
        for id in 0..4 {
            assert_eq!(cq.push(2, &end(id)), Pushed::Quiet);
        }
        assert_eq!(cq.push(2, &end(99)), Pushed::Full);
        assert_eq!(cq.poll().take().ok_or(ENOENT)?.id, 0);
        assert_eq!(cq.push(2, &end(4)), Pushed::Quiet);
        for id in 1..5 {
            assert_eq!(cq.poll().take().ok_or(ENOENT)?.id, id);
        }
        assert!(cq.poll().take().is_none());
        Ok(())
    }

    #[test]
    fn fires_once_for_each_arming() -> Result {
        let cq = ring(8, Owner::Kernel)?;
        assert!(!cq.arm(Arm::Next));
        assert_eq!(cq.push(2, &end(0)), Pushed::Fire);
        assert_eq!(cq.push(2, &end(1)), Pushed::Quiet);
        // What came before the arming is told by it.
        assert!(cq.arm(Arm::Next));
        assert_eq!(cq.push(2, &end(2)), Pushed::Fire);
        Ok(())
    }

    #[test]
    fn solicited_arming_waits_for_solicited_or_failed() -> Result {
        let cq = ring(8, Owner::Kernel)?;
        let solicited = Completion {
            solicited: true,
            ..end(0)
        };
        let failed = Completion {
            status: WcStatus::WrFlush,
            ..end(0)
        };
        let _ = cq.arm(Arm::Solicited);
        assert_eq!(cq.push(2, &end(0)), Pushed::Quiet);
        assert_eq!(cq.push(2, &solicited), Pushed::Fire);
        let _ = cq.arm(Arm::Solicited);
        assert_eq!(cq.push(2, &failed), Pushed::Fire);
        // The wider wish holds.
        let _ = cq.arm(Arm::Next);
        let _ = cq.arm(Arm::Solicited);
        assert_eq!(cq.push(2, &end(0)), Pushed::Fire);
        Ok(())
    }

    #[test]
    fn a_process_can_not_confuse_its_ring() -> Result {
        let cq = ring(4, Owner::User)?;
        // Whatever it stores into headers and control word: entries go in order into free slots.
        cq.ring().control_store(u32::MAX);
        assert_eq!(cq.push(2, &end(0)), Pushed::Fire);
        cq.ring().publish(1, u64::MAX);
        assert_eq!(cq.push(2, &end(1)), Pushed::Full);
        cq.ring().release(1);
        assert_eq!(cq.push(2, &end(1)), Pushed::Quiet);
        // No key is told to a process: its completions have no room for it.
        let invalidated = Some(Stag::new(7));
        let with_key = Completion {
            invalidated,
            ..end(2)
        };
        assert_eq!(cq.push(2, &with_key), Pushed::Quiet);
        assert_eq!(cq.ring().header(2) as u16 & flag::REM_INVAL, 0);
        Ok(())
    }
}
