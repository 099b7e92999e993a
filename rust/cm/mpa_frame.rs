// SPDX-License-Identifier: GPL-2.0

//! Start-up frames on a non-blocking socket (RFC 5044 section 7.1).
//!
//! A frame is read to its last octet and no further. Octets after it belong to the first FPDU, and
//! stay in the socket (requirements.md MPA-84).

use core::convert::Infallible;

use iwarp_wire::{
    mpa::{
        fpdu::FpduWriter,
        negotiate::{
            Parameters,
            Policy, //
        },
        startup::{
            parse,
            Frame,
            FrameKind,
            Progress,
            StartupError,
            MAX_FRAME_LEN, //
        },
    },
    rdmap::terminate::{
        MpaError,
        Terminate,
        TerminateReason, //
    }, //
};
use kernel::prelude::*;

use crate::sys::{
    crc,
    net::socket::Socket, //
};

/// The maximum length of an FPDU with a Terminate without headers: ULPDU of 22 octets, length,
/// CRC, a marker.
const TERMINATE_ROOM: usize = 32;

/// A start-up frame that is being received.
pub(crate) struct FrameReader {
    /// The received octets, followed by free space.
    octets: KVec<u8>,
    /// The number of received octets.
    len: usize,
    /// The expected kind of frame.
    kind: FrameKind,
}

/// The reason why no frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The peer sent octets that are not such a frame.
    Malformed(StartupError),
    /// The peer closed the connection.
    Closed,
    /// The connection broke.
    Broken(Error),
}

impl FrameReader {
    /// Makes a reader for a frame of that kind. Process context; may sleep.
    pub(crate) fn new(kind: FrameKind) -> Result<Self> {
        Ok(Self {
            octets: KVec::from_elem(0, MAX_FRAME_LEN, GFP_KERNEL)?,
            len: 0,
            kind,
        })
    }

    /// Whether no octet has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the octets that have arrived; `None` if the frame is incomplete. Does not wait.
    pub(crate) fn read(&mut self, socket: &Socket) -> Result<Option<Frame<'_>>, ReadError> {
        loop {
            let so_far = self.octets.get(..self.len).unwrap_or_default();
            let total = match parse(so_far, self.kind).map_err(ReadError::Malformed)? {
                Progress::Need { total } => total,
                Progress::Frame { .. } => break,
            };
            let Some(room) = self.octets.get_mut(self.len..total) else {
                return Err(ReadError::Broken(EINVAL));
            };
            match socket.recv_nonblocking(room) {
                Ok(0) => return Err(ReadError::Closed),
                Ok(n) => self.len = self.len.saturating_add(n),
                Err(error) if error == EAGAIN => return Ok(None),
                Err(error) => return Err(ReadError::Broken(error)),
            }
        }
        // Parsed again, since the borrow checker does not let the loop return its borrow.
        let so_far = self.octets.get(..self.len).unwrap_or_default();
        match parse(so_far, self.kind).map_err(ReadError::Malformed)? {
            Progress::Frame { frame, .. } => Ok(Some(frame)),
            Progress::Need { .. } => Ok(None),
        }
    }
}

/// A frame that is being sent.
pub(crate) struct FrameWriter {
    /// The frame.
    octets: KVec<u8>,
    /// The number of octets that TCP has accepted.
    sent: usize,
}

impl FrameWriter {
    /// Prepares a frame; `EINVAL` if it has more private data than it can carry.
    pub(crate) fn new(frame: &Frame<'_>) -> Result<Self> {
        let mut octets = KVec::from_elem(0, frame.encoded_len(), GFP_KERNEL)?;
        frame.encode(&mut octets).map_err(|_| EINVAL)?;
        Ok(Self { octets, sent: 0 })
    }

    /// Sends as much as TCP accepts; returns whether the frame is complete. Does not wait.
    pub(crate) fn send(&mut self, socket: &Socket) -> Result<bool> {
        loop {
            let rest = self.octets.get(self.sent..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(true);
            }
            match socket.send_nonblocking(rest) {
                Ok(n) => self.sent = self.sent.saturating_add(n),
                Err(error) if error == EAGAIN => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sends a Terminate as the first and last FPDU after the start-up frames. `markers` and `crc` are
/// the parameters that these agreed on for this direction. The send buffer is empty, so the FPDU
/// fits.
fn send_terminate(socket: &Socket, markers: bool, crc: bool, reason: TerminateReason) {
    let mut out = [0; TERMINATE_ROOM];
    let ulpdu = Terminate::bare(reason).ulpdu();
    let written =
        FpduWriter::new(markers, crc)
            .write::<crc::Kernel, Infallible>(&mut out, &ulpdu, 0, |_| Ok(()));
    if let Some(octets) = written.ok().and_then(|len| out.get(..len)) {
        // The connection is closed anyway.
        let _ = socket.send_nonblocking(octets);
    }
}

/// Sends the Terminate of an initiator that refuses the valid Reply `reply` to a Request of
/// `policy`.
pub(crate) fn terminate_reply(
    socket: &Socket,
    policy: &Policy,
    reply: &Frame<'_>,
    reason: TerminateReason,
) {
    send_terminate(socket, reply.markers, policy.crc || reply.crc, reason);
}

/// Sends the Terminate for a local error after both frames of an enhanced connection (RFC 6581
/// section 9.3).
pub(crate) fn terminate_set_up(socket: &Socket, agreed: &Parameters) {
    let reason = TerminateReason::Mpa(MpaError::LocalCatastrophic);
    send_terminate(socket, agreed.tx_markers, agreed.crc, reason);
}

/// Whether an octet or a FIN follows a Request.
///
/// Neither is allowed before the Reply (requirements.md MPA-86). Does not wait.
pub(crate) fn has_more(socket: &Socket) -> bool {
    socket.recv_nonblocking(&mut [0]) != Err(EAGAIN)
}

#[kunit_tests(rsiw_cm_frame)]
mod tests {
    use super::*;
    use crate::sys::testing::{connected, eventually};
    use iwarp_wire::mpa::startup::{Revision, RtrKinds};

    fn policy(revision: Revision) -> Policy {
        Policy {
            revision,
            crc: true,
            markers: false,
            ird: 5,
            ord: 6,
            max_ird: 128,
            peer_to_peer: false,
            rtr: RtrKinds::ALL,
        }
    }

    fn octets(frame: &Frame<'_>) -> Result<KVec<u8>> {
        let mut octets = KVec::from_elem(0, frame.encoded_len(), GFP_KERNEL)?;
        frame.encode(&mut octets).map_err(|_| EINVAL)?;
        Ok(octets)
    }

    #[test]
    fn goes_across_in_one_piece() -> Result {
        let (a, b) = connected()?;
        let data = [9; 508];
        let request = policy(Revision::Two).request(&data);
        assert!(FrameWriter::new(&request)?.send(&a)?);
        let mut reader = FrameReader::new(FrameKind::Request)?;
        assert!(eventually(|| matches!(reader.read(&b), Ok(Some(_)))));
        let frame = reader.read(&b).ok().flatten().ok_or(EINVAL)?;
        assert!(frame == request);
        assert!(!has_more(&b));
        Ok(())
    }

    #[test]
    fn comes_octet_by_octet_and_leaves_the_rest() -> Result {
        let (a, b) = connected()?;
        let request = policy(Revision::One).request(b"private");
        let mut reader = FrameReader::new(FrameKind::Request)?;
        assert!(matches!(reader.read(&b), Ok(None)));
        let octets = octets(&request)?;
        for octet in octets.iter() {
            assert!(!matches!(reader.read(&b), Ok(Some(_))));
            a.send_nonblocking(&[*octet])?;
        }
        a.send_nonblocking(b"more")?;
        assert!(eventually(|| matches!(reader.read(&b), Ok(Some(_)))));
        assert!(!reader.is_empty());
        let mut rest = [0; 8];
        assert!(eventually(|| b.recv_nonblocking(&mut rest) == Ok(4)));
        assert_eq!(rest.get(..4), Some(&b"more"[..]));
        Ok(())
    }

    /// Delayed startup (RFC 5044 section 7.1.3): the upper layer reads its last streaming message
    /// and no further. The frame begins with the next octet, even if that message looks like a
    /// frame, and the first FPDU stays in the socket.
    #[test]
    fn frame_behind_streaming_data() -> Result {
        let request = octets(&policy(Revision::One).request(b"data"))?;
        let head = request.get(..16).unwrap_or_default();
        let fpdu = [0, 4, 1, 2, 3, 4, 0, 0, 5, 6, 7, 8];
        for streamed in [&b"STARTTLS\r\n"[..], head, &request] {
            let (a, b) = connected()?;
            let mut sent = 0;
            for part in [streamed, &request, &fpdu] {
                sent += a.send_nonblocking(part)?;
            }
            assert_eq!(sent, streamed.len() + request.len() + fpdu.len());

            let mut front = KVec::from_elem(0, streamed.len(), GFP_KERNEL)?;
            let len = streamed.len();
            assert!(eventually(|| b.recv_nonblocking(&mut front) == Ok(len)));
            assert!(front.as_slice() == streamed);
            let mut reader = FrameReader::new(FrameKind::Request)?;
            assert!(eventually(|| matches!(reader.read(&b), Ok(Some(_)))));
            let frame = reader.read(&b).ok().flatten().ok_or(EINVAL)?;
            assert!(frame == policy(Revision::One).request(b"data"));
            let mut rest = [0; 20];
            assert!(eventually(|| b.recv_nonblocking(&mut rest) == Ok(12)));
            assert_eq!(rest.get(..12), Some(&fpdu[..]));
        }
        Ok(())
    }

    #[test]
    fn octets_behind_are_seen() -> Result {
        let (a, b) = connected()?;
        assert!(!has_more(&b));
        a.send_nonblocking(b"!")?;
        assert!(eventually(|| has_more(&b)));
        let (a, b) = connected()?;
        drop(a);
        assert!(eventually(|| has_more(&b)));
        Ok(())
    }

    /// RFC 6581 section 9.3: layer 2, error type 0, code 5; the FPDU has no header of a segment.
    #[test]
    fn terminate_behind_the_frames() -> Result {
        let (a, b) = connected()?;
        let reason = TerminateReason::from_wire(2, 0, 5);
        send_terminate(&a, false, false, reason);
        let mut octets = [0; 40];
        assert!(eventually(|| b.recv_nonblocking(&mut octets) == Ok(28)));
        assert_eq!(octets.get(..4), Some(&[0, 22, 0x41, 0x47][..]));
        assert_eq!(octets.get(20..24), Some(&[0x20, 0x05, 0, 0][..]));
        // The FPDU begins with a marker if the peer requests markers.
        send_terminate(&a, true, true, reason);
        assert!(eventually(|| b.recv_nonblocking(&mut octets) == Ok(32)));
        assert_eq!(octets.get(..8), Some(&[0, 0, 0, 0, 0, 22, 0x41, 0x47][..]));
        Ok(())
    }

    #[test]
    fn garbage_and_ends_are_told_apart() -> Result {
        let (a, b) = connected()?;
        a.send_nonblocking(b"MPA ID Rep Frame")?;
        let mut reader = FrameReader::new(FrameKind::Request)?;
        let mut error = None;
        assert!(eventually(|| {
            error = reader.read(&b).err();
            error.is_some()
        }));
        assert!(error == Some(ReadError::Malformed(StartupError::SameRole)));

        let (a, b) = connected()?;
        a.send_nonblocking(b"MPA ID Req")?;
        drop(a);
        let mut reader = FrameReader::new(FrameKind::Request)?;
        assert!(eventually(|| {
            error = reader.read(&b).err();
            error.is_some()
        }));
        assert!(error == Some(ReadError::Closed));
        assert!(!reader.is_empty());

        let (a, b) = connected()?;
        a.set_linger_abort();
        drop(a);
        let mut reader = FrameReader::new(FrameKind::Request)?;
        assert!(eventually(|| {
            error = reader.read(&b).err();
            error.is_some()
        }));
        assert!(error == Some(ReadError::Broken(crate::sys::errno::ECONNRESET)));
        Ok(())
    }

    #[test]
    fn too_much_private_data_is_refused() {
        let data = [0; 513];
        for revision in [Revision::One, Revision::Two] {
            let request = policy(revision).request(&data);
            assert!(FrameWriter::new(&request).is_err());
        }
    }
}
