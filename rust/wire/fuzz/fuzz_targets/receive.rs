// SPDX-License-Identifier: GPL-2.0

//! Fuzzes the receive path with the octets of a peer:
//! `cargo +nightly fuzz run receive corpus ../tests/corpus/receive`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/suite/input.rs"]
mod input;

fuzz_target!(|octets: &[u8]| {
    input::receive(octets);
});
