// SPDX-License-Identifier: GPL-2.0

//! Fetched work requests of the send queue, and their completion in posting order.
//!
//! A Send or Write is complete when its last octet was passed to TCP (RFC 5041 section 5.3, DDP
//! message transfer completion at the source). A Read is complete when its last response segment
//! was placed, and a local operation at once. Verbs require completions in posting order, so an
//! outstanding Read delays all later completions. Positions count octets of the transmitted
//! stream. One comparison with the number of octets that TCP has accepted completes a whole burst
//! of messages.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;

use crate::verbs::cq::{
    WcOpcode,
    WcStatus, //
};

/// The largest number of fetched work requests without a completion.
///
/// Entries are work requests after an outstanding Read, and those of the current burst. While the
/// queue is full, the transmit engine fetches none. The limit bounds the memory of a connection.
const MAX_ENTRIES: usize = 512;

/// The smallest capacity: the small messages of one doorbell fit into one burst.
const MIN_ENTRIES: usize = 16;

/// The identity of a work request in the queue, valid while other entries are added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// The condition under which a work request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// TCP has accepted the transmitted stream up to this octet.
    Sent(u64),
    /// Not done until the entry is changed: a Read, or a message that is being segmented.
    Open,
}

/// One work request between its fetch and its completion.
#[derive(Clone, Copy)]
pub(super) struct SentWr {
    /// `wr_id` of the poster.
    pub(super) id: u64,
    /// The condition under which the work request is done.
    pub(super) due: Due,
    /// Octets transferred, for the completion.
    pub(super) bytes: u32,
    /// The operation.
    pub(super) opcode: WcOpcode,
    /// The status of the completion.
    pub(super) status: WcStatus,
    /// A success generates a completion, too.
    pub(super) signaled: bool,
}

/// The queue of fetched, incomplete work requests, oldest first.
pub(super) struct SentQueue {
    /// A ring of a power of two entries.
    ring: KVec<Option<SentWr>>,
    /// Number of the oldest entry; wraps.
    head: u32,
    /// Number of the next entry; wraps.
    tail: u32,
}

impl SentQueue {
    /// Makes a queue for a send queue of `depth` entries. `ENOMEM`: no memory. Process context;
    /// sleeps.
    pub(super) fn new(depth: usize) -> Result<Self> {
        let size = depth
            .clamp(MIN_ENTRIES, MAX_ENTRIES)
            .checked_next_power_of_two()
            .ok_or(EINVAL)?;
        Ok(Self {
            ring: KVec::from_elem(None, size, GFP_KERNEL_ACCOUNT)?,
            head: 0,
            tail: 0,
        })
    }

    /// Whether the queue has no entry.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// Whether the queue is full: no work request may be fetched.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.tail.wrapping_sub(self.head) as usize >= self.ring.len()
    }

    /// The index of entry number `seq` in the ring.
    #[inline]
    fn index(&self, seq: u32) -> usize {
        seq as usize & self.ring.len().wrapping_sub(1)
    }

    /// Appends a work request; `None` if the queue is full.
    #[inline]
    pub(super) fn push(&mut self, entry: SentWr) -> Option<Slot> {
        if self.is_full() {
            return None;
        }
        let index = self.index(self.tail);
        *self.ring.get_mut(index)? = Some(entry);
        let slot = Slot(self.tail);
        self.tail = self.tail.wrapping_add(1);
        Some(slot)
    }

    /// The entry of `slot`, while it is in the queue.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut SentWr> {
        if slot.0.wrapping_sub(self.head) >= self.tail.wrapping_sub(self.head) {
            return None;
        }
        let index = self.index(slot.0);
        self.ring.get_mut(index)?.as_mut()
    }

    /// Takes the oldest entry if it is done; TCP has accepted the stream up to octet `sent`.
    ///
    /// A failed entry and all later ones stay until the end of the stream: after an error no
    /// success is reported.
    #[inline]
    pub(super) fn pop_done(&mut self, sent: u64) -> Option<SentWr> {
        if self.is_empty() {
            return None;
        }
        let index = self.index(self.head);
        let oldest = self.ring.get(index)?.as_ref()?;
        match oldest.due {
            Due::Sent(end) if end <= sent && oldest.status == WcStatus::Success => self.pop(),
            _ => None,
        }
    }

    /// Fails the oldest entry of this kind that has not failed, before the end of the stream;
    /// `false` if there is none.
    pub(super) fn fail_oldest(&mut self, opcode: WcOpcode, status: WcStatus) -> bool {
        let mut at = self.head;
        while at != self.tail {
            let index = self.index(at);
            if let Some(Some(entry)) = self.ring.get_mut(index) {
                if entry.opcode == opcode && entry.status == WcStatus::Success {
                    entry.status = status;
                    return true;
                }
            }
            at = at.wrapping_add(1);
        }
        false
    }

    /// Takes all entries; the queue has no capacity afterwards.
    pub(super) fn take(&mut self) -> Self {
        let none = Self {
            ring: KVec::new(),
            head: 0,
            tail: 0,
        };
        core::mem::replace(self, none)
    }

    /// Takes the oldest entry, done or not.
    pub(super) fn pop(&mut self) -> Option<SentWr> {
        if self.is_empty() {
            return None;
        }
        let index = self.index(self.head);
        let entry = self.ring.get_mut(index)?.take();
        self.head = self.head.wrapping_add(1);
        entry
    }
}
