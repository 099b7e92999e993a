// SPDX-License-Identifier: GPL-2.0

//! Exclusively held sockets, and what their holder may do.
//!
//! TCP's state belongs to the holder of the socket's lock. That is a process that owns it, or a
//! softirq that has its spin lock while no process owns it. [`Locked`] is the proof of either.
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

/// A TCP socket that is exclusively the caller's. None of this sleeps.
///
/// Calls that send can call back, on this CPU, before they return: write space, or data that was
/// waiting. On a socket that its owner has released, all of them do nothing.
///
/// The address of the value is that of the socket, and the value has no size and no content. An
/// unsized value can be neither moved nor exchanged with another one. `core::mem::swap()` of what
/// two guards dereference to would leave each guard with the other one's socket.
///
/// # Invariants
///
/// A reference points to a TCP socket, not a listening one. The lock of the socket is held as long as
/// the reference lives. A callback made by a call through one reference has another one; the type
/// has no data that the two could disturb.
pub(crate) struct Locked {
    /// The socket is C's, and belongs to the context that has locked it.
    _sk: (Opaque<()>, NotThreadSafe),
    /// Has no size that the compiler knows.
    _unsized: [()],
}

impl Locked {
    /// States that the caller holds a socket.
    ///
    /// # Safety
    ///
    /// It does during `'a`, and the socket is a TCP one that does not listen.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(sk: NonNull<bindings::sock>) -> &'a Self {
        let locked = core::ptr::slice_from_raw_parts(sk.as_ptr().cast::<()>(), 0);
        // INVARIANT: As this function's contract says.
        // SAFETY: No octet is read or written through the reference.
        unsafe { &*(locked as *const Self) }
    }

    /// As [`from_raw`](Self::from_raw), for calls that need the socket to themselves.
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

    /// State of the connection for `rdma resource show`.
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

    /// The error that TCP noted, once.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        // SAFETY: By the type invariant.
        let error = unsafe { bindings::rsiw_sk_take_error(self.as_ptr()) };
        (error < 0).then(|| Error::from_errno(error))
    }

    /// The octets of data that TCP puts into a segment now (EMSS of RFC 5044).
    #[inline]
    pub(crate) fn mss(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_mss(self.as_ptr()) }
    }

    /// The octets that TCP puts into one buffer: a multiple of [`Self::mss`].
    #[inline]
    pub(crate) fn size_goal(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_size_goal(self.as_ptr()) }
    }

    /// The octets of TCP's last buffer that were not sent yet, to which what is sent next is
    /// appended.
    #[inline]
    pub(crate) fn unsent_tail(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_unsent_tail(self.as_ptr()) }
    }

    /// The octets that TCP's last unsent buffer has fragments left for, if they begin with a page;
    /// 0 if it has no fragment left. More than any burst if there is no such buffer: none at all,
    /// or one that [`Self::end_record`] closed.
    #[inline]
    pub(crate) fn tail_room(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_tail_room(self.as_ptr()) }
    }

    /// The octets that TCP took and did not send yet. The first of them will begin a segment.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_unsent(self.as_ptr()) }
    }

    /// Has what is sent next begin a segment, however short the one in front of it gets.
    #[inline]
    pub(crate) fn end_record(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_end_record(self.as_ptr()) }
    }

    /// The octets that TCP took and the peer did not acknowledge yet.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_outstanding(self.as_ptr()) }
    }

    /// The octets that the peer has acknowledged, in all.
    pub(crate) fn acked(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_acked(self.as_ptr()) }
    }

    /// Whether TCP has sent something that asks for an answer since the peer was heard: data, or a
    /// probe of the peer's closed window.
    pub(crate) fn awaits_answer(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_awaits_answer(self.as_ptr()) }
    }

    /// Whether the peer's window is closed to what TCP has to send, and nothing is in flight.
    pub(crate) fn window_is_closed(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_window_closed(self.as_ptr()) }
    }

    /// Milliseconds since the peer was heard.
    pub(crate) fn silent_ms(&self) -> u32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_silent_ms(self.as_ptr()) }
    }

    /// Whether a third of the send buffer is free, so that it is worth going on to send.
    #[inline]
    pub(crate) fn stream_writable(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_writable(self.as_ptr()) }
    }

    /// Whether TCP would take anything now. If not, it calls
    /// [`Handler::write_space`](super::Handler::write_space) when it does, as after sending found no
    /// room. A connection that is over has room: sending tells.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_has_room(self.as_ptr()) }
    }

    /// Makes a fixed send buffer as large as the path needs, up to the system's limit
    /// (`net.ipv4.tcp_wmem`): `octets` on a short path, twice the congestion window where a round
    /// trip lasts more than `rtt_us` microseconds. Whether there is room now.
    pub(crate) fn fit_sndbuf(&mut self, octets: u32, rtt_us: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_fit_sndbuf(self.as_ptr(), octets, rtt_us) }
    }

    /// Whether the shortest round trip so far lasted more than `rtt_us` microseconds.
    #[inline]
    pub(crate) fn is_long_rtt(&self, rtt_us: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_is_long_rtt(self.as_ptr(), rtt_us) }
    }

    /// Whether TCP has nothing to send and waits for no acknowledgment: then nothing will make it
    /// call [`Handler::write_space`](super::Handler::write_space).
    #[inline]
    pub(crate) fn write_queues_empty(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_queues_empty(self.as_ptr()) }
    }

    /// Room was found: TCP need not call
    /// [`Handler::write_space`](super::Handler::write_space) any more, which it does after sending
    /// found none.
    #[inline]
    pub(crate) fn clear_nospace(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_clear_nospace(self.as_ptr()) }
    }

    /// Whether TCP has memory to spare, by its own limits (`net.ipv4.tcp_mem`, tcp(7)).
    pub(crate) fn memory_is_plenty(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_memory_plenty(self.as_ptr()) }
    }

    /// Has TCP keep memory for `octets` accounted to the socket, whether they are used or not, until
    /// [`Self::unreserve`] or the socket's end; whether it does. Refused where memory is not plenty.
    pub(crate) fn reserve(&mut self, octets: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_reserve(self.as_ptr(), octets) }
    }

    /// Ends the reservation: its free part goes back at once.
    pub(crate) fn unreserve(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_unreserve(self.as_ptr()) }
    }

    /// Charges the socket, and the memory cgroup that pays for it, for `octets` of other memory.
    /// `false` if TCP or the cgroup has none to spare. To be taken back by [`Self::uncharge`]
    /// before the socket is released, which does not do so.
    pub(crate) fn charge(&mut self, octets: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_charge(self.as_ptr(), octets) }
    }

    /// Takes back what [`Self::charge`] charged, or a part of it.
    pub(crate) fn uncharge(&mut self, octets: u32) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_uncharge(self.as_ptr(), octets) }
    }

    /// [`Self::uncharge`] for a socket that is released next. As long as TCP has something to
    /// deliver, `octets` stay accounted to it, at most to its end.
    pub(crate) fn leave_charge(&mut self, octets: u32) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_leave_charge(self.as_ptr(), octets) }
    }

    /// Releases the page fragment that [`Self::send_copy`] copies into, which a socket otherwise
    /// keeps.
    pub(crate) fn drop_fragment(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_sk_drop_frag(self.as_ptr()) }
    }

    /// Sends octets `at..at + len` of `blocks`, where they lie; how many TCP took. The blocks are
    /// not written to up to there any more, which [`BlockChain::fill`] sees to.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is no room, or no memory. `EPIPE`, `ECONNRESET`…: the connection is over.
    /// `EINVAL`: they do not lie in the blocks, or are none.
    #[inline]
    pub(crate) fn send_pages(
        &mut self,
        blocks: &mut BlockChain,
        at: usize,
        len: usize,
    ) -> Result<usize> {
        let (parts, count) = blocks.lend(at, len).ok_or(EINVAL)?;
        // SAFETY: By the type invariant. The first `count` parts lie in blocks, which TCP takes
        // references to, and have less than 2 GiB.
        let sent = unsafe { bindings::rsiw_tcp_send_pages(self.as_ptr(), parts.as_ptr(), count) };
        octets(sent)
    }

    /// Sends a copy of `buf`; how many octets TCP took.
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

    /// Sends FIN behind what was sent; nothing can be sent after it.
    pub(crate) fn send_fin(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_send_fin(self.as_ptr()) }
    }

    /// Passes received octets in order to `f`, buffer by buffer, until `f` takes less than a whole
    /// buffer. `f` returns how many octets it took. Returns the sum, which the caller reports by
    /// [`Self::receive_done`]: until then TCP keeps the octets. The walk skips the first `seen`
    /// octets, which earlier walks took and did not report, and FIN and urgent marks.
    #[inline]
    pub(crate) fn receive_walk(
        &mut self,
        seen: usize,
        mut f: impl FnMut(&SkbView<'_>) -> usize,
    ) -> usize {
        let mut sum: usize = 0;
        let mut rx = bindings::rsiw_rx::default();
        // SAFETY: By the type invariant. No window, and so nothing unread, is as long as a `u32`.
        let mut more = unsafe { bindings::rsiw_tcp_rx_first(self.as_ptr(), &mut rx, seen as u32) };
        while more {
            let Some(skb) = NonNull::new(rx.skb) else {
                break;
            };
            let view = match rx.unreadable {
                true => SkbView::unreadable(skb, rx.len),
                // SAFETY: The octets are in the receive queue, which the holder of the lock has.
                // The queue does not change while `f` runs, which has no access to the socket.
                false => unsafe { SkbView::new(skb, rx.offset, rx.len) },
            };
            let taken = f(&view).min(view.len());
            sum = sum.saturating_add(taken);
            if taken < view.len() {
                break;
            }
            // SAFETY: By the type invariant; `rx` is from the call before, and the queue as it
            // was then.
            more = unsafe { bindings::rsiw_tcp_rx_next(self.as_ptr(), &mut rx) };
        }
        sum
    }

    /// Reports the first `len` received octets as read: TCP frees them, and advertises the room.
    #[inline]
    pub(crate) fn receive_done(&mut self, len: usize) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_rx_done(self.as_ptr(), len) }
    }
}
