// SPDX-License-Identifier: GPL-2.0

//! The ring of a completion queue, both ends of it.
//!
//! The owner, process or kernel user, is at one end, and clears the flag of an entry that it has
//! read; completions are made at the other. An entry is stored first, then the control word is
//! looked at, with a full barrier between: an owner who arms, and then looks for entries once more,
//! misses none.
//!
//! Whoever makes completions holds a lock, as others do on other processors. A kernel user takes
//! entries out, and arms, without one, in any context: each entry goes to who moves the index over
//! it. Entries carry the index that they were put in at, so that one that somebody is about to
//! give back is not taken for the one that comes a round later.

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    }, //
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
            new_spinlock_bh,
            SpinLockBh, //
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
    /// The next entry to fill, free running. A leaf among the locks.
    #[pin]
    put: SpinLockBh<u32>,
    /// The next entry for a kernel user, free running.
    get: Atomic<u32>,
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

    /// Whether the element at `index` is in use.
    #[inline]
    fn is_valid(&self, index: u32) -> bool {
        self.ring.header(index) as u16 & flag::VALID != 0
    }

    /// Adds the end of a work request of queue pair `qpn`. Any context with interrupts on.
    pub(super) fn push(&self, qpn: u32, c: &Completion) -> Pushed {
        let mut flags = flag::VALID;
        let kernel = self.ring.owner() == Owner::Kernel;
        if c.invalidated.is_some() && kernel {
            flags |= flag::REM_INVAL;
        }
        let header = u64::from(flags)
            | u64::from(c.opcode.to_ring()) << 8
            | u64::from(c.status as u16) << 16
            | u64::from(c.bytes) << 32;
        let key = c.invalidated.map_or(0, |stag| u64::from(stag.get()));

        let mut put = self.put.lock();
        let at = *put;
        if self.is_valid(at) {
            return Pushed::Full;
        }
        let round = match kernel {
            true => u64::from(at) << 32,
            false => 0,
        };
        let words = [c.id, 0, key, round | u64::from(qpn)];
        self.ring.write::<CQE_WORDS>(at, &words);
        self.ring.publish(at, header);
        *put = at.wrapping_add(1);
        let armed = self.ring.control_load();
        let urgent = c.solicited || c.status != WcStatus::Success;
        if armed & notify::NEXT_COMPLETION != 0 || (armed & notify::SOLICITED != 0 && urgent) {
            // What was asked for since holds.
            self.ring.control_change(armed, notify::NOT);
            return Pushed::Fire;
        }
        Pushed::Quiet
    }

    /// Takes the next entry out for a kernel user. Any context.
    pub(super) fn take(&self) -> Option<Entry> {
        loop {
            let (at, entry) = self.next()?;
            if self.get.cmpxchg(at, at.wrapping_add(1), Full).is_ok() {
                self.ring.release(at);
                return Some(entry);
            }
        }
    }

    /// The next entry for a kernel user, and its index.
    ///
    /// There is none in the ring of a process, who reads it by itself, and could name any queue
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
            // Unless somebody has just taken that one, there is none.
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
        let header = self.ring.header(at);
        let [id, _, key, last] = self.ring.read::<CQE_WORDS>(at);
        if header as u16 & flag::VALID == 0 || (last >> 32) as u32 != at {
            return None;
        }
        Some(Entry {
            id,
            status: WcStatus::to_ib((header >> 16) as u16),
            opcode: WcOpcode::to_ib((header >> 8) as u8),
            bytes: (header >> 32) as u32,
            qpn: last as u32,
            invalidated: (header as u16 & flag::REM_INVAL != 0).then_some(key as u32),
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
