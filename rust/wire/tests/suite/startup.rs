// SPDX-License-Identifier: GPL-2.0

//! Start-up frames: MPA-53, MPA-60 to MPA-69, MPA-79, MPA-81, MPA-82, EMC-01 to EMC-06.

use std::collections::VecDeque;

use iwarp_wire::mpa::fpdu::{
    FpduWriter,
    Framer,
    Next, //
};
use iwarp_wire::mpa::startup::{
    parse,
    Depth,
    Depths,
    EncodeError,
    Enhanced,
    Frame,
    FrameKind,
    Progress,
    Revision,
    RtrKind,
    RtrKinds,
    StartupError,
    MAX_FRAME_LEN,
    MAX_PRIVATE_DATA, //
};

use crate::support::{
    hex,
    read_fpdu,
    write_fpdu, //
};

const KINDS: [FrameKind; 2] = [FrameKind::Request, FrameKind::Reply];

/// A frame with given flags, revision and announced length, and `data` behind.
fn raw(kind: FrameKind, flags: u8, revision: u8, len: u16, data: &[u8]) -> Vec<u8> {
    let key: &[u8] = match kind {
        FrameKind::Request => b"MPA ID Req Frame",
        FrameKind::Reply => b"MPA ID Rep Frame",
    };
    [key, &[flags, revision], &len.to_be_bytes(), data].concat()
}

/// The frame in whole octets.
fn whole(octets: &[u8], kind: FrameKind) -> Frame<'_> {
    match parse(octets, kind) {
        Ok(Progress::Frame { frame, .. }) => frame,
        other => panic!("not a frame: {other:?}"),
    }
}

/// MPA-60, MPA-61: each octet of the key counts, as soon as it is there.
#[test]
fn every_octet_of_the_key_counts() {
    for kind in KINDS {
        for at in 0..16 {
            let mut octets = raw(kind, 0x40, 1, 0, &[]);
            octets[at] ^= 0x20;
            for have in 0..=octets.len() {
                let parsed = parse(&octets[..have], kind);
                if have <= at {
                    assert_eq!(parsed, Ok(Progress::Need { total: 20 }));
                } else {
                    assert_eq!(parsed, Err(StartupError::WrongKey), "octet {at}");
                }
            }
        }
    }
}

/// MPA-79: the frame of the other role is told apart from garbage.
#[test]
fn both_ends_in_the_same_role() {
    let request = raw(FrameKind::Request, 0x40, 1, 0, &[]);
    let reply = raw(FrameKind::Reply, 0x40, 1, 0, &[]);
    for have in 10..=20 {
        for (octets, expected) in [(&request, FrameKind::Reply), (&reply, FrameKind::Request)] {
            assert_eq!(
                parse(&octets[..have], expected),
                Err(StartupError::SameRole),
                "{have} octets"
            );
        }
    }
    assert_eq!(
        parse(&request[..9], FrameKind::Reply),
        Ok(Progress::Need { total: 20 })
    );
}

/// MPA-66: revisions 1 and 2 are supported, others are not.
#[test]
fn revisions() {
    for revision in 0..=u8::MAX {
        let octets = raw(FrameKind::Request, 0x40, revision, 0, &[]);
        match (revision, parse(&octets, FrameKind::Request)) {
            (1 | 2, Ok(Progress::Frame { frame, len: 20 })) => {
                assert_eq!(frame.revision.number(), revision);
            }
            (_, parsed) => assert_eq!(parsed, Err(StartupError::Revision(revision))),
        }
    }
}

/// MPA-67, MPA-68, MPA-81: at most 512 octets of private data, told from the header alone.
#[test]
fn private_data_is_bounded() {
    for len in (0..=1000).chain([65535]) {
        let data = vec![7; usize::from(len)];
        let octets = raw(FrameKind::Reply, 0x40, 1, len, &data);
        let header = parse(&octets[..20], FrameKind::Reply);
        if usize::from(len) > MAX_PRIVATE_DATA {
            assert_eq!(header, Err(StartupError::PrivateDataLength(len)));
            continue;
        }
        let total = 20 + usize::from(len);
        if len > 0 {
            assert_eq!(header, Ok(Progress::Need { total }));
        }
        assert_eq!(whole(&octets, FrameKind::Reply).private_data, data);
    }
}

/// A TCP connection at the receiver: octets that are read are consumed.
struct Socket(VecDeque<u8>);

impl Socket {
    /// Reads so many octets.
    fn read(&mut self, len: usize) -> Vec<u8> {
        assert!(self.0.len() >= len, "{len} octets of {}", self.0.len());
        self.0.drain(..len).collect()
    }

    /// Reads a frame and no octet behind it.
    fn frame(&mut self, kind: FrameKind) -> Vec<u8> {
        let mut octets = Vec::new();
        loop {
            match parse(&octets, kind) {
                Ok(Progress::Need { total }) => octets.extend(self.read(total - octets.len())),
                Ok(Progress::Frame { len, .. }) => {
                    assert_eq!(len, octets.len(), "all that was read is the frame");
                    return octets;
                }
                Err(error) => panic!("not a frame: {error:?}"),
            }
        }
    }
}

/// MPA-53, MPA-84: a frame with FPDUs behind it. MPA begins with the octet at which the reader
/// starts, and markers are counted from the end of the frame.
#[test]
fn fpdus_behind_the_frame() {
    let request = raw(FrameKind::Request, 0xc0, 1, 4, b"data");
    let mut writer = FpduWriter::new(true, true);
    let messages: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n; 100]).collect();
    let mut stream = request.clone();
    for message in &messages {
        stream.extend(write_fpdu(&mut writer, &[], message));
    }

    let mut socket = Socket(stream.into());
    let octets = socket.frame(FrameKind::Request);
    assert_eq!(octets, request);
    let frame = whole(&octets, FrameKind::Request);
    assert!(frame.markers, "the Request asks for markers");
    assert_eq!(frame.private_data, b"data");

    let mut framer = Framer::new(true, true);
    for message in &messages {
        let mut raw = Vec::new();
        let len = loop {
            match framer.next(&raw) {
                Next::Fpdu(fpdu) => break fpdu.wire_len(),
                Next::Need(_) => raw.extend(socket.read(1)),
            }
        };
        raw.extend(socket.read(len - raw.len()));
        assert_eq!(read_fpdu(&mut framer, &raw), Ok(message.clone()));
    }
    assert_eq!(socket.0.len(), 0);
}

/// MPA-84, MPA-86: no octet behind the frame is asked for or read.
#[test]
fn never_more_than_the_frame() {
    let octets = raw(FrameKind::Request, 0x40, 1, 5, b"hello and the first FPDU");
    let (mut have, mut asked) = (0, 0);
    loop {
        match parse(&octets[..have], FrameKind::Request) {
            Ok(Progress::Need { total }) => {
                assert!(total > have && total >= asked, "it goes on");
                assert!(total <= 25, "never behind the frame");
                asked = total;
                have += 1;
            }
            Ok(Progress::Frame { frame, len }) => {
                assert_eq!((have, len, frame.private_data), (25, 25, &b"hello"[..]));
                break;
            }
            Err(error) => panic!("{error:?} with {have} octets"),
        }
    }
    let with_more = parse(&octets, FrameKind::Request);
    assert!(matches!(with_more, Ok(Progress::Frame { len: 25, .. })));
}

/// MPA-62, MPA-63, MPA-64, MPA-65: each flag, with all reserved bits set too.
#[test]
fn flags() {
    for flags in 0..=u8::MAX {
        for kind in KINDS {
            for revision in [1, 2] {
                let octets = raw(kind, flags, revision, 4, &[0x80, 1, 0x40, 2]);
                let frame = whole(&octets, kind);
                assert_eq!(frame.markers, flags & 0x80 != 0);
                assert_eq!(frame.crc, flags & 0x40 != 0);
                let rejected = kind == FrameKind::Reply && flags & 0x20 != 0;
                assert_eq!(frame.rejected, rejected);
                let enhanced = revision == 2 && flags & 0x10 != 0;
                assert_eq!(frame.enhanced.is_some(), enhanced, "flags {flags:#x}");
                // EMC-06: the word is no private data.
                assert_eq!(frame.private_data.len(), if enhanced { 0 } else { 4 });
            }
        }
    }
}

/// MPA-65: reserved bits are sent as zero.
#[test]
fn reserved_bits_are_zero() {
    let mut out = [0; MAX_FRAME_LEN];
    for bits in 0..8 {
        let frame = Frame {
            kind: FrameKind::Reply,
            revision: Revision::Two,
            markers: bits & 1 != 0,
            crc: bits & 2 != 0,
            rejected: bits & 4 != 0,
            enhanced: None,
            private_data: &[],
        };
        frame.encode(&mut out).expect("there is room");
        assert_eq!(out[16] & 0x1f, 0);
    }
}

/// EMC-02, EMC-03: S without its word is malformed, revision 2 without S is plain, and S of
/// revision 1 is a reserved bit.
#[test]
fn the_enhanced_word() {
    for len in 0..4u16 {
        let octets = raw(FrameKind::Request, 0x50, 2, len, &[0; 3]);
        assert_eq!(
            parse(&octets, FrameKind::Request),
            Err(StartupError::EnhancedTruncated)
        );
        let octets = raw(FrameKind::Request, 0x50, 1, 0, &[]);
        assert_eq!(whole(&octets, FrameKind::Request).enhanced, None);
    }
    let octets = raw(FrameKind::Request, 0x40, 2, 6, b"plain!");
    let frame = whole(&octets, FrameKind::Request);
    assert_eq!((frame.enhanced, frame.private_data), (None, &b"plain!"[..]));

    // A rejection is valid without the word.
    let octets = raw(FrameKind::Reply, 0x70, 2, 2, b"no");
    let frame = whole(&octets, FrameKind::Reply);
    assert!(frame.rejected);
    assert_eq!((frame.enhanced, frame.private_data), (None, &b"no"[..]));
}

/// EMC-09, EMC-18: depths that the peer did not say are the caller's defaults.
#[test]
fn depths_of_peers_that_do_not_say() {
    let default = Depths { ird: 33, ord: 44 };
    let mut frame = Frame {
        kind: FrameKind::Request,
        revision: Revision::Two,
        markers: false,
        crc: true,
        rejected: false,
        enhanced: None,
        private_data: &[],
    };
    assert_eq!(frame.depths_or(default), default);
    frame.enhanced = Some(Enhanced {
        peer_to_peer: false,
        rtr: RtrKinds::NONE,
        ird: Depth::UNNEGOTIATED,
        ord: Depth::new(0),
    });
    assert_eq!(frame.depths_or(default), Depths { ird: 33, ord: 0 });
    frame.revision = Revision::One;
    assert_eq!(frame.depths_or(default), default);
}

/// MPA-68: 512 octets can be sent, 508 with the enhanced word, and no more.
#[test]
fn private_data_that_can_be_sent() {
    let data = [9; 513];
    let mut out = [0; 600];
    for (enhanced, most) in [
        (None, 512),
        (
            Some(Enhanced {
                peer_to_peer: false,
                rtr: RtrKinds::NONE,
                ird: Depth::new(1),
                ord: Depth::new(1),
            }),
            508,
        ),
    ] {
        let frame = |len: usize| Frame {
            kind: FrameKind::Request,
            revision: Revision::Two,
            markers: false,
            crc: true,
            rejected: false,
            enhanced,
            private_data: &data[..len],
        };
        assert_eq!(frame(0).max_private_data(), most);
        assert_eq!(frame(most).encode(&mut out), Ok(MAX_FRAME_LEN));
        assert_eq!(
            whole(&out[..MAX_FRAME_LEN], FrameKind::Request),
            frame(most)
        );
        assert_eq!(
            frame(most + 1).encode(&mut out),
            Err(EncodeError::PrivateDataTooLong)
        );
        assert_eq!(
            frame(most).encode(&mut out[..MAX_FRAME_LEN - 1]),
            Err(EncodeError::NoRoom)
        );
    }
}

/// Writes a start-up frame and reads it: both must agree with `wire`.
fn frame_both_ways(wire: &[u8], frame: Frame<'_>) {
    let mut out = [0xee; 600];
    let len = frame.encode(&mut out).expect("it can be written");
    assert_eq!(
        (&out[..len], len),
        (wire, frame.encoded_len()),
        "as written"
    );
    assert_eq!(
        parse(wire, frame.kind),
        Ok(Progress::Frame { frame, len }),
        "as read"
    );
}

/// V20 to V24 (MPA-60, EMC-01).
#[test]
fn startup_frames() {
    let request = "4d504120494420526571204672616d65";
    let reply = "4d504120494420526570204672616d65";
    let plain = Frame {
        kind: FrameKind::Request,
        revision: Revision::One,
        markers: false,
        crc: true,
        rejected: false,
        enhanced: None,
        private_data: &[],
    };
    let word = |peer_to_peer, rtr, ird, ord| {
        Some(Enhanced {
            peer_to_peer,
            rtr,
            ird: Depth::new(ird),
            ord: Depth::new(ord),
        })
    };
    let both = RtrKinds {
        fpdu: false,
        write: true,
        read: true,
    };

    frame_both_ways(&hex(&[request, "40 01 0000"].concat()), plain);
    frame_both_ways(
        &hex(&[request, "50 02 0004 8010c010"].concat()),
        Frame {
            revision: Revision::Two,
            enhanced: word(true, both, 16, 16),
            ..plain
        },
    );
    frame_both_ways(
        &hex(&[reply, "50 02 0004 80108010"].concat()),
        Frame {
            kind: FrameKind::Reply,
            revision: Revision::Two,
            enhanced: word(true, RtrKinds::only(Some(RtrKind::Write)), 16, 16),
            ..plain
        },
    );
    frame_both_ways(
        &hex(&[reply, "60 01 0002 6e6f"].concat()),
        Frame {
            kind: FrameKind::Reply,
            rejected: true,
            private_data: b"no",
            ..plain
        },
    );
    frame_both_ways(
        &hex(&[request, "50 02 000c 00800000 f6ab0e1801010303"].concat()),
        Frame {
            revision: Revision::Two,
            enhanced: word(false, RtrKinds::NONE, 128, 0),
            private_data: &hex("f6ab0e1801010303"),
            ..plain
        },
    );
}
