// SPDX-License-Identifier: GPL-2.0

//! Writes the first corpus: valid streams, one for each kind of message, and streams with a late
//! error. Run in this folder: `cargo run --bin seed`.

use std::path::Path;

use iwarp_wire::crc::Table;
use iwarp_wire::mpa::fpdu::FpduWriter;
use iwarp_wire::mpa::negotiate::Policy;
use iwarp_wire::mpa::startup::{
    Frame,
    Revision,
    RtrKind,
    MAX_FRAME_LEN, //
};
use iwarp_wire::rdmap::terminate::{
    AccessError,
    MpaError,
    Terminate,
    TerminateReason, //
};
use iwarp_wire::rdmap::{
    AtomicOperation,
    AtomicRequest,
    ReadRequest,
    SendKind, //
};
use iwarp_wire::tx::{
    self,
    Message,
    Msns,
    Segmenter, //
};
use iwarp_wire::{
    Msn,
    Stag,
    TaggedOffset, //
};

/// Flags of the first octet.
const MARKERS: u8 = 1;
const CRC: u8 = 2;
const RESPONDER: u8 = 4;
const RTR_FPDU: u8 = 1 << 3;
const RTR_WRITE: u8 = 2 << 3;
const RTR_READ: u8 = 3 << 3;
const EXTENSIONS: u8 = 1 << 5;
const STARTUP: u8 = 1 << 6;

/// An input under construction.
struct Input {
    octets: Vec<u8>,
    writer: FpduWriter,
    msns: Msns,
}

impl Input {
    fn new(flags: u8, reads: u8) -> Self {
        Self {
            octets: vec![flags, reads],
            writer: FpduWriter::new(flags & MARKERS != 0, flags & CRC != 0),
            msns: Msns::new(),
        }
    }

    fn frame(mut self, frame: &Frame<'_>) -> Self {
        let mut out = [0; MAX_FRAME_LEN];
        let len = frame.encode(&mut out).expect("there is room");
        self.octets.extend_from_slice(&out[..len]);
        self
    }

    fn ulpdu(mut self, header: &[u8], payload: &[u8]) -> Self {
        let mut out = vec![0; 70_000];
        let mut left = payload;
        let len = self
            .writer
            .write::<Table, ()>(&mut out, header, payload.len(), |to| {
                let (now, rest) = left.split_at(to.len());
                to.copy_from_slice(now);
                left = rest;
                Ok(())
            })
            .expect("there is room");
        self.octets.extend_from_slice(&out[..len]);
        self
    }

    fn message(mut self, message: Message, len: u32, mulpdu: u16) -> Self {
        let mut segmenter = Segmenter::new(message, len);
        while let Some(step) = segmenter.next(mulpdu) {
            self = self.ulpdu(&step.header, &vec![0x5a; usize::from(step.len)]);
        }
        self
    }

    fn send(mut self, kind: SendKind, len: u32, mulpdu: u16) -> Self {
        let msn = self.msns.send();
        self.message(Message::Send { msn, kind }, len, mulpdu)
    }

    fn write(self, len: u32, mulpdu: u16) -> Self {
        let (stag, to) = (Stag::new(0x400), TaggedOffset::new(0x4000));
        self.message(Message::Write { stag, to }, len, mulpdu)
    }

    fn response(self, len: u32, mulpdu: u16) -> Self {
        let (stag, to) = (Stag::new(0x100), TaggedOffset::new(0x1000));
        self.message(Message::ReadResponse { stag, to }, len, mulpdu)
    }

    fn read(mut self, size: u32) -> Self {
        let request = ReadRequest {
            sink: Stag::new(1),
            sink_to: TaggedOffset::new(2),
            size,
            source: Stag::new(3),
            source_to: TaggedOffset::new(4),
        };
        let ulpdu = tx::read_request(self.msns.read_request(), &request);
        self.ulpdu(&ulpdu, &[])
    }

    fn atomic(mut self, operation: AtomicOperation) -> Self {
        let request = AtomicRequest {
            id: 1,
            stag: Stag::new(5),
            to: TaggedOffset::new(8),
            operation,
        };
        let ulpdu = tx::atomic_request(self.msns.read_request(), &request);
        self.ulpdu(&ulpdu, &[])
    }

    fn immediate(mut self, solicited: bool) -> Self {
        let ulpdu = tx::immediate(self.msns.send(), *b"eight...", solicited);
        self.ulpdu(&ulpdu, &[])
    }

    fn rtr(mut self, kind: RtrKind) -> Self {
        let rtr = tx::rtr(kind, &mut self.msns);
        self.ulpdu(&rtr, &[])
    }

    fn terminate(self, terminate: &Terminate) -> Self {
        self.ulpdu(&terminate.ulpdu(), &[])
    }

    fn raw(mut self, octets: &[u8]) -> Self {
        self.octets.extend_from_slice(octets);
        self
    }
}

fn main() -> std::io::Result<()> {
    let plain = SendKind::default();
    let all = SendKind {
        solicited: true,
        invalidate: Some(Stag::new(0xdead)),
    };
    let policy = Policy {
        peer_to_peer: true,
        ..Policy::default()
    };
    let old = Policy {
        revision: Revision::One,
        ..policy
    };
    let request = policy.request(b"request");
    let (reply, _) = policy.accept(&request, b"reply");
    let add = AtomicOperation::FetchAdd { add: 1, mask: 0 };
    let swap = AtomicOperation::CompareSwap {
        swap: 1,
        swap_mask: 2,
        compare: 3,
        compare_mask: 4,
    };
    let read = ReadRequest {
        sink: Stag::new(1),
        sink_to: TaggedOffset::new(2),
        size: 3,
        source: Stag::new(4),
        source_to: TaggedOffset::new(5),
    };
    let told = Terminate::for_read(AccessError::Bounds.for_read(), Msn::FIRST, &read);
    let crc = Terminate::bare(TerminateReason::Mpa(MpaError::Crc));
    // The answer to the Atomic that is outstanding, on a queue of its own.
    let mut response = vec![0x41, 0x4b, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0];
    response.extend([0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8]);

    let corpus = [
        (
            "send",
            Input::new(CRC, 0).send(plain, 100, 1442).send(all, 0, 1442),
        ),
        (
            "send-segments",
            Input::new(0, 0).send(all, 1000, 200).send(plain, 9, 128),
        ),
        (
            "send-markers",
            Input::new(MARKERS | CRC, 0)
                .send(plain, 3000, 1442)
                .send(all, 7, 128),
        ),
        (
            "write",
            Input::new(CRC, 0)
                .write(500, 128)
                .write(0, 128)
                .send(plain, 1, 128),
        ),
        (
            "write-markers",
            Input::new(MARKERS, 0)
                .write(2000, 600)
                .send(plain, 488, 1442),
        ),
        (
            "read",
            Input::new(CRC, 64).read(1000).read(0).send(plain, 10, 128),
        ),
        (
            "read-overrun",
            Input::new(0, 1).read(9).read(9).read(9).read(9).read(9),
        ),
        (
            "response",
            Input::new(CRC, (2 << 2) | 2)
                .response(80, 64)
                .response(80, 128),
        ),
        (
            "response-empty",
            Input::new(0, 1).response(0, 128).send(plain, 1, 128),
        ),
        (
            "response-forged",
            Input::new(0, (3 << 2) | 1)
                .response(121, 128)
                .send(plain, 1, 128),
        ),
        (
            "response-markers",
            Input::new(MARKERS, (31 << 2) | 1).response(1240, 1000),
        ),
        (
            "immediate",
            Input::new(EXTENSIONS, 0)
                .immediate(false)
                .send(plain, 4, 128)
                .immediate(true),
        ),
        (
            "immediate-off",
            Input::new(0, 0).immediate(false).send(plain, 4, 128),
        ),
        (
            "atomic",
            Input::new(EXTENSIONS, 0).atomic(add).atomic(swap).read(1),
        ),
        (
            "atomic-response",
            Input::new(EXTENSIONS, 0x80)
                .ulpdu(&response, &[])
                .send(plain, 1, 128),
        ),
        (
            "terminate",
            Input::new(CRC, 0)
                .send(plain, 1, 128)
                .terminate(&crc)
                .send(plain, 2, 128),
        ),
        ("terminate-read", Input::new(0, 0).terminate(&told)),
        (
            "rtr-fpdu",
            Input::new(RESPONDER | RTR_FPDU, 0)
                .rtr(RtrKind::Fpdu)
                .send(plain, 1, 128),
        ),
        (
            "rtr-write",
            Input::new(RESPONDER | RTR_WRITE | CRC, 0)
                .rtr(RtrKind::Write)
                .read(5),
        ),
        (
            "rtr-read",
            Input::new(RESPONDER | RTR_READ | MARKERS, 0)
                .rtr(RtrKind::Read)
                .read(5),
        ),
        (
            "rtr-wrong",
            Input::new(RESPONDER | RTR_READ, 0).rtr(RtrKind::Write),
        ),
        (
            "request",
            Input::new(STARTUP | RESPONDER, 0)
                .frame(&request)
                .rtr(RtrKind::Write),
        ),
        (
            "request-old",
            Input::new(STARTUP | RESPONDER, 0)
                .frame(&old.request(b""))
                .write(9, 128),
        ),
        (
            "reply",
            Input::new(STARTUP, 0).frame(&reply).send(plain, 3, 128),
        ),
        (
            "reply-refused",
            Input::new(STARTUP, 0).frame(&policy.reject(&request, b"no")),
        ),
        (
            "marker-wrong",
            Input::new(MARKERS, 0).send(plain, 24, 128).raw(&[0; 600]),
        ),
        (
            "marker-wrong-first",
            Input::new(MARKERS, 0)
                .raw(&[0, 0, 1, 0, 0, 18])
                .raw(&[0; 40]),
        ),
        (
            "lengths",
            Input::new(0, 0)
                .raw(&[0, 1, 0x41, 0, 1, 2, 3, 4])
                .raw(&[0xff; 9]),
        ),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/receive");
    std::fs::create_dir_all(&folder)?;
    for (name, input) in corpus {
        std::fs::write(folder.join(name), input.octets)?;
    }
    Ok(())
}
