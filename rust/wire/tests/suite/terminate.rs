// SPDX-License-Identifier: GPL-2.0

//! The Terminate message: RDMAP-30, RDMAP-40 to RDMAP-42.

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
use iwarp_wire::{
    tx,
    Msn,
    Stag,
    TaggedOffset, //
};

use crate::support::{
    tagged,
    untagged, //
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

/// RDMAP-40, RDMAP-41: every row copies what the table says, of tagged and untagged segments and
/// of Read Requests, and is read back as it was.
#[test]
fn every_row_copies_its_headers() {
    let nothing = (false, false, false);
    let ddp = (true, true, false);
    let protection = |error| (TerminateReason::RemoteProtection(error), ddp, true);
    let operation = |error, flags| (TerminateReason::RemoteOperation(error), flags, false);
    let mut rows = vec![
        (TerminateReason::RdmapCatastrophic, nothing, false),
        protection(RemoteProtection::InvalidStag),
        protection(RemoteProtection::BaseOrBounds),
        protection(RemoteProtection::AccessRights),
        protection(RemoteProtection::NotAssociated),
        protection(RemoteProtection::ToWrap),
        (
            TerminateReason::RemoteProtection(RemoteProtection::CannotInvalidate),
            ddp,
            false,
        ),
        (
            TerminateReason::RemoteProtection(RemoteProtection::Unspecified),
            nothing,
            false,
        ),
        operation(RemoteOperation::InvalidVersion, nothing),
        operation(RemoteOperation::UnexpectedOpcode, nothing),
        operation(RemoteOperation::StreamCatastrophic, ddp),
        operation(RemoteOperation::GlobalCatastrophic, ddp),
        operation(RemoteOperation::CannotInvalidate, ddp),
        operation(RemoteOperation::Unspecified, nothing),
        (TerminateReason::DdpCatastrophic, nothing, false),
    ];
    rows.extend(
        TaggedError::ALL
            .iter()
            .map(|&e| (TerminateReason::Tagged(e), ddp, false)),
    );
    rows.extend(
        UntaggedError::ALL
            .iter()
            .map(|&e| (TerminateReason::Untagged(e), ddp, false)),
    );
    rows.extend(
        MpaError::ALL
            .iter()
            .map(|&e| (TerminateReason::Mpa(e), nothing, false)),
    );
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

/// RDMAP-54: a Read Request that fails later is told about as if it failed at once.
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

/// RDMAP-42: cut off anywhere, a Terminate still says why, and what it does not have is not made
/// up.
#[test]
fn cut_off_anywhere() {
    let reason = AccessError::InvalidStag.for_read();
    let whole = Terminate::for_read(reason, Msn::FIRST, &READ).ulpdu();
    let octets = &whole[18..];
    assert_eq!(octets.len(), 52);
    for len in 0..=octets.len() {
        let terminate = Terminate::decode(&octets[..len]);
        if len >= 4 {
            assert_eq!(terminate.reason(), reason);
        }
        assert_eq!(terminate.segment_len().is_some(), len >= 6, "{len} octets");
        assert_eq!(terminate.header().is_some(), len >= 24, "{len} octets");
        assert_eq!(
            terminate.read_request().is_some(),
            len >= 52,
            "{len} octets"
        );
        // What was read can be said again.
        let again = terminate.ulpdu();
        assert_eq!(Terminate::decode(&again[18..]).reason(), terminate.reason());
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
