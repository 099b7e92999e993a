// SPDX-License-Identifier: GPL-2.0

//! Helpers of several tests: octets from text, a reference encoder of FPDUs, a receiving end.

use iwarp_wire::crc::{
    Digest,
    Table, //
};
use iwarp_wire::ddp::{
    TaggedHeader,
    UntaggedHeader, //
};
use iwarp_wire::mpa::fpdu::{
    FpduWriter,
    Framer,
    Next, //
};
use iwarp_wire::rdmap::ReadRequest;
use iwarp_wire::reads::{
    Inbound,
    Irq,
    Orq,
    Outstanding, //
};
use iwarp_wire::rx::{
    Config,
    Decision,
    Receiver,
    SendSegment,
    HEAD_LEN, //
};
use iwarp_wire::{
    tx,
    Mo,
    Msn,
    Stag,
    TaggedOffset,
    TerminateReason, //
};

/// Octets from hexadecimal text; blanks do not count.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit"))
        .collect();
    assert_eq!(digits.len() % 2, 0, "whole octets: {text}");
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits are an octet"))
        .collect()
}

/// The CRC field over `covered`.
pub(crate) fn crc(covered: &[u8]) -> [u8; 4] {
    let mut digest = Digest::new();
    digest.update::<Table>(covered);
    digest.octets()
}

/// An FPDU laid out word by word, without the crate's arithmetic. `pos` is its position in a stream
/// with markers; `None` without markers.
pub(crate) fn reference_fpdu(ulpdu: &[u8], pos: Option<usize>) -> Vec<u8> {
    let mut plain = u16::try_from(ulpdu.len())
        .expect("fits")
        .to_be_bytes()
        .to_vec();
    plain.extend_from_slice(ulpdu);
    while plain.len() % 4 != 0 {
        plain.push(0);
    }
    let mut out = Vec::new();
    let mut length_at = None;
    let mut words = plain.chunks(4);
    loop {
        if pos.is_some_and(|pos| (pos + out.len()) % 512 == 0) {
            let distance = length_at.map_or(0, |at| out.len() - at);
            let pointer = u16::try_from(distance & 0xffff).expect("masked");
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&pointer.to_be_bytes());
        }
        let Some(word) = words.next() else { break };
        length_at.get_or_insert(out.len());
        out.extend_from_slice(word);
    }
    let field = crc(&out);
    out.extend_from_slice(&field);
    out
}

/// One FPDU as the crate writes it.
pub(crate) fn write_fpdu(writer: &mut FpduWriter, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let ulpdu_len = u16::try_from(header.len() + payload.len()).expect("fits");
    let mut out = vec![0xee; writer.wire_len(ulpdu_len)];
    let mut left = payload;
    let len = writer
        .write::<Table, ()>(&mut out, header, payload.len(), |to| {
            let (now, rest) = left.split_at(to.len());
            to.copy_from_slice(now);
            left = rest;
            Ok(())
        })
        .expect("there is room");
    assert_eq!(len, out.len(), "the length was announced");
    assert!(left.is_empty(), "all of the payload was asked for");
    out
}

/// A writer at position `pos` of the stream. `each` takes each FPDU in front of it.
fn write_up_to(markers: bool, pos: usize, mut each: impl FnMut(&[u8])) -> FpduWriter {
    let mut writer = FpduWriter::new(markers, true);
    let mut at = 0;
    while at < pos {
        let ulpdu = (0..=pos - at)
            .rev()
            .find(|&len| {
                len <= 65535 && writer.wire_len(u16::try_from(len).unwrap_or(0)) <= pos - at
            })
            .expect("some FPDU fits");
        let octets = write_fpdu(&mut writer, &[], &vec![0; ulpdu]);
        each(&octets);
        at += octets.len();
    }
    assert_eq!(at, pos, "the last FPDU ends at the position");
    writer
}

/// A writer at position `pos` of the stream.
pub(crate) fn writer_at(markers: bool, pos: usize) -> FpduWriter {
    write_up_to(markers, pos, |_| ())
}

/// A framer at position `pos` of the stream.
pub(crate) fn framer_at(markers: bool, pos: usize) -> Framer {
    let mut framer = Framer::new(markers, true);
    write_up_to(markers, pos, |octets| {
        let Next::Fpdu(fpdu) = framer.next(octets) else {
            panic!("the FPDU is whole")
        };
        framer.advance(&fpdu);
    });
    framer
}

/// Takes one whole FPDU: its ULPDU, if CRC and markers are right.
pub(crate) fn read_fpdu(framer: &mut Framer, raw: &[u8]) -> Result<Vec<u8>, TerminateReason> {
    let Next::Fpdu(fpdu) = framer.next(raw) else {
        panic!("the length field is there")
    };
    assert_eq!(
        fpdu.wire_len(),
        raw.len(),
        "the FPDU is as long as its octets"
    );
    fpdu.check::<Table>(raw)?;
    framer.advance(&fpdu);
    let mut copy = raw.to_vec();
    let ulpdu = fpdu.strip(&mut copy)?.to_vec();
    let pieced: Vec<u8> = fpdu
        .pieces()
        .flat_map(|piece| &raw[piece])
        .copied()
        .collect();
    assert_eq!(pieced, ulpdu, "strip and pieces agree");
    assert_eq!(ulpdu.len(), usize::from(fpdu.ulpdu_len()));
    Ok(ulpdu)
}

/// The receiving half of a stream with its queues.
pub(crate) struct Sink {
    pub(crate) receiver: Receiver,
    pub(crate) orq: Orq<u32, Vec<Option<Outstanding<u32>>>>,
    pub(crate) irq: Irq<Vec<Option<Inbound>>>,
}

impl Sink {
    /// An initiator's, with IRD and ORD of 4 and all extensions.
    pub(crate) fn new() -> Self {
        Self::with(Config {
            immediate: true,
            atomics: true,
            ..Config::default()
        })
    }

    /// With IRD and ORD of 4.
    pub(crate) fn with(config: Config) -> Self {
        Self {
            receiver: Receiver::new(config),
            orq: Orq::new(vec![None; 4], 4),
            irq: Irq::new(vec![None; 4], 4),
        }
    }

    /// Decides on a ULPDU. `receive_data` must decide the same, or return `None`.
    pub(crate) fn receive(&mut self, ulpdu: &[u8]) -> Decision {
        let len = u16::try_from(ulpdu.len()).expect("fits");
        let head = &ulpdu[..ulpdu.len().min(HEAD_LEN)];
        let started = self.receiver.started();
        let (mut receiver, mut orq) = (self.receiver, self.orq.clone());
        let before = format!("{receiver:?} {orq:?}");
        let data = receiver.receive_data(head, len, &mut orq);
        let decision = self
            .receiver
            .receive(head, len, &mut self.orq, &mut self.irq);
        let after = match data {
            Some(data) => {
                assert_eq!(data, decision);
                format!("{:?} {:?}", self.receiver, self.orq)
            }
            None => {
                let is_data = matches!(
                    decision,
                    Decision::Write(_) | Decision::ReadResponse(_) | Decision::Send(_)
                );
                assert!(!(started && is_data), "{decision:?}");
                before
            }
        };
        assert_eq!(format!("{receiver:?} {orq:?}"), after);
        decision
    }
}

/// A ULPDU of an untagged segment on queue `qn`.
pub(crate) fn untagged(op: u8, qn: u32, msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    let header = UntaggedHeader {
        last,
        ulp: 0x40 | op,
        ulp_word: 0,
        qn,
        msn: Msn::new(msn),
        mo: Mo::new(mo),
    };
    [&header.encode(), payload].concat()
}

/// A ULPDU of a tagged segment.
pub(crate) fn tagged(op: u8, stag: u32, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    let header = TaggedHeader {
        last,
        ulp: 0x40 | op,
        stag: Stag::new(stag),
        to: TaggedOffset::new(to),
    };
    [&header.encode(), payload].concat()
}

/// The error of a decision. Segments behind it must be dropped (DDP-63, MPA-96).
pub(crate) fn failure(sink: &mut Sink, ulpdu: &[u8]) -> (u8, u8, u8) {
    let reason = match sink.receive(ulpdu) {
        Decision::Fail(reason) => reason,
        other => panic!("{other:?} instead of an error"),
    };
    assert!(sink.receiver.is_closed());
    let good = untagged(3, 0, 1, 0, true, b"good");
    assert_eq!(sink.receive(&good), Decision::Dropped);
    (reason.layer(), reason.etype(), reason.code())
}

/// The error of a ULPDU that is the first of a stream.
pub(crate) fn first_fails(ulpdu: &[u8]) -> (u8, u8, u8) {
    failure(&mut Sink::new(), ulpdu)
}

/// A Read Request for `size` octets.
pub(crate) fn read_request(msn: u32, size: u32) -> Vec<u8> {
    let request = ReadRequest {
        sink: Stag::new(0x100),
        sink_to: TaggedOffset::new(0x1000),
        size,
        source: Stag::new(0x200),
        source_to: TaggedOffset::new(0x2000),
    };
    tx::read_request(Msn::new(msn), &request).to_vec()
}

/// The decision on a segment of a Send without flags.
pub(crate) fn send(first: bool, mo: u32, len: u32, last: bool) -> Decision {
    Decision::Send(SendSegment {
        first,
        mo,
        len,
        last,
        solicited: false,
        invalidate: None,
    })
}
