// SPDX-License-Identifier: GPL-2.0

//! The first FPDU of a stream: MPA-75, EMC-10 to EMC-16.

use iwarp_wire::mpa::startup::RtrKind;
use iwarp_wire::rdmap::terminate::{
    MpaError,
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
