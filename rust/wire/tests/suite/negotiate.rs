// SPDX-License-Identifier: GPL-2.0

//! Negotiation: MPA-12 to MPA-23, EMC-04 to EMC-18.

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

/// The default policy of a driver.
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

/// Exchanges encoded frames between two ends; returns each end's result.
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

/// A word that grants the request.
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

/// MPA-21, MPA-22, MPA-23: the receiving end of each direction asks for markers.
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

/// EMC-07, EMC-08, RDMAP-62, RDMAP-63: an ORD never exceeds the peer's IRD, for all depths.
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
                    // A depth that the peer can hold is granted.
                    assert_eq!(here.ord, ord);
                    assert_eq!(there.ord, their_ord.min(ird));
                    assert!(there.ird >= their_ird && here.ird >= ird);
                }
            }
        }
    }
}

/// EMC-07: the responder grants no more than its limit.
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

/// EMC-09: a depth of 0x3fff is left to the upper layer. It is answered in kind, crosswise, and
/// each end keeps its own (RFC 6581 section 9.1, last paragraph).
#[test]
fn depths_left_to_the_upper_layer() {
    let (open, said) = (Depth::UNNEGOTIATED, Depth::new(4));
    for (ird, ord, reply_ird, reply_ord, kept) in [
        (open, open, open, open, (16, 16)),
        // The initiator's ORD faces the responder's IRD.
        (said, open, open, Depth::new(4), (16, 4)),
        (open, said, Depth::new(16), open, (16, 16)),
        (open, Depth::new(100), Depth::new(100), open, (100, 16)),
    ] {
        let request = Frame {
            kind: FrameKind::Request,
            ..reply(Some(Enhanced {
                peer_to_peer: false,
                rtr: RtrKinds::NONE,
                ird,
                ord,
            }))
        };
        let (reply, there) = POLICY.accept(&request, &[]);
        assert_eq!((there.ird, there.ord), kept, "{request:?}");
        let said = reply.enhanced.expect("the word is answered");
        assert_eq!((said.ird, said.ord), (reply_ird, reply_ord), "{request:?}");
        let refused = POLICY.reject(&request, &[]).enhanced.expect("a word");
        assert_eq!((refused.ird, refused.ord), (reply_ird, reply_ord));
    }

    let unnegotiated = word(RtrKinds::NONE, open, open);
    let here = POLICY.conclude(&reply(Some(unnegotiated)));
    assert_eq!(here.map(|p| (p.ird, p.ord)), Ok((16, 16)));
    let half = word(RtrKinds::NONE, said, open);
    let here = POLICY.conclude(&reply(Some(half)));
    assert_eq!(here.map(|p| (p.ird, p.ord)), Ok((16, 4)));
}

/// EMC-04, EMC-18: revision 1 is answered with revision 1 and no word, and both ends keep their
/// depths.
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
    assert_eq!((there.ird, there.ord), (16, 16));
    assert_eq!(there.rtr, RtrKinds::NONE);
    let here = initiator.conclude(&reply).expect("they suit each other");
    assert_eq!((here.ird, here.ord), (16, 16));
    assert_eq!(here.rtr, RtrKinds::NONE);
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

/// The set of the given frames.
fn kinds(fpdu: bool, write: bool, read: bool) -> RtrKinds {
    RtrKinds { fpdu, write, read }
}

/// A Request for peer-to-peer mode that offers these frames.
fn offers(rtr: RtrKinds, ird: u16, ord: u16) -> Frame<'static> {
    Frame {
        kind: FrameKind::Request,
        ..reply(Some(word(rtr, Depth::new(ird), Depth::new(ord))))
    }
}

/// EMC-10, EMC-11, EMC-12: what an initiator offers, and picks of what the responder names.
#[test]
fn rtr_frames() {
    let offered = PEER.request(&[]).enhanced.expect("revision 2 has the word");
    assert!(offered.peer_to_peer);
    assert_eq!(offered.rtr, kinds(false, true, true));

    for (theirs, expected) in [
        (kinds(true, true, true), Some(RtrKind::Write)),
        (kinds(false, true, false), Some(RtrKind::Write)),
        (kinds(true, false, true), Some(RtrKind::Read)),
        (kinds(true, false, false), None),
        (RtrKinds::NONE, None),
    ] {
        let responder = Policy {
            rtr: theirs,
            ..POLICY
        };
        let (here, there) = exchange(&PEER, &responder);
        match expected {
            Some(kind) => {
                let here = here.expect("they suit each other").rtr;
                assert_eq!(here, RtrKinds::only(Some(kind)));
                assert!(there.rtr.contains(kind), "{theirs:?}");
            }
            None => assert_eq!(here, Err(Refusal::NoMatchingRtr)),
        }
    }
}

/// EMC-11: the responder names every offered frame that it understands, and understands each of
/// them as the first one (RFC 6581 section 9.2).
#[test]
fn every_frame_that_suits_both_is_named() {
    for bits in 1..8u8 {
        let offered = kinds(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        let (answer, there) = POLICY.accept(&offers(offered, 4, 4), &[]);
        let said = answer.enhanced.expect("the word is answered");
        assert!(said.peer_to_peer);
        assert_eq!(said.rtr, offered);
        assert_eq!(there.rtr, offered);
    }
}

/// EMC-11, EMC-13: where no frame suits both ends, the responder names those that it accepts.
#[test]
fn some_frame_is_named_always() {
    for (understood, offered) in [
        (kinds(false, true, false), kinds(false, false, true)),
        (kinds(true, true, false), kinds(false, false, true)),
        (kinds(false, false, true), kinds(true, true, false)),
        (kinds(true, true, true), RtrKinds::NONE),
    ] {
        let responder = Policy {
            rtr: understood,
            ..POLICY
        };
        let (answer, there) = responder.accept(&offers(offered, 1, 1), &[]);
        let said = answer.enhanced.expect("the word is answered");
        assert!(said.peer_to_peer);
        assert_eq!(said.rtr, understood);
        assert_eq!(there.rtr, understood);
    }
}

/// EMC-12: an initiator with an ORD offers the Read. A responder reserves an entry for it, even if
/// the initiator sends no other Reads (RFC 6581 section 9.1).
#[test]
fn rtr_read_needs_room() {
    let no_ord = Policy { ord: 0, ..PEER };
    let offered = no_ord
        .request(&[])
        .enhanced
        .expect("revision 2 has the word");
    assert_eq!(offered.rtr, kinds(false, true, false));

    let read = kinds(false, false, true);
    let no_ird = Policy { ird: 0, ..POLICY };
    let (answer, there) = no_ird.accept(&offers(read, 0, 0), &[]);
    let said = answer.enhanced.expect("the word is answered");
    assert_eq!((said.rtr, said.ird), (read, Depth::new(1)));
    assert_eq!((there.rtr, there.ird), (read, 1));
    // No entry without such an offer, or where the depths are not negotiated.
    let (_, there) = no_ird.accept(&offers(kinds(true, true, false), 0, 0), &[]);
    assert_eq!(there.ird, 0);
    let mut open = offers(read, 0, 0);
    open.enhanced = Some(word(read, Depth::new(0), Depth::UNNEGOTIATED));
    let (answer, there) = no_ird.accept(&open, &[]);
    let said = answer.enhanced.expect("the word is answered");
    assert_eq!((said.ird, there.ird), (Depth::UNNEGOTIATED, 0));
    assert_eq!(said.rtr, kinds(true, true, false));

    // A responder that can hold no Read.
    let none = Policy {
        max_ird: 0,
        ..no_ird
    };
    let read_only = Policy { rtr: read, ..PEER };
    let (here, there) = exchange(&read_only, &none);
    assert_eq!(here, Err(Refusal::NoMatchingRtr));
    assert_eq!(there.rtr, kinds(true, true, false));
    let (here, _) = exchange(&read_only, &POLICY);
    assert_eq!(here.map(|here| here.rtr), Ok(read));
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
    // A Read at an IRD of 0.
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

/// EMC-10, EMC-13: without A the other flags are void (RFC 6581 section 9.2).
#[test]
fn flags_without_the_mode() {
    let word = Enhanced {
        peer_to_peer: false,
        ..word(RtrKinds::ALL, Depth::new(16), Depth::new(16))
    };
    let refusal = PEER.conclude(&reply(Some(word)));
    assert_eq!(refusal, Err(Refusal::NoMatchingRtr));

    let request = Frame {
        kind: FrameKind::Request,
        ..reply(Some(word))
    };
    let (answer, there) = POLICY.accept(&request, &[]);
    let said = answer.enhanced.expect("the word is answered");
    assert_eq!((said.peer_to_peer, said.rtr), (false, RtrKinds::NONE));
    assert_eq!(there.rtr, RtrKinds::NONE);
}

/// EMC-15: without peer-to-peer mode there is no RTR frame, whatever the Reply says.
#[test]
fn no_rtr_unless_asked_for() {
    let (here, there) = exchange(&POLICY, &POLICY);
    assert_eq!(here.map(|here| here.rtr), Ok(RtrKinds::NONE));
    assert_eq!(there.rtr, RtrKinds::NONE);
    let word = word(RtrKinds::ALL, Depth::new(16), Depth::new(16));
    let here = POLICY.conclude(&reply(Some(word)));
    assert_eq!(here.map(|here| here.rtr), Ok(RtrKinds::NONE));
}
