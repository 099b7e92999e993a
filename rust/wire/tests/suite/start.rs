// SPDX-License-Identifier: GPL-2.0

//! The first FPDU of a stream: MPA-75, EMC-10 to EMC-16.

use iwarp_wire::mpa::startup::{
    RtrKind,
    RtrKinds, //
};
use iwarp_wire::rdmap::terminate::{
    MpaError,
    Terminate,
    TerminateReason, //
};
use iwarp_wire::rx::{
    Config,
    Decision, //
};
use iwarp_wire::tx;
use iwarp_wire::tx::Msns;

use crate::support::{
    failure,
    read_request,
    send,
    tagged,
    untagged,
    Sink, //
};

/// A responder that agreed on these RTR frames.
fn responder(rtr: RtrKinds) -> Config {
    Config {
        responder: true,
        rtr,
        ..Config::default()
    }
}

/// EMC-10, EMC-14, EMC-16: each RTR frame that was agreed on starts the stream, another does not.
#[test]
fn rtr_frame_starts_the_stream() {
    let kinds = [RtrKind::Fpdu, RtrKind::Write, RtrKind::Read];
    for bits in 1..8u8 {
        let agreed = RtrKinds {
            fpdu: bits & 1 != 0,
            write: bits & 2 != 0,
            read: bits & 4 != 0,
        };
        let config = responder(agreed);
        for sent in kinds {
            let mut sink = Sink::with(config);
            assert!(!sink.receiver.started());
            let ulpdu = tx::rtr(sent, &mut Msns::new());
            if agreed.contains(sent) {
                let expected = match sent {
                    RtrKind::Read => Decision::ReadRequest,
                    _ => Decision::Nothing,
                };
                assert_eq!(sink.receive(&ulpdu), expected);
                assert!(sink.receiver.started());
                let ulpdu = untagged(3, 0, 1, 0, true, b"data");
                assert_eq!(sink.receive(&ulpdu), send(true, 0, 4, true));
            } else {
                assert_eq!(failure(&mut sink, &ulpdu), (2, 0, 7), "{agreed:?}");
                assert!(!sink.receiver.started());
            }
        }
        // No other message is an agreed RTR frame.
        for ulpdu in [
            untagged(3, 0, 1, 0, true, b"data"),
            untagged(3, 0, 1, 0, false, &[]),
            untagged(4, 0, 1, 0, true, &[]),
            tagged(0, 1, 2, true, b"data"),
            read_request(1, 1),
        ] {
            assert_eq!(failure(&mut Sink::with(config), &ulpdu), (2, 0, 7));
        }
        // A Terminate is accepted as the first FPDU.
        let ulpdu = untagged(7, 2, 1, 0, true, &[0x20, 6, 0, 0]);
        let mut sink = Sink::with(config);
        let reason = TerminateReason::Mpa(MpaError::InsufficientIrd);
        let told = Decision::Terminated(Terminate::bare(reason));
        assert_eq!(sink.receive(&ulpdu), told);
        assert!(!sink.receiver.started() && sink.receiver.is_closed());
    }
}

/// EMC-11, EMC-14: a Send of no octets is the other reading of the zero-length FULPDU. Such a Send
/// takes a number but no receive, and only where that frame was agreed on.
#[test]
fn rtr_fpdu_as_a_send_of_nothing() {
    for opcode in [3, 5] {
        let nothing = untagged(opcode, 0, 1, 0, true, &[]);
        let mut sink = Sink::with(responder(RtrKinds::ALL));
        assert_eq!(sink.receive(&nothing), Decision::Nothing);
        assert!(sink.receiver.started());
        let next = untagged(3, 0, 2, 0, true, &[]);
        assert_eq!(sink.receive(&next), send(true, 0, 0, true));

        let others = RtrKinds {
            fpdu: false,
            ..RtrKinds::ALL
        };
        let mut sink = Sink::with(responder(others));
        assert_eq!(failure(&mut sink, &nothing), (2, 0, 7));
    }
    // In client-server mode it is a message as any other.
    let mut sink = Sink::with(responder(RtrKinds::NONE));
    let nothing = untagged(3, 0, 1, 0, true, &[]);
    assert_eq!(sink.receive(&nothing), send(true, 0, 0, true));
}

/// An FPDU of no octets is accepted by a responder as the first one, and nowhere else.
#[test]
fn fpdu_of_no_octets() {
    let mut sink = Sink::with(responder(RtrKinds::NONE));
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
