// SPDX-License-Identifier: GPL-2.0
//! The pinned cell is the field itself, not the target of its dereference.
//!
//! A field that dereferences to one of two cells would pin the one and read the other.
// at: sys/rdma/pin.rs
// error: E0308
// text: mismatched types

use crate::sys::rdma::pin::{
    impl_has_pin_cell,
    PinCell, //
};
use kernel::sync::atomic::{Atomic, Relaxed};

pub(crate) struct OneOfTwo(PinCell<u64>, PinCell<u64>, Atomic<bool>);

impl core::ops::Deref for OneOfTwo {
    type Target = PinCell<u64>;

    fn deref(&self) -> &PinCell<u64> {
        match self.2.load(Relaxed) {
            true => &self.0,
            false => &self.1,
        }
    }
}

pub(crate) struct Outer {
    #[cfg(unsound)]
    cell: OneOfTwo,
    #[cfg(not(unsound))]
    cell: PinCell<u64>,
}

impl_has_pin_cell! {
    impl HasPinCell<u64> for Outer { self.cell }
}
