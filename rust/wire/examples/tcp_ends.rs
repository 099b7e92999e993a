// SPDX-License-Identifier: GPL-2.0

//! Two user-space ends over TCP on the loopback interface: MPA start-up of revision 2 with an RTR
//! frame, Write, Read and Send in both directions, a Terminate. `cargo test` runs it as well.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::{error::Error, ops::Range, thread, time::Duration};

use iwarp_wire::mpa::{negotiate::Policy, startup::MAX_FRAME_LEN};
use iwarp_wire::rdmap::terminate::{AccessError, TaggedError, TerminateReason};
use iwarp_wire::rdmap::{ReadRequest, SendKind};
use iwarp_wire::stream::{ArrayStream, Role, Setup, Startup, StartupStep, Stream};
use iwarp_wire::tx::{Message, Segmenter};
use iwarp_wire::{crc::Table, reads::Answer, rx::Decision, Stag, TaggedOffset};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The memory region of each end, of three parts. The peer writes the first one and reads the
/// second one. What this end reads of the peer is placed in the third one.
const REGION: Stag = Stag::new(0x100);
const SIZE: u32 = 4000;
const PART: usize = SIZE as usize;

/// The range of `len` octets from offset `to` of the buffer `stag` in the region.
fn locate(stag: Stag, to: TaggedOffset, len: usize) -> Result<Range<usize>, AccessError> {
    match usize::try_from(to.get()) {
        _ if stag != REGION => Err(AccessError::InvalidStag),
        Ok(start) if start <= 3 * PART && len <= 3 * PART - start => Ok(start..start + len),
        _ => Err(AccessError::Bounds),
    }
}

/// One end: its connection and stream, its memory region, its Sends received and Reads done.
struct End {
    tcp: TcpStream,
    stream: ArrayStream<Table, &'static str, 4, 4>,
    memory: Vec<u8>,
    events: Vec<String>,
}

impl End {
    /// Transmits the RTR frame or Terminate that is due, or answers to the peer's Reads.
    fn transmit_due(&mut self) -> Outcome<()> {
        let (mut out, memory) = ([0; 1500], &self.memory);
        let source = |read: &Answer| Ok(&memory[locate(read.source, read.from, read.len.into())?]);
        while let Some(len) = self.stream.next_due(source, &mut out)? {
            self.tcp.write_all(&out[..len])?;
        }
        Ok(())
    }

    /// Transmits a Send or Write.
    fn transmit(&mut self, mut message: Segmenter, payload: &[u8]) -> Outcome<()> {
        let mut out = [0; 1500];
        while let Some(len) = self.stream.next_segment(&mut message, payload, &mut out)? {
            self.tcp.write_all(&out[..len])?;
        }
        Ok(())
    }

    /// Receives one FPDU and carries out its decision; the reason if it ends the stream.
    fn receive(&mut self) -> Outcome<Result<(), TerminateReason>> {
        let mut octets = Vec::new();
        while let Some(total) = self.stream.need(&octets) {
            let have = octets.len();
            octets.resize(total, 0);
            self.tcp.read_exact(&mut octets[have..])?;
        }
        let fpdu = self.stream.receive(&mut octets).ok_or("incomplete")?;
        let memory = &mut self.memory;
        let placed = self.stream.place(&fpdu, |stag, to, len| {
            Ok(&mut memory[locate(stag, to, len)?])
        });
        if let Decision::Send(_) = fpdu.decision {
            self.events
                .push(String::from_utf8_lossy(fpdu.payload()).into());
        }
        self.events.extend(fpdu.completed.map(String::from));
        self.transmit_due()?;
        Ok(placed)
    }
}

/// Runs one end, whose memory is filled with `octet`, until a Terminate; its reason.
fn run(mut tcp: TcpStream, role: Role, octet: u8) -> Outcome<TerminateReason> {
    tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut policy = Policy::default();
    (policy.peer_to_peer, policy.markers) = (true, true);
    let mut startup = Startup::new(role, policy, b"private data");
    let mut buffer = [0; MAX_FRAME_LEN];
    let parameters = loop {
        match startup.next_step::<Table>(&mut buffer)? {
            StartupStep::Receive(range) => tcp.read_exact(&mut buffer[range])?,
            StartupStep::Transmit(len) => tcp.write_all(&buffer[..len])?,
            StartupStep::Agreed(parameters) => break parameters,
        }
    };
    let stream = Stream::new(Setup::new(role, parameters), [None; 4], [None; 4]);
    let mut end = End {
        tcp,
        stream,
        memory: vec![octet; 3 * PART],
        events: Vec::new(),
    };
    end.transmit_due()?;
    while !end.stream.may_transmit() {
        end.receive()??;
    }
    let part = |number: usize| TaggedOffset::new((number * PART) as u64);
    let write = |stag, len| Segmenter::new(Message::Write { stag, to: part(0) }, len);
    end.transmit(write(REGION, SIZE), &[octet; PART])?;
    let read = ReadRequest::new(SIZE, (REGION, part(1)), (REGION, part(2)));
    let len = end.stream.read(&read, "Read done", &mut buffer)?;
    end.tcp.write_all(&buffer[..len])?;
    let send = end.stream.start_send(SendKind::default(), 5)?;
    end.transmit(send, b"hello")?;
    while end.events.len() < 2 {
        end.receive()??;
    }
    assert_eq!(end.events, ["hello", "Read done"]);
    let theirs = b'I' ^ b'R' ^ octet;
    assert_eq!(end.memory[..PART], [theirs; PART], "the peer's Write");
    assert_eq!(end.memory[2 * PART..], [theirs; PART], "the Read");
    if role == Role::Initiator {
        let many = vec![octet; 1 << 23];
        end.transmit(write(Stag::new(0xbad), 1 << 23), &many)?;
    }
    loop {
        if let Err(reason) = end.receive()? {
            // Closing with octets unread would reset the connection under the peer's Write.
            end.tcp.shutdown(Shutdown::Write)?;
            io::copy(&mut end.tcp, &mut io::sink())?;
            return Ok(reason);
        }
    }
}

pub(crate) fn main() -> Outcome<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let initiator = thread::spawn(move || run(TcpStream::connect(address)?, Role::Initiator, b'I'));
    let found = run(listener.accept()?.0, Role::Responder, b'R')?;
    let told = initiator.join().map_err(|_| "the initiator failed")??;
    let expected = TerminateReason::Tagged(TaggedError::InvalidStag);
    assert_eq!([found, told], [expected; 2]);
    println!("The responder ended the stream: {told}");
    Ok(())
}
