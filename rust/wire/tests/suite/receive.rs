// SPDX-License-Identifier: GPL-2.0

//! The receive state machine: DDP-01 to DDP-63, RDMAP-01 to RDMAP-63, EMC-10 to EMC-16.

use iwarp_wire::mpa::startup::RtrKind;
use iwarp_wire::rdmap::terminate::{
    MpaError,
    RemoteOperation,
    TaggedError,
    TerminateReason,
    UntaggedError, //
};
use iwarp_wire::rdmap::ReadRequest;
use iwarp_wire::reads::Request;
use iwarp_wire::rx::{
    Config,
    Decision,
    ReadSegment,
    SendSegment,
    TaggedSegment, //
};
use iwarp_wire::tx::{
    self,
    Msns, //
};
use iwarp_wire::{
    Msn,
    Stag,
    TaggedOffset, //
};

use crate::support::{
    tagged,
    untagged,
    Sink, //
};

/// The error of a decision, and that nothing is taken behind it (DDP-63, MPA-96).
fn failure(sink: &mut Sink, ulpdu: &[u8]) -> (u8, u8, u8) {
    let reason = match sink.receive(ulpdu) {
        Decision::Fail(reason) => reason,
        other => panic!("{other:?} instead of an error"),
    };
    assert!(sink.receiver.is_closed());
    let good = untagged(3, 0, 1, 0, true, b"good");
    assert_eq!(sink.receive(&good), Decision::Dropped);
    (reason.layer(), reason.etype(), reason.code())
}

/// The error that a ULPDU is as the first of a stream.
fn first_fails(ulpdu: &[u8]) -> (u8, u8, u8) {
    failure(&mut Sink::new(), ulpdu)
}

/// A Read Request for `size` octets.
fn read_request(msn: u32, size: u32) -> Vec<u8> {
    let request = ReadRequest {
        sink: Stag::new(0x100),
        sink_to: TaggedOffset::new(0x1000),
        size,
        source: Stag::new(0x200),
        source_to: TaggedOffset::new(0x2000),
    };
    tx::read_request(Msn::new(msn), &request).to_vec()
}

/// What is to be done with a segment of a Send without flags.
fn send(first: bool, mo: u32, len: u32, last: bool) -> Decision {
    Decision::Send(SendSegment {
        first,
        mo,
        len,
        last,
        solicited: false,
        invalidate: None,
    })
}

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

/// DDP-09, DDP-52: message numbers begin with 1 and leave nothing out, on each queue for itself.
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
    // A number that was there already.
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
    // Nothing needs no room.
    let nothing = SendSegment {
        mo: 0,
        len: 0,
        ..segment
    };
    assert_eq!(nothing.fit(0), Ok(()));
}

/// DDP-08, DDP-05: a message does not change its variant half way.
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

/// RDMAP-20: a Send of nothing takes a receive buffer, a Write of nothing does not.
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

/// DDP-01, DDP-06, DDP-07, RDMAP-10: a Write as it is.
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

/// RDMAP-12, RDMAP-13: a Read Request is one segment of exactly its length.
#[test]
fn extent_of_a_read_request() {
    let good = read_request(1, 4096);
    let mut sink = Sink::new();
    assert_eq!(sink.receive(&good), Decision::ReadRequest);
    let inbound = sink.irq.head().expect("it was queued");
    assert!(matches!(inbound.request(), Request::Read(request) if request.size == 4096));

    let long = [&good[..], &[0]].concat();
    assert_eq!(first_fails(&long), (1, 2, 5));
    assert_eq!(first_fails(&good[..45]), (0, 2, 0xff));
    let mut more_to_come = good.clone();
    more_to_come[0] &= !0x40;
    assert_eq!(first_fails(&more_to_come), (1, 2, 5));
    let mut offset = good.clone();
    offset[17] = 1;
    assert_eq!(first_fails(&offset), (1, 2, 4));
}

/// DDP-51, RDMAP-61: one Read Request more than IRD; RDMAP-63: IRD may be 0.
#[test]
fn more_read_requests_than_ird() {
    let mut sink = Sink::new();
    for msn in 1..5 {
        assert_eq!(sink.receive(&read_request(msn, 0)), Decision::ReadRequest);
    }
    assert!(sink.irq.is_full());
    assert_eq!(failure(&mut sink, &read_request(5, 0)), (1, 2, 2));

    let mut sink = Sink::new();
    sink.irq = iwarp_wire::reads::Irq::new(vec![None; 4], 0);
    assert_eq!(failure(&mut sink, &read_request(1, 0)), (1, 2, 2));
}

/// RDMAP-61: an answer makes room for the next request.
#[test]
fn answers_make_room() {
    let mut sink = Sink::new();
    for msn in 1..100 {
        if sink.irq.is_full() {
            let answer = sink.irq.next_step(1442).expect("there is a Read");
            assert!(answer.first && answer.last);
            sink.irq.commit(&answer);
        }
        assert_eq!(sink.receive(&read_request(msn, 100)), Decision::ReadRequest);
    }
}

/// RDMAP-14, RDMAP-16: the answer names the sink, has exactly the octets asked for, and nothing is
/// one segment.
#[test]
fn answers_to_reads() {
    for size in [0, 1, 1428, 1429, 5000] {
        let mut source = Sink::new();
        source.receive(&read_request(1, size));
        let mut sink = Sink::new();
        sink.orq
            .push_read(Stag::new(0x100), TaggedOffset::new(0x1000), size, 5)
            .expect("there is room");
        let mut offset = 0;
        while let Some(answer) = source.irq.next_step(1442) {
            assert_eq!(answer.first, offset == 0);
            assert_eq!(answer.source, Stag::new(0x200));
            assert_eq!(answer.from.get(), 0x2000 + u64::from(offset));
            let len = u32::from(answer.len);
            let ulpdu = [&answer.header, &vec![0; len as usize][..]].concat();
            assert!(ulpdu.len() <= 1442);
            let expected = ReadSegment {
                stag: Stag::new(0x100),
                to: TaggedOffset::new(0x1000 + u64::from(offset)),
                offset,
                len,
                last: answer.last,
            };
            assert_eq!(sink.receive(&ulpdu), Decision::ReadResponse(expected));
            offset += len;
            assert_eq!(answer.last, offset == size);
            assert_eq!(sink.orq.complete(), answer.last.then_some(5));
            source.irq.commit(&answer);
        }
        assert_eq!(offset, size);
        assert!(source.irq.is_empty() && sink.orq.is_empty());
    }
}

/// RDMAP-02: a Read Response that nobody asked for, and one behind the last.
#[test]
fn read_response_not_asked_for() {
    let response = tagged(2, 0x100, 0x1000, true, b"data");
    assert_eq!(first_fails(&response), (0, 2, 6));
    let mut sink = Sink::new();
    let at = TaggedOffset::new(0x1000);
    sink.orq
        .push_read(Stag::new(0x100), at, 4, 1)
        .expect("there is room");
    assert!(matches!(sink.receive(&response), Decision::ReadResponse(_)));
    assert_eq!(sink.orq.complete(), Some(1));
    assert_eq!(failure(&mut sink, &response), (0, 2, 6));
}

/// RDMAP-17: a forged Read Response is found, whatever it forges.
#[test]
fn forged_read_responses() {
    for (stag, to, len, last, expected) in [
        (0x101, 0x1000, 8, true, (1, 1, 0)),
        (0x100, 0x1001, 8, true, (1, 1, 1)),
        (0x100, 0x0fff, 8, true, (1, 1, 1)),
        (0x100, 0x1000, 9, true, (1, 1, 1)),
        (0x100, 0x1000, 7, true, (0, 2, 0xff)),
        (0x100, 0x1000, 8, false, (0, 2, 0xff)),
    ] {
        let mut sink = Sink::new();
        let at = TaggedOffset::new(0x1000);
        sink.orq
            .push_read(Stag::new(0x100), at, 8, 1)
            .expect("there is room");
        let ulpdu = tagged(2, stag, to, last, &vec![0; len]);
        assert_eq!(failure(&mut sink, &ulpdu), expected);
        assert_eq!(sink.orq.complete(), None, "the Read is not done");
        assert_eq!(sink.orq.pop(), Some(1), "it can be flushed");
    }
}

/// RDMAP-17: Responses come in the order of the Requests.
#[test]
fn read_responses_in_order() {
    let mut sink = Sink::new();
    for (at, cookie) in [(0x1000, 1), (0x2000, 2)] {
        sink.orq
            .push_read(Stag::new(0x100), TaggedOffset::new(at), 4, cookie)
            .expect("there is room");
    }
    let second = tagged(2, 0x100, 0x2000, true, b"data");
    assert_eq!(failure(&mut sink, &second), (1, 1, 1));
}

/// RDMAP-16, DDP-23: the answer to a Read of nothing may name anything, but carries nothing.
#[test]
fn read_of_nothing() {
    let nothing = |sink: &mut Sink| {
        sink.orq
            .push_read(Stag::new(0), TaggedOffset::new(0), 0, 1)
            .expect("there is room");
    };
    let mut sink = Sink::new();
    nothing(&mut sink);
    let ulpdu = tagged(2, 0xffff, u64::MAX, true, &[]);
    assert!(matches!(sink.receive(&ulpdu), Decision::ReadResponse(s) if s.last && s.len == 0));
    assert_eq!(sink.orq.complete(), Some(1));

    let mut sink = Sink::new();
    nothing(&mut sink);
    assert_eq!(failure(&mut sink, &tagged(2, 0, 0, true, b"x")), (1, 1, 1));
    let mut sink = Sink::new();
    nothing(&mut sink);
    assert_eq!(
        failure(&mut sink, &tagged(2, 0, 0, false, &[])),
        (0, 2, 0xff)
    );
}

/// RDMAP-60: ORD bounds what is outstanding, an answer frees a place.
#[test]
fn ord_bounds_reads() {
    let mut sink = Sink::new();
    let at = TaggedOffset::new(0);
    for cookie in 0..4 {
        assert!(!sink.orq.is_full());
        assert!(sink.orq.push_read(Stag::new(1), at, 1, cookie).is_ok());
    }
    assert!(sink.orq.is_full());
    assert!(sink.orq.push_read(Stag::new(1), at, 1, 9).is_err());
    assert!(sink.orq.push_atomic(1, 9).is_err());
    sink.receive(&tagged(2, 1, 0, true, b"x"));
    assert_eq!(sink.orq.complete(), Some(0));
    assert!(sink.orq.push_atomic(1, 9).is_ok());
    assert_eq!(sink.orq.len(), 4);
}

/// EXT-08: an Atomic Response for another request, or for a Read.
#[test]
fn atomic_response_out_of_order() {
    let response = |id: u32| {
        untagged(
            11,
            3,
            1,
            0,
            true,
            &[&id.to_be_bytes()[..], &[0; 8]].concat(),
        )
    };
    assert_eq!(first_fails(&response(7)), (0, 2, 6));
    let mut sink = Sink::new();
    sink.orq.push_atomic(8, 1).expect("there is room");
    assert_eq!(failure(&mut sink, &response(7)), (0, 2, 6));
    let mut sink = Sink::new();
    sink.orq
        .push_read(Stag::new(1), TaggedOffset::new(0), 8, 1)
        .expect("there is room");
    assert_eq!(failure(&mut sink, &response(7)), (0, 2, 6));
    let mut sink = Sink::new();
    sink.orq.push_atomic(7, 1).expect("there is room");
    assert_eq!(failure(&mut sink, &tagged(2, 0, 0, true, &[])), (0, 2, 6));
    assert_eq!(sink.orq.complete(), None);
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

/// RDMAP-31, RDMAP-32: a Terminate ends the stream and is never answered, however odd it is.
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

/// DDP-63, MPA-96: an error found by the caller stops the stream too.
#[test]
fn errors_found_elsewhere() {
    let mut sink = Sink::new();
    let good = untagged(3, 0, 1, 0, true, b"data");
    sink.receiver.fail();
    assert!(sink.receiver.is_closed());
    assert_eq!(sink.receive(&good), Decision::Dropped);
}

/// EMC-10, EMC-14, EMC-16: the RTR frame that was agreed on starts the stream, another does not.
#[test]
fn rtr_frame_starts_the_stream() {
    let kinds = [RtrKind::Fpdu, RtrKind::Write, RtrKind::Read];
    for agreed in kinds {
        let config = Config {
            responder: true,
            rtr: Some(agreed),
            ..Config::default()
        };
        for sent in kinds {
            let mut sink = Sink::with(config);
            assert!(!sink.receiver.started());
            let decision = sink.receive(&tx::rtr(sent, &mut Msns::new()));
            if sent == agreed {
                let expected = match sent {
                    RtrKind::Read => Decision::ReadRequest,
                    _ => Decision::Nothing,
                };
                assert_eq!(decision, expected);
                assert!(sink.receiver.started());
                let ulpdu = untagged(3, 0, 1, 0, true, b"data");
                assert_eq!(sink.receive(&ulpdu), send(true, 0, 4, true));
            } else {
                assert!(
                    matches!(decision, Decision::Fail(_)),
                    "{sent:?} for {agreed:?}"
                );
                assert!(!sink.receiver.started());
            }
        }
        // Anything else is not what was agreed on either.
        for ulpdu in [
            untagged(3, 0, 1, 0, true, &[]),
            tagged(0, 1, 2, true, b"data"),
            read_request(1, 1),
        ] {
            assert_eq!(failure(&mut Sink::with(config), &ulpdu), (2, 0, 7));
        }
        // A peer that gives up may say so.
        let ulpdu = untagged(7, 2, 1, 0, true, &[0x20, 6, 0, 0]);
        let mut sink = Sink::with(config);
        assert!(matches!(sink.receive(&ulpdu), Decision::Terminated(_)));
        assert!(!sink.receiver.started());
    }
    assert_eq!(
        TerminateReason::Mpa(MpaError::NoMatchingRtr).code(),
        7,
        "the code that is expected above"
    );
}

/// An FPDU of no octets is taken by a responder, once and in front; by nobody else.
#[test]
fn fpdu_of_no_octets() {
    let responder = Config {
        responder: true,
        ..Config::default()
    };
    let mut sink = Sink::with(responder);
    assert_eq!(sink.receive(&[]), Decision::Nothing);
    assert!(sink.receiver.started());
    assert_eq!(failure(&mut sink, &[]), (2, 0, 3));
    let mut sink = Sink::with(Config::default());
    assert_eq!(failure(&mut sink, &[]), (2, 0, 3));
}

/// MPA-75, EMC-15: without an RTR frame any good FPDU starts the stream.
#[test]
fn any_good_fpdu_starts_the_stream() {
    for ulpdu in [
        untagged(3, 0, 1, 0, true, b"data"),
        tagged(0, 1, 2, true, b"data"),
        read_request(1, 1),
    ] {
        let mut sink = Sink::with(Config {
            responder: true,
            ..Config::default()
        });
        assert!(!sink.receiver.started());
        sink.receive(&ulpdu);
        assert!(sink.receiver.started());
    }
    let mut sink = Sink::new();
    sink.receive(&untagged(15, 0, 1, 0, true, &[]));
    assert!(!sink.receiver.started());
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
