// SPDX-License-Identifier: GPL-2.0

//! The ring of a completion queue, both ends of it.
//!
//! The owner, process or kernel user, is at one end; completions are made at the other. An entry is
//! stored first, then the control word is looked at, with a full barrier between. So an owner that
//! arms, and then looks for entries once more, misses none.
//!
//! Completions are made under a lock. A process clears the flag of an entry that it has read. A
//! kernel user takes entries out, and arms, without a lock, in any context. An entry belongs to the
//! context that moves the index over it, and has been read by then. So nothing is given back, and a
//! reader that is interrupted in between keeps no room from others. Entries carry the index that
//! they were put in at, which tells a taken entry from the one a round later.

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::{
    sys::{
        rdma::{
            driver::Arm,
            ring::{
                Owner,
                Ring, //
            },
            wr::{
                IbWcOpcode,
                IbWcStatus, //
            }, //
        },
        sync::lock::{
            new_spinlock_bh,
            SpinLockBh, //
        }, //
    },
    verbs::{
        cq::completion::{
            Completion,
            WcOpcode,
            WcStatus, //
        },
        wq::abi::{
            flag,
            CQE_WORDS, //
        }, //
    }, //
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

/// What came of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The ring is full.
    Full,
    /// The entry is in the ring; the owner has not armed the queue.
    Quiet,
    /// The entry is in the ring, and the owner's handler is due.
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
    /// The next entry to fill, free running. A leaf among the locks.
    #[pin]
    put: SpinLockBh<u32>,
    /// The next entry for a kernel user, free running.
    get: Atomic<u32>,
}

/// What a process finds in the header of an entry: flags, opcode, status, octets.
#[inline]
fn description(c: &Completion, flags: u16) -> u64 {
    u64::from(flags)
        | u64::from(c.opcode.to_ring()) << 8
        | u64::from(c.status as u16) << 16
        | u64::from(c.bytes) << 32
}

/// The header of the entry that is put in at `at` for a kernel user, but for its queue pair. It
/// differs from that of the entry before in the same slot. It is 0, as that of an empty slot, only
/// after the ring has been filled many times.
#[inline]
fn header(at: u32) -> u64 {
    u64::from(at.wrapping_add(1)) << 32
}

impl Entries {
    /// An empty ring of at least `n` elements. Process context; sleeps.
    pub(super) fn new(n: u32, owner: Owner) -> Result<impl PinInit<Self>> {
        let n = n.checked_next_power_of_two().ok_or(EINVAL)?;
        let ring = Ring::new(n, CQE_WORDS as u32, true, owner)?;
        Ok(pin_init!(Self {
            ring,
            put <- new_spinlock_bh!(0, "rsiw_cq"),
            get: Atomic::new(0),
        }))
    }

    /// The ring, to map it.
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Whether half of the places of a kernel user's ring are taken, at this moment.
    pub(super) fn is_half_full(&self) -> bool {
        let used = self.put.lock().wrapping_sub(self.get.load(Acquire));
        used != 0 && used >= self.ring.slots() / 2
    }

    /// Adds the end of a work request of queue pair `qpn`. Any context with interrupts on.
    pub(super) fn push(&self, qpn: u32, c: &Completion) -> Pushed {
        let mut put = self.put.lock();
        let added = match self.ring.owner() {
            Owner::Kernel(_) => self.put_for_kernel(*put, qpn, c),
            Owner::User => self.put_for_process(*put, qpn, c),
        };
        if !added {
            return Pushed::Full;
        }
        *put = put.wrapping_add(1);
        let armed = self.ring.control_load();
        let urgent = c.solicited || c.status != WcStatus::Success;
        if armed & notify::NEXT_COMPLETION != 0 || (armed & notify::SOLICITED != 0 && urgent) {
            // What was asked for since holds.
            self.ring.control_change(armed, notify::NOT);
            return Pushed::Fire;
        }
        Pushed::Quiet
    }

    /// Puts an entry in at `at` as `struct siw_cqe` has it, if the process has read the one there.
    #[inline]
    fn put_for_process(&self, at: u32, qpn: u32, c: &Completion) -> bool {
        if self.ring.header(at) as u16 & flag::VALID != 0 {
            return false;
        }
        // No key is told to a process, which could not tell whether there is one.
        let words = [c.id, 0, 0, u64::from(qpn)];
        self.ring.write::<CQE_WORDS>(at, &words);
        let c = Completion {
            status: c.status.to_process(),
            ..*c
        };
        self.ring.publish(at, description(&c, flag::VALID));
        true
    }

    /// Puts an entry in at `at` for a kernel user, if the one there is taken.
    #[inline]
    fn put_for_kernel(&self, at: u32, qpn: u32, c: &Completion) -> bool {
        // The reader that moved the index that far has read what is overwritten here.
        if at.wrapping_sub(self.get.load(Acquire)) >= self.ring.slots() {
            return false;
        }
        let (flags, key) = match c.invalidated {
            Some(stag) => (flag::REM_INVAL, u64::from(stag.get())),
            None => (0, 0),
        };
        let words = [c.id, 0, key, description(c, flags)];
        self.ring.write::<CQE_WORDS>(at, &words);
        self.ring.publish(at, header(at) | u64::from(qpn));
        true
    }

    /// Takes the next entry out for a kernel user. Any context.
    pub(super) fn take(&self) -> Option<Entry> {
        loop {
            let (at, entry) = self.next()?;
            if self.get.cmpxchg(at, at.wrapping_add(1), Full).is_ok() {
                return Some(entry);
            }
        }
    }

    /// The next entry for a kernel user, and its index.
    ///
    /// There is none in the ring of a process, which reads it by itself, and could name any queue
    /// pair in it.
    #[inline]
    fn next(&self) -> Option<(u32, Entry)> {
        if self.ring.owner() == Owner::User {
            return None;
        }
        let mut at = self.get.load(Relaxed);
        loop {
            if let Some(entry) = self.entry(at) {
                return Some((at, entry));
            }
            // Unless another reader has just taken that one, there is none.
            let now = self.get.load(Relaxed);
            if now == at {
                return None;
            }
            at = now;
        }
    }

    /// The entry that was put in at `at`, if it is there. What it says is so if it is the next one
    /// for a kernel user still.
    #[inline]
    fn entry(&self, at: u32) -> Option<Entry> {
        let found = self.ring.header(at);
        if found >> 32 != header(at) >> 32 {
            return None;
        }
        let [id, _, key, what] = self.ring.read::<CQE_WORDS>(at);
        Some(Entry {
            id,
            status: WcStatus::to_ib((what >> 16) as u16),
            opcode: WcOpcode::to_ib((what >> 8) as u8),
            bytes: (what >> 32) as u32,
            qpn: found as u32,
            invalidated: (what as u16 & flag::REM_INVAL != 0).then_some(key as u32),
        })
    }

    /// Arms the queue for a kernel user; gives whether there are entries already. Any context.
    pub(super) fn arm(&self, arm: Arm) -> bool {
        match arm {
            Arm::Next => self
                .ring
                .control_store(notify::SOLICITED | notify::NEXT_COMPLETION),
            // A request for any completion is not weakened by a later one for solicited ones. If the
            // queue was armed already, nothing need be ordered: for whatever is not seen below the
            // owner is called, or has been since.
            Arm::Solicited => self.ring.control_change(notify::NOT, notify::SOLICITED),
        }
        self.next().is_some()
    }
}
