// SPDX-License-Identifier: GPL-2.0
//! No reference is made to fields of an object that `ib_core` changes.
// in: sys/rdma/objects.rs
// error: E0308
// text: mismatched types

use super::{bindings, Object};

pub(crate) fn case(pd: &Object<bindings::ib_pd, ()>) -> *mut bindings::ib_pd {
    #[cfg(unsound)]
    let _: &bindings::ib_pd = &pd.base;
    pd.base.get()
}
