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
    /// SYN was received.
    SynRecv,
    /// FIN was sent.
    FinWait1,
    /// FIN was sent and acknowledged.
    FinWait2,
    /// Both FINs were sent; the wait covers retransmissions of the peer's FIN.
    TimeWait,
    /// There is no connection.
    Close,
    /// FIN was received.
    CloseWait,
    /// FIN was received, and then sent.
    LastAck,
    /// The socket listens.
    Listen,
    /// FIN was sent, and the peer's FIN was received before the acknowledgment.
    Closing,
}

/// The attributes of a connection for `rdma resource show`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpInfo {
    pub(crate) state: TcpState,
    /// The port of this end, in host order.
    pub(crate) local_port: u16,
    /// The peer's port.
    pub(crate) remote_port: u16,
    /// The smoothed round trip time in microseconds; 0: not known.
    pub(crate) rtt_us: u32,
    /// The maximum segment size, in octets of data.
    pub(crate) mss: u32,
    /// Octets sent and not acknowledged.
    pub(crate) unacked: u32,
    /// Octets in the write queue, not yet sent.
    pub(crate) unsent: u32,
    /// Octets received and not read.
    pub(crate) unread: u32,
}

impl TcpState {
    /// The name of the state in the output of ss(8).
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

    /// Converts the number of a state (`TCP_*`); other numbers become [`Self::Close`].
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
