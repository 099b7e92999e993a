// SPDX-License-Identifier: GPL-2.0

//! The transition tables in the documentation, row by row, against the state machines themselves.

use iwarp_wire::crc::Table;
use iwarp_wire::mpa::fpdu::{
    FpduWriter,
    Framer,
    Next,
    Resync, //
};
use iwarp_wire::mpa::negotiate::{
    Parameters,
    Policy, //
};
use iwarp_wire::mpa::startup::{
    Depth,
    Enhanced,
    Frame,
    Revision,
    RtrKind,
    RtrKinds,
    MAX_FRAME_LEN, //
};
use iwarp_wire::rdmap::terminate::{
    MpaError,
    TerminateReason, //
};
use iwarp_wire::rdmap::SendKind;
use iwarp_wire::rx::{
    Config,
    Decision, //
};
use iwarp_wire::stream::{
    ArrayStream,
    Role,
    Setup,
    Startup,
    StartupState,
    StartupStep,
    State,
    Stream, //
};
use iwarp_wire::tx::{
    Message,
    Segmenter, //
};
use iwarp_wire::Msn;

use crate::support::{
    reference_fpdu,
    untagged,
    Sink, //
};

/// The rows of the table in the documentation of the item that `item` declares.
fn rows(source: &str, item: &str) -> Vec<[String; 3]> {
    let (above, _) = source.split_once(item).expect("the item is there");
    let mut rows: Vec<[String; 3]> = above
        .lines()
        .rev()
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter_map(|line| line.strip_prefix("/// | "))
        .map(|row| {
            let cells: Vec<&str> = row.trim_end_matches('|').split(" | ").collect();
            let cells: [&str; 3] = cells.try_into().expect("state, event, next");
            // Of a link the text, without backquotes.
            cells.map(|cell| {
                let mut text = String::new();
                let mut rest = cell.trim();
                while let Some((before, link)) = rest.split_once("](") {
                    text.push_str(before);
                    rest = link.split_once(')').expect("a link ends").1;
                }
                text.push_str(rest);
                text.replace(['`', '[', ']'], "")
            })
        })
        .collect();
    rows.reverse();
    assert_eq!(rows.remove(0), ["state", "event", "next"]);
    assert_eq!(rows.remove(0), ["---", "---", "---"]);
    assert!(rows.len() > 3, "the table has rows");
    rows
}

/// MPA-75, EMC-16: the FPDUs that the receiver takes, and those that it drops.
#[test]
fn receiver() {
    let source = include_str!("../../src/rx/receiver.rs");
    for [state, event, next] in rows(source, "\nenum Phase {") {
        let mut sink = Sink::with(Config {
            responder: true,
            rtr: RtrKinds::only(Some(RtrKind::Write)),
            ..Config::default()
        });
        let rtr = crate::support::tagged(0, 0, 0, true, &[]);
        let terminate = untagged(7, 2, 1, 0, true, &[0x20, 1, 0, 0]);
        match &state[..] {
            "Fresh" => {}
            "Open" => assert_eq!(sink.receive(&rtr), Decision::Nothing),
            "Closed" => sink.receiver.fail(),
            other => panic!("no test enters state {other}"),
        }
        match &event[..] {
            "a valid first FPDU" | "a valid FPDU" => {
                assert_eq!(sink.receive(&rtr), Decision::Nothing);
            }
            "an FPDU in error" => {
                assert!(matches!(sink.receive(&[0xff; 20]), Decision::Fail(_)));
            }
            "an FPDU in error, or another than the agreed RTR frame" => {
                let mut other = Sink::with(Config::default());
                assert!(matches!(other.receive(&[0xff; 20]), Decision::Fail(_)));
                assert!(other.receiver.is_closed());
                let send = untagged(3, 0, 1, 0, true, b"data");
                assert!(matches!(sink.receive(&send), Decision::Fail(_)));
            }
            "a Terminate" => {
                assert!(matches!(sink.receive(&terminate), Decision::Terminated(_)));
            }
            "Receiver::fail" => sink.receiver.fail(),
            "any FPDU" => assert_eq!(sink.receive(&rtr), Decision::Dropped),
            other => panic!("no test has event {other}"),
        }
        let is = match (sink.receiver.started(), sink.receiver.is_closed()) {
            (true, false) => "Open",
            (false, true) => "Closed",
            _ => "Fresh",
        };
        assert_eq!(is, next, "{state}, {event}");
    }
}

/// DDP-20: `commit` alone makes progress.
#[test]
fn segmenter() {
    let source = include_str!("../../src/tx/segmenter.rs");
    for [state, event, next] in rows(source, "\npub struct Segmenter {") {
        let message = Message::Send {
            msn: Msn::FIRST,
            kind: SendKind::default(),
        };
        let mut segmenter = Segmenter::new(message, 300);
        if state == "done" {
            while segmenter.next(128).is_some() {}
        }
        match &event[..] {
            "peek" => assert!(segmenter.peek(128).is_some_and(|step| step.offset == 0)),
            "commit of a segment that is not the last" => {
                let step = segmenter.peek(128).expect("there are three");
                segmenter.commit(&step);
                assert_eq!(segmenter.sent(), 110);
            }
            "commit of the last segment" => {
                let step = segmenter.peek(1000).expect("it is the only one");
                segmenter.commit(&step);
            }
            "peek returns None" => assert_eq!(segmenter.peek(1000), None),
            other => panic!("no test has event {other}"),
        }
        let is = if segmenter.is_done() {
            "done"
        } else {
            "segments left"
        };
        assert_eq!(is, next, "{state}, {event}");
    }
}

/// MPA-10, MPA-32: `advance` and `resync` alone move the position.
#[test]
fn framer() {
    let source = include_str!("../../src/mpa/fpdu/receive.rs");
    let stream: Vec<u8> = [
        reference_fpdu(&[1; 600], Some(0)),
        reference_fpdu(&[2; 600], Some(616)),
    ]
    .concat();
    for [state, event, next] in rows(source, "\npub struct Framer {") {
        let mut framer = Framer::new(true, true);
        let is = match (&state[..], &event[..]) {
            ("boundary", "next, length field incomplete") => {
                assert_eq!(framer.next(&stream[..5]), Next::Need(6));
                "boundary, Next::Need"
            }
            ("boundary", "next, length field at hand") => {
                assert!(matches!(framer.next(&stream[..6]), Next::Fpdu(_)));
                "extent known, Next::Fpdu"
            }
            ("extent known", "advance") => {
                let Next::Fpdu(fpdu) = framer.next(&stream) else {
                    panic!("the length field is there")
                };
                framer.advance(&fpdu);
                let behind = &stream[fpdu.wire_len()..];
                assert!(matches!(framer.next(behind), Next::Fpdu(fpdu) if fpdu.ulpdu_len() == 600));
                "boundary of the FPDU behind"
            }
            ("boundary unknown", "resync, no marker leads to an FPDU") => {
                assert!(matches!(framer.resync(4, &stream[4..600]), Resync::Need(_)));
                "boundary unknown"
            }
            ("boundary unknown", "resync, a marker leads to an FPDU") => {
                let found = framer.resync(516, &stream[516..]);
                let Resync::Found { at, framer } = found else {
                    panic!("the marker at 1024: {found:?}")
                };
                assert!(matches!(framer.next(&stream[516 + at..]), Next::Fpdu(_)));
                "boundary"
            }
            other => panic!("no test for {other:?}"),
        };
        assert_eq!(is, next, "{state}, {event}");
    }
}

/// A stream in a given state, and the peer's writer.
fn stream_in(state: &str) -> (ArrayStream<Table, (), 2, 2>, FpduWriter) {
    let parameters = Parameters {
        revision: Revision::Two,
        crc: true,
        rx_markers: false,
        tx_markers: false,
        ird: 2,
        ord: 2,
        rtr: RtrKinds::only(Some(RtrKind::Write)),
    };
    let role = match state {
        "RtrDue" => Role::Initiator,
        _ => Role::Responder,
    };
    let mut stream = Stream::new(Setup::new(role, parameters), [None; 2], [None; 2]);
    let mut peer = FpduWriter::new(false, true);
    if !matches!(state, "RtrDue" | "AwaitFirst") {
        receive(
            &mut stream,
            &mut peer,
            &crate::support::tagged(0, 0, 0, true, &[]),
        );
    }
    if matches!(state, "TerminateDue" | "Ended") {
        stream.fail(TerminateReason::Mpa(MpaError::Crc), &[]);
    }
    if state == "Ended" {
        stream.next_control(&mut [0; 64]).expect("there is room");
    }
    assert_eq!(name(&stream), state);
    (stream, peer)
}

/// The peer sends a ULPDU.
fn receive(stream: &mut ArrayStream<Table, (), 2, 2>, peer: &mut FpduWriter, ulpdu: &[u8]) {
    let mut fpdu = crate::support::write_fpdu(peer, ulpdu, &[]);
    let taken = stream.receive(&mut fpdu);
    assert!(taken.is_some(), "the FPDU is whole");
}

/// The state of a stream.
fn name(stream: &ArrayStream<Table, (), 2, 2>) -> &'static str {
    match stream.state() {
        State::RtrDue(_) => "RtrDue",
        State::AwaitFirst => "AwaitFirst",
        State::Open => "Open",
        State::TerminateDue(_) => "TerminateDue",
        State::Ended => "Ended",
    }
}

/// MPA-75, EMC-10: the messages that an end may transmit in each state.
#[test]
fn stream() {
    let source = include_str!("../../src/stream.rs");
    for [state, event, next] in rows(source, "\npub enum State {") {
        let (mut stream, mut peer) = stream_in(&state);
        let write = crate::support::tagged(0, 0, 0, true, &[]);
        match &event[..] {
            "the RTR frame is written" | "the Terminate is written" => {
                let mut out = [0; 64];
                let written = stream.next_control(&mut out).expect("there is room");
                assert!(written.is_some());
            }
            "a valid first FPDU arrives" | "an FPDU is valid" | "anything arrives" => {
                receive(&mut stream, &mut peer, &write);
            }
            "an FPDU is in error" => receive(&mut stream, &mut peer, &[0xff; 20]),
            "the caller reports an error" => {
                stream.fail(TerminateReason::RdmapCatastrophic, &[]);
            }
            "the peer's Terminate arrives" => {
                let terminate = untagged(7, 2, 1, 0, true, &[0x20, 1, 0, 0]);
                receive(&mut stream, &mut peer, &terminate);
            }
            other => panic!("no test has event {other}"),
        }
        assert_eq!(name(&stream), next, "{state}, {event}");
    }
}

/// MPA-61, EMC-08: the start-up of both ends.
#[test]
fn startup() {
    let source = include_str!("../../src/stream/startup.rs");
    let suits = Policy::default();
    // More Reads than this end can be asked to hold.
    let mut demands = suits.accept(&suits.request(b""), b"").0;
    demands.enhanced = demands.enhanced.map(|word| Enhanced {
        ord: Depth::new(1000),
        ..word
    });
    let name = |startup: &Startup<'_>| match startup.state() {
        StartupState::SendRequest => "SendRequest",
        StartupState::AwaitReply => "AwaitReply",
        StartupState::AwaitRequest => "AwaitRequest",
        StartupState::Agreed(_) => "Agreed",
        StartupState::Failed(_) => "Failed",
    };
    for [state, event, next] in rows(source, "\npub enum StartupState {") {
        let initiator = matches!(&state[..], "SendRequest" | "AwaitReply");
        let role = if initiator {
            Role::Initiator
        } else {
            Role::Responder
        };
        let mut buffer = [0; MAX_FRAME_LEN];
        let mut startup = Startup::new(role, suits, b"data");
        if state == "AwaitReply" {
            let sent = startup.next_step::<Table>(&mut buffer);
            assert_eq!(sent, Ok(StartupStep::Transmit(28)));
        }
        assert_eq!(name(&startup), state);

        let request = suits.request(b"");
        let frame: Option<Frame<'_>> = match &event[..] {
            "the Request is written" => None,
            "the Reply is incomplete" | "the Reply suits the policy" => {
                Some(suits.accept(&request, b"").0)
            }
            "the Reply is refused" => Some(demands),
            "the Request is incomplete" | "the Request is whole, the Reply is written" => {
                Some(request)
            }
            "the octets are no Reply" => Some(request),
            "the octets are no Request" => Some(suits.accept(&request, b"").0),
            other => panic!("no test has event {other}"),
        };
        let mut octets = Vec::new();
        if let Some(frame) = frame {
            octets.resize(frame.encoded_len(), 0);
            frame.encode(&mut octets).expect("there is room");
        }
        let mut step = startup.next_step::<Table>(&mut buffer);
        while let Ok(StartupStep::Receive(range)) = &step {
            if event.ends_with("incomplete") && range.start > 0 {
                break;
            }
            buffer[range.clone()].copy_from_slice(&octets[range.clone()]);
            step = startup.next_step::<Table>(&mut buffer);
        }
        assert_eq!(name(&startup), next, "{state}, {event}: {step:?}");
    }
}
