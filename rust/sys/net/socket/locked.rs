// SPDX-License-Identifier: GPL-2.0

//! Functions of exclusively held sockets.
//!
//! The lock of a socket guards TCP's state. The holder is a process that owns the socket, or a
//! context that has its spin lock while no process owns it. [`Locked`] is the proof of either.
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/net/tcp.h`](srctree/include/net/tcp.h)

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

use super::{
    bindings, octets,
    state::{
        TcpInfo,
        TcpState, //
    },
};
use crate::sys::{
    mm::blocks::BlockChain,
    net::skb::SkbView, //
};

/// A TCP socket that the caller holds exclusively. No function sleeps.
///
/// Functions that send can call back, on this CPU, before they return: `write_space`, or
/// `data_ready` for queued data. They have no effect on a socket that its owner has released.
///
/// The address of the value is that of the socket; the value has no content. The type is unsized,
/// so that values can be neither moved nor swapped. A `core::mem::swap()` of the targets of two
/// guards would exchange their sockets.
///
/// # Invariants
///
/// A reference points to a TCP socket that does not listen. The lock of the socket is held as long
/// as the reference exists. A callback inside a call through one reference has another one. The
/// type has no data, so the two do not conflict.
pub(crate) struct Locked {
    /// Only C accesses the socket; the lock belongs to one context.
    _sk: (Opaque<()>, NotThreadSafe),
    /// Makes the type unsized.
    _unsized: [()],
}

impl Locked {
    /// Wraps a socket that the caller holds.
    ///
    /// # Safety
    ///
    /// The caller holds the socket during `'a`. The socket is a TCP socket that does not listen.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(sk: NonNull<bindings::sock>) -> &'a Self {
        let locked = core::ptr::slice_from_raw_parts(sk.as_ptr().cast::<()>(), 0);
        // INVARIANT: As this function's contract says.
        // SAFETY: No octet is read or written through the reference.
        unsafe { &*(locked as *const Self) }
    }

    /// As [`from_raw`](Self::from_raw), for functions that change the socket.
    ///
    /// # Safety
    ///
    /// As of [`from_raw`](Self::from_raw), and no other reference is in use during `'a`.
    #[inline]
    pub(super) unsafe fn from_raw_mut<'a>(sk: NonNull<bindings::sock>) -> &'a mut Self {
        let locked = core::ptr::slice_from_raw_parts_mut(sk.as_ptr().cast::<()>(), 0);
        // INVARIANT: As this function's contract says.
        // SAFETY: No octet is read or written through the reference.
        unsafe { &mut *(locked as *mut Self) }
    }

    /// The C object.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut bindings::sock {
        core::ptr::from_ref(self)
            .cast::<bindings::sock>()
            .cast_mut()
    }

    /// The state of the connection.
    #[inline]
    pub(crate) fn tcp_state(&self) -> TcpState {
        // SAFETY: By the type invariant.
        TcpState::from_raw(unsafe { bindings::rsiw_sk_state(self.as_ptr()) })
    }

    /// The attributes of the connection for `rdma resource show`.
    pub(crate) fn info(&self) -> TcpInfo {
        let mut info = bindings::rsiw_tcp_info::default();
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_info(self.as_ptr(), &mut info) };
        TcpInfo {
            state: self.tcp_state(),
            local_port: info.local_port,
            remote_port: info.remote_port,
            rtt_us: info.rtt_us,
            mss: info.mss,
            unacked: info.unacked,
            unsent: info.unsent,
            unread: info.unread,
        }
    }

    /// Takes the pending error of the socket.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        // SAFETY: By the type invariant.
        let error = unsafe { bindings::rsiw_sk_take_error(self.as_ptr()) };
        (error < 0).then(|| Error::from_errno(error))
    }

    /// The current maximum segment size, in octets of data (EMSS of RFC 5044).
    #[inline]
    pub(crate) fn mss(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_mss(self.as_ptr()) }
    }

    /// The octets that TCP puts into one skb: a multiple of [`Self::mss`].
    #[inline]
    pub(crate) fn size_goal(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_size_goal(self.as_ptr()) }
    }

    /// The unsent octets of the last skb of the write queue, to which TCP appends; 0 if it does
    /// not.
    #[inline]
    pub(crate) fn unsent_tail(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_unsent_tail(self.as_ptr()) }
    }

    /// The octets for which the last unsent skb has free fragments, if the octets begin with a
    /// page; 0 without a free fragment. `u32::MAX` if there is no such skb, or [`Self::end_record`]
    /// closed it.
    #[inline]
    pub(crate) fn tail_room(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_tail_room(self.as_ptr()) }
    }

    /// The unsent octets of the write queue. The first of them will begin a segment.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_unsent(self.as_ptr()) }
    }

    /// Makes the next octets begin a segment, even if the segment before stays short.
    #[inline]
    pub(crate) fn end_record(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_end_record(self.as_ptr()) }
    }

    /// The octets of the write queue that the peer has not acknowledged yet, sent or not.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_outstanding(self.as_ptr()) }
    }

    /// The number of octets that the peer has acknowledged since the connection began.
    pub(crate) fn acked(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_acked(self.as_ptr()) }
    }

    /// Whether TCP has sent data or a window probe since the last segment from the peer.
    pub(crate) fn awaits_answer(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_awaits_answer(self.as_ptr()) }
    }

    /// Whether the peer's window is closed: TCP has unsent data, and no segment is in flight.
    pub(crate) fn window_is_closed(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_window_closed(self.as_ptr()) }
    }

    /// Milliseconds since the last segment from the peer.
    pub(crate) fn silent_ms(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_silent_ms(self.as_ptr()) }
    }

    /// Whether a third of the send buffer is free (`sk_stream_is_writeable()`).
    #[inline]
    pub(crate) fn stream_writable(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_writable(self.as_ptr()) }
    }

    /// Whether the send buffer has free space. If not, TCP calls
    /// [`Handler::write_space`](super::Handler::write_space) when it has, as after `EAGAIN`. A
    /// closed connection returns `true`: sending reports the error.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_has_room(self.as_ptr()) }
    }

    /// Sizes a fixed send buffer for the path, up to the limit of the system (`net.ipv4.tcp_wmem`).
    ///
    /// The size is `octets`, or twice the congestion window if the round trip time exceeds `rtt_us`
    /// microseconds. Returns whether the send buffer has free space.
    pub(crate) fn fit_sndbuf(&mut self, octets: u32, rtt_us: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_fit_sndbuf(self.as_ptr(), octets, rtt_us) }
    }

    /// Whether the minimum round trip time exceeds `rtt_us` microseconds.
    #[inline]
    pub(crate) fn is_long_rtt(&self, rtt_us: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_is_long_rtt(self.as_ptr(), rtt_us) }
    }

    /// Whether the write and retransmit queues are empty. No event makes TCP call
    /// [`Handler::write_space`](super::Handler::write_space) then.
    #[inline]
    pub(crate) fn write_queues_empty(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_queues_empty(self.as_ptr()) }
    }

    /// Clears `SOCK_NOSPACE`: TCP need not call
    /// [`Handler::write_space`](super::Handler::write_space), since the send buffer has free space.
    #[inline]
    pub(crate) fn clear_nospace(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_clear_nospace(self.as_ptr()) }
    }

    /// Whether all TCP sockets use less than half of the unregulated memory (`net.ipv4.tcp_mem`,
    /// tcp(7)).
    pub(crate) fn memory_is_plenty(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_memory_plenty(self.as_ptr()) }
    }

    /// Reserves memory for `octets`, accounted to the socket, until [`Self::unreserve`] or the
    /// socket's end. Returns `false` if TCP's memory is short.
    pub(crate) fn reserve(&mut self, octets: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_reserve(self.as_ptr(), octets) }
    }

    /// Ends the reservation. TCP reclaims the unused part at once.
    pub(crate) fn unreserve(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_unreserve(self.as_ptr()) }
    }

    /// Charges `octets` of other memory to the socket and its memory cgroup. Returns `false` if a
    /// limit of TCP or of the cgroup is reached. The release of the socket does not uncharge: the
    /// caller calls [`Self::uncharge`] before.
    pub(crate) fn charge(&mut self, octets: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_charge(self.as_ptr(), octets) }
    }

    /// Uncharges octets of [`Self::charge`], all or a part.
    pub(crate) fn uncharge(&mut self, octets: u32) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_uncharge(self.as_ptr(), octets) }
    }

    /// [`Self::uncharge`] for a socket that is released next. `octets` stay accounted to the socket
    /// while TCP has data to deliver, at most until the socket's end.
    pub(crate) fn leave_charge(&mut self, octets: u32) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_leave_charge(self.as_ptr(), octets) }
    }

    /// Releases the page fragment of [`Self::send_copy`], which a socket otherwise keeps. `false`:
    /// the fragment stays, since TCP or a receiver on this host has references to parts of it.
    pub(crate) fn drop_fragment(&mut self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_drop_unused_frag(self.as_ptr()) }
    }

    /// Sends octets `at..at + len` of `blocks` without a copy; returns the number that TCP took.
    /// [`BlockChain::fill`] does not write to them afterwards.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the send buffer is full, or there is no memory. `EPIPE`, `ECONNRESET`…: the
    /// connection is closed. `EINVAL`: the range is empty or leaves the blocks.
    #[inline]
    pub(crate) fn send_pages(
        &mut self,
        blocks: &mut BlockChain,
        at: usize,
        len: usize,
    ) -> Result<usize> {
        let (parts, count) = blocks.lend(at, len).ok_or(EINVAL)?;
        // SAFETY: By the type invariant. The first `count` parts are in blocks, to which TCP takes
        // references, and have less than 2 GiB in sum.
        let sent = unsafe { bindings::rsiw_tcp_send_pages(self.as_ptr(), parts.as_ptr(), count) };
        octets(sent)
    }

    /// Sends a copy of `buf`; returns the number of octets that TCP took.
    ///
    /// # Errors
    ///
    /// As [`Self::send_pages`].
    #[inline]
    pub(crate) fn send_copy(&mut self, buf: &[u8]) -> Result<usize> {
        // SAFETY: By the type invariant; the pointer and the length are those of a slice.
        let sent =
            unsafe { bindings::rsiw_tcp_send_copy(self.as_ptr(), buf.as_ptr().cast(), buf.len()) };
        octets(sent)
    }

    /// Sends FIN after all queued data. Later sends fail.
    pub(crate) fn send_fin(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_send_fin(self.as_ptr()) }
    }

    /// Passes received octets in order to `f`, one skb after the other. `f` returns the number of
    /// octets that it took; the walk ends when that is less than the skb.
    ///
    /// Returns the sum, which the caller reports by [`Self::receive_done`]: until then TCP keeps
    /// the octets. The walk skips the first `seen` octets, which earlier walks took and did not
    /// report, and FIN and urgent marks.
    #[inline]
    pub(crate) fn receive_walk(
        &mut self,
        seen: usize,
        mut f: impl FnMut(&SkbView<'_>) -> usize,
    ) -> usize {
        let mut sum: usize = 0;
        let mut rx = bindings::rsiw_rx::default();
        // SAFETY: By the type invariant. A window, and so the unread data, is shorter than 2^32.
        let mut more = unsafe { bindings::rsiw_tcp_rx_first(self.as_ptr(), &mut rx, seen as u32) };
        while more {
            let Some(skb) = NonNull::new(rx.skb) else {
                break;
            };
            let view = match rx.unreadable {
                true => SkbView::unreadable(skb, rx.len),
                // SAFETY: The octets are in the receive queue, which the socket lock guards. The
                // queue does not change while `f` runs: `f` has no access to the socket.
                false => unsafe { SkbView::new(skb, rx.offset, rx.len) },
            };
            let taken = f(&view).min(view.len());
            sum = sum.saturating_add(taken);
            if taken < view.len() {
                break;
            }
            // SAFETY: By the type invariant; `rx` is from the previous call, and the queue has not
            // changed since.
            more = unsafe { bindings::rsiw_tcp_rx_next(self.as_ptr(), &mut rx) };
        }
        sum
    }

    /// Reports the first `len` received octets as read: TCP frees them, and updates the window.
    #[inline]
    pub(crate) fn receive_done(&mut self, len: usize) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_rx_done(self.as_ptr(), len) }
    }
}
