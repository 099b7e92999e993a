// SPDX-License-Identifier: GPL-2.0

//! Bindings of C interfaces: those of the `kernel` crate, and additional ones
//! (docs/architecture.md).
//!
//! bindgen generates the additional bindings from `include/bindings.h`. Items that
//! `include/bindgen_parameters` does not list come from the `kernel` crate, so that one C type is
//! one Rust type. Only `sys` uses this module.

#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    improper_ctypes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    reason = "bindgen wrote this"
)]
#![cfg_attr(CONFIG_RUSTC_HAS_UNNECESSARY_TRANSMUTES, allow(unnecessary_transmutes))]

mod raw {
    pub use kernel::bindings::*;
    use kernel::ffi;
    use pin_init::{MaybeZeroable, Zeroable};

    // SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
    unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

    // SAFETY: `__BindgenUnionField<T>` has no size.
    unsafe impl<T> Zeroable for __BindgenUnionField<T> {}

    include!(concat!(env!("RSIW_OBJ"), "/include/bindings_generated.rs"));
}

pub(crate) use raw::*;
