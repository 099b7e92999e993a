// SPDX-License-Identifier: GPL-2.0

//! The state of a stream for `rdma resource show`, and its part of the device's counters.

use kernel::{
    str::CStr,
    sync::atomic::Relaxed, //
};

use super::{
    batch::{
        StreamPhase,
        StreamState, //
    },
    config::Agreed,
    Stream, //
};
use crate::{
    sys::{
        net::socket::TcpInfo, //
        rdma::res::ResAttrs,
    },
    verbs::counters::{
        Counter,
        Counters, //
    }, //
};

/// A snapshot of the state of a stream.
pub(crate) struct StreamInfo {
    /// The parameters that the MPA start-up negotiated.
    agreed: Agreed,
    phase: StreamPhase,
    /// A Send waits for a receive.
    held: bool,
    /// Fetched work requests of the send queue without a completion.
    under_way: usize,
    /// Reads of this end whose Response is incomplete.
    reads: usize,
    /// Read Requests of the peer whose Response is incomplete.
    peer_reads: usize,
    /// The state of the TCP connection.
    tcp: TcpInfo,
    /// Segments that TCP has retransmitted.
    retransmits: u32,
}

impl StreamInfo {
    /// Adds the driver attributes of `rdma resource show qp`.
    pub(crate) fn describe(&self, attrs: &mut ResAttrs<'_>) {
        let Self { agreed, tcp, .. } = self;
        attrs.text(c"stream", self.phase.name());
        attrs.text(
            c"role",
            match agreed.initiator {
                true => c"initiator",
                false => c"responder",
            },
        );
        attrs.number(c"local_port", tcp.local_port.into());
        attrs.number(c"remote_port", tcp.remote_port.into());
        attrs.text(c"tcp_state", tcp.state.name());
        attrs.flag(c"crc", agreed.crc);
        attrs.flag(c"markers_rx", agreed.rx_markers);
        attrs.flag(c"markers_tx", agreed.tx_markers);
        attrs.number(c"ird", agreed.ird.into());
        attrs.number(c"ord", agreed.ord.into());
        attrs.number(c"sends_under_way", self.under_way as u32);
        attrs.number(c"reads", self.reads as u32);
        attrs.number(c"peer_reads", self.peer_reads as u32);
        attrs.flag(c"rnr_held", self.held);
        attrs.number(c"tcp_mss", tcp.mss);
        attrs.number(c"tcp_rtt_us", tcp.rtt_us);
        attrs.number(c"tcp_unacked", tcp.unacked);
        attrs.number(c"tcp_unsent", tcp.unsent);
        attrs.number(c"tcp_unread", tcp.unread);
        attrs.number(c"tcp_retransmits", self.retransmits);
    }
}

impl StreamPhase {
    /// The name of the phase in `rdma resource show`.
    const fn name(self) -> &'static CStr {
        match self {
            Self::Starting => c"starting",
            Self::Open => c"open",
            Self::Closing => c"closing",
            Self::Leaving => c"leaving",
            Self::Ended => c"ended",
            Self::Over => c"over",
        }
    }
}

impl Stream {
    /// A snapshot of the state; `None` after the release of the socket. Process context; sleeps.
    pub(crate) fn info(&self) -> Option<StreamInfo> {
        if self.socket.lock().is_none() {
            return None;
        }
        let sock = self.state.sock();
        let retransmits = sock.retransmits();
        let mut locked = sock.lock();
        let mut opened = self.state.open(&mut locked).ok()?;
        let (state, locked) = opened.split();
        Some(state.info(locked.info(), retransmits))
    }

    /// Retransmitted segments that the device's counters do not include yet. Any context.
    pub(crate) fn retransmits(&self) -> u32 {
        let now = self.state.sock().retransmits();
        now.saturating_sub(self.retransmits_told.load(Relaxed))
    }

    /// Adds the segments retransmitted since the last call to the device's counters. Any context.
    pub(crate) fn tell_retransmits(&self, counters: &Counters) {
        let now = self.state.sock().retransmits();
        let before = self.retransmits_told.xchg(now, Relaxed);
        // A reset by this end sets TCP's number to 0.
        counters.add(Counter::TcpRetransmits, now.saturating_sub(before).into());
    }
}

impl StreamState {
    /// Makes a snapshot of the state.
    fn info(&self, tcp: TcpInfo, retransmits: u32) -> StreamInfo {
        StreamInfo {
            agreed: self.agreed,
            phase: self.proto.phase,
            held: self.proto.rx.hold.is_some(),
            under_way: self.shared.sent.len(),
            reads: self.proto.reads.orq.len(),
            peer_reads: self.proto.reads.irq.len(),
            tcp,
            retransmits,
        }
    }
}
