// SPDX-License-Identifier: GPL-2.0
//! The pinned cell is a field of the object, not of the target of its dereference.
// error: E0026
// text: does not have a field named `cell`

use crate::sys::rdma::pin::{
    impl_has_pin_cell,
    PinCell, //
};

pub(crate) struct Inner {
    cell: PinCell<u64>,
}

#[cfg(unsound)]
pub(crate) struct Outer(Inner, Inner, kernel::sync::atomic::Atomic<bool>);

#[cfg(unsound)]
impl core::ops::Deref for Outer {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        match self.2.load(kernel::sync::atomic::Relaxed) {
            true => &self.0,
            false => &self.1,
        }
    }
}

#[cfg(unsound)]
impl_has_pin_cell! {
    impl HasPinCell<u64> for Outer { self.cell }
}

#[cfg(not(unsound))]
impl_has_pin_cell! {
    impl HasPinCell<u64> for Inner { self.cell }
}
