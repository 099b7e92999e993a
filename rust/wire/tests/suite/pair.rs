// SPDX-License-Identifier: GPL-2.0

//! Two ends joined by a stream that is cut at random offsets: MPA-10, MPA-25, MPA-46, MPA-52,
//! DDP-25 to DDP-28, RDMAP-50, RDMAP-60, for all combinations of markers and CRC.

use std::collections::VecDeque;

use iwarp_wire::ddp::Header;
use iwarp_wire::mpa::startup::RtrKind;
use iwarp_wire::rdmap::terminate::{
    MpaError,
    TerminateReason, //
};
use iwarp_wire::rdmap::SendKind;
use iwarp_wire::Stag;
use proptest::prelude::*;

use crate::endpoint::{
    Endpoint,
    Event,
    Setup,
    Work,
    REGION, //
};

/// Steps after which a test fails: octet by octet, all work requests of two ends and their answers
/// take fewer.
const MAX_STEPS: usize = 4_000_000;

/// The limit for shrinking a failing input, in milliseconds.
const MAX_SHRINK_TIME: u32 = 20_000;

/// The sizes and the order in which octets are transmitted and delivered, each list in a cycle.
#[derive(Clone, Debug)]
struct Schedule {
    /// Octets of each delivery.
    cuts: Vec<usize>,
    /// MULPDU of each FPDU.
    mulpdus: Vec<u16>,
    /// Whether an answer is transmitted before a request.
    answers: Vec<bool>,
}

/// A random schedule.
fn schedule() -> impl Strategy<Value = Schedule> {
    (
        prop::collection::vec(prop_oneof![1..4usize, 1..1500usize, 1..70_000usize], 1..20),
        prop::collection::vec(
            prop_oneof![128..200u16, 128..1500u16, 128..=64768u16],
            1..20,
        ),
        prop::collection::vec(any::<bool>(), 1..10),
    )
        .prop_map(|(cuts, mulpdus, answers)| Schedule {
            cuts,
            mulpdus,
            answers,
        })
}

/// An offset in a region, and a length within the region.
fn extent() -> impl Strategy<Value = (usize, usize)> {
    (0..=REGION, prop_oneof![Just(0), 1..64usize, 0..=REGION])
        .prop_map(|(at, len)| (at, len.min(REGION - at)))
}

/// A random work request; its payload is made of its number.
fn work() -> impl Strategy<Value = Work> {
    let data = |len: usize, seed: u8| -> Vec<u8> {
        (0..=250u8)
            .cycle()
            .map(|octet| octet ^ seed)
            .take(len)
            .collect()
    };
    prop_oneof![
        (extent(), any::<u8>()).prop_map(move |((to, len), seed)| Work::Write {
            to: to as u64,
            data: data(len, seed),
        }),
        (extent(), any::<u8>(), any::<bool>(), any::<Option<u32>>()).prop_map(
            move |((_, len), seed, solicited, invalidate)| Work::Send {
                kind: SendKind {
                    solicited,
                    invalidate: invalidate.map(Stag::new),
                },
                data: data(len, seed),
            }
        ),
        extent().prop_map(|(at, len)| Work::Read {
            at: at as u64,
            len: u32::try_from(len).expect("fits"),
        }),
        (any::<[u8; 8]>(), any::<bool>())
            .prop_map(|(data, solicited)| Work::Immediate { data, solicited }),
        (0..4u64, any::<u64>()).prop_map(|(word, add)| Work::Add { to: word * 8, add }),
    ]
}

/// A random connection, as the initiator sees it, and as the responder does.
fn setup() -> impl Strategy<Value = (Setup, Setup)> {
    let rtr = prop_oneof![
        Just(None),
        Just(Some(RtrKind::Fpdu)),
        Just(Some(RtrKind::Write)),
        Just(Some(RtrKind::Read)),
    ];
    (any::<[bool; 3]>(), 1..5u16, 1..5u16, rtr).prop_map(
        |([crc, to_initiator, to_responder], reads_out, reads_in, rtr)| {
            let initiator = Setup {
                crc,
                rx_markers: to_initiator,
                tx_markers: to_responder,
                ird: reads_in,
                ord: reads_out,
                responder: false,
                rtr,
            };
            let responder = Setup {
                crc,
                rx_markers: to_responder,
                tx_markers: to_initiator,
                ird: reads_out,
                ord: reads_in,
                responder: true,
                rtr,
            };
            (initiator, responder)
        },
    )
}

/// Two ends and the octets in flight.
struct Pair {
    ends: [Endpoint; 2],
    /// Octets in flight to each end.
    wires: [VecDeque<u8>; 2],
    steps: usize,
}

impl Pair {
    fn new((initiator, responder): &(Setup, Setup)) -> Self {
        Self {
            ends: [Endpoint::new(initiator), Endpoint::new(responder)],
            wires: [VecDeque::new(), VecDeque::new()],
            steps: 0,
        }
    }

    /// Each end sends one FPDU and takes one delivery; returns whether any octet moved.
    fn step(&mut self, schedule: &Schedule) -> bool {
        let mut moved = false;
        for end in 0..2 {
            self.steps += 1;
            let mulpdu = schedule.mulpdus[self.steps % schedule.mulpdus.len()];
            let answer = schedule.answers[self.steps % schedule.answers.len()];
            if let Some(fpdu) = self.ends[end].transmit(mulpdu, answer) {
                self.wires[1 - end].extend(fpdu);
                moved = true;
            }
            let cut = schedule.cuts[self.steps % schedule.cuts.len()];
            let wire = &mut self.wires[end];
            let octets: Vec<u8> = wire.drain(..cut.min(wire.len())).collect();
            moved |= !octets.is_empty();
            self.ends[end].receive(&octets);
        }
        moved
    }

    /// Steps until neither end transmits nor receives.
    fn run(&mut self, schedule: &Schedule) {
        let mut still = 0;
        while still < 3 {
            still = if self.step(schedule) { 0 } else { still + 1 };
            assert!(self.steps < MAX_STEPS, "the ends never become idle");
        }
    }
}

/// The events and the memory of an end after the work requests of its peer.
struct Expected {
    received: Vec<Event>,
    target: Vec<u8>,
    sums: bool,
}

/// Replays the peer's work in the order it was posted.
fn expect(work: &[Work]) -> Expected {
    let mut target = vec![0; REGION];
    let mut received = Vec::new();
    let mut sums = false;
    for work in work {
        match work.clone() {
            Work::Write { to, data } => {
                let to = usize::try_from(to).expect("fits");
                target[to..to + data.len()].copy_from_slice(&data);
            }
            Work::Send { kind, data } => received.push(Event::Received {
                data,
                kind,
                target: target.clone(),
            }),
            Work::Immediate { data, solicited } => received.push(Event::Immediate {
                data,
                solicited,
                target: target.clone(),
            }),
            // The Atomic takes effect when it is answered, which may be later.
            Work::Add { .. } => sums = true,
            Work::Read { .. } => {}
        }
    }
    Expected {
        received,
        target,
        sums,
    }
}

/// The words that Atomics add to are left out of a comparison.
fn without_words(event: &Event) -> Event {
    let mut event = event.clone();
    if let Event::Received { target, .. } | Event::Immediate { target, .. } = &mut event {
        target[..32].fill(0);
    }
    event
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 384,
        max_shrink_time: MAX_SHRINK_TIME,
        ..ProptestConfig::default()
    })]

    /// Everything posted arrives, once, in order, whatever the stream does, with its boundaries
    /// (DDP-42): Sends with what was written before them (RDMAP-50b), Reads with what is there,
    /// nothing more than ORD allows.
    #[test]
    fn everything_arrives_in_order(
        setup in setup(),
        schedule in schedule(),
        work in prop::collection::vec(work(), 0..24),
        their_work in prop::collection::vec(work(), 0..24),
    ) {
        let mut pair = Pair::new(&setup);
        // A responder cannot send before the initiator did (MPA-75).
        let speaks = setup.0.rtr.is_some() || !work.is_empty();
        let lists = [work, if speaks { their_work } else { Vec::new() }];
        for (end, list) in pair.ends.iter_mut().zip(&lists) {
            for work in list {
                end.post(work.clone());
            }
        }
        pair.run(&schedule);

        for (end, list, theirs) in [(0, &lists[0], &lists[1]), (1, &lists[1], &lists[0])] {
            let end = &pair.ends[end];
            prop_assert!(end.is_idle() && !end.is_over(), "all is done: {:?}", end.events.last());
            let expected = expect(theirs);
            let skip = if expected.sums { 32 } else { 0 };
            let received: Vec<Event> = end
                .events
                .iter()
                .filter(|event| !matches!(event, Event::Done(_)))
                .map(without_words)
                .collect();
            let wanted: Vec<Event> = expected.received.iter().map(without_words).collect();
            prop_assert_eq!(received, wanted);
            prop_assert_eq!(&end.target[skip..], &expected.target[skip..]);

            let done: Vec<usize> = end
                .events
                .iter()
                .filter_map(|event| match event {
                    Event::Done(number) => Some(*number),
                    _ => None,
                })
                .collect();
            let asked: Vec<usize> = list
                .iter()
                .enumerate()
                .filter(|(_, work)| matches!(work, Work::Read { .. } | Work::Add { .. }))
                .map(|(number, _)| number)
                .collect();
            prop_assert_eq!(done, asked, "answers in the order of the requests");
            for work in list {
                if let Work::Read { at, len } = work {
                    let at = usize::try_from(*at).expect("fits");
                    let len = *len as usize;
                    prop_assert_eq!(&end.sink[at..at + len], &end.source[at..at + len]);
                }
            }
        }
    }

    /// MPA-09, MPA-96: with CRCs a bit that flips in flight ends the stream, or makes it wait for
    /// octets that never arrive. The events in front of it are reported, and no other.
    #[test]
    fn a_flipped_bit_is_never_reported(
        setup in setup(),
        schedule in schedule(),
        work in prop::collection::vec(work(), 1..12),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let crc = |setup: Setup| Setup { crc: true, ord: 4, ird: 4, rtr: None, ..setup };
        let setup = (crc(setup.0), crc(setup.1));
        let mut pair = Pair::new(&setup);
        for work in &work {
            pair.ends[0].post(work.clone());
        }
        // All FPDUs sent before an answer arrives.
        let mut wire = Vec::new();
        let mut starts = Vec::new();
        let mut steps = 0;
        let mulpdus = &schedule.mulpdus;
        while let Some(fpdu) = pair.ends[0].transmit(mulpdus[steps % mulpdus.len()], true) {
            starts.push(wire.len());
            wire.extend(fpdu);
            steps += 1;
        }
        let at = at.index(wire.len());
        // The events of the whole FPDUs in front of the flipped one.
        let start = starts.iter().rfind(|&&start| start <= at).expect("the first is at 0");
        let mut unharmed = Pair::new(&setup);
        unharmed.ends[1].receive(&wire[..*start]);
        wire[at] ^= 1 << bit;
        let mut octets = &wire[..];
        let mut steps = 0;
        while !octets.is_empty() {
            let cut = schedule.cuts[steps % schedule.cuts.len()].min(octets.len());
            let (now, rest) = octets.split_at(cut);
            pair.ends[1].receive(now);
            octets = rest;
            steps += 1;
        }

        let events: Vec<Event> = pair.ends[1].events.iter().map(without_words).collect();
        let wanted: Vec<Event> = expect(&work).received.iter().map(without_words).collect();
        let (last, good) = match events.split_last() {
            Some((Event::Failed { reason, .. }, good)) => (Some(*reason), good),
            _ => (None, &events[..]),
        };
        prop_assert!(good.len() <= wanted.len() && good == &wanted[..good.len()]);
        let in_front: Vec<Event> = unharmed.ends[1].events.iter().map(without_words).collect();
        prop_assert_eq!(good, &in_front[..]);
        match last {
            Some(reason) => prop_assert_eq!(reason, TerminateReason::Mpa(MpaError::Crc)),
            // A length that grew: the rest of the stream is too short for it.
            None => prop_assert!(!pair.ends[1].is_over()),
        }
    }

    /// RDMAP-40, RDMAP-41, DDP-63: an error found by one end reaches the other end as a Terminate
    /// with the header and length of the segment in error. Segments behind it are neither placed
    /// nor reported.
    #[test]
    fn the_peer_is_told(
        setup in setup(),
        schedule in schedule(),
        past in 1..=u64::from(u32::MAX),
        which in 0..3usize,
    ) {
        let quiet = |setup: Setup| Setup { rtr: None, ..setup };
        let mut pair = Pair::new(&(quiet(setup.0), quiet(setup.1)));
        pair.ends[0].post(Work::Send { kind: SendKind::default(), data: vec![1; 300] });
        let region = REGION as u64;
        let (bad, code) = [
            // No segment of a Send may lie behind the end of the receive buffer.
            (Work::Send { kind: SendKind::default(), data: vec![2; REGION + 1] }, (1, 2, 5)),
            (Work::Write { to: region - 9 + past, data: vec![2; 10] }, (1, 1, 1)),
            (Work::Write { to: u64::MAX - 8, data: vec![2; 10] }, (1, 1, 3)),
        ][which].clone();
        pair.ends[0].post(bad);
        pair.ends[0].post(Work::Write { to: 0, data: vec![3; REGION] });
        pair.ends[0].post(Work::Send { kind: SendKind::default(), data: vec![4; 10] });
        pair.run(&schedule);

        let [Event::Received { data, .. }, Event::Failed { ulpdu, .. }] = &pair.ends[1].events[..]
        else {
            panic!("one message, then the error: {:?}", pair.ends[1].events)
        };
        prop_assert_eq!(data, &[1; 300]);
        prop_assert!(pair.ends[1].target.iter().all(|&octet| octet == 0));

        let [Event::Terminated(told)] = &pair.ends[0].events[..] else {
            panic!("a Terminate and no more: {:?}", pair.ends[0].events)
        };
        let reason = told.reason();
        prop_assert_eq!((reason.layer(), reason.etype(), reason.code()), code);
        prop_assert_eq!(told.segment_len().map(usize::from), Some(ulpdu.len()));
        prop_assert_eq!(told.header(), Header::parse(ulpdu).ok());
        prop_assert!(told.header().is_some());
    }
}
