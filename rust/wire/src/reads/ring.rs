// SPDX-License-Identifier: GPL-2.0

//! A queue of bounded depth in storage of the caller.

use core::borrow::BorrowMut;
use core::marker::PhantomData;

/// A queue of at most `limit` entries, oldest first.
///
/// # Invariants
///
/// `limit` is at most the storage's length, `len` at most `limit`, and `head` below the storage's
/// length or 0. The `len` slots from `head` on, around the end, are `Some`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring<T, S> {
    slots: S,
    /// The oldest entry's slot.
    head: usize,
    /// Number of entries.
    len: usize,
    /// The most entries.
    limit: usize,
    /// The type of the entries.
    entries: PhantomData<T>,
}

impl<T: Copy, S: BorrowMut<[Option<T>]>> Ring<T, S> {
    /// An empty queue of at most `limit` entries, fewer if there are fewer slots.
    pub(super) fn new(mut slots: S, limit: u16) -> Self {
        let room = slots.borrow_mut().len();
        // INVARIANT: `limit` is not above the number of slots.
        Self {
            slots,
            head: 0,
            len: 0,
            limit: room.min(usize::from(limit)),
            entries: PhantomData,
        }
    }

    /// Number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The most entries.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Tells whether the number of entries is the limit.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// The oldest entry.
    #[inline]
    pub(super) fn front(&self) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        let slots: &[Option<T>] = self.slots.borrow();
        slots.get(self.head)?.as_ref()
    }

    /// The oldest entry, to be changed.
    #[inline]
    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        if self.len == 0 {
            return None;
        }
        self.slots.borrow_mut().get_mut(self.head)?.as_mut()
    }

    /// Appends an entry; returns it if the queue is full.
    #[inline]
    pub(super) fn push(&mut self, entry: T) -> Result<(), T> {
        if self.is_full() {
            return Err(entry);
        }
        let slots = self.slots.borrow_mut();
        let to_end = slots.len().wrapping_sub(self.head);
        let at = match self.len.checked_sub(to_end) {
            Some(around) => around,
            None => self.head.wrapping_add(self.len),
        };
        match slots.get_mut(at) {
            Some(slot) => *slot = Some(entry),
            None => return Err(entry),
        }
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Removes the oldest entry.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let len = self.len.checked_sub(1)?;
        let slots = self.slots.borrow_mut();
        let entry = slots.get_mut(self.head)?.take();
        let next = self.head.wrapping_add(1);
        // INVARIANT: below the number of slots, or 0.
        self.head = if next < slots.len() { next } else { 0 };
        self.len = len;
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// The ring behaves as a queue, for each slot of its head.
    #[test]
    fn behaves_as_a_queue() {
        for slots in 0..5usize {
            for limit in 0..6u16 {
                let mut storage = std::vec![None; slots];
                let mut ring = Ring::new(&mut storage[..], limit);
                let mut model = VecDeque::new();
                let room = slots.min(usize::from(limit));
                for step in 0..200u32 {
                    if step % 7 < 4 {
                        let pushed = ring.push(step);
                        assert_eq!(pushed.is_ok(), model.len() < room);
                        if pushed.is_ok() {
                            model.push_back(step);
                        }
                    } else {
                        assert_eq!(ring.pop(), model.pop_front());
                    }
                    assert_eq!(ring.front(), model.front());
                    assert_eq!(ring.front_mut(), model.front_mut());
                    assert_eq!(ring.len(), model.len());
                    assert_eq!(ring.is_full(), model.len() == room);
                }
            }
        }
    }
}
