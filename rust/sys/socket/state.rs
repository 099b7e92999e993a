// SPDX-License-Identifier: GPL-2.0

//! The states of a TCP connection.

use super::bindings;

/// The states of a TCP connection (RFC 9293 section 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpState {
    /// Both ways are open.
    Established,
    /// SYN was sent.
    SynSent,
    /// SYN came.
    SynRecv,
    /// FIN was sent.
    FinWait1,
    /// FIN was sent and acknowledged.
    FinWait2,
    /// Both FINs were sent, and acknowledged as far as we know.
    TimeWait,
    /// There is no connection (any more).
    Close,
    /// FIN came.
    CloseWait,
    /// FIN came, and then was sent.
    LastAck,
    /// Connections are waited for.
    Listen,
    /// FIN was sent, and came before ours was acknowledged.
    Closing,
}

impl TcpState {
    /// Reads C's number; those that no socket of ours has count as closed.
    pub(super) fn from_raw(state: u8) -> Self {
        match u32::from(state) {
            bindings::TCP_ESTABLISHED => Self::Established,
            bindings::TCP_SYN_SENT => Self::SynSent,
            bindings::TCP_SYN_RECV | bindings::TCP_NEW_SYN_RECV => Self::SynRecv,
            bindings::TCP_FIN_WAIT1 => Self::FinWait1,
            bindings::TCP_FIN_WAIT2 => Self::FinWait2,
            bindings::TCP_TIME_WAIT => Self::TimeWait,
            bindings::TCP_CLOSE_WAIT => Self::CloseWait,
            bindings::TCP_LAST_ACK => Self::LastAck,
            bindings::TCP_LISTEN => Self::Listen,
            bindings::TCP_CLOSING => Self::Closing,
            _ => Self::Close,
        }
    }
}
