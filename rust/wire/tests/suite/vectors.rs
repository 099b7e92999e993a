// SPDX-License-Identifier: GPL-2.0

//! The octets V1 to V19, written and read; V20 to V24 are with the other start-up frames.
//!
//! V1 to V4 are the hex dumps of the MPA drafts and of RFC 5044 section 4. On the others, Wireshark's
//! dissector has the same verdict about the CRC where it gives one.

use iwarp_wire::ddp::{
    TaggedHeader,
    UntaggedHeader, //
};
use iwarp_wire::mpa::startup::RtrKind;
use iwarp_wire::rdmap::terminate::{
    MpaError,
    TaggedError,
    Terminate,
    TerminateReason,
    UntaggedError, //
};
use iwarp_wire::rdmap::{
    AtomicOperation,
    AtomicRequest,
    ReadRequest,
    SendKind, //
};
use iwarp_wire::reads::Request;
use iwarp_wire::rx::{
    Decision,
    SendSegment, //
};
use iwarp_wire::tx::{
    self,
    Message,
    Msns,
    Segmenter, //
};
use iwarp_wire::{
    Mo,
    Msn,
    Stag,
    TaggedOffset, //
};

use crate::support::{
    framer_at,
    hex,
    read_fpdu,
    reference_fpdu,
    tagged,
    untagged,
    write_fpdu,
    writer_at,
    Sink, //
};

/// Writes an FPDU and reads it: both must agree with `wire`.
fn both_ways(wire: &[u8], pos: Option<usize>, header: &[u8], payload: &[u8]) {
    let (markers, pos) = (pos.is_some(), pos.unwrap_or(0));
    let written = write_fpdu(&mut writer_at(markers, pos), header, payload);
    assert_eq!(written, wire, "as written");
    let read = read_fpdu(&mut framer_at(markers, pos), wire).expect("CRC and markers are right");
    assert_eq!(read, [header, payload].concat(), "as read");
}

/// A Send of one segment, as the transmit side makes it, and the receive side's view of it.
fn send(wire: &[u8], pos: Option<usize>, msn: u32, kind: SendKind, payload: &[u8]) {
    let message = Message::Send {
        msn: Msn::new(msn),
        kind,
    };
    let len = u32::try_from(payload.len()).expect("fits");
    let step = Segmenter::new(message, len)
        .next(64768)
        .expect("one segment");
    both_ways(wire, pos, &step.header, payload);

    let mut sink = Sink::new();
    for before in 1..msn {
        sink.receive(&untagged(3, 0, before, 0, true, &[]));
    }
    let ulpdu = [&step.header, payload].concat();
    assert_eq!(
        sink.receive(&ulpdu),
        Decision::Send(SendSegment {
            first: true,
            mo: 0,
            len,
            last: true,
            solicited: kind.solicited,
            invalidate: kind.invalidate,
        })
    );
}

/// V1, V2: the drafts' dumps verify, and their version 0 of DDP is refused (DDP-04, DDP-55).
#[test]
fn drafts_verify_but_are_of_another_version() {
    let header = |msn: u32| {
        UntaggedHeader {
            last: true,
            ulp: 0x03,
            ulp_word: 0,
            qn: 0,
            msn: Msn::new(msn),
            mo: Mo::ZERO,
        }
        .encode()
        .to_vec()
    };
    for (msn, pos, wire) in [
        (
            1,
            0,
            "00000000 002a4003 00000000 00000000 00000001 00000000 00000000 00000000 00000000
             00000000 00000000 00000000 4c86b384",
        ),
        (
            2,
            0x1ec,
            "002a4003 00000000 00000000 00000002 00000000 00000014 00000000 00000000 00000000
             00000000 00000000 00000000 a19cd103",
        ),
    ] {
        let mut header = header(msn);
        header[0] &= !3;
        both_ways(&hex(wire), Some(pos), &header, &[0; 24]);
        assert_eq!(
            Sink::new().receive(&[&header[..], &[0; 24]].concat()),
            Decision::Fail(TerminateReason::Untagged(UntaggedError::InvalidVersion))
        );
    }
}

/// V3, V4: the dumps of RFC 5044 (MPA-08, MPA-24, MPA-26).
#[test]
fn dumps_of_the_rfc() {
    let kind = SendKind::default();
    let first = "00000000 002a4143 00000000 00000000 00000001 00000000 00000000 00000000 00000000
                 00000000 00000000 00000000 52239983";
    send(&hex(first), Some(0), 1, kind, &[0; 24]);
    let second = "002a4143 00000000 00000000 00000002 00000000 00000014 00000000 00000000 00000000
                  00000000 00000000 00000000 84925898";
    send(&hex(second), Some(0x1ec), 2, kind, &[0; 24]);
}

/// V5: V3 without markers (MPA-01).
#[test]
fn without_markers() {
    let wire = "002a4143 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000000
                00000000 00000000 b7243ec3";
    send(&hex(wire), None, 1, SendKind::default(), &[0; 24]);
}

/// V6: a marker within the ULPDU (MPA-07, MPA-26).
#[test]
fn marker_within_the_ulpdu() {
    let wire = "0010 00010203040506070809 0000000c 0a0b0c0d0e0f 0000 105b1c88";
    let ulpdu: Vec<u8> = (0..16).collect();
    both_ways(&hex(wire), Some(500), &[], &ulpdu);
    both_ways(&hex(wire), Some(500), &ulpdu, &[]);
}

/// V7.1 to V7.4: each length of pad (MPA-02, MPA-03).
#[test]
fn each_length_of_pad() {
    let header = "4143 00000000 00000000 00000001 00000000";
    for (length, rest, payload) in [
        ("0013", "a0 000000 1abe176a", "a0"),
        ("0014", "a0a1 0000 6a06e2e9", "a0a1"),
        ("0015", "a0a1a2 00 47df3c3f", "a0a1a2"),
        ("0016", "a0a1a2a3 5d895310", "a0a1a2a3"),
    ] {
        let wire = hex(&[length, header, rest].concat());
        assert_eq!(wire.len(), 28);
        send(&wire, None, 1, SendKind::default(), &hex(payload));
    }
}

/// V8: the zero-length Write that serves as RTR (EMC-12).
#[test]
fn rtr_write() {
    let wire = hex("000ec140 00000000 0000000000000000 a30572ab");
    let rtr = tx::rtr(RtrKind::Write, &mut Msns::new());
    both_ways(&wire, None, &rtr, &[]);
    let step = Segmenter::new(
        Message::Write {
            stag: Stag::new(0),
            to: TaggedOffset::new(0),
        },
        0,
    )
    .next(1442)
    .expect("one segment");
    assert_eq!(*step.header, *rtr);
    assert_eq!(Sink::new().receive(&rtr), Decision::Nothing);
}

/// V9: a Send of no octets (RDMAP-20).
#[test]
fn send_of_nothing() {
    let wire = hex("00124143 00000000 00000000 00000001 00000000 587be8c4");
    send(&wire, None, 1, SendKind::default(), &[]);
}

/// V10: a Read Request (RDMAP-12).
#[test]
fn read_request() {
    let wire = hex(
        "002e4141 00000000 00000001 00000001 00000000 11223344 0102030405060708 00010000 55667788
         1112131415161718 a8495d44",
    );
    let request = ReadRequest {
        sink: Stag::new(0x1122_3344),
        sink_to: TaggedOffset::new(0x0102_0304_0506_0708),
        size: 0x10000,
        source: Stag::new(0x5566_7788),
        source_to: TaggedOffset::new(0x1112_1314_1516_1718),
    };
    let ulpdu = tx::read_request(Msns::new().read_request(), &request);
    both_ways(&wire, None, &ulpdu, &[]);

    let mut sink = Sink::new();
    assert_eq!(sink.receive(&ulpdu), Decision::ReadRequest);
    let inbound = sink.irq.head().expect("it was queued");
    assert_eq!(inbound.request(), Request::Read(request));
    assert_eq!(inbound.msn(), Msn::FIRST);
}

/// V11: Terminate for a bad CRC (RDMAP-40, MPA-93).
#[test]
fn terminate_for_a_bad_crc() {
    let wire = hex("00164147 00000000 00000002 00000001 00000000 20020000 7fe42585");
    let terminate = Terminate::bare(TerminateReason::Mpa(MpaError::Crc));
    both_ways(&wire, None, &terminate.ulpdu(), &[]);
    assert_eq!(
        Sink::new().receive(&terminate.ulpdu()),
        Decision::Terminated(terminate)
    );
}

/// V12: Terminate for a Write out of bounds, with the header that was wrong (RDMAP-40,
/// RDMAP-41).
#[test]
fn terminate_for_a_write_out_of_bounds() {
    let wire = hex(
        "00264147 00000000 00000002 00000001 00000000 1101c000 0072 c14000001234 0000000000001000
         155afec5",
    );
    let reason = TerminateReason::Tagged(TaggedError::BaseOrBounds);
    let wrong = tagged(0, 0x1234, 0x1000, true, &[7; 100]);
    let terminate = Terminate::for_segment(reason, &wrong, 114);
    both_ways(&wire, None, &terminate.ulpdu(), &[]);
    let Decision::Terminated(read) = Sink::new().receive(&terminate.ulpdu()) else {
        panic!("it is a Terminate")
    };
    assert_eq!(read, terminate);
    assert_eq!((read.reason(), read.segment_len()), (reason, Some(114)));
}

/// V13: Send with Solicited Event and Invalidate (RDMAP-21, RDMAP-22).
#[test]
fn send_with_everything() {
    let wire = hex("00164146 deadbeef 00000000 00000001 00000000 61626364 75612319");
    let kind = SendKind {
        solicited: true,
        invalidate: Some(Stag::new(0xdead_beef)),
    };
    send(&wire, None, 1, kind, b"abcd");
}

/// V14: Immediate Data (EXT-09).
#[test]
fn immediate_data() {
    let wire = hex("001a4148 00000000 00000000 00000001 00000000 1122334455667788 fa7ee097");
    let data = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88];
    for solicited in [false, true] {
        let ulpdu = tx::immediate(Msn::FIRST, data, solicited);
        if !solicited {
            both_ways(&wire, None, &ulpdu, &[]);
        }
        assert_eq!(
            Sink::new().receive(&ulpdu),
            Decision::Immediate { data, solicited }
        );
    }
}

/// V15: FetchAdd (EXT-01); V16: its answer (EXT-03).
#[test]
fn atomic() {
    let wire = hex(
        "0046414a 00000000 00000001 00000001 00000000 00000000 00000007 0000cafe 0000000000002000
         0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff 0979c39d",
    );
    let request = AtomicRequest {
        id: 7,
        stag: Stag::new(0xcafe),
        to: TaggedOffset::new(0x2000),
        operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
    };
    let ulpdu = tx::atomic_request(Msn::FIRST, &request);
    both_ways(&wire, None, &ulpdu, &[]);
    let mut responder = Sink::new();
    assert_eq!(responder.receive(&ulpdu), Decision::AtomicRequest);
    let inbound = responder.irq.head().expect("it was queued");
    assert_eq!(inbound.request(), Request::Atomic(request));

    let wire =
        hex("001e414b 00000000 00000003 00000001 00000000 00000007 0000000000000029 b9ebafe8");
    assert!(responder.irq.next_step(1442).is_none(), "it is no Read");
    let answer = responder
        .irq
        .answer_atomic(41, Msn::FIRST)
        .expect("it is an Atomic");
    assert!(responder.irq.is_empty());
    both_ways(&wire, None, &answer, &[]);

    let mut requester = Sink::new();
    requester.orq.push_atomic(7, 99).expect("there is room");
    assert_eq!(
        requester.receive(&answer),
        Decision::AtomicResponse { original: 41 }
    );
    assert_eq!(requester.orq.complete(), Some(99));
}

/// V17: a marker between pad and CRC (MPA-07, MPA-33).
#[test]
fn marker_between_pad_and_crc() {
    let mut wire = hex("00000000 01fa4143 00000000 00000000 00000001 00000000");
    wire.resize(512, 0);
    wire.extend(hex("000001fc 38cf64e8"));
    assert_eq!(wire.len(), 520);
    send(&wire, Some(0), 1, SendKind::default(), &[0; 488]);
}

/// V18a, V18b: an FPDU ends where the next marker falls, which is the next FPDU's (MPA-08,
/// MPA-27).
#[test]
fn marker_between_fpdus() {
    let mut wire = hex("00000000 01f64143 00000000 00000000 00000001 00000000");
    wire.resize(508, 0);
    wire.extend(hex("a09bb55b"));
    assert_eq!(wire.len(), 512);
    send(&wire, Some(0), 1, SendKind::default(), &[0; 484]);

    let wire = hex(
        "00000000 002a4143 00000000 00000000 00000002 00000000 00000000 00000000 00000000 00000000
         00000000 00000000 cc08199e",
    );
    send(&wire, Some(512), 2, SendKind::default(), &[0; 24]);
}

/// V19: three markers that all point to the same octet (MPA-29).
#[test]
fn three_markers() {
    let payload: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let header = untagged(3, 0, 1, 0, true, &[]);
    let wire = reference_fpdu(&[&header[..], &payload].concat(), Some(0));
    assert_eq!(wire.len(), 1060);
    assert_eq!(wire[..4], hex("00000000"));
    assert_eq!(wire[512..516], hex("000001fc"));
    assert_eq!(wire[1024..1028], hex("000003fc"));
    assert_eq!(wire[1056..], hex("a1b0ef97"));
    send(&wire, Some(0), 1, SendKind::default(), &payload);
}

/// V19d: markers that point as the drafts can be read are wrong (MPA-26, MPA-30, MPA-94).
#[test]
fn three_markers_of_the_drafts() {
    let payload: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let header = untagged(3, 0, 1, 0, true, &[]);
    let mut wire = reference_fpdu(&[&header[..], &payload].concat(), Some(0));
    wire[512..516].copy_from_slice(&hex("00000200"));
    wire[1024..1028].copy_from_slice(&hex("00000400"));
    wire[1056..].copy_from_slice(&hex("91a03928"));
    assert_eq!(
        read_fpdu(&mut framer_at(true, 0), &wire),
        Err(TerminateReason::Mpa(MpaError::Marker))
    );
}

/// A tagged header is decoded as it was encoded (DDP-05 to DDP-07): T, L and every field.
#[test]
fn tagged_header() {
    let header = TaggedHeader {
        last: true,
        ulp: 0x40,
        stag: Stag::new(0x1234),
        to: TaggedOffset::new(0x1000),
    };
    assert_eq!(header.encode()[..], hex("c14000001234 0000000000001000"));
}
