// SPDX-License-Identifier: GPL-2.0

//! The states of a TCP connection.

use kernel::str::CStr;

use super::bindings;

/// The states of a TCP connection (RFC 9293 section 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpState {
    /// Both directions are open.
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

/// State of a connection for `rdma resource show`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpInfo {
    /// The state.
    pub(crate) state: TcpState,
    /// The port of this end.
    pub(crate) local_port: u16,
    /// The port of the peer.
    pub(crate) remote_port: u16,
    /// The smoothed round trip time in microseconds; 0: not known.
    pub(crate) rtt_us: u32,
    /// Octets of data in a segment.
    pub(crate) mss: u32,
    /// Octets sent and not acknowledged.
    pub(crate) unacked: u32,
    /// Octets that TCP has taken and not sent.
    pub(crate) unsent: u32,
    /// Octets that arrived and were not read.
    pub(crate) unread: u32,
}

impl TcpState {
    /// The name, as ss(8) has it.
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::Established => c"ESTAB",
            Self::SynSent => c"SYN-SENT",
            Self::SynRecv => c"SYN-RECV",
            Self::FinWait1 => c"FIN-WAIT-1",
            Self::FinWait2 => c"FIN-WAIT-2",
            Self::TimeWait => c"TIME-WAIT",
            Self::Close => c"UNCONN",
            Self::CloseWait => c"CLOSE-WAIT",
            Self::LastAck => c"LAST-ACK",
            Self::Listen => c"LISTEN",
            Self::Closing => c"CLOSING",
        }
    }

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
