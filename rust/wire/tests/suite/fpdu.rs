// SPDX-License-Identifier: GPL-2.0

//! FPDUs: MPA-01 to MPA-33.

use iwarp_wire::crc::{
    Digest,
    Table, //
};
use iwarp_wire::mpa::fpdu::{
    pad_len,
    FpduWriter,
    Framer,
    Next,
    WriteError, //
};
use iwarp_wire::rdmap::terminate::{
    MpaError,
    TerminateReason, //
};

use crate::support::{
    crc,
    framer_at,
    read_fpdu,
    reference_fpdu,
    write_fpdu,
    writer_at, //
};

/// A ULPDU whose octets depend on their offset.
fn ulpdu(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// MPA-01, MPA-11, MPA-33: each length of ULPDU at each position where an FPDU can begin, encoded
/// and decoded, against the layout word by word.
#[test]
fn every_length_at_every_position() {
    // A word of the same FPDU follows each marker, so no FPDU begins at octet 4.
    for pos in (0..512).step_by(4).filter(|&pos| pos != 4) {
        let (writer, framer) = (writer_at(true, pos + 512), framer_at(true, pos + 512));
        for len in (0..1100).step_by(if pos % 128 == 0 { 1 } else { 7 }) {
            let ulpdu = ulpdu(len);
            let expected = reference_fpdu(&ulpdu, Some(pos));
            let (header, payload) = ulpdu.split_at(len.min(18));
            let written = write_fpdu(&mut writer.clone(), header, payload);
            assert_eq!(written, expected, "{len} octets at {pos}");
            let read = read_fpdu(&mut framer.clone(), &expected);
            assert_eq!(read.as_deref(), Ok(&ulpdu[..]), "{len} octets at {pos}");
        }
    }
}

/// MPA-01, MPA-02, MPA-11, MPA-22: each length without markers; one piece at octet 2.
#[test]
fn every_length_without_markers() {
    for len in (0..1500).chain([64768, 65534, 65535]) {
        let ulpdu = ulpdu(len);
        let expected = reference_fpdu(&ulpdu, None);
        let mut writer = FpduWriter::new(false, true);
        assert_eq!(write_fpdu(&mut writer, &[], &ulpdu), expected);
        assert_eq!(
            read_fpdu(&mut Framer::new(false, true), &expected),
            Ok(ulpdu)
        );
        let Next::Fpdu(fpdu) = Framer::new(false, true).next(&expected) else {
            panic!("the length field is there")
        };
        assert!(fpdu.is_plain());
        assert_eq!(fpdu.pieces().next().unwrap_or(2..2), 2..2 + len);
        assert_eq!(fpdu.crc_len() + 4, expected.len());
    }
}

/// MPA-30, MPA-94: a plain FPDU has no marker, not even one in front of the CRC.
#[test]
fn plain_means_without_any_marker() {
    let mut framer = Framer::new(true, true);
    let (mut plain, mut marked) = (0, 0);
    for len in (0u16..1500).cycle().take(60_000) {
        let [high, low] = len.to_be_bytes();
        let mut front = [0; 6];
        let Next::Need(lead @ (2 | 6)) = framer.next(&[]) else {
            panic!("the length field is asked for")
        };
        front[lead - 2..lead].copy_from_slice(&[high, low]);
        let Next::Fpdu(fpdu) = framer.next(&front) else {
            panic!("the length field is there")
        };
        let without = 2 + usize::from(len) + pad_len(len) + 4;
        assert_eq!(fpdu.is_plain(), fpdu.wire_len() == without, "length {len}");
        match fpdu.is_plain() {
            true => plain += 1,
            false => marked += 1,
        }
        framer.advance(&fpdu);
    }
    assert!(plain > 1000 && marked > 1000, "{plain} and {marked}");
}

/// MPA-10, MPA-32: the framer asks for no more octets than the length field, marker included.
#[test]
fn the_length_field_is_enough() {
    let plain = Framer::new(false, true);
    assert_eq!(plain.next(&[]), Next::Need(2));
    assert_eq!(plain.next(&[0]), Next::Need(2));
    assert!(matches!(plain.next(&[0, 0]), Next::Fpdu(fpdu) if fpdu.wire_len() == 8));

    let marked = Framer::new(true, true);
    for have in 0..6 {
        assert_eq!(marked.next(&[0; 6][..have]), Next::Need(6));
    }
    assert!(matches!(marked.next(&[0; 6]), Next::Fpdu(fpdu) if fpdu.wire_len() == 12));
}

/// MPA-18: any value of the length field gives an extent.
#[test]
fn any_length_is_survived() {
    for len in [0u16, 1, 13, 14, 17, 18, 65535] {
        let [high, low] = len.to_be_bytes();
        let Next::Fpdu(fpdu) = Framer::new(false, true).next(&[high, low]) else {
            panic!("the length field is there")
        };
        assert_eq!(fpdu.ulpdu_len(), len);
        assert_eq!(fpdu.wire_len(), 2 + usize::from(len) + pad_len(len) + 4);
    }
}

/// MPA-03: a pad that is not zero is accepted if the CRC covers it.
#[test]
fn pad_of_other_peers() {
    let mut wire = reference_fpdu(b"abc", None);
    wire[5..8].copy_from_slice(&[1, 2, 3]);
    let field = crc(&wire[..8]);
    wire[8..].copy_from_slice(&field);
    assert_eq!(
        read_fpdu(&mut Framer::new(false, true), &wire),
        Ok(b"abc".to_vec())
    );
}

/// MPA-03: a sent FPDU has a pad of zeros, for any earlier octets of the buffer.
#[test]
fn pad_is_zero() {
    for (markers, lead) in [(false, 0), (true, 4)] {
        for len in 0..8 {
            let wire = write_fpdu(&mut FpduWriter::new(markers, true), &[], &vec![0xff; len]);
            let pad = &wire[lead + 2 + len..wire.len() - 4];
            assert!(pad.iter().all(|&octet| octet == 0), "pad of {len} octets");
        }
    }
}

/// MPA-06, MPA-09, MPA-93: each bit that changes on the way is found; also in a marker.
#[test]
fn every_flipped_bit_is_found() {
    for markers in [false, true] {
        let pos = if markers { 500 } else { 0 };
        let framer = framer_at(markers, pos);
        let good = reference_fpdu(&ulpdu(40), markers.then_some(pos));
        assert!(read_fpdu(&mut framer.clone(), &good).is_ok());
        // The length field determines the extent, so it is left out here.
        for bit in 16..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                read_fpdu(&mut framer.clone(), &bad),
                Err(TerminateReason::Mpa(MpaError::Crc)),
                "bit {bit}"
            );
        }
    }
}

/// MPA-05, MPA-15: with CRCs off the field is sent as zero and ignored on receipt.
#[test]
fn crc_off() {
    let mut writer = FpduWriter::new(false, false);
    let mut wire = write_fpdu(&mut writer, b"header", b"payload");
    assert_eq!(wire.len(), 20);
    assert_eq!(wire[16..], [0; 4]);
    wire[16..].copy_from_slice(b"junk");
    let read = read_fpdu(&mut Framer::new(false, false), &wire);
    assert_eq!(read.as_deref(), Ok(&b"headerpayload"[..]));
    let Next::Fpdu(fpdu) = Framer::new(false, false).next(&wire) else {
        panic!("the length field is there")
    };
    assert_eq!(fpdu.check_crc(Digest::new(), [1, 2, 3, 4]), Ok(()));
}

/// MPA-20, MPA-28: the reserved bits of a marker and the low two bits of its pointer are ignored,
/// except in the CRC.
#[test]
fn bits_of_a_marker_that_do_not_count() {
    let mut wire = reference_fpdu(&ulpdu(40), Some(500));
    assert_eq!(wire[12..16], [0, 0, 0, 12]);
    wire[12..16].copy_from_slice(&[0xab, 0xcd, 0, 15]);
    let covered = wire.len() - 4;
    let field = crc(&wire[..covered]);
    wire[covered..].copy_from_slice(&field);
    let read = read_fpdu(&mut framer_at(true, 500), &wire);
    assert_eq!(read, Ok(ulpdu(40)));
}

/// MPA-30, MPA-94: a marker that points elsewhere is error 3, also with CRCs off.
#[test]
fn marker_that_points_elsewhere() {
    for at in [0, 512, 1024] {
        for crcs in [true, false] {
            let mut wire = reference_fpdu(&ulpdu(1100), Some(0));
            wire[at + 3] ^= 0x10;
            let covered = wire.len() - 4;
            let field = crc(&wire[..covered]);
            wire[covered..].copy_from_slice(&field);
            let result = read_fpdu(&mut Framer::new(true, crcs), &wire);
            assert_eq!(
                result,
                Err(TerminateReason::Mpa(MpaError::Marker)),
                "marker at {at}"
            );
        }
    }
}

/// MPA-25: markers keep their distance where a 32-bit count of the stream's octets wraps.
#[test]
fn the_count_of_octets_wraps() {
    let mut writer = FpduWriter::new(true, false);
    let mut framer = Framer::new(true, false);
    // FPDUs of the greatest length, so that 4 GiB take little time.
    let mut out = vec![0; 67000];
    let mut sent = 0u64;
    while sent < (1 << 32) + 200_000 {
        let len = writer
            .write::<Table, ()>(&mut out, &[], 65535, |_| Ok(()))
            .expect("there is room");
        let wire = &out[..len];
        let Next::Fpdu(fpdu) = framer.next(wire) else {
            panic!("the length field is there")
        };
        assert_eq!(fpdu.wire_len(), len);
        assert_eq!(fpdu.check_markers(wire), Ok(()), "at octet {sent}");
        framer.advance(&fpdu);
        sent += len as u64;
        // The length of the next FPDU shows the writer's position relative to the next marker.
        let to_next = (512 - sent % 512) % 512;
        let leading = writer.wire_len(0) == if to_next < 8 { 12 } else { 8 };
        assert!(leading, "at octet {sent}");
    }
}

/// MPA-47: the longest ULPDU for a buffer fits, and one word more does not.
#[test]
fn the_longest_ulpdu_for_some_room() {
    for markers in [false, true] {
        for pos in [0, 512, 520, 1012, 1016, 1020] {
            let writer = writer_at(markers, if markers { pos } else { 0 });
            for room in 0..1200 {
                match writer.ulpdu_for(room) {
                    Some(len) => {
                        assert!(writer.wire_len(len) <= room, "{room} octets at {pos}");
                        // One word more, or a marker and a word, would not fit.
                        assert!(writer.wire_len(len + 8) > room, "{room} octets at {pos}");
                    }
                    None => assert!(writer.wire_len(0) > room.saturating_sub(4)),
                }
            }
            assert_eq!(writer.ulpdu_for(usize::MAX), Some(u16::MAX));
        }
    }
}

/// An FPDU that cannot be written is refused; the position is unchanged.
#[test]
fn refusals_of_the_writer() {
    for markers in [false, true] {
        let mut writer = writer_at(markers, 20);
        let mut out = [0; 32];
        let ok = |_: &mut [u8]| Ok::<(), &str>(());
        assert_eq!(
            writer.write::<Table, _>(&mut out, b"h", 65535, ok),
            Err(WriteError::TooLong)
        );
        assert_eq!(
            writer.write::<Table, _>(&mut out, b"h", usize::MAX, ok),
            Err(WriteError::TooLong)
        );
        assert_eq!(
            writer.write::<Table, _>(&mut out, b"head", 30, ok),
            Err(WriteError::NoRoom)
        );
        assert_eq!(
            writer.write::<Table, _>(&mut out, b"head", 8, |_| Err("fault")),
            Err(WriteError::Payload("fault"))
        );
        let expected = reference_fpdu(b"headpayload!", markers.then_some(20));
        assert_eq!(write_fpdu(&mut writer, b"head", b"payload!"), expected);
    }
}

/// A raw FPDU of the wrong length is refused, not misread.
#[test]
fn wrong_extent_is_refused() {
    let wire = reference_fpdu(&ulpdu(600), Some(0));
    let Next::Fpdu(fpdu) = Framer::new(true, true).next(&wire) else {
        panic!("the length field is there")
    };
    for len in [0, 3, 100, wire.len() - 1] {
        let mut short = wire[..len].to_vec();
        assert!(fpdu.check::<Table>(&short).is_err());
        assert!(fpdu.strip(&mut short).is_err());
    }
    assert!(fpdu.check_markers(&[]).is_err());
}
