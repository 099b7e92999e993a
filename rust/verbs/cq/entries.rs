// SPDX-License-Identifier: GPL-2.0

//! The ring of a completion queue: producer and consumer.
//!
//! The driver is the producer; the owner, a process or a kernel user, is the consumer. The producer
//! stores an entry first, then loads the control word, with a full barrier between. An owner that
//! arms the queue, and then polls once more, therefore misses no entry.
//!
//! The producer holds a lock. A process clears the flag of an entry that it has read. A kernel user
//! polls and arms without a lock, in any context:
//!
//! ```text
//! poll():
//!     at = get; entry = slot[at]
//!     if entry.index != at: empty, unless get has changed
//!     cmpxchg(get, at, at + 1): success returns entry, failure starts again
//! ```
//!
//! The entry is read before the index moves, so an interrupted reader blocks no slot. Each entry
//! carries its free-running index, which distinguishes it from the entry one lap later.

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

/// Values of the control word (`enum siw_notify_flags`).
mod notify {
    /// Not armed.
    pub(super) const NOT: u32 = 0;
    /// Armed for a solicited completion, or an unsuccessful one.
    pub(super) const SOLICITED: u32 = 1;
    /// Armed for any completion.
    pub(super) const NEXT_COMPLETION: u32 = 2;
}

/// The result of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The ring is full.
    Full,
    /// The entry is in the ring; the owner has not armed the queue.
    Quiet,
    /// The entry is in the ring, and the caller must call the owner's handler.
    Fire,
}

/// A decoded entry for a kernel user.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// The owner's identifier of the work request (`wr_id`).
    pub(super) id: u64,
    pub(super) status: IbWcStatus,
    pub(super) opcode: IbWcOpcode,
    /// Octets received or read.
    pub(super) bytes: u32,
    /// The number of the queue pair.
    pub(super) qpn: u32,
    /// The STag that the message has invalidated.
    pub(super) invalidated: Option<u32>,
}

/// The ring of a completion queue.
#[pin_data]
pub(super) struct Entries {
    /// The elements, and the control word behind them.
    ring: Arc<Ring>,
    /// The index of the next entry to fill, free running. A leaf lock.
    #[pin]
    put: SpinLockBh<u32>,
    /// The index of the next entry for a kernel user, free running.
    get: Atomic<u32>,
}

/// The header of an entry for a process: flags, opcode, status, octets.
#[inline]
fn description(c: &Completion, flags: u16) -> u64 {
    u64::from(flags)
        | u64::from(c.opcode.to_ring()) << 8
        | u64::from(c.status as u16) << 16
        | u64::from(c.bytes) << 32
}

/// The upper half of the header of a kernel user's entry at index `at`: `at + 1`.
///
/// The value differs from that of the previous entry in the same slot. The value is 0, as in an
/// empty slot, only when the index wraps.
#[inline]
fn header(at: u32) -> u64 {
    u64::from(at.wrapping_add(1)) << 32
}

impl Entries {
    /// Makes an empty ring of at least `n` entries. Process context; sleeps.
    ///
    /// `EINVAL` when `n` rounded up to a power of two exceeds 32 bits.
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

    /// Whether at least half of the slots of a kernel user's ring are in use; possibly stale after
    /// the return.
    pub(super) fn is_half_full(&self) -> bool {
        let used = self.put.lock().wrapping_sub(self.get.load(Acquire));
        used != 0 && used >= self.ring.slots() / 2
    }

    /// Adds a completion of queue pair `qpn`. Any context with interrupts on.
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
            // A change of the control word since the load is kept.
            self.ring.control_change(armed, notify::NOT);
            return Pushed::Fire;
        }
        Pushed::Quiet
    }

    /// Stores a `struct siw_cqe` at index `at`; `false` while the process has not read the old
    /// entry.
    #[inline]
    fn put_for_process(&self, at: u32, qpn: u32, c: &Completion) -> bool {
        if self.ring.header(at) as u16 & flag::VALID != 0 {
            return false;
        }
        // The STag field stays 0: `struct siw_cqe` has no flag that marks the field as valid.
        let words = [c.id, 0, 0, u64::from(qpn)];
        self.ring.write::<CQE_WORDS>(at, &words);
        let c = Completion {
            status: c.status.to_process(),
            ..*c
        };
        self.ring.publish(at, description(&c, flag::VALID));
        true
    }

    /// Stores an entry at index `at` for a kernel user; `false` while the old entry has not been
    /// taken.
    #[inline]
    fn put_for_kernel(&self, at: u32, qpn: u32, c: &Completion) -> bool {
        // The reader that moved the index past the old entry has read it.
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

    /// Takes the next entry for a kernel user. Any context.
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
    /// Returns `None` for the ring of a process: the process reads its ring itself, and could store
    /// the number of any queue pair there.
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
            // The ring is empty, unless another reader has just taken the entry.
            let now = self.get.load(Relaxed);
            if now == at {
                return None;
            }
            at = now;
        }
    }

    /// The entry at index `at`, if it has been stored. Its fields are valid only if `get` is still
    /// `at` after the read.
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

    /// Arms the queue for a kernel user; returns whether the ring has entries. Any context.
    pub(super) fn arm(&self, arm: Arm) -> bool {
        match arm {
            Arm::Next => self
                .ring
                .control_store(notify::SOLICITED | notify::NEXT_COMPLETION),
            // A request for solicited completions does not weaken an earlier one for any
            // completion. A queue that was armed already needs no barrier: for an entry that the
            // load below misses, the handler is called, or has been called since.
            Arm::Solicited => self.ring.control_change(notify::NOT, notify::SOLICITED),
        }
        self.next().is_some()
    }
}
