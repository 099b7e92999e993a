// SPDX-License-Identifier: GPL-2.0

//! One fuzz input: two octets that configure the stream, then the octets of a peer.
//!
//! Used by the fuzz target and by the crate's ordinary tests, which replay the corpus. Bits of the
//! first octet: 0 markers, 1 CRCs, 2 responder, 3 and 4 the RTR frame, 5 the extensions, 6 a
//! start-up frame comes first. Bits of the second octet: 0 and 1 the number of outstanding Reads, 2
//! to 6 their size in units of 40 octets, 7 an Atomic in front of them.

use iwarp_wire::crc::{
    Crc32c,
    Digest,
    Table, //
};
use iwarp_wire::ddp::{
    TAGGED_LEN,
    UNTAGGED_LEN, //
};
use iwarp_wire::mpa::fpdu::{
    Framer,
    Next,
    CRC_LEN, //
};
use iwarp_wire::mpa::negotiate::Policy;
use iwarp_wire::mpa::startup::{
    parse,
    FrameKind,
    Progress,
    RtrKind,
    RtrKinds,
    MAX_FRAME_LEN, //
};
use iwarp_wire::rdmap::terminate::Terminate;
use iwarp_wire::reads::{
    Inbound,
    Irq,
    Orq,
    Outstanding,
    Request, //
};
use iwarp_wire::rx::{
    Config,
    Decision,
    Receiver,
    HEAD_LEN, //
};
use iwarp_wire::tx::Msns;
use iwarp_wire::{
    Stag,
    TaggedOffset, //
};

/// The decisions that inputs led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// A bit for each kind of decision, and one for a valid start-up frame.
    kinds: u32,
}

impl Seen {
    /// The decisions of both.
    #[allow(dead_code, reason = "the fuzz target does not ask")]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            kinds: self.kinds | other.kinds,
        }
    }

    /// Tells whether every kind was seen.
    #[allow(dead_code, reason = "the fuzz target does not ask")]
    pub(crate) fn is_everything(self) -> bool {
        self.kinds == (1 << 13) - 1
    }

    /// Adds a decision.
    fn note(&mut self, decision: &Decision) {
        let kind = match decision {
            Decision::Write(_) => 0,
            Decision::ReadResponse(_) => 1,
            Decision::Send(_) => 2,
            Decision::Immediate { .. } => 3,
            Decision::ReadRequest => 4,
            Decision::AtomicRequest => 5,
            Decision::AtomicResponse { .. } => 6,
            Decision::Nothing => 7,
            Decision::Terminated(_) => 8,
            Decision::Fail(_) => 9,
            Decision::Dropped => 10,
        };
        self.kinds |= 1 << kind;
    }
}

/// Runs an input through the receive path and checks what the documentation of each decision
/// states.
pub(crate) fn receive(octets: &[u8]) -> Seen {
    let mut seen = Seen::default();
    let [flags, reads, octets @ ..] = octets else {
        return seen;
    };
    let bit = |n: u8| (flags >> n) & 1 == 1;
    let mut octets = octets;
    if bit(6) {
        octets = startup(octets, bit(2), &mut seen);
    }
    let mut framer = Framer::new(bit(0), bit(1));
    let mut receiver = Receiver::new(Config {
        responder: bit(2),
        rtr: RtrKinds::only(
            [
                None,
                Some(RtrKind::Fpdu),
                Some(RtrKind::Write),
                Some(RtrKind::Read),
            ][usize::from((flags >> 3) & 3)],
        ),
        immediate: bit(5),
        atomics: bit(5),
    });
    let mut orq = Orq::new(vec![None::<Outstanding<u8>>; 4], 4);
    if reads & 0x80 != 0 {
        orq.push_atomic(7, 99).expect("there is room");
    }
    for cookie in 0..reads & 3 {
        let size = u32::from((reads >> 2) & 31) * 40;
        orq.push_read(Stag::new(0x100), TaggedOffset::new(0x1000), size, cookie)
            .expect("there is room");
    }
    let mut irq = Irq::new(vec![None::<Inbound>; 3], 3);
    let mut msns = Msns::new();

    while let Some(raw) = next_fpdu(&framer, octets) {
        octets = &octets[raw.len()..];
        let ulpdu = unwrap(&mut framer, raw);
        let Some(ulpdu) = ulpdu else {
            receiver.fail();
            seen.kinds |= 1 << 11;
            continue;
        };
        let len = u16::try_from(ulpdu.len()).expect("it was announced in 16 bits");
        let head = &ulpdu[..ulpdu.len().min(HEAD_LEN)];
        let data = { receiver }.receive_data(head, len, &mut orq.clone());
        let decision = receiver.receive(head, len, &mut orq, &mut irq);
        assert!(data.is_none_or(|data| data == decision));
        seen.note(&decision);
        match decision {
            Decision::Write(segment) => {
                assert_eq!(segment.len as usize, ulpdu.len() - TAGGED_LEN);
                assert_ne!(segment.len, 0);
            }
            Decision::ReadResponse(segment) => {
                assert_eq!(segment.len as usize, ulpdu.len() - TAGGED_LEN);
                assert_eq!(orq.complete().is_some(), segment.last);
            }
            Decision::Send(segment) => {
                assert_eq!(segment.len as usize, ulpdu.len() - UNTAGGED_LEN);
                assert_eq!(segment.first, segment.mo == 0 && segment.first);
                assert!(segment.end() >= segment.mo);
            }
            Decision::AtomicResponse { .. } => assert!(orq.complete().is_some()),
            Decision::Terminated(terminate) => again(&terminate),
            Decision::Fail(reason) => again(&Terminate::for_segment(reason, head, len)),
            Decision::Immediate { .. }
            | Decision::ReadRequest
            | Decision::AtomicRequest
            | Decision::Nothing
            | Decision::Dropped => {}
        }
        answer(&mut irq, &mut msns, usize::from(*reads));
    }
    seen
}

/// Takes a start-up frame and answers it; returns the octets after it.
fn startup<'a>(octets: &'a [u8], responder: bool, seen: &mut Seen) -> &'a [u8] {
    let kind = if responder {
        FrameKind::Request
    } else {
        FrameKind::Reply
    };
    let policy = Policy {
        peer_to_peer: !responder,
        ..Policy::default()
    };
    match parse(octets, kind) {
        Ok(Progress::Frame { frame, len }) => {
            seen.kinds |= 1 << 12;
            let mut out = [0; MAX_FRAME_LEN];
            frame
                .encode(&mut out)
                .expect("what was read can be written");
            if responder {
                let (reply, agreed) = policy.accept(&frame, &[]);
                reply.encode(&mut out).expect("there is room");
                assert!(agreed.ird <= policy.max_ird && agreed.ord <= policy.ord);
            } else if let Ok(agreed) = policy.conclude(&frame) {
                assert!(agreed.ird <= policy.max_ird && agreed.ord <= policy.ord);
            }
            &octets[len..]
        }
        Ok(Progress::Need { total }) => {
            assert!(total > octets.len() && total <= MAX_FRAME_LEN);
            &[]
        }
        Err(_) => &[],
    }
}

/// The octets of the FPDU in front, if they are all there.
fn next_fpdu<'a>(framer: &Framer, octets: &'a [u8]) -> Option<&'a [u8]> {
    match framer.next(octets) {
        Next::Need(total) => {
            assert!(total > octets.len() && total <= 6);
            None
        }
        Next::Fpdu(fpdu) => octets.get(..fpdu.wire_len()),
    }
}

/// The ULPDU of an FPDU. Its CRC is corrected first: a fuzzer does not find valid ones.
fn unwrap(framer: &mut Framer, raw: &[u8]) -> Option<Vec<u8>> {
    let Next::Fpdu(fpdu) = framer.next(raw) else {
        panic!("the length field is there")
    };
    framer.advance(&fpdu);
    let mut raw = raw.to_vec();
    let (covered, field) = raw.split_at_mut(fpdu.crc_len());
    assert_eq!(field.len(), CRC_LEN);
    let digest = Digest::from_raw(Table::update(u32::MAX, covered));
    field.copy_from_slice(&digest.octets());
    let checked = fpdu.check::<Table>(&raw);
    let pieces: Vec<u8> = fpdu
        .pieces()
        .flat_map(|piece| &raw[piece])
        .copied()
        .collect();
    let ulpdu = fpdu.strip(&mut raw);
    assert_eq!(checked.is_ok(), ulpdu.is_ok());
    let ulpdu = ulpdu.ok()?;
    assert_eq!(ulpdu, pieces);
    Some(ulpdu.to_vec())
}

/// A Terminate has the same fields when it is encoded and decoded again.
fn again(terminate: &Terminate) {
    let ulpdu = terminate.ulpdu();
    assert!(ulpdu.len() <= HEAD_LEN);
    let read = Terminate::decode(&ulpdu[UNTAGGED_LEN..]);
    assert_eq!(read.reason(), terminate.reason());
    assert_eq!(read.segment_len(), terminate.segment_len());
    assert_eq!(read.header(), terminate.header());
    assert_eq!(read.read_request(), terminate.read_request());
}

/// Writes one segment of the answers.
fn answer(irq: &mut Irq<Vec<Option<Inbound>>>, msns: &mut Msns, mulpdu: usize) {
    let Some(inbound) = irq.head() else { return };
    match inbound.request() {
        Request::Read(request) => {
            let mulpdu = u16::try_from(mulpdu).expect("it is an octet");
            let answer = irq.next_step(mulpdu).expect("there is something left");
            assert!(u32::from(answer.len) <= request.size);
            assert!(answer.last || answer.len > 0, "it goes on");
            irq.commit(&answer);
        }
        Request::Atomic(request) => {
            let original = request.operation.apply(request.to.get());
            irq.answer_atomic(original, msns.atomic_response())
                .expect("it is an Atomic");
        }
    }
}
