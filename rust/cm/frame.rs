// SPDX-License-Identifier: GPL-2.0

//! Start-up frames on a socket that is not waited for (RFC 5044 section 7.1).
//!
//! A frame is read to its last octet and no further: what follows it belongs to the first FPDU and
//! stays in the socket (requirements.md MPA-84).

use iwarp_wire::mpa::startup::{
    parse,
    Frame,
    FrameKind,
    Progress,
    StartupError,
    MAX_FRAME_LEN, //
};
use kernel::prelude::*;

use crate::sys::socket::Socket;

/// What has come of a frame.
pub(super) struct FrameReader {
    /// The octets so far in front, and room for the rest.
    octets: KVec<u8>,
    /// Octets so far.
    len: usize,
    /// Which frame is expected.
    kind: FrameKind,
}

/// Why there will be no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// The peer sent something else.
    Malformed(StartupError),
    /// The peer closed the connection.
    Closed,
    /// The connection broke.
    Broken(Error),
}

impl FrameReader {
    /// Waits for a frame of that kind.
    pub(super) fn new(kind: FrameKind) -> Result<Self> {
        Ok(Self {
            octets: KVec::from_elem(0, MAX_FRAME_LEN, GFP_KERNEL)?,
            len: 0,
            kind,
        })
    }

    /// Whether anything has come.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads on; `None` if more has to come. Does not wait.
    pub(super) fn read(&mut self, socket: &Socket) -> Result<Option<Frame<'_>>, ReadError> {
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
        // Parsed again, since a loop can not give out what it has borrowed for a moment.
        let so_far = self.octets.get(..self.len).unwrap_or_default();
        match parse(so_far, self.kind).map_err(ReadError::Malformed)? {
            Progress::Frame { frame, .. } => Ok(Some(frame)),
            Progress::Need { .. } => Ok(None),
        }
    }
}

/// A frame on its way out.
pub(super) struct FrameWriter {
    /// The frame.
    octets: KVec<u8>,
    /// Octets that TCP has taken.
    sent: usize,
}

impl FrameWriter {
    /// Prepares a frame; `EINVAL` if it has more private data than it can carry.
    pub(super) fn new(frame: &Frame<'_>) -> Result<Self> {
        let mut octets = KVec::from_elem(0, frame.encoded_len(), GFP_KERNEL)?;
        frame.encode(&mut octets).map_err(|_| EINVAL)?;
        Ok(Self { octets, sent: 0 })
    }

    /// Goes on sending; whether TCP has taken all of it. Does not wait.
    pub(super) fn send(&mut self, socket: &Socket) -> Result<bool> {
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

/// Whether something that must not be there is behind a Request: an octet, or an end.
///
/// Nothing may follow the Request before the Reply (requirements.md MPA-86). Does not wait.
pub(super) fn has_more(socket: &Socket) -> bool {
    socket.recv_nonblocking(&mut [0]) != Err(EAGAIN)
}
