// SPDX-License-Identifier: GPL-2.0

//! Sockets that are exclusively somebody's, and what that one may do.
//!
//! TCP's state belongs to the holder of the socket's lock: a process that owns it, or a softirq
//! that has its spin lock while no process owns it. [`Locked`] is the proof of either.
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/net/tcp.h`](srctree/include/net/tcp.h)

use core::ptr::NonNull;

use kernel::prelude::*;

use super::{
    bindings,
    octets,
    state::TcpState, //
};
use crate::sys::{
    pages::RunBuf,
    skb::SkbView, //
};

/// A TCP socket that is exclusively the caller's. None of this sleeps.
///
/// Calls that send can call back, on this CPU, before they return: write space, or data that was
/// waiting. On a socket that its owner has released, all of them do nothing.
///
/// # Invariants
///
/// `sk` is a TCP socket, not a listening one, and its lock is held for as long as this lives. (A
/// callback made by a call through one `Locked` has another one; there is nothing in here that
/// they could disturb.)
pub(crate) struct Locked {
    /// The socket.
    sk: NonNull<bindings::sock>,
}

impl Locked {
    /// States that the caller holds a socket.
    ///
    /// # Safety
    ///
    /// It does, for as long as the value lives, and the socket is a TCP one that does not listen.
    #[inline]
    pub(super) unsafe fn new(sk: NonNull<bindings::sock>) -> Self {
        // INVARIANT: As this function's contract says.
        Self { sk }
    }

    /// The C object.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut bindings::sock {
        self.sk.as_ptr()
    }

    /// The state of the connection.
    #[inline]
    pub(crate) fn tcp_state(&self) -> TcpState {
        // SAFETY: By the type invariant.
        TcpState::from_raw(unsafe { bindings::rsiw_sk_state(self.as_ptr()) })
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

    /// The octets that TCP's last unsent buffer has places for, if they begin with a page; 0 if it
    /// has none left. More than any run if there is no such buffer: none at all, or one that
    /// [`Self::end_record`] closed.
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

    /// Makes a fixed send buffer as large as the way needs: `octets` on a short one, twice the
    /// congestion window where a round trip lasts more than `far_us` microseconds, up to the
    /// system's limit (`net.ipv4.tcp_wmem`). Whether there is room now.
    pub(crate) fn fit_sndbuf(&mut self, octets: u32, far_us: u32) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_fit_sndbuf(self.as_ptr(), octets, far_us) }
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

    /// Sends `len` octets of `run` from `off`, where they lie; how many TCP took. The buffer must
    /// not be written to until they are acknowledged, which [`RunBuf::as_mut_slice`] sees to.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is no room, or no memory. `EPIPE`, `ECONNRESET`…: the connection is over.
    /// `EINVAL`: they do not lie in the buffer.
    #[inline]
    pub(crate) fn send_pages(&mut self, run: &RunBuf, off: usize, len: usize) -> Result<usize> {
        if run.part(off, len).is_none() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant; the octets lie in the block, which TCP takes references
        // to. Both numbers are below the size of a block.
        let sent = unsafe {
            bindings::rsiw_tcp_send_pages(self.as_ptr(), run.page(), off as u32, len as u32)
        };
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

    /// Shows what came in order, and was not read, to `f`, buffer by buffer, until `f` takes less
    /// than a whole buffer. `f` returns how many octets it took. Returns the sum, which
    /// [`Self::receive_done`] has to be told before the next walk: until then TCP keeps the
    /// octets. FIN and urgent marks are not shown.
    #[inline]
    pub(crate) fn receive_walk(&mut self, mut f: impl FnMut(&SkbView<'_>) -> usize) -> usize {
        let mut sum: usize = 0;
        let mut rx = bindings::rsiw_rx::default();
        // SAFETY: By the type invariant.
        let mut more = unsafe { bindings::rsiw_tcp_rx_first(self.as_ptr(), &mut rx) };
        while more {
            let Some(skb) = NonNull::new(rx.skb) else {
                break;
            };
            // SAFETY: The octets are in the receive queue, which is ours; nobody changes it or
            // them while `f` runs, which has no access to the socket.
            let view = unsafe { SkbView::new(skb, rx.offset, rx.len) };
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

    /// Tells TCP that the first `len` octets that came were read: it frees them, and tells the
    /// peer of the room.
    #[inline]
    pub(crate) fn receive_done(&mut self, len: usize) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rsiw_tcp_rx_done(self.as_ptr(), len) }
    }
}

#[kunit_tests(rsiw_sys_locked)]
mod tests {
    use super::super::SockRef;
    use super::*;
    use crate::sys::testing::{connected, eventually};

    /// Sends all of `buf`.
    fn send_all(sock: &SockRef, buf: &[u8]) -> bool {
        let mut rest = buf;
        eventually(|| {
            if let Ok(sent) = sock.lock().send_copy(rest) {
                rest = rest.get(sent..).unwrap_or_default();
            }
            rest.is_empty()
        })
    }

    #[test]
    fn walks_what_came_and_keeps_what_was_not_taken() -> Result {
        let (a, b) = connected()?;
        assert!(send_all(&a.sock(), b"0123456789"));
        let sock = b.sock();
        let mut got = [0u8; 10];
        // Half is looked at, a part of it taken.
        assert!(eventually(|| sock.lock().receive_walk(|view| {
            if view.len() == 10 {
                let _ = view.copy_bits(0, got.get_mut(..5).unwrap_or_default());
            }
            0
        }) == 0
            && got.first() == Some(&b'0')));
        let mut locked = sock.lock();
        assert_eq!(locked.receive_walk(|_| 3), 3);
        locked.receive_done(3);
        let taken = locked.receive_walk(|view| {
            assert_eq!(view.len(), 7);
            let _ = view.copy_bits(0, got.get_mut(..7).unwrap_or_default());
            view.len()
        });
        assert_eq!(taken, 7);
        assert_eq!(got.get(..7), Some(&b"3456789"[..]));
        locked.receive_done(taken);
        assert_eq!(locked.receive_walk(|_| 1), 0);
        Ok(())
    }

    #[test]
    fn pages_go_out_and_come_back() -> Result {
        let (a, b) = connected()?;
        let (from, to) = (a.sock(), b.sock());
        let mut run = RunBuf::get().ok_or(ENOMEM)?;
        let len = run.capacity();
        for (i, octet) in run.as_mut_slice().iter_mut().enumerate() {
            *octet = (i / 7) as u8;
        }
        let mut sent = 0;
        let mut seen = 0;
        let mut wrong = 0;
        assert!(eventually(|| {
            if sent < len {
                if let Ok(locked) = &mut from.try_lock_bh() {
                    sent += locked.send_pages(&run, sent, len - sent).unwrap_or(0);
                }
            }
            let mut locked = to.lock();
            let taken = locked.receive_walk(|view| {
                let _ = view.for_each_chunk(0, view.len(), |chunk| {
                    for octet in chunk {
                        wrong += usize::from(*octet != (seen / 7) as u8);
                        seen += 1;
                    }
                    Ok::<(), Error>(())
                });
                view.len()
            });
            locked.receive_done(taken);
            seen == len
        }));
        assert_eq!(wrong, 0);
        // Acknowledged and read: TCP lets go of the pages, and they can be written.
        assert!(eventually(|| {
            // SAFETY: Process context, no lock is held.
            unsafe { bindings::rsiw_test_feed_cpus() };
            run.is_exclusive()
        }));
        assert_eq!(run.as_mut_slice().len(), len);
        assert!(from.lock().send_pages(&run, 1, len) == Err(EINVAL));
        Ok(())
    }

    #[test]
    fn an_idle_socket_keeps_no_fragment() -> Result {
        let (a, _b) = connected()?;
        let sock = a.sock();
        for _ in 0..3 {
            assert!(send_all(&sock, b"small enough to be copied"));
            // SAFETY: The socket is locked.
            assert!(!unsafe { bindings::rsiw_test_keeps_fragment(sock.lock().as_ptr()) });
        }
        Ok(())
    }

    #[test]
    fn fills_up_and_says_so() -> Result {
        let (a, b) = connected()?;
        a.set_sndbuf_cap(32768);
        let (from, to) = (a.sock(), b.sock());
        let block = [0x5a; 4096];
        let mut sent = 0;
        {
            let mut locked = from.lock();
            // Nobody reads: sooner or later there is no room.
            let full = loop {
                match locked.send_copy(&block) {
                    Ok(octets) => sent += octets,
                    Err(error) => break error,
                }
                if sent > 64 << 20 {
                    break EIO;
                }
            };
            assert!(full == EAGAIN);
            assert!(!locked.has_room());
            assert!(!locked.write_queues_empty());
            assert!(locked.size_goal() >= locked.mss());
            assert_eq!(locked.size_goal() % locked.mss(), 0);
        }
        let mut read = 0;
        assert!(eventually(|| {
            let mut locked = to.lock();
            let taken = locked.receive_walk(|view| view.len());
            locked.receive_done(taken);
            read += taken;
            read == sent
        }));
        assert!(eventually(|| from.lock().stream_writable()));
        assert!(from.lock().has_room());
        Ok(())
    }

    #[test]
    fn nothing_is_appended_to_a_record_that_was_ended() -> Result {
        let (a, b) = connected()?;
        let (from, to) = (a.sock(), b.sock());
        from.lock().end_record();
        let mut sent = 0;
        {
            let mut locked = from.lock();
            // The lock keeps acknowledgments away: sooner or later TCP has to keep something.
            while locked.unsent_tail() == 0 && sent < 64 << 20 {
                sent += locked.send_copy(&[0xa5; 1000])?;
            }
            let (tail, unsent) = (locked.unsent_tail(), locked.unsent());
            assert!(0 < tail && tail <= unsent);
            assert!(locked.tail_room() != u32::MAX);
            locked.end_record();
            assert_eq!(locked.unsent_tail(), 0);
            assert_eq!(locked.tail_room(), u32::MAX);
            sent += locked.send_copy(&[0xa5; 100])?;
            // In a buffer of its own.
            assert_eq!(locked.unsent_tail(), 100);
            assert_eq!(locked.unsent(), unsent + 100);
        }
        let mut read = 0;
        assert!(eventually(|| {
            let mut locked = to.lock();
            let taken = locked.receive_walk(|view| view.len());
            locked.receive_done(taken);
            read += taken;
            read == sent
        }));
        Ok(())
    }

    #[test]
    fn fin_is_a_state_not_data() -> Result {
        let (a, b) = connected()?;
        assert!(send_all(&a.sock(), b"end"));
        {
            let sock = a.sock();
            let mut locked = sock.lock();
            locked.send_fin();
            locked.send_fin();
            assert!(locked.send_copy(b"x") == Err(EPIPE));
        }
        let sock = b.sock();
        assert!(eventually(|| sock.lock().tcp_state() == TcpState::CloseWait));
        let mut locked = sock.lock();
        assert_eq!(locked.receive_walk(|view| view.len()), 3);
        locked.receive_done(3);
        assert_eq!(locked.receive_walk(|view| view.len()), 0);
        locked.receive_done(0);
        Ok(())
    }
}
