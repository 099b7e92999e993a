// SPDX-License-Identifier: GPL-2.0

//! Reads and Atomics, asked for and answered: DDP-51, RDMAP-12 to RDMAP-17, RDMAP-60 to
//! RDMAP-63, EXT-08.

use iwarp_wire::reads::Request;
use iwarp_wire::rx::{
    Decision,
    ReadSegment, //
};
use iwarp_wire::{
    Stag,
    TaggedOffset, //
};

use crate::support::{
    failure,
    first_fails,
    read_request,
    tagged,
    untagged,
    Sink, //
};

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
    assert!(sink.irq.is_empty());
    for msn in 1..5 {
        assert!(!sink.irq.is_full());
        assert_eq!(sink.receive(&read_request(msn, 0)), Decision::ReadRequest);
        assert!(!sink.irq.is_empty());
    }
    assert!(sink.irq.is_full());
    assert_eq!(failure(&mut sink, &read_request(5, 0)), (1, 2, 2));

    let mut sink = Sink::new();
    sink.irq = iwarp_wire::reads::Irq::new(vec![None; 4], 0);
    assert_eq!(failure(&mut sink, &read_request(1, 0)), (1, 2, 2));
}

/// RDMAP-61: an answer that is complete removes its request.
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

/// RDMAP-02: a Read Response without a request, and one behind the last segment.
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

/// RDMAP-17: a complete Read takes no more segments, even before the caller removes it.
#[test]
fn read_response_behind_the_last() {
    let mut sink = Sink::new();
    let at = TaggedOffset::new(0);
    sink.orq
        .push_read(Stag::new(0), at, 0, 1)
        .expect("there is room");
    let nothing = tagged(2, 0, 0, true, &[]);
    assert!(matches!(sink.receive(&nothing), Decision::ReadResponse(_)));
    assert_eq!(failure(&mut sink, &nothing), (0, 2, 6));
    assert_eq!(sink.orq.complete(), Some(1), "it was done before");
}

/// RDMAP-17: a forged Read Response is detected, for each forged field.
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

/// RDMAP-16, DDP-23: the answer to a Read of 0 octets may name any buffer, and has no payload.
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

/// RDMAP-60: ORD bounds the outstanding requests, an answer removes one.
#[test]
fn ord_bounds_reads() {
    let mut sink = Sink::new();
    let at = TaggedOffset::new(0);
    assert!(sink.orq.is_empty());
    for cookie in 0..4 {
        assert!(!sink.orq.is_full());
        assert!(sink.orq.push_read(Stag::new(1), at, 1, cookie).is_ok());
        assert!(!sink.orq.is_empty());
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
