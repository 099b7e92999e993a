// SPDX-License-Identifier: GPL-2.0

//! The joined stream: its errors, its state after an error, and its Terminates.

use iwarp_wire::crc::Table;
use iwarp_wire::ddp::{
    Header,
    UNTAGGED_LEN, //
};
use iwarp_wire::mpa::fpdu::{
    Framer,
    Next, //
};
use iwarp_wire::mpa::negotiate::{
    Parameters,
    Policy,
    Refusal, //
};
use iwarp_wire::mpa::startup::{
    EncodeError,
    Enhanced,
    RtrKind,
    RtrKinds,
    MAX_FRAME_LEN, //
};
use iwarp_wire::rdmap::terminate::{
    AccessError,
    AtomicError,
    MpaError,
    Terminate, //
};
use iwarp_wire::rdmap::{
    AtomicOperation,
    AtomicRequest,
    ReadRequest,
    SendKind, //
};
use iwarp_wire::rx::Decision;
use iwarp_wire::stream::{
    ArrayStream,
    Role,
    Setup,
    Startup,
    StartupFailure,
    StartupStep,
    State,
    Stream,
    TransmitError, //
};
use iwarp_wire::tx::{
    Message,
    Segmenter, //
};
use iwarp_wire::{
    Stag,
    TaggedOffset,
    TerminateReason, //
};

use crate::support::first_fails;

#[path = "../../examples/tcp_ends.rs"]
mod tcp_ends;

/// The example's own assertions hold: both ends, over TCP.
#[test]
fn the_example_runs() {
    tcp_ends::main().expect("both ends meet");
}

type End = ArrayStream<Table, u8, 2, 2>;

/// Two ends that can have two requests outstanding each, before the RTR frame.
fn ends(rtr: RtrKind) -> (End, End) {
    let parameters = Parameters {
        revision: iwarp_wire::mpa::startup::Revision::Two,
        crc: true,
        rx_markers: true,
        tx_markers: true,
        ird: 2,
        ord: 2,
        rtr: RtrKinds::only(Some(rtr)),
    };
    let end = |role| {
        let setup = Setup {
            immediate: true,
            atomics: true,
            ..Setup::new(role, parameters)
        };
        Stream::new(setup, [None; 2], [None; 2])
    };
    (end(Role::Initiator), end(Role::Responder))
}

/// Two ends after the RTR frame.
fn open() -> (End, End) {
    let (mut initiator, mut responder) = ends(RtrKind::Write);
    let mut wire = [0; 64];
    let len = initiator.next_control(&mut wire).expect("there is room");
    take(
        &mut responder,
        &mut wire[..len.expect("the RTR frame is due")],
    );
    assert!(initiator.may_transmit() && responder.may_transmit());
    (initiator, responder)
}

/// Takes one FPDU; returns the decision and the completed request.
fn take(end: &mut End, wire: &mut [u8]) -> (Decision, Option<u8>) {
    let len = wire.len();
    let fpdu = end.receive(wire).expect("the FPDU is whole");
    assert_eq!(fpdu.wire_len, len);
    (fpdu.decision, fpdu.completed)
}

/// A Read of `size` octets.
fn read(size: u32) -> ReadRequest {
    let (source, sink) = (Stag::new(0x200), Stag::new(0x300));
    ReadRequest::new(
        size,
        (source, TaggedOffset::new(64)),
        (sink, TaggedOffset::new(0)),
    )
}

/// An Atomic of the tests.
const ATOMIC: AtomicRequest = AtomicRequest {
    id: 7,
    stag: Stag::new(0x200),
    to: TaggedOffset::new(8),
    operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
};

/// MPA-75: a responder writes nothing before the initiator's first FPDU, and the initiator nothing
/// before its RTR frame.
#[test]
fn nothing_before_the_rtr_frame() {
    let (mut initiator, mut responder) = ends(RtrKind::Read);
    let mut out = [0; 1500];
    for end in [&mut initiator, &mut responder] {
        let refused = Err(TransmitError::NotStarted);
        assert_eq!(end.start_send(SendKind::default(), 1).map(|_| ()), refused);
        assert_eq!(
            end.read(&read(1), 0, &mut out),
            Err(TransmitError::NotStarted)
        );
        assert_eq!(
            end.immediate([0; 8], false, &mut out),
            Err(TransmitError::NotStarted)
        );
        assert_eq!(
            end.next_answer(|_| Ok(&[]), &mut out),
            Err(TransmitError::NotStarted)
        );
    }
    assert_eq!(responder.next_control(&mut out), Ok(None));

    // EMC-14: a Read as RTR frame takes an entry of the ORQ and completes no request.
    assert_eq!(
        initiator.next_control(&mut [0; 8]),
        Err(TransmitError::NoRoom)
    );
    let len = initiator
        .next_due(|_| Ok(&[]), &mut out)
        .expect("it fits")
        .expect("it is due");
    assert_eq!(initiator.outbound().len(), 1);
    assert_eq!(
        take(&mut responder, &mut out[..len]),
        (Decision::ReadRequest, None)
    );
    let no_source = |_: &_| panic!("a Read of no octets names no buffer");
    let len = responder
        .next_due(no_source, &mut out)
        .expect("it fits")
        .expect("it is due");
    let (decision, completed) = take(&mut initiator, &mut out[..len]);
    assert!(matches!(decision, Decision::ReadResponse(_)));
    assert_eq!((completed, initiator.outbound().len()), (None, 0));
}

/// RDMAP-60, RDMAP-61: ORD bounds the outstanding requests; the end of the stream flushes them in
/// order.
#[test]
fn ord_and_flush() {
    let (mut initiator, _) = open();
    let mut out = [0; 1500];
    assert_eq!(
        initiator.read(&read(1), 1, &mut [0; 10]),
        Err(TransmitError::NoRoom)
    );
    assert!(
        initiator.outbound().is_empty(),
        "what did not fit is not outstanding"
    );
    initiator.read(&read(1), 1, &mut out).expect("ORD is 2");
    initiator.atomic(&ATOMIC, 2, &mut out).expect("ORD is 2");
    assert_eq!(
        initiator.read(&read(1), 3, &mut out),
        Err(TransmitError::QueueFull)
    );
    assert_eq!(
        initiator.atomic(&ATOMIC, 3, &mut out),
        Err(TransmitError::QueueFull)
    );
    initiator.fail(TerminateReason::RdmapCatastrophic, &[]);
    assert_eq!(
        initiator.read(&read(1), 3, &mut out),
        Err(TransmitError::Ended)
    );
    assert_eq!(
        [(); 3].map(|()| initiator.flush()),
        [Some(1), Some(2), None]
    );
}

/// DDP-09: a message that does not fit into the buffer takes no number.
#[test]
fn a_buffer_that_is_too_short() {
    let (mut initiator, mut responder) = open();
    let mut out = [0; 1500];
    let mut send = initiator
        .start_send(SendKind::default(), 100)
        .expect("it is open");
    let payload = [5; 100];
    for room in 0..100 {
        let refused = initiator.next_segment(&mut send, &payload, &mut out[..room]);
        assert_eq!(refused, Err(TransmitError::NoRoom));
    }
    let short = initiator.next_segment(&mut send, &payload[..99], &mut out);
    assert_eq!(short, Err(TransmitError::PayloadLength));
    let len = initiator.next_segment(&mut send, &payload, &mut out);
    let len = len.expect("it fits").expect("there is a segment");
    let fpdu = responder.receive(&mut out[..len]).expect("it is whole");
    assert_eq!((fpdu.payload(), fpdu.target()), (&payload[..], None));
    assert_eq!(
        initiator.next_segment(&mut send, &payload, &mut out),
        Ok(None)
    );

    assert_eq!(
        initiator.immediate([1; 8], true, &mut [0; 20]),
        Err(TransmitError::NoRoom)
    );
    let len = initiator
        .immediate([1; 8], true, &mut out)
        .expect("it fits");
    let (data, solicited) = ([1; 8], true);
    assert_eq!(
        take(&mut responder, &mut out[..len]).0,
        Decision::Immediate { data, solicited }
    );
}

/// RDMAP-53, RDMAP-41: the Terminate of a Read refused part of the way quotes the remaining part.
#[test]
fn a_refused_read() {
    let (mut initiator, mut responder) = open();
    let mut out = [0; 1500];
    let len = initiator.read(&read(2000), 9, &mut out).expect("it fits");
    take(&mut responder, &mut out[..len]);
    let memory = [3; 2000];
    let source = |read: &iwarp_wire::reads::Answer| {
        assert_eq!(
            (read.source, read.from),
            (Stag::new(0x200), TaggedOffset::new(64))
        );
        Ok(&memory[..read.len.into()])
    };
    let len = responder
        .next_answer(source, &mut out)
        .expect("it fits")
        .expect("it is asked for");
    let (decision, completed) = take(&mut initiator, &mut out[..len]);
    let Decision::ReadResponse(first) = decision else {
        panic!("the answer: {decision:?}")
    };
    assert_eq!(completed, None);
    let wrong = responder.next_answer(|_| Ok(&[1][..]), &mut out);
    assert_eq!(
        wrong,
        Err(TransmitError::PayloadLength),
        "the answer is as before"
    );

    let refused = responder.next_answer(|_| Err(AccessError::Bounds), &mut out);
    assert_eq!(refused, Err(TransmitError::Refused(AccessError::Bounds)));
    let len = responder
        .next_control(&mut out)
        .expect("it fits")
        .expect("a Terminate is due");
    let Decision::Terminated(told) = take(&mut initiator, &mut out[..len]).0 else {
        panic!("it is a Terminate")
    };
    assert_eq!(told.reason(), AccessError::Bounds.for_read());
    let left = ReadRequest {
        size: 2000 - first.len,
        source_to: TaggedOffset::new(64).wrapping_add(first.len),
        sink_to: TaggedOffset::new(0).wrapping_add(first.len),
        ..read(0)
    };
    assert_eq!(told.read_request(), Some(left));
    assert_eq!(
        (initiator.state(), initiator.flush()),
        (State::Ended, Some(9))
    );
}

/// EXT-06: an Atomic is executed once, and only if its answer can be written.
#[test]
fn an_atomic_is_carried_out_once() {
    let (mut initiator, mut responder) = open();
    let mut out = [0; 1500];
    let mut word = 41;
    let len = initiator.atomic(&ATOMIC, 4, &mut out).expect("it fits");
    assert_eq!(
        take(&mut responder, &mut out[..len]).0,
        Decision::AtomicRequest
    );
    assert_eq!(responder.next_answer(|_| Ok(&[]), &mut out), Ok(None));
    let refused = responder.answer_atomic(|_| panic!("there is no room"), &mut [0; 36]);
    assert_eq!(refused, Err(TransmitError::NoRoom));
    let execute = |request: &AtomicRequest| {
        let original = word;
        word = request.operation.apply(word);
        Ok(original)
    };
    let len = responder
        .answer_atomic(execute, &mut out)
        .expect("it fits")
        .expect("it is asked for");
    assert_eq!((word, responder.inbound().len()), (42, 0));
    let answer = take(&mut initiator, &mut out[..len]);
    assert_eq!(answer, (Decision::AtomicResponse { original: 41 }, Some(4)));
    assert_eq!(
        responder.answer_atomic(|_| panic!("there is none"), &mut out),
        Ok(None)
    );

    let len = initiator.atomic(&ATOMIC, 5, &mut out).expect("it fits");
    take(&mut responder, &mut out[..len]);
    let error = AtomicError::Access(AccessError::InvalidStag);
    let refused = responder.answer_atomic(|_| Err(error), &mut out);
    assert_eq!(refused, Err(TransmitError::AtomicRefused(error)));
    let State::TerminateDue(told) = responder.state() else {
        panic!("a Terminate is due")
    };
    assert_eq!(told.reason(), AccessError::InvalidStag.for_read());
    assert!(matches!(told.header(), Some(Header::Untagged(header)) if header.qn == 1));
}

/// EXT-06: a target that is not aligned to 64 bits gives 0/2/07. The Terminate has M and D set and
/// R clear, and the memory is unchanged.
#[test]
fn a_misaligned_atomic_is_refused() {
    let (mut initiator, mut responder) = open();
    let mut out = [0; 1500];
    let mut memory = [41; 32];
    let before = memory;
    let request = AtomicRequest {
        to: TaggedOffset::new(12),
        ..ATOMIC
    };
    let len = initiator.atomic(&request, 4, &mut out).expect("it fits");
    take(&mut responder, &mut out[..len]);
    let execute = |request: &AtomicRequest| {
        let at = usize::try_from(request.to.get()).expect("it is small");
        let word = memory.get_mut(at..at + 8).ok_or(AccessError::Bounds)?;
        if at % 8 != 0 {
            return Err(AtomicError::Misaligned);
        }
        let original = u64::from_be_bytes((&*word).try_into().expect("8 octets"));
        word.copy_from_slice(&request.operation.apply(original).to_be_bytes());
        Ok(original)
    };
    assert_eq!(
        responder.answer_atomic(execute, &mut out),
        Err(TransmitError::AtomicRefused(AtomicError::Misaligned))
    );
    assert_eq!((memory, responder.inbound().len()), (before, 1));
    let State::TerminateDue(told) = responder.state() else {
        panic!("a Terminate is due")
    };
    // Behind the header of the Terminate: layer and type, code, flags, then length and header of
    // the segment in error.
    let ulpdu = told.ulpdu();
    let told = &ulpdu[UNTAGGED_LEN..];
    assert_eq!(told[..6], [0x02, 0x07, 0xc0, 0, 0, 70]);
    assert_eq!(told.len(), 4 + 2 + UNTAGGED_LEN);
}

/// DDP-56, DDP-57: payload that may not be placed, and payload without a tagged buffer.
#[test]
fn placing() {
    for (buffer, expected) in [
        (Ok(10), Ok(())),
        // A buffer of another length is refused as a missing one.
        (Ok(11), Err(AccessError::Bounds.for_write())),
        (
            Err(AccessError::NotAssociated),
            Err(AccessError::NotAssociated.for_write()),
        ),
    ] {
        let (mut initiator, mut responder) = open();
        let (stag, to) = (Stag::new(0x400), TaggedOffset::new(32));
        let mut write = Segmenter::new(Message::Write { stag, to }, 10);
        let mut out = [0; 100];
        let len = initiator.next_segment(&mut write, &[8; 10], &mut out);
        let len = len.expect("it fits").expect("one segment");
        let fpdu = responder.receive(&mut out[..len]).expect("it is whole");
        assert_eq!(fpdu.target(), Some((stag, to)));
        let mut memory = [0; 11];
        let placed = responder.place(&fpdu, |got_stag, got_to, len| {
            assert_eq!((got_stag, got_to, len), (stag, to, 10));
            buffer.map(|len| &mut memory[..len])
        });
        assert_eq!(placed, expected);
        match (expected, responder.state()) {
            (Ok(()), State::Open) => assert_eq!(memory, [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0]),
            (Err(reason), State::TerminateDue(told)) => {
                assert_eq!(told, Terminate::for_segment(reason, fpdu.ulpdu, 24));
                assert_eq!(memory, [0; 11]);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// MPA-09, MPA-93: after a wrong CRC no FPDU is taken, and the Terminate quotes no header.
#[test]
fn a_wrong_crc() {
    let (mut initiator, mut responder) = open();
    let mut out = [0; 100];
    let mut send = initiator
        .start_send(SendKind::default(), 3)
        .expect("it is open");
    let len = initiator.next_segment(&mut send, b"abc", &mut out);
    let len = len.expect("it fits").expect("one segment");
    for short in 0..len {
        let need = responder.need(&out[..short]).expect("it is not whole");
        assert!(need > short && need <= len);
        assert!(responder.receive(&mut out[..short]).is_none());
    }
    assert_eq!(responder.need(&out[..len]), None);
    out[len - 1] ^= 1;
    let crc = TerminateReason::Mpa(MpaError::Crc);
    let fpdu = responder.receive(&mut out[..len]).expect("it is whole");
    assert_eq!(
        (fpdu.decision, fpdu.ends_with()),
        (Decision::Fail(crc), Some(crc))
    );
    assert_eq!((fpdu.ulpdu, fpdu.payload()), (&[][..], &[][..]));
    let placed = responder.place(&fpdu, |_, _, _| panic!("there is no payload"));
    assert_eq!(placed, Err(crc));
    assert_eq!(responder.state(), State::TerminateDue(Terminate::bare(crc)));

    let mut send = initiator
        .start_send(SendKind::default(), 3)
        .expect("it is open");
    let len = initiator.next_segment(&mut send, b"def", &mut out);
    let len = len.expect("it fits").expect("one segment");
    out[len - 1] ^= 1;
    assert_eq!(take(&mut responder, &mut out[..len]).0, Decision::Dropped);
    assert_eq!(responder.state(), State::TerminateDue(Terminate::bare(crc)));
}

/// EMC-08, EMC-13: a Reply that does not suit is answered with the Terminate the RFC names. The FPDU
/// of the Terminate is as the Reply asks for it. A Reply that rejects is not answered.
#[test]
fn a_refused_reply() {
    let policy = Policy {
        peer_to_peer: true,
        ..Policy::default()
    };
    let reply = policy.accept(&policy.request(b""), b"").0;
    let mut no_rtr = Policy {
        markers: true,
        ..policy
    }
    .accept(&policy.request(b""), b"")
    .0;
    no_rtr.enhanced = no_rtr.enhanced.map(|word| Enhanced {
        rtr: RtrKinds::NONE,
        ..word
    });
    let rejected = policy.reject(&policy.request(b""), b"no");
    for (reply, refusal) in [
        (reply, None),
        (no_rtr, Some(Refusal::NoMatchingRtr)),
        (rejected, Some(Refusal::Rejected)),
    ] {
        let mut octets = [0; MAX_FRAME_LEN];
        reply.encode(&mut octets).expect("there is room");
        let mut startup = Startup::new(Role::Initiator, policy, b"");
        let mut buffer = [0; MAX_FRAME_LEN];
        let mut sent = Vec::new();
        let outcome = loop {
            match startup.next_step::<Table>(&mut buffer) {
                Ok(StartupStep::Transmit(len)) => sent.push(buffer[..len].to_vec()),
                Ok(StartupStep::Receive(range)) => {
                    buffer[range.clone()].copy_from_slice(&octets[range]);
                }
                Ok(StartupStep::Agreed(_)) => break None,
                Err(failure) => break Some(failure),
            }
        };
        assert_eq!(outcome, refusal.map(StartupFailure::Refused));
        let told = sent.get(1).map(|raw| {
            let framer = Framer::new(reply.markers, true);
            let Next::Fpdu(fpdu) = framer.next(raw) else {
                panic!("the length field is there")
            };
            let mut raw = raw.clone();
            assert_eq!(fpdu.check::<Table>(&raw), Ok(()));
            let ulpdu = fpdu.strip(&mut raw).expect("the markers are right");
            Terminate::decode(&ulpdu[UNTAGGED_LEN..]).reason()
        });
        assert_eq!(told, refusal.and_then(Refusal::terminate));
    }
}

/// MPA-65: private data that no frame can carry is refused before anything is sent.
#[test]
fn too_much_private_data() {
    let mut buffer = [0; MAX_FRAME_LEN];
    let mut startup = Startup::new(Role::Initiator, Policy::default(), &[0; 509]);
    let too_long = StartupFailure::Encode(EncodeError::PrivateDataTooLong);
    for _ in 0..2 {
        assert_eq!(startup.next_step::<Table>(&mut buffer), Err(too_long));
    }
}

/// The text of an error names its layer and its row of the documents' tables.
#[test]
fn errors_in_words() {
    let (layer, etype, code) = first_fails(&[0xff; 20]);
    let reason = TerminateReason::from_wire(layer, etype, code);
    assert_eq!(
        reason.to_string(),
        "DDP tagged buffer error: invalid DDP version"
    );
    let mut seen = std::collections::BTreeSet::new();
    for layer in 0..3 {
        for etype in 0..3 {
            for code in 0..=u8::MAX {
                let text = TerminateReason::from_wire(layer, etype, code).to_string();
                assert!(!text.ends_with(' ') && text.len() < 100);
                assert!(seen.insert(text.clone()), "two reasons read {text:?}");
            }
        }
    }
    let failure = StartupFailure::Refused(Refusal::Rejected);
    let source = std::error::Error::source(&failure).expect("a refusal is the cause");
    assert_eq!(source.to_string(), "the peer rejected the connection");
    let refused = TransmitError::Refused(AccessError::InvalidStag);
    assert!(refused.to_string().ends_with("invalid STag"));
}
