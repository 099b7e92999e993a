// SPDX-License-Identifier: GPL-2.0

//! The corpus of the fuzz targets, replayed by an ordinary test, and random inputs of the same
//! kind: no octets of a peer make the crate panic (MPA-18, MPA-81).

use std::path::Path;

use proptest::prelude::*;

use crate::input;

/// Every file of the corpus runs through the receive path.
#[test]
fn the_corpus_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/receive");
    let mut names: Vec<_> = std::fs::read_dir(&corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    names.sort();
    assert!(names.len() >= 20, "the corpus is there");
    let mut seen = input::Seen::default();
    for name in names {
        let octets = std::fs::read(&name).unwrap_or_else(|e| panic!("{}: {e}", name.display()));
        seen = seen.and(input::receive(&octets));
    }
    // The corpus must reach every kind of decision, or the replay tests nothing.
    assert!(
        seen.is_everything(),
        "the corpus reaches every decision: {seen:?}"
    );
}

proptest! {
    /// Random octets; most fail early.
    #[test]
    fn random_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..2000)) {
        input::receive(&octets);
    }
}
