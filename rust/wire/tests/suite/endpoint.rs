// SPDX-License-Identifier: GPL-2.0

//! One end of a connection, as in a driver: memory, queues, a stream in each direction.
//!
//! The end executes decisions and has no other knowledge of the protocols.

mod kinds;

use std::collections::VecDeque;

use iwarp_wire::crc::Table;
use iwarp_wire::ddp::{
    TAGGED_LEN,
    UNTAGGED_LEN, //
};
use iwarp_wire::mpa::fpdu::{
    FpduWriter,
    Framer,
    Next, //
};
use iwarp_wire::mpa::startup::{
    RtrKind,
    RtrKinds, //
};
use iwarp_wire::rdmap::terminate::{
    AccessError,
    Terminate,
    TerminateReason, //
};
use iwarp_wire::rdmap::{
    AtomicOperation,
    AtomicRequest,
    ReadRequest,
    SendKind, //
};
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
use iwarp_wire::tx::{
    self,
    Message,
    Msns,
    Segmenter, //
};
use iwarp_wire::{
    Stag,
    TaggedOffset, //
};

use self::kinds::place;
pub(crate) use self::kinds::{
    Event,
    Setup,
    Work,
    REGION,
    SINK,
    SOURCE,
    TARGET, //
};
use crate::support::write_fpdu;

/// The number of the work request of a Read or Atomic; `None` for the RTR Read.
type Cookie = Option<usize>;

/// One end.
pub(crate) struct Endpoint {
    pub(crate) target: Vec<u8>,
    pub(crate) source: Vec<u8>,
    pub(crate) sink: Vec<u8>,
    pub(crate) events: Vec<Event>,
    /// The word of the last Atomic Response.
    pub(crate) fetched: u64,
    work: VecDeque<(usize, Work)>,
    posted: usize,
    under_way: Option<(Segmenter, Vec<u8>)>,
    control: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    message: Vec<u8>,
    framer: Framer,
    writer: FpduWriter,
    receiver: Receiver,
    msns: Msns,
    orq: Orq<Cookie, Vec<Option<Outstanding<Cookie>>>>,
    irq: Irq<Vec<Option<Inbound>>>,
    may_send: bool,
    over: bool,
}

impl Endpoint {
    /// An end at the beginning of full operation phase.
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut end = Self {
            target: vec![0; REGION],
            source: (0..=252).cycle().take(REGION).collect(),
            sink: vec![0; REGION],
            events: Vec::new(),
            fetched: 0,
            work: VecDeque::new(),
            posted: 0,
            under_way: None,
            control: VecDeque::new(),
            buffer: Vec::new(),
            message: Vec::new(),
            framer: Framer::new(setup.rx_markers, setup.crc),
            writer: FpduWriter::new(setup.tx_markers, setup.crc),
            receiver: Receiver::new(Config {
                responder: setup.responder,
                rtr: RtrKinds::only(setup.rtr),
                immediate: true,
                atomics: true,
            }),
            msns: Msns::new(),
            orq: Orq::new(vec![None; 16], setup.ord),
            irq: Irq::new(vec![None; 16], setup.ird),
            may_send: !setup.responder,
            over: false,
        };
        if let (false, Some(kind)) = (setup.responder, setup.rtr) {
            let rtr = tx::rtr(kind, &mut end.msns).to_vec();
            if kind == RtrKind::Read {
                end.orq
                    .push_read(Stag::new(0), TaggedOffset::new(0), 0, None)
                    .expect("ORD allows it");
            }
            end.control.push_back(rtr);
        }
        end
    }

    /// Posts a work request; returns its number.
    pub(crate) fn post(&mut self, work: Work) -> usize {
        let number = self.posted;
        self.posted += 1;
        self.work.push_back((number, work));
        number
    }

    /// Whether all posted work requests were sent and answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.work.is_empty()
            && self.under_way.is_none()
            && self.control.is_empty()
            && self.irq.is_empty()
            && self.orq.is_empty()
    }

    /// Whether the stream has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// The next FPDU to send; answers go first if `answer_first`.
    pub(crate) fn transmit(&mut self, mulpdu: u16, answer_first: bool) -> Option<Vec<u8>> {
        if let Some(ulpdu) = self.control.pop_front() {
            return Some(write_fpdu(&mut self.writer, &ulpdu, &[]));
        }
        if self.over || !self.may_send {
            return None;
        }
        if answer_first {
            self.answer(mulpdu).or_else(|| self.request(mulpdu))
        } else {
            self.request(mulpdu).or_else(|| self.answer(mulpdu))
        }
    }

    /// Takes octets from the stream.
    pub(crate) fn receive(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
        while let Next::Fpdu(fpdu) = self.framer.next(&self.buffer) {
            if self.over || self.buffer.len() < fpdu.wire_len() {
                break;
            }
            let mut raw: Vec<u8> = self.buffer.drain(..fpdu.wire_len()).collect();
            self.framer.advance(&fpdu);
            let taken = match fpdu
                .check::<Table>(&raw)
                .and_then(|()| fpdu.strip(&mut raw))
            {
                Ok(ulpdu) => self.segment(ulpdu).map_err(|reason| {
                    let len = fpdu.ulpdu_len();
                    let told = Terminate::for_segment(reason, ulpdu, len);
                    (reason, ulpdu.to_vec(), told)
                }),
                Err(reason) => Err((reason, Vec::new(), Terminate::bare(reason))),
            };
            if let Err((reason, ulpdu, told)) = taken {
                self.control.push_back(told.ulpdu().to_vec());
                self.receiver.fail();
                self.events.push(Event::Failed { reason, ulpdu });
                self.over = true;
            }
        }
    }

    /// Executes the decision on a segment.
    fn segment(&mut self, ulpdu: &[u8]) -> Result<(), TerminateReason> {
        let len = u16::try_from(ulpdu.len()).expect("fits");
        let head = &ulpdu[..ulpdu.len().min(HEAD_LEN)];
        let decision = self
            .receiver
            .receive(head, len, &mut self.orq, &mut self.irq);
        match decision {
            Decision::Write(segment) => {
                let payload = &ulpdu[TAGGED_LEN..];
                assert_eq!(payload.len(), segment.len as usize);
                let place = place(segment.stag, TARGET, segment.to, payload.len());
                let place = place.map_err(AccessError::for_write)?;
                self.target[place].copy_from_slice(payload);
            }
            Decision::ReadResponse(segment) => {
                let payload = &ulpdu[TAGGED_LEN..];
                if !payload.is_empty() {
                    let place = place(segment.stag, SINK, segment.to, payload.len());
                    let place = place.map_err(AccessError::for_write)?;
                    self.sink[place].copy_from_slice(payload);
                }
                self.complete(segment.last);
            }
            Decision::Send(segment) => {
                if segment.first {
                    self.message.clear();
                }
                segment.fit(u32::try_from(REGION).expect("fits"))?;
                assert_eq!(self.message.len(), segment.mo as usize);
                self.message.extend_from_slice(&ulpdu[UNTAGGED_LEN..]);
                assert_eq!(self.message.len(), segment.end() as usize);
                if segment.last {
                    self.events.push(Event::Received {
                        data: std::mem::take(&mut self.message),
                        kind: SendKind {
                            solicited: segment.solicited,
                            invalidate: segment.invalidate,
                        },
                        target: self.target.clone(),
                    });
                }
            }
            Decision::Immediate { data, solicited } => self.events.push(Event::Immediate {
                data,
                solicited,
                target: self.target.clone(),
            }),
            Decision::AtomicResponse { original } => {
                self.fetched = original;
                self.complete(true);
            }
            Decision::AtomicRequest | Decision::ReadRequest | Decision::Nothing => {}
            Decision::Terminated(terminate) => {
                self.events.push(Event::Terminated(terminate));
                self.over = true;
            }
            Decision::Fail(reason) => return Err(reason),
            Decision::Dropped => {}
        }
        self.may_send |= self.receiver.started();
        Ok(())
    }

    /// Reports the oldest request, if it is done.
    fn complete(&mut self, last: bool) {
        let done = self.orq.complete();
        assert_eq!(done.is_some(), last, "done behind the last segment only");
        // The RTR Read is not reported.
        if let Some(Some(number)) = done {
            self.events.push(Event::Done(number));
        }
    }

    /// The next FPDU of an answer to the peer.
    fn answer(&mut self, mulpdu: u16) -> Option<Vec<u8>> {
        match self.irq.head()?.request() {
            Request::Read(_) => {
                let answer = self.irq.next_step(mulpdu)?;
                let len = usize::from(answer.len);
                let payload = if len == 0 {
                    &[][..]
                } else {
                    let place = place(answer.source, SOURCE, answer.from, len);
                    &self.source[place.expect("the tests read what is there")]
                };
                let fpdu = write_fpdu(&mut self.writer, &answer.header, payload);
                self.irq.commit(&answer);
                Some(fpdu)
            }
            Request::Atomic(request) => {
                let place = place(request.stag, TARGET, request.to, 8);
                let word = &mut self.target[place.expect("the tests add to what is there")];
                let original = u64::from_be_bytes((*word).try_into().expect("eight octets"));
                word.copy_from_slice(&request.operation.apply(original).to_be_bytes());
                let msn = self.msns.atomic_response();
                let ulpdu = self.irq.answer_atomic(original, msn)?;
                Some(write_fpdu(&mut self.writer, &ulpdu, &[]))
            }
        }
    }

    /// The next FPDU of the posted work requests.
    fn request(&mut self, mulpdu: u16) -> Option<Vec<u8>> {
        if self.under_way.is_none() {
            if let Some(fpdu) = self.begin()? {
                return Some(fpdu);
            }
        }
        let (segmenter, data) = self.under_way.as_mut()?;
        let step = segmenter.next(mulpdu)?;
        let offset = step.offset as usize;
        let payload = &data[offset..offset + usize::from(step.len)];
        assert!(step.header.len() + payload.len() <= usize::from(mulpdu));
        let fpdu = write_fpdu(&mut self.writer, &step.header, payload);
        if segmenter.is_done() {
            self.under_way = None;
        }
        Some(fpdu)
    }

    /// Begins the next work request: `None` if it has to wait, the FPDU if it is a single one.
    fn begin(&mut self) -> Option<Option<Vec<u8>>> {
        let waits = match &self.work.front()?.1 {
            Work::Read { .. } | Work::Add { .. } => self.orq.is_full(),
            _ => false,
        };
        if waits {
            return None;
        }
        let (number, work) = self.work.pop_front()?;
        let single = |end: &mut Self, ulpdu: &[u8]| Some(write_fpdu(&mut end.writer, ulpdu, &[]));
        Some(match work {
            Work::Write { to, data } => {
                let message = Message::Write {
                    stag: TARGET,
                    to: TaggedOffset::new(to),
                };
                let len = u32::try_from(data.len()).expect("fits");
                self.under_way = Some((Segmenter::new(message, len), data));
                None
            }
            Work::Send { kind, data } => {
                let message = Message::Send {
                    msn: self.msns.send(),
                    kind,
                };
                let len = u32::try_from(data.len()).expect("fits");
                self.under_way = Some((Segmenter::new(message, len), data));
                None
            }
            Work::Read { at, len } => {
                let at = TaggedOffset::new(at);
                let request = ReadRequest {
                    sink: SINK,
                    sink_to: at,
                    size: len,
                    source: SOURCE,
                    source_to: at,
                };
                self.orq
                    .push_read(SINK, at, len, Some(number))
                    .expect("it did not have to wait");
                let msn = self.msns.read_request();
                single(self, &tx::read_request(msn, &request))
            }
            Work::Add { to, add } => {
                let id = u32::try_from(number).expect("fits");
                let request = AtomicRequest {
                    id,
                    stag: TARGET,
                    to: TaggedOffset::new(to),
                    operation: AtomicOperation::FetchAdd { add, mask: 0 },
                };
                self.orq
                    .push_atomic(id, Some(number))
                    .expect("it did not have to wait");
                let msn = self.msns.read_request();
                single(self, &tx::atomic_request(msn, &request))
            }
            Work::Immediate { data, solicited } => {
                let msn = self.msns.send();
                single(self, &tx::immediate(msn, data, solicited))
            }
        })
    }
}
