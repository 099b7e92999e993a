// SPDX-License-Identifier: GPL-2.0

//! What the two ends agree on: MPA-12 to MPA-23, EMC-04 to EMC-18.

use iwarp_wire::mpa::negotiate::{
    Parameters,
    Policy,
    Refusal, //
};
use iwarp_wire::mpa::startup::{
    parse,
    Depth,
    Enhanced,
    Frame,
    FrameKind,
    Progress,
    Revision,
    RtrKind,
    RtrKinds, //
};
use iwarp_wire::rdmap::terminate::{
    MpaError,
    TerminateReason, //
};

/// What a driver wants by default.
const POLICY: Policy = Policy {
    revision: Revision::Two,
    crc: true,
    markers: false,
    ird: 16,
    ord: 16,
    max_ird: 128,
    peer_to_peer: false,
    rtr: RtrKinds::ALL,
};

/// The policy of an end that asks for peer-to-peer mode.
const PEER: Policy = Policy {
    peer_to_peer: true,
    ..POLICY
};

/// Lets two ends exchange frames over octets; each end's view of the outcome.
fn exchange(initiator: &Policy, responder: &Policy) -> (Result<Parameters, Refusal>, Parameters) {
    let over_the_wire = |frame: Frame<'_>, check: &mut dyn FnMut(&Frame<'_>)| {
        let mut octets = [0; 532];
        let len = frame.encode(&mut octets).expect("there is room");
        match parse(&octets[..len], frame.kind) {
            Ok(Progress::Frame { frame, .. }) => check(&frame),
            other => panic!("not a frame: {other:?}"),
        }
    };
    let mut outcome = None;
    over_the_wire(initiator.request(b"request"), &mut |request| {
        let (reply, theirs) = responder.accept(request, b"reply");
        over_the_wire(reply, &mut |reply| {
            outcome = Some((initiator.conclude(reply), theirs));
        });
    });
    outcome.expect("both frames were exchanged")
}

/// A Reply with the given word.
fn reply(word: Option<Enhanced>) -> Frame<'static> {
    Frame {
        kind: FrameKind::Reply,
        revision: Revision::Two,
        markers: false,
        crc: true,
        rejected: false,
        enhanced: word,
        private_data: &[],
    }
}

/// A word that grants what was asked for.
fn word(rtr: RtrKinds, ird: Depth, ord: Depth) -> Enhanced {
    Enhanced {
        peer_to_peer: true,
        rtr,
        ird,
        ord,
    }
}

/// MPA-12, MPA-14, MPA-15: CRCs unless both ends do without.
#[test]
fn crcs() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let initiator = Policy {
            crc: ours,
            ..POLICY
        };
        let responder = Policy {
            crc: theirs,
            ..POLICY
        };
        let (here, there) = exchange(&initiator, &responder);
        assert_eq!(here.map(|here| here.crc), Ok(ours || theirs));
        assert_eq!(there.crc, ours || theirs);
    }
}

/// MPA-14: a responder's C alone obliges the initiator too.
#[test]
fn crc_of_a_reply_counts() {
    let initiator = Policy {
        crc: false,
        ..POLICY
    };
    let silent = Frame {
        crc: false,
        ..reply(None)
    };
    assert_eq!(initiator.conclude(&silent).map(|p| p.crc), Ok(false));
    assert_eq!(initiator.conclude(&reply(None)).map(|p| p.crc), Ok(true));
    assert_eq!(POLICY.conclude(&silent).map(|p| p.crc), Ok(true));
}

/// MPA-21, MPA-22, MPA-23: who receives asks for markers, each direction for itself.
#[test]
fn markers() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let initiator = Policy {
            markers: ours,
            ..POLICY
        };
        let responder = Policy {
            markers: theirs,
            ..POLICY
        };
        let (here, there) = exchange(&initiator, &responder);
        let here = here.expect("they suit each other");
        assert_eq!((here.rx_markers, here.tx_markers), (ours, theirs));
        assert_eq!((there.rx_markers, there.tx_markers), (theirs, ours));
    }
}

/// EMC-07, EMC-08, RDMAP-62, RDMAP-63: nobody's ORD exceeds the other's IRD, for all depths.
#[test]
fn depths() {
    let depths = [0, 1, 16, 128];
    for ird in depths {
        for ord in depths {
            for their_ird in depths {
                for their_ord in depths {
                    let initiator = Policy { ird, ord, ..POLICY };
                    let responder = Policy {
                        ird: their_ird,
                        ord: their_ord,
                        ..POLICY
                    };
                    let (here, there) = exchange(&initiator, &responder);
                    let here = here.expect("the depths can be agreed on");
                    assert!(here.ord <= there.ird && there.ord <= here.ird);
                    // What was wanted is had where the other can give it.
                    assert_eq!(here.ord, ord);
                    assert_eq!(there.ord, their_ord.min(ird));
                    assert!(there.ird >= their_ird && here.ird >= ird);
                }
            }
        }
    }
}

/// EMC-07: the responder cannot give more than it has.
#[test]
fn depths_beyond_the_responder() {
    let initiator = Policy {
        ord: 1000,
        ..POLICY
    };
    let (here, there) = exchange(&initiator, &POLICY);
    assert_eq!(there.ird, 128);
    assert_eq!(here.map(|here| here.ord), Ok(128));
}

/// EMC-08: an initiator raises its IRD to what the responder wants, or ends with 2/0/06.
#[test]
fn depths_beyond_the_initiator() {
    for (wanted, expected) in [
        (0, Ok(16)),
        (16, Ok(16)),
        (100, Ok(100)),
        (128, Ok(128)),
        (129, Err(Refusal::InsufficientIrd)),
        (16382, Err(Refusal::InsufficientIrd)),
    ] {
        let word = word(RtrKinds::NONE, Depth::new(16), Depth::new(wanted));
        let outcome = POLICY.conclude(&reply(Some(word)));
        assert_eq!(outcome.map(|p| p.ird), expected, "ORD {wanted}");
    }
    assert_eq!(
        Refusal::InsufficientIrd.terminate(),
        Some(TerminateReason::Mpa(MpaError::InsufficientIrd))
    );
}

/// EMC-09: depths that are not negotiated leave each end with its own.
#[test]
fn depths_left_to_the_upper_layer() {
    let unnegotiated = word(RtrKinds::NONE, Depth::UNNEGOTIATED, Depth::UNNEGOTIATED);
    let here = POLICY.conclude(&reply(Some(unnegotiated)));
    assert_eq!(here.map(|p| (p.ird, p.ord)), Ok((16, 16)));

    let request = Frame {
        kind: FrameKind::Request,
        ..reply(Some(Enhanced {
            peer_to_peer: false,
            ..unnegotiated
        }))
    };
    let (reply, there) = POLICY.accept(&request, &[]);
    assert_eq!((there.ird, there.ord), (16, 16));
    let said = reply.enhanced.expect("the word is answered");
    assert_eq!((said.ird.get(), said.ord.get()), (Some(16), Some(16)));
}

/// EMC-04, EMC-18: revision 1 is answered with revision 1 and no word, and both ends keep what
/// they have.
#[test]
fn revision_one() {
    let initiator = Policy {
        revision: Revision::One,
        ..POLICY
    };
    let request = initiator.request(&[]);
    assert_eq!((request.revision, request.enhanced), (Revision::One, None));
    let (reply, there) = PEER.accept(&request, &[]);
    assert_eq!((reply.revision, reply.enhanced), (Revision::One, None));
    assert_eq!((there.ird, there.ord, there.rtr), (16, 16, None));
    let here = initiator.conclude(&reply).expect("they suit each other");
    assert_eq!((here.ird, here.ord, here.rtr), (16, 16, None));
}

/// EMC-02: revision 2 without the word is like revision 1.
#[test]
fn revision_two_without_the_word() {
    let request = Frame {
        kind: FrameKind::Request,
        ..reply(None)
    };
    let (answer, there) = POLICY.accept(&request, &[]);
    assert_eq!((answer.revision, answer.enhanced), (Revision::Two, None));
    assert_eq!((there.ird, there.ord), (16, 16));
    let here = POLICY.conclude(&reply(None)).expect("no word is needed");
    assert_eq!((here.ird, here.ord), (16, 16));
}

/// EMC-05: a Reply of another revision calls for a new connection.
#[test]
fn reply_of_another_revision() {
    let other = Frame {
        revision: Revision::One,
        ..reply(None)
    };
    assert_eq!(POLICY.conclude(&other), Err(Refusal::Revision));
    assert_eq!(Refusal::Revision.terminate(), None);
}

/// MPA-72, MPA-74: a refusal carries private data and ends the start-up.
#[test]
fn refusal() {
    for revision in [Revision::One, Revision::Two] {
        let initiator = Policy { revision, ..PEER };
        let refused = POLICY.reject(&initiator.request(&[]), b"no");
        assert!(refused.rejected);
        assert_eq!(refused.revision, revision);
        assert_eq!(refused.private_data, b"no");
        assert_eq!(initiator.conclude(&refused), Err(Refusal::Rejected));
    }
    assert_eq!(Refusal::Rejected.terminate(), None);
}

/// EMC-10, EMC-11, EMC-12: the responder picks one RTR frame of those offered.
#[test]
fn rtr_frames() {
    let offered = PEER.request(&[]).enhanced.expect("revision 2 has the word");
    assert!(offered.peer_to_peer);
    assert!(offered.rtr.write && offered.rtr.read && !offered.rtr.fpdu);

    let kinds = |write, read, fpdu| RtrKinds { fpdu, write, read };
    for (theirs, expected) in [
        (kinds(true, true, true), Some(RtrKind::Write)),
        (kinds(false, true, true), Some(RtrKind::Read)),
        (kinds(false, false, true), None),
        (RtrKinds::NONE, None),
    ] {
        let responder = Policy {
            rtr: theirs,
            ..POLICY
        };
        let (here, there) = exchange(&PEER, &responder);
        assert_eq!(there.rtr, expected);
        match expected {
            Some(kind) => assert_eq!(here.map(|here| here.rtr), Ok(Some(kind))),
            None => assert_eq!(here, Err(Refusal::NoMatchingRtr)),
        }
    }
}

/// EMC-12: a Read is offered only by who may have one outstanding, and picked only by who can
/// hold it.
#[test]
fn rtr_read_needs_room() {
    let no_ord = Policy { ord: 0, ..PEER };
    let offered = no_ord
        .request(&[])
        .enhanced
        .expect("revision 2 has the word");
    assert!(offered.rtr.write && !offered.rtr.read);

    let read_only = Policy {
        rtr: RtrKinds::only(Some(RtrKind::Read)),
        ..PEER
    };
    let no_ird = Policy {
        ird: 0,
        max_ird: 0,
        ..POLICY
    };
    let (here, there) = exchange(&read_only, &no_ird);
    assert_eq!((here, there.rtr), (Err(Refusal::NoMatchingRtr), None));
    let (here, there) = exchange(&read_only, &POLICY);
    assert_eq!(there.rtr, Some(RtrKind::Read));
    assert_eq!(here.map(|here| here.rtr), Ok(Some(RtrKind::Read)));
}

/// EMC-11: a responder takes the zero-length FPDU if nothing else is offered.
#[test]
fn rtr_fpdu_as_the_last_resort() {
    for (offered, expected) in [
        (RtrKinds::only(Some(RtrKind::Fpdu)), Some(RtrKind::Fpdu)),
        (RtrKinds::ALL, Some(RtrKind::Write)),
        (RtrKinds::NONE, None),
    ] {
        let request = Frame {
            kind: FrameKind::Request,
            ..reply(Some(word(offered, Depth::new(1), Depth::new(1))))
        };
        let (answer, there) = POLICY.accept(&request, &[]);
        assert_eq!(there.rtr, expected);
        let said = answer.enhanced.expect("the word is answered");
        assert!(said.peer_to_peer);
        assert_eq!(said.rtr, RtrKinds::only(expected));
    }
}

/// EMC-13: a Reply that picks none of the offered frames ends with 2/0/07.
#[test]
fn reply_without_a_usable_rtr() {
    for rtr in [RtrKinds::NONE, RtrKinds::only(Some(RtrKind::Fpdu))] {
        let word = word(rtr, Depth::new(16), Depth::new(16));
        assert_eq!(
            PEER.conclude(&reply(Some(word))),
            Err(Refusal::NoMatchingRtr)
        );
    }
    assert_eq!(PEER.conclude(&reply(None)), Err(Refusal::NoMatchingRtr));
    // A Read that the responder's IRD leaves no place for.
    let read = word(
        RtrKinds::only(Some(RtrKind::Read)),
        Depth::new(0),
        Depth::new(0),
    );
    assert_eq!(
        PEER.conclude(&reply(Some(read))),
        Err(Refusal::NoMatchingRtr)
    );
    assert_eq!(
        Refusal::NoMatchingRtr.terminate(),
        Some(TerminateReason::Mpa(MpaError::NoMatchingRtr))
    );
}

/// EMC-15: without peer-to-peer mode there is no RTR frame, whatever the Reply says.
#[test]
fn no_rtr_unless_asked_for() {
    let (here, there) = exchange(&POLICY, &POLICY);
    assert_eq!(here.map(|here| here.rtr), Ok(None));
    assert_eq!(there.rtr, None);
    let word = word(RtrKinds::ALL, Depth::new(16), Depth::new(16));
    assert_eq!(POLICY.conclude(&reply(Some(word))).map(|p| p.rtr), Ok(None));
}
