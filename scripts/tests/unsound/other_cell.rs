// SPDX-License-Identifier: GPL-2.0
//! An object pins the same cell at each call.
//!
//! A `cell()` that returned another cell later would read a value that is being changed: the pin is on
//! the first cell.
// error: E0200
// text: the trait `HasPinCell` requires an `unsafe impl` declaration

use crate::sys::rdma::pin::{
    impl_has_pin_cell,
    HasPinCell,
    PinCell,
    Pinned, //
};
use kernel::sync::{
    atomic::{Atomic, Relaxed},
    Arc,
};

pub(crate) struct Two(PinCell<u64>, PinCell<u64>, Atomic<bool>);

#[cfg(unsound)]
impl HasPinCell for Two {
    type Value = u64;

    fn cell(&self) -> &PinCell<u64> {
        match self.2.load(Relaxed) {
            true => &self.0,
            false => &self.1,
        }
    }
}

pub(crate) struct One {
    cell: PinCell<u64>,
}

impl_has_pin_cell! {
    impl HasPinCell<u64> for One { self.cell }
}

fn read<H: HasPinCell<Value = u64>>(of: Arc<H>) -> Option<u64> {
    Some(*Pinned::new(of, 1)?)
}

pub(crate) fn case(one: Arc<One>, two: Arc<Two>) -> Option<u64> {
    #[cfg(unsound)]
    read(two.clone());
    two.2.store(true, Relaxed);
    read(one)
}
