// SPDX-License-Identifier: GPL-2.0

//! The Terminate message: RDMAP-30, RDMAP-40 to RDMAP-43.

use iwarp_wire::ddp::Header;
use iwarp_wire::rdmap::terminate::{
    AccessError,
    MpaError,
    RemoteOperation,
    RemoteProtection,
    TaggedError,
    Terminate,
    TerminateReason,
    UntaggedError, //
};
use iwarp_wire::rdmap::ReadRequest;
use iwarp_wire::rx::Decision;
use iwarp_wire::{
    tx,
    Msn,
    Stag,
    TaggedOffset, //
};

use crate::support::{
    tagged,
    untagged,
    Sink, //
};

const READ: ReadRequest = ReadRequest {
    sink: Stag::new(1),
    sink_to: TaggedOffset::new(2),
    size: 3,
    source: Stag::new(4),
    source_to: TaggedOffset::new(5),
};

/// M, D and R of a Terminate, as on the wire.
fn flags(terminate: &Terminate) -> (bool, bool, bool) {
    let ulpdu = terminate.ulpdu();
    let bits = ulpdu[20];
    assert_eq!((bits & 0x1f, ulpdu[21]), (0, 0), "reserved bits are zero");
    (bits & 0x80 != 0, bits & 0x40 != 0, bits & 0x20 != 0)
}

/// RDMAP-40, RDMAP-41: every row copies the headers of figure 10 of RFC 5040, for tagged and untagged
/// segments and for Read Requests. It is decoded as it was encoded.
#[test]
fn every_row_copies_its_headers() {
    let nothing = (false, false, false);
    let ddp = (true, true, false);
    let mut rows = vec![
        (TerminateReason::RdmapCatastrophic, nothing, false),
        (TerminateReason::DdpCatastrophic, nothing, false),
    ];
    let mut add = |reason, flags, with_read| rows.push((reason, flags, with_read));
    for &error in RemoteProtection::ALL {
        add(TerminateReason::RemoteProtection(error), ddp, true);
    }
    for &error in RemoteOperation::ALL {
        add(TerminateReason::RemoteOperation(error), ddp, false);
    }
    for &error in TaggedError::ALL {
        add(TerminateReason::Tagged(error), ddp, false);
    }
    for &error in UntaggedError::ALL {
        add(TerminateReason::Untagged(error), ddp, false);
    }
    for &error in MpaError::ALL {
        add(TerminateReason::Mpa(error), nothing, false);
    }
    assert_eq!(rows.len(), 33, "the rows of the table");

    for (reason, expected, with_read) in rows {
        let write = tagged(0, 7, 8, true, &[1; 100]);
        let send = untagged(3, 0, 9, 10, false, &[1; 100]);
        let read = tx::read_request(Msn::new(11), &READ);
        for (segment, header_len) in [(&write[..], 14), (&send[..], 18), (&read[..], 18)] {
            let is_read = segment.len() == 46;
            let head = &segment[..segment.len().min(46)];
            let len = u16::try_from(segment.len()).expect("fits");
            let terminate = Terminate::for_segment(reason, head, len);
            let (m, d, _) = expected;
            assert_eq!(
                flags(&terminate),
                (m, d, with_read && is_read),
                "{reason:?}"
            );

            let ulpdu = terminate.ulpdu();
            if d {
                assert_eq!(ulpdu[22..24], len.to_be_bytes());
                assert_eq!(ulpdu[24..24 + header_len], segment[..header_len]);
                assert_eq!(terminate.header(), Header::parse(segment).ok());
                let more = if with_read && is_read { 28 } else { 0 };
                assert_eq!(ulpdu.len(), 24 + header_len + more);
                assert_eq!(terminate.read_request(), (more > 0).then_some(READ));
            } else {
                assert_eq!(ulpdu.len(), 22);
                assert_eq!(terminate.segment_len(), None);
            }
            assert_eq!(Terminate::decode(&ulpdu[18..]), terminate);
        }
    }
}

/// RDMAP-43: the Terminate of a Read that fails part way quotes how many octets are left, and the
/// offsets of the next octet. RFC 5040 section 4.8 has the example of 2,048 octets.
#[test]
fn read_that_fails_part_way() {
    let request = ReadRequest {
        sink: Stag::new(0x100),
        sink_to: TaggedOffset::new(u64::MAX - 99),
        size: 5000,
        source: Stag::new(0x200),
        source_to: TaggedOffset::new(0x2000),
    };
    let reason = AccessError::InvalidStag.for_read();
    let mut responder = Sink::new();
    let asked = tx::read_request(Msn::FIRST, &request);
    assert_eq!(responder.receive(&asked), Decision::ReadRequest);
    let mut answered = 0;
    for len in [0, 2048, 2048, 903] {
        if len != 0 {
            let answer = responder.irq.next_step(len + 14).expect("a Read");
            assert_eq!(answer.len, len);
            responder.irq.commit(&answer);
            answered += u32::from(len);
        }
        let inbound = responder.irq.head().expect("it is not done");
        let left = inbound.remaining().expect("a Read");
        let told = Terminate::for_read(reason, inbound.msn(), &left);
        assert_eq!(flags(&told), (true, true, true));
        assert_eq!(told.segment_len(), Some(46));
        let expected = ReadRequest {
            sink_to: request.sink_to.wrapping_add(answered),
            size: 5000 - answered,
            source_to: TaggedOffset::new(0x2000 + u64::from(answered)),
            ..request
        };
        assert_eq!(told.read_request(), Some(expected));
    }
    assert_eq!(answered, 4999);
}

/// RDMAP-41: all sets of M, D and R. The length is there with M or D, and valid with M. The headers
/// are there with D and with R, each without the other, too (RFC 5040 section 4.8).
#[test]
fn every_set_of_flags() {
    let segment = tx::read_request(Msn::new(11), &READ);
    let (header, read) = segment.split_at(18);
    for bits in 0..8u8 {
        let (m, d, r) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
        let len: u16 = if m { 0x1234 } else { 0 };
        let mut octets = vec![0x01, 0x01, bits << 5, 0];
        if m || d {
            octets.extend(len.to_be_bytes());
        }
        if d {
            octets.extend(header);
        }
        if r {
            octets.extend(read);
        }
        let terminate = Terminate::decode(&octets);
        assert_eq!(terminate.reason(), AccessError::Bounds.for_read());
        assert_eq!(terminate.segment_len(), m.then_some(len), "flags {bits}");
        let expected = Header::parse(header).expect("a header");
        assert_eq!(terminate.header(), d.then_some(expected), "flags {bits}");
        assert_eq!(terminate.read_request(), r.then_some(READ), "flags {bits}");
        assert_eq!(flags(&terminate), (m, d, r));
        assert_eq!(terminate.ulpdu()[18..], octets, "flags {bits}");
    }
}

/// RDMAP-41: a length that M does not declare valid is skipped, and not encoded again.
#[test]
fn length_without_m() {
    // 1/1/01, D, the field of the length, the tagged header of a Write.
    let write = tagged(0, 0x1234, 0x1000, true, &[]);
    let octets = [&[0x11, 0x01, 0x40, 0x00, 0x12, 0x34], &write[..]].concat();
    let terminate = Terminate::decode(&octets);
    assert_eq!(terminate.segment_len(), None);
    assert_eq!(terminate.header(), Header::parse(&write).ok());
    assert_eq!(flags(&terminate), (false, true, false));
    let again = [&[0x11, 0x01, 0x40, 0x00, 0, 0], &write[..]].concat();
    assert_eq!(terminate.ulpdu()[18..], again);
}

/// RDMAP-41: R is about a Read Request. Behind the header of another message it declares nothing.
#[test]
fn read_request_behind_another_header() {
    let read = &tx::read_request(Msn::new(11), &READ)[18..];
    for header in [
        tagged(0, 0x1234, 0x1000, true, &[]),
        untagged(3, 0, 1, 0, true, &[]),
    ] {
        let octets = [&[0x01, 0x01, 0xe0, 0x00, 0x12, 0x34], &header[..], read].concat();
        let terminate = Terminate::decode(&octets);
        assert_eq!(terminate.segment_len(), Some(0x1234));
        assert_eq!(terminate.header(), Header::parse(&header).ok());
        assert_eq!(terminate.read_request(), None);
        assert_eq!(flags(&terminate), (true, true, false));
    }
}

/// Terminates that differ in any part are not equal.
#[test]
fn what_differs_is_not_equal() {
    let reason = AccessError::Bounds.for_read();
    let all = [
        Terminate::for_read(reason, Msn::new(11), &READ),
        Terminate::for_read(reason, Msn::new(12), &READ),
        Terminate::for_read(reason, Msn::new(11), &ReadRequest { size: 9, ..READ }),
        Terminate::for_segment(reason, &untagged(3, 0, 9, 10, false, &[1; 28]), 46),
        Terminate::for_segment(reason, &untagged(3, 0, 9, 10, false, &[1; 28]), 47),
        Terminate::for_read(AccessError::Wrap.for_read(), Msn::new(11), &READ),
        Terminate::bare(reason),
    ];
    for (i, one) in all.iter().enumerate() {
        for (j, other) in all.iter().enumerate() {
            assert_eq!(one == other, i == j, "{one:?} and {other:?}");
        }
    }
    let headers = [
        tagged(0, 7, 8, true, &[]),
        tagged(0, 7, 9, true, &[]),
        untagged(3, 0, 9, 10, false, &[]),
        untagged(3, 0, 9, 11, false, &[]),
    ]
    .map(|octets| Header::parse(&octets).expect("a header").encode());
    for (i, one) in headers.iter().enumerate() {
        for (j, other) in headers.iter().enumerate() {
            assert_eq!(one == other, i == j, "{one:?} and {other:?}");
        }
    }
}

/// RDMAP-54: the Terminate of a Read Request that fails later equals that of an immediate failure.
#[test]
fn read_that_fails_later() {
    let reason = AccessError::Bounds.for_read();
    let later = Terminate::for_read(reason, Msn::new(11), &READ);
    let at_once = Terminate::for_segment(reason, &tx::read_request(Msn::new(11), &READ), 46);
    assert_eq!(later, at_once);
    assert_eq!(flags(&later), (true, true, true));
}

/// RDMAP-30: queue 2, message 1, offset 0, last.
#[test]
fn where_it_goes() {
    let ulpdu = Terminate::bare(TerminateReason::DdpCatastrophic).ulpdu();
    let Ok(Header::Untagged(header)) = Header::parse(&ulpdu) else {
        panic!("it is untagged")
    };
    assert!(header.last);
    assert_eq!((header.qn, header.msn.get(), header.mo.get()), (2, 1, 0));
    assert_eq!((header.ulp, header.ulp_word), (0x47, 0));
}

/// RDMAP-42: a Terminate that is cut off anywhere still has its reason, and no invented headers.
#[test]
fn cut_off_anywhere() {
    let reason = AccessError::InvalidStag.for_read();
    let whole = Terminate::for_read(reason, Msn::FIRST, &READ).ulpdu();
    let octets = &whole[18..];
    assert_eq!(octets.len(), 52);
    let header = Header::parse(&octets[6..24]).expect("a header");
    for len in 0..=octets.len() {
        let terminate = Terminate::decode(&octets[..len]);
        let told = if len >= 4 {
            reason
        } else {
            TerminateReason::Unknown {
                layer: 0,
                etype: 0,
                code: 255,
            }
        };
        assert_eq!(terminate.reason(), told, "{len} octets");
        let segment_len = (len >= 6).then_some(46);
        assert_eq!(terminate.segment_len(), segment_len, "{len} octets");
        let header = (len >= 24).then_some(header);
        assert_eq!(terminate.header(), header, "{len} octets");
        let read = (len >= 52).then_some(READ);
        assert_eq!(terminate.read_request(), read, "{len} octets");
        // The decoded message can be encoded again.
        let again = terminate.ulpdu();
        assert_eq!(Terminate::decode(&again[18..]), terminate, "{len} octets");
    }
    // The Read Request alone, cut off.
    let octets = [&[0x01, 0x00, 0x20, 0x00], &octets[24..]].concat();
    for len in 4..=octets.len() {
        let terminate = Terminate::decode(&octets[..len]);
        assert_eq!(terminate.header(), None, "{len} octets");
        let read = (len == octets.len()).then_some(READ);
        assert_eq!(terminate.read_request(), read, "{len} octets");
    }
}

/// RDMAP-40: reserved bits and unknown numbers are read without failure.
#[test]
fn unknown_numbers() {
    let terminate = Terminate::decode(&[0xf7, 0x99, 0x1f, 0xff]);
    let reason = TerminateReason::Unknown {
        layer: 15,
        etype: 7,
        code: 0x99,
    };
    assert_eq!(terminate.reason(), reason);
    assert_eq!(terminate.ulpdu()[18..], [0xf7, 0x99, 0, 0]);
}

/// RDMAP-41: the length of a copied header follows its T bit; a header that is not there is not
/// copied.
#[test]
fn headers_that_are_cut_off() {
    let reason = TerminateReason::Tagged(TaggedError::InvalidVersion);
    let write = tagged(0, 7, 8, true, &[]);
    for len in 0..write.len() {
        let terminate = Terminate::for_segment(reason, &write[..len], 14);
        assert_eq!(flags(&terminate), (false, false, false), "{len} octets");
    }
    assert_eq!(
        flags(&Terminate::for_segment(reason, &write, 14)),
        (true, true, false)
    );
}
