// SPDX-License-Identifier: GPL-2.0

//! Resynchronisation from markers, against streams laid out word by word: MPA-20, MPA-25 to MPA-29,
//! MPA-32.

use iwarp_wire::crc::Table;
use iwarp_wire::mpa::fpdu::{
    Framer,
    Next,
    Resync, //
};
use proptest::prelude::*;

use crate::support::{
    crc,
    read_fpdu,
    reference_fpdu, //
};

/// A stream of the reference encoder.
#[derive(Clone, Debug)]
struct Reference {
    octets: Vec<u8>,
    /// The octets of each FPDU.
    fpdus: Vec<std::ops::Range<usize>>,
    ulpdus: Vec<Vec<u8>>,
}

impl Reference {
    fn new(ulpdus: Vec<Vec<u8>>) -> Self {
        let mut octets = Vec::new();
        let mut fpdus = Vec::new();
        for ulpdu in &ulpdus {
            let start = octets.len();
            octets.extend(reference_fpdu(ulpdu, Some(start)));
            fpdus.push(start..octets.len());
        }
        Self {
            octets,
            fpdus,
            ulpdus,
        }
    }

    /// The FPDU of the first marker in `from..to` whose FPDU begins at `from` or behind. With
    /// `whole` the FPDU ends at `to` or before.
    fn expected(&self, from: usize, to: usize, whole: bool) -> Option<usize> {
        (0..to.saturating_sub(3))
            .step_by(512)
            .filter(|&marker| marker >= from)
            .find_map(|marker| {
                let number = self.fpdus.iter().position(|fpdu| fpdu.contains(&marker))?;
                let fpdu = &self.fpdus[number];
                (fpdu.start >= from && (!whole || fpdu.end <= to)).then_some(number)
            })
    }

    /// Reads every FPDU from `number` on.
    fn read_from(&self, number: usize, mut framer: Framer) {
        for (fpdu, ulpdu) in self.fpdus.iter().zip(&self.ulpdus).skip(number) {
            let raw = &self.octets[fpdu.clone()];
            assert_eq!(read_fpdu(&mut framer, raw).as_ref(), Ok(ulpdu));
        }
    }
}

/// Streams of short and long FPDUs with random payload.
fn streams() -> impl Strategy<Value = Reference> {
    let len =
        prop_oneof![8 => 0..64usize, 4 => 400..600usize, 2 => 0..3000usize, 1 => 0..=64768usize];
    let ulpdu = (len, any::<u64>()).prop_map(|(len, seed)| {
        let mut state = seed | 1;
        let octet = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[0]
        };
        std::iter::repeat_with(octet).take(len).collect::<Vec<u8>>()
    });
    prop::collection::vec(ulpdu, 1..24).prop_map(Reference::new)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// MPA-25 to MPA-27, MPA-32: from any octet on, the first usable marker leads to its FPDU, and
    /// the length fields to all behind it. Too few octets never lead to a wrong position.
    #[test]
    fn a_marker_leads_to_its_fpdu(
        stream in streams(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        wraps in any::<u32>(),
    ) {
        let from = from.index(stream.octets.len());
        let to = from + to.index(stream.octets.len() - from + 1);
        let ahead = u32::try_from(from).expect("fits").wrapping_add(wraps << 9);
        let framer = Framer::new(true, true);
        match framer.resync(ahead, &stream.octets[from..to]) {
            Resync::Found { at, framer } => {
                let number = stream.expected(from, to, false).expect("a marker leads there");
                prop_assert_eq!(at + from, stream.fpdus[number].start);
                stream.read_from(number, framer);
            }
            Resync::Need(total) => {
                prop_assert_eq!(stream.expected(from, to, false), None);
                // The end of the first marker that is not whole yet.
                prop_assert!(total > to - from);
                prop_assert!(total - (to - from) <= 512);
                prop_assert_eq!((from + total - 4) % 512, 0);
            }
            Resync::NoMarkers => panic!("there are markers"),
        }
    }

    /// MPA-32: where the position is not known either, CRC and markers find it.
    #[test]
    fn a_search_finds_position_and_fpdu(
        stream in streams(),
        from in any::<prop::sample::Index>(),
    ) {
        let from = from.index(stream.octets.len().min(5000));
        let to = stream.octets.len().min(from + 8000);
        let expected = stream.expected(from, to, true);
        match Framer::search::<Table>(&stream.octets[from..to]) {
            Resync::Found { at, framer } => {
                let number = expected.expect("a whole FPDU has a marker");
                prop_assert_eq!(at + from, stream.fpdus[number].start);
                stream.read_from(number, framer);
            }
            Resync::Need(total) => {
                prop_assert_eq!(expected, None);
                prop_assert!(total > to - from);
            }
            Resync::NoMarkers => panic!("a search supposes markers"),
        }
    }

    /// No octets make it panic; an FPDU that is found begins within them.
    #[test]
    fn random_octets(
        octets in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..3000),
        ahead in any::<u32>(),
    ) {
        for found in [
            Framer::new(true, true).resync(ahead, &octets),
            Framer::search::<Table>(&octets),
        ] {
            match found {
                Resync::Found { at, framer } => {
                    prop_assert!(at < octets.len());
                    prop_assert!(framer.markers() && framer.crc());
                }
                Resync::Need(total) => prop_assert!(total > octets.len()),
                Resync::NoMarkers => panic!("there are markers"),
            }
        }
    }
}

/// A stream without markers can not be resynchronised.
#[test]
fn without_markers() {
    let framer = Framer::new(false, true);
    assert_eq!(framer.resync(0, &[0; 2000]), Resync::NoMarkers);
}

/// MPA-26, MPA-27: from every octet of a stream. An FPDU that begins with a marker is found only
/// where that marker is whole: behind its first octet no marker leads to it any more.
#[test]
fn every_distance_from_a_marker() {
    let stream = Reference::new(vec![
        vec![1; 1010],
        vec![2; 1100],
        vec![3; 404],
        vec![4; 2000],
    ]);
    let begins: Vec<usize> = stream.fpdus.iter().map(|fpdu| fpdu.start).collect();
    assert_eq!(begins[1], 1024, "the second FPDU begins with a marker");
    assert!(begins[2] % 512 > 4, "the third one does not");
    for from in 0..stream.octets.len() {
        let result = Framer::new(true, true)
            .resync(u32::try_from(from).expect("fits"), &stream.octets[from..]);
        match stream.expected(from, stream.octets.len(), false) {
            Some(number) => {
                let Resync::Found { at, framer } = result else {
                    panic!("found from octet {from}: {result:?}")
                };
                assert_eq!(at + from, begins[number], "from octet {from}");
                stream.read_from(number, framer);
            }
            None => assert!(matches!(result, Resync::Need(_)), "from octet {from}"),
        }
    }
}

/// MPA-20, MPA-28: reserved bits and the low two bits of FPDUPTR are ignored.
#[test]
fn bits_that_are_ignored() {
    let stream = Reference::new(vec![vec![1; 300], vec![2; 900]]);
    let mut octets = stream.octets.clone();
    octets[512] = 0xff;
    octets[515] |= 3;
    let expected = stream
        .expected(1, octets.len(), false)
        .map(|number| stream.fpdus[number].start - 1);
    let Resync::Found { at, .. } = Framer::new(true, true).resync(1, &octets[1..]) else {
        panic!("the marker leads to the second FPDU")
    };
    assert_eq!(Some(at), expected);
}

/// A pointer to where a marker lies belongs to no FPDU: the next marker is used.
#[test]
fn pointer_that_no_fpdu_can_have() {
    let stream = Reference::new(vec![vec![1; 300], vec![2; 1500]]);
    let mut octets = stream.octets.clone();
    octets[1024 + 2..1024 + 4].copy_from_slice(&512u16.to_be_bytes());
    // From octet 600 on, only the second FPDU's own start is lost, so no marker leads to one.
    let result = Framer::new(true, true).resync(600, &octets[600..]);
    assert!(matches!(result, Resync::Need(_)), "{result:?}");
    let result = Framer::new(true, true).resync(300, &octets[300..]);
    let Resync::Found { at, .. } = result else {
        panic!("the marker at 512 leads to the second FPDU: {result:?}")
    };
    assert_eq!(at + 300, stream.fpdus[1].start);
}

/// A marker whose FPDU has a wrong CRC is passed over by a search.
#[test]
fn a_wrong_crc_is_passed_over() {
    let mut stream = Reference::new(vec![vec![1; 700], vec![2; 700], vec![3; 700]]);
    let last = stream.fpdus[0].end - 1;
    stream.octets[last] ^= 1;
    let found = Framer::search::<Table>(&stream.octets);
    let Resync::Found { at, framer } = found else {
        panic!("the second FPDU is right: {found:?}")
    };
    assert_eq!(at, stream.fpdus[1].start);
    let Next::Fpdu(fpdu) = framer.next(&stream.octets[at..]) else {
        panic!("the length field is there")
    };
    let raw = &stream.octets[stream.fpdus[1].clone()];
    assert_eq!(fpdu.crc_len() + 4, raw.len());
    assert_eq!(crc(&raw[..fpdu.crc_len()]), raw[fpdu.crc_len()..]);
}
