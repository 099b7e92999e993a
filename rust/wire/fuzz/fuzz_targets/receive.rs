// SPDX-License-Identifier: GPL-2.0

//! Fuzzes all that a peer's octets go through: `cargo +nightly fuzz run receive`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/input.rs"]
mod input;

fuzz_target!(|octets: &[u8]| {
    input::receive(octets);
});
