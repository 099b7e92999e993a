// SPDX-License-Identifier: GPL-2.0

//! The receive state machine: DDP-01 to DDP-63, RDMAP-01 to RDMAP-63, EMC-10 to EMC-16.

use iwarp_wire::rdmap::terminate::{
    MpaError,
    RemoteOperation,
    TaggedError,
    TerminateReason,
    UntaggedError, //
};
use iwarp_wire::rx::{
    Config,
    Decision,
    SendSegment,
    TaggedSegment, //
};
use iwarp_wire::{
    Stag,
    TaggedOffset, //
};

use crate::support::{
    failure,
    first_fails,
    read_request,
    send,
    tagged,
    untagged,
    Sink, //
};

/// DDP-04, DDP-55, DDP-60: the version of DDP is checked by T.
#[test]
fn version_of_ddp() {
    for version in [0, 2, 3] {
        let mut send = untagged(3, 0, 1, 0, true, b"data");
        send[0] = (send[0] & !3) | version;
        assert_eq!(first_fails(&send), (1, 2, 6));
        let mut write = tagged(0, 1, 2, true, b"data");
        write[0] = (write[0] & !3) | version;
        assert_eq!(first_fails(&write), (1, 1, 4));
    }
}

/// DDP-03, RDMAP-01: reserved bits do not count.
#[test]
fn reserved_bits() {
    let mut ulpdu = untagged(3, 0, 1, 0, true, b"data");
    ulpdu[0] |= 0x3c;
    ulpdu[1] |= 0x30;
    assert_eq!(Sink::new().receive(&ulpdu), send(true, 0, 4, true));
}

/// RDMAP-01, RDMAP-02: the version of RDMAP and opcodes that are not assigned.
#[test]
fn version_and_opcode_of_rdmap() {
    for version in [0, 2, 3] {
        let mut ulpdu = untagged(3, 0, 1, 0, true, b"data");
        ulpdu[1] = (ulpdu[1] & 0x3f) | (version << 6);
        assert_eq!(first_fails(&ulpdu), (0, 2, 5));
    }
    for opcode in 12..16 {
        assert_eq!(
            first_fails(&untagged(opcode, 0, 1, 0, true, &[])),
            (0, 2, 6)
        );
        assert_eq!(first_fails(&tagged(opcode, 1, 2, true, b"x")), (0, 2, 6));
    }
}

/// RDMAP-04: each opcode belongs to one form of segment and one queue, whatever else is right.
#[test]
fn opcode_agrees_with_queue() {
    for opcode in 0..12 {
        let home = match opcode {
            0 | 2 => None,
            1 | 10 => Some(1),
            7 => Some(2),
            11 => Some(3),
            _ => Some(0),
        };
        if home.is_some() {
            assert_eq!(
                first_fails(&tagged(opcode, 1, 2, true, &[0; 28])),
                (0, 2, 6)
            );
        }
        for qn in 0..4 {
            if home != Some(qn) {
                let ulpdu = untagged(opcode, qn, 1, 0, true, &[0; 28]);
                assert_eq!(first_fails(&ulpdu), (0, 2, 6), "opcode {opcode} on {qn}");
            }
        }
    }
}

/// EXT-12: without the extensions their opcodes and their queue are unknown.
#[test]
fn extensions_switched_off() {
    for (opcode, qn, len) in [(8, 0, 8), (9, 0, 8), (10, 1, 52)] {
        let ulpdu = untagged(opcode, qn, 1, 0, true, &vec![0; len]);
        let mut sink = Sink::with(Config::default());
        assert_eq!(failure(&mut sink, &ulpdu), (0, 2, 6), "opcode {opcode}");
    }
    let ulpdu = untagged(11, 3, 1, 0, true, &[0; 12]);
    let mut sink = Sink::with(Config::default());
    assert_eq!(failure(&mut sink, &ulpdu), (1, 2, 1));
}

/// DDP-50: queues that do not exist.
#[test]
fn queue_that_does_not_exist() {
    for qn in [4, 5, 0x8000_0000, u32::MAX] {
        assert_eq!(
            first_fails(&untagged(3, qn, 1, 0, true, b"data")),
            (1, 2, 1)
        );
    }
}

/// DDP-09, DDP-52: the message numbers of each queue begin with 1 and are consecutive.
#[test]
fn message_numbers() {
    for msn in [0, 2, 1 << 31, u32::MAX] {
        assert_eq!(
            first_fails(&untagged(3, 0, msn, 0, true, b"data")),
            (1, 2, 3)
        );
        assert_eq!(first_fails(&read_request(msn, 1)), (1, 2, 3));
    }
    let mut sink = Sink::new();
    for msn in 1..5 {
        let ulpdu = untagged(3, 0, msn, 0, true, b"data");
        assert_eq!(sink.receive(&ulpdu), send(true, 0, 4, true));
        assert_eq!(sink.receive(&read_request(msn, 1)), Decision::ReadRequest);
    }
    // A number that was used before.
    assert_eq!(
        failure(&mut sink, &untagged(3, 0, 4, 0, true, b"data")),
        (1, 2, 3)
    );
}

/// DDP-02, DDP-10, DDP-26, DDP-27, DDP-28: the segments of a Send come in order, and the last one
/// tells the length.
#[test]
fn segments_of_a_send() {
    let mut sink = Sink::new();
    let segments = [
        (true, 0, 10, false),
        (false, 10, 0, false),
        (false, 10, 7, true),
    ];
    for (first, mo, len, last) in segments {
        let payload = vec![0; len as usize];
        let ulpdu = untagged(3, 0, 1, mo, last, &payload);
        assert_eq!(sink.receive(&ulpdu), send(first, mo, len, last));
    }
    let Decision::Send(next) = sink.receive(&untagged(3, 0, 2, 0, true, b"next")) else {
        panic!("it is a Send")
    };
    assert!(next.first && next.end() == 4);
}

/// DDP-65: a deferred Send is decided upon again as if for the first time.
#[test]
fn deferred_send_is_taken_again() {
    for last in [true, false] {
        let mut sink = Sink::new();
        let first = untagged(3, 0, 1, 0, last, b"data");
        let Decision::Send(segment) = sink.receive(&first) else {
            panic!("it is a Send")
        };
        sink.receiver.defer(&segment);
        assert!(sink.receiver.started());
        assert_eq!(sink.receive(&first), send(true, 0, 4, last));
        let (msn, mo) = if last { (2, 0) } else { (1, 4) };
        let next = untagged(3, 0, msn, mo, true, b"more");
        assert_eq!(sink.receive(&next), send(last, mo, 4, true));
    }
}

/// DDP-53: an offset that is not the next one.
#[test]
fn offset_that_is_not_the_next() {
    assert_eq!(first_fails(&untagged(3, 0, 1, 4, true, b"data")), (1, 2, 4));
    for mo in [0, 3, 5, u32::MAX] {
        let mut sink = Sink::new();
        sink.receive(&untagged(3, 0, 1, 0, false, b"data"));
        let ulpdu = untagged(3, 0, 1, mo, true, b"data");
        assert_eq!(failure(&mut sink, &ulpdu), (1, 2, 4), "offset {mo}");
    }
}

/// DDP-51, DDP-54: no buffer, and one that is too short.
#[test]
fn buffers_of_a_send() {
    let segment = SendSegment {
        first: false,
        mo: 4000,
        len: 97,
        last: true,
        solicited: false,
        invalidate: None,
    };
    let too_long = TerminateReason::Untagged(UntaggedError::TooLong);
    assert_eq!(segment.fit(4097), Ok(()));
    assert_eq!(segment.fit(4096), Err(too_long));
    assert_eq!(
        (too_long.layer(), too_long.etype(), too_long.code()),
        (1, 2, 5)
    );
    let none = segment.no_buffer();
    assert_eq!((none.layer(), none.etype(), none.code()), (1, 2, 2));
    // A Send of 0 octets fits into a buffer of 0 octets.
    let nothing = SendSegment {
        mo: 0,
        len: 0,
        ..segment
    };
    assert_eq!(nothing.fit(0), Ok(()));
}

/// DDP-08, DDP-05: all segments of a message have the same variant.
#[test]
fn variant_changes_half_way() {
    for opcode in [4, 5, 6, 8] {
        let mut sink = Sink::new();
        sink.receive(&untagged(3, 0, 1, 0, false, b"data"));
        let ulpdu = untagged(opcode, 0, 1, 4, true, &[0; 8]);
        assert_eq!(failure(&mut sink, &ulpdu), (0, 2, 6), "opcode {opcode}");
    }
}

/// RDMAP-03: the field of the STag counts for Invalidate only.
#[test]
fn field_of_the_stag() {
    for (opcode, solicited, invalidate) in [
        (3, false, None),
        (4, false, Some(Stag::new(0xaabb_ccdd))),
        (5, true, None),
        (6, true, Some(Stag::new(0xaabb_ccdd))),
    ] {
        let mut ulpdu = untagged(opcode, 0, 1, 0, true, b"data");
        ulpdu[2..6].copy_from_slice(&[0xaa, 0xbb, 0xcc, 0xdd]);
        let Decision::Send(segment) = Sink::new().receive(&ulpdu) else {
            panic!("it is a Send")
        };
        assert_eq!(
            (segment.solicited, segment.invalidate),
            (solicited, invalidate)
        );
    }
}

/// RDMAP-20: a Send of 0 octets takes a receive buffer; a Write of 0 octets accesses none.
#[test]
fn messages_of_nothing() {
    let mut sink = Sink::new();
    assert_eq!(
        sink.receive(&untagged(3, 0, 1, 0, true, &[])),
        send(true, 0, 0, true)
    );
    // DDP-23, RDMAP-56: any STag and offset.
    for (stag, to) in [(0, 0), (0xdead_beef, u64::MAX)] {
        assert_eq!(
            sink.receive(&tagged(0, stag, to, true, &[])),
            Decision::Nothing
        );
    }
    assert_eq!(
        sink.receive(&untagged(3, 0, 2, 0, true, &[])),
        send(true, 0, 0, true)
    );
}

/// DDP-01, DDP-06, DDP-07, RDMAP-10: the fields of a Write.
#[test]
fn write() {
    let mut sink = Sink::new();
    for (to, last) in [(u64::MAX, false), (1, true)] {
        let segment = TaggedSegment {
            stag: Stag::new(0xcafe),
            to: TaggedOffset::new(to),
            len: 4,
            last,
        };
        let ulpdu = tagged(0, 0xcafe, to, last, b"data");
        assert_eq!(sink.receive(&ulpdu), Decision::Write(segment));
    }
}

/// MPA-18: ULPDUs too short for their header are errors of the length, not underflows.
#[test]
fn too_short_for_a_header() {
    let write = tagged(0, 1, 2, true, &[]);
    let send = untagged(3, 0, 1, 0, true, &[]);
    for len in 1..14 {
        assert_eq!(first_fails(&write[..len]), (2, 0, 3), "{len} octets");
    }
    for len in 1..18 {
        assert_eq!(first_fails(&send[..len]), (2, 0, 3), "{len} octets");
    }
    let mut sink = Sink::new();
    sink.receive(&write);
    assert_eq!(failure(&mut sink, &[]), (2, 0, 3));
}

/// EXT-09: Immediate Data has eight octets and counts as a Send.
#[test]
fn immediate_data() {
    for len in [0, 7] {
        let ulpdu = untagged(8, 0, 1, 0, true, &vec![0; len]);
        assert_eq!(first_fails(&ulpdu), (0, 2, 0xff));
    }
    assert_eq!(first_fails(&untagged(8, 0, 1, 0, true, &[0; 9])), (1, 2, 5));
    let mut sink = Sink::new();
    for (msn, opcode) in [(1, 8), (3, 9)] {
        let ulpdu = untagged(opcode, 0, msn, 0, true, b"eight...");
        let expected = Decision::Immediate {
            data: *b"eight...",
            solicited: opcode == 9,
        };
        assert_eq!(sink.receive(&ulpdu), expected);
        let ulpdu = untagged(3, 0, msn + 1, 0, true, b"data");
        assert_eq!(sink.receive(&ulpdu), send(true, 0, 4, true));
    }
}

/// RDMAP-31, RDMAP-32: a Terminate ends the stream and is never answered, even if it is malformed.
#[test]
fn terminate_ends_the_stream() {
    for (msn, mo, last, payload) in [
        (1, 0, true, &[0x20, 2, 0, 0][..]),
        (7, 3, false, &[0x20, 2, 0xff, 0xff]),
        (1, 0, true, &[]),
        (1, 0, true, &[0xff; 300]),
    ] {
        let mut sink = Sink::new();
        let ulpdu = untagged(7, 2, msn, mo, last, payload);
        assert!(matches!(sink.receive(&ulpdu), Decision::Terminated(_)));
        assert_eq!(sink.receive(&ulpdu), Decision::Dropped);
        assert!(sink.receiver.is_closed() && !sink.receiver.started());
    }
}

/// MPA-11: octets behind the ULPDU, a pad or another FPDU, are ignored.
#[test]
fn octets_behind_the_ulpdu() {
    let mut octets = untagged(7, 2, 1, 0, true, &[0x11, 0, 0xe0, 0]);
    let len = u16::try_from(octets.len()).expect("fits");
    octets.resize(70, 0xc1);
    let mut sink = Sink::new();
    let decision = sink
        .receiver
        .receive(&octets, len, &mut sink.orq, &mut sink.irq);
    let Decision::Terminated(terminate) = decision else {
        panic!("it is a Terminate: {decision:?}")
    };
    assert_eq!(terminate.segment_len(), None);
    assert_eq!(terminate.header(), None);
}

/// DDP-63, MPA-96: an error found by the caller stops the stream too.
#[test]
fn errors_found_elsewhere() {
    let mut sink = Sink::new();
    let good = |msn| untagged(3, 0, msn, 0, true, b"data");
    assert!(!sink.receiver.is_closed());
    assert_eq!(sink.receive(&good(1)), send(true, 0, 4, true));
    assert!(!sink.receiver.is_closed());
    sink.receiver.fail();
    assert!(sink.receiver.is_closed());
    assert_eq!(sink.receive(&good(2)), Decision::Dropped);
}

/// The names of the codes used above are those of the table.
#[test]
fn codes_by_name() {
    let wire = |reason: TerminateReason| (reason.layer(), reason.etype(), reason.code());
    for (reason, expected) in [
        (
            TerminateReason::Untagged(UntaggedError::InvalidQn),
            (1, 2, 1),
        ),
        (
            TerminateReason::Untagged(UntaggedError::MsnRange),
            (1, 2, 3),
        ),
        (
            TerminateReason::Untagged(UntaggedError::InvalidMo),
            (1, 2, 4),
        ),
        (TerminateReason::Tagged(TaggedError::InvalidStag), (1, 1, 0)),
        (
            TerminateReason::RemoteOperation(RemoteOperation::UnexpectedOpcode),
            (0, 2, 6),
        ),
        (TerminateReason::Mpa(MpaError::Marker), (2, 0, 3)),
    ] {
        assert_eq!(wire(reason), expected);
    }
}
