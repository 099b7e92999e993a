// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of exclusively held sockets.

use kernel::prelude::*;

#[kunit_tests(rsiw_sys_locked)]
mod suite {
    use super::super::super::SockRef;
    use super::super::*;
    use crate::sys::{
        mm::pages::Reuse,
        testing::{
            connected,
            eventually, //
        }, //
    };

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

    /// Reads until `sent` octets have arrived; `false` after the time limit.
    fn reads_all(sock: &SockRef, sent: usize) -> bool {
        let mut read = 0;
        eventually(|| {
            let mut locked = sock.lock();
            let taken = locked.receive_walk(0, |view| view.len());
            locked.receive_done(taken);
            read += taken;
            read == sent
        })
    }

    #[test]
    fn walks_what_came_and_keeps_what_was_not_taken() -> Result {
        let (a, b) = connected()?;
        assert!(send_all(&a.sock(), b"0123456789"));
        let sock = b.sock();
        let mut got = [0u8; 10];
        // The first walk reads half of the octets, and takes none.
        assert!(eventually(|| sock.lock().receive_walk(0, |view| {
            if view.len() == 10 {
                let _ = view.copy_bits(0, got.get_mut(..5).unwrap_or_default());
            }
            0
        }) == 0
            && got.first() == Some(&b'0')));
        let mut locked = sock.lock();
        assert_eq!(locked.receive_walk(0, |_| 3), 3);
        // Octets that were taken are not passed again, reported or not.
        for seen in [3, 0] {
            let taken = locked.receive_walk(seen, |view| {
                assert_eq!(view.len(), 7);
                let _ = view.copy_bits(0, got.get_mut(..7).unwrap_or_default());
                view.len()
            });
            assert_eq!(taken, 7);
            assert_eq!(got.get(..7), Some(&b"3456789"[..]));
            locked.receive_done(seen);
        }
        assert_eq!(locked.receive_walk(7, |_| 1), 0);
        locked.receive_done(7);
        assert_eq!(locked.receive_walk(0, |_| 1), 0);
        Ok(())
    }

    #[test]
    fn pages_go_out_and_come_back() -> Result {
        let (a, b) = connected()?;
        let (from, to) = (a.sock(), b.sock());
        // More than two blocks.
        let len: usize = 9 * 7168;
        let mut blocks = BlockChain::default();
        for at in (0..len).step_by(7168) {
            let filled = blocks.fill(at, 7168, 7168, Reuse::InTurn, |out| {
                for (i, octet) in out.iter_mut().enumerate() {
                    *octet = ((at + i) / 7) as u8;
                }
                (out.len(), out.len())
            });
            if filled != Some(7168) {
                // Memory is too fragmented for blocks of this size.
                return Ok(());
            }
        }
        let mut sent = 0;
        let mut seen = 0;
        let mut wrong = 0;
        assert!(eventually(|| {
            if sent < len {
                if let Ok(locked) = &mut from.try_lock_bh() {
                    sent += locked
                        .send_pages(&mut blocks, sent, len - sent)
                        .unwrap_or(0);
                }
            }
            let mut locked = to.lock();
            let taken = locked.receive_walk(0, |view| {
                let _ = view.for_each_chunk(0, view.len(), |chunk| {
                    let mut octets = KVec::with_capacity(chunk.len(), GFP_KERNEL)?;
                    chunk.append_to(&mut octets);
                    for octet in octets {
                        wrong += usize::from(octet != (seen / 7) as u8);
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
        // The octets are acknowledged and read: TCP drops its page references.
        assert!(eventually(|| {
            // SAFETY: This is process context without a lock.
            unsafe { bindings::rsiw_test_feed_cpus() };
            blocks.is_exclusive()
        }));
        assert_eq!(from.lock().outstanding(), 0);
        assert_eq!(blocks.lent(), len);
        assert!(from.lock().send_pages(&mut blocks, 1, usize::MAX) == Err(EINVAL));
        assert!(from.lock().send_pages(&mut blocks, len, 0) == Err(EINVAL));
        Ok(())
    }

    #[test]
    fn a_socket_has_a_fragment_of_its_own_until_it_gives_it_up() -> Result {
        let (a, b) = connected()?;
        let (sock, to) = (a.sock(), b.sock());
        let text = b"small enough to be copied";
        // SAFETY: The socket is locked.
        let keeps = || unsafe { bindings::rsiw_test_keeps_fragment(sock.lock().as_ptr()) };
        for _ in 0..3 {
            assert!(send_all(&sock, text));
            assert!(keeps());
            // The receiver has octets of the fragment, all acknowledged.
            assert!(eventually(|| sock.lock().outstanding() == 0));
            assert!(!sock.lock().drop_fragment());
            assert!(keeps());
            assert!(reads_all(&to, text.len()));
            assert!(eventually(|| {
                // SAFETY: This is process context without a lock.
                unsafe { bindings::rsiw_test_feed_cpus() };
                sock.lock().drop_fragment()
            }));
            assert!(!keeps());
        }
        Ok(())
    }

    /// Octets accounted to a socket and not in use.
    fn accounted_free(sock: &SockRef) -> i32 {
        // SAFETY: The socket is locked.
        unsafe { bindings::rsiw_test_accounted_free(sock.lock().as_ptr()) }
    }

    #[test]
    fn reserved_memory_stays_until_it_is_given_back() -> Result {
        const RESERVED: i32 = 128 << 10;
        let (a, b) = connected()?;
        let ends = [a.sock(), b.sock()];
        let block = [0x3c; 4096];
        let bulk = || {
            let [from, to] = &ends;
            (0..32).all(|_| send_all(from, &block) && reads_all(to, block.len()))
        };
        let all = |test: fn(i32) -> bool| {
            eventually(|| {
                // SAFETY: This is process context without a lock.
                unsafe { bindings::rsiw_test_feed_cpus() };
                ends.iter().all(|end| test(accounted_free(end)))
            })
        };
        assert!(bulk() && all(|free| free < 4096));
        for end in &ends {
            assert!(end.lock().memory_is_plenty());
            assert!(end.lock().reserve(RESERVED as u32));
        }
        assert!(bulk() && all(|free| free >= RESERVED));
        assert!(bulk() && all(|free| free >= RESERVED));
        for end in &ends {
            end.lock().unreserve();
        }
        assert!(all(|free| free < 4096));
        assert!(bulk() && all(|free| free < 4096));
        // The end of the sockets releases the reservation.
        assert!(ends.iter().all(|end| end.lock().reserve(RESERVED as u32)));
        Ok(())
    }

    #[test]
    fn memory_that_tcp_does_not_have_is_refused() -> Result {
        // More than the limit of all TCP sockets on the test machines.
        const TOO_MUCH: u32 = (1 << 31) - 4096;
        const RESERVED: u32 = 128 << 10;
        let (a, b) = connected()?;
        let (from, to) = (a.sock(), b.sock());
        let block = [0xc3; 4096];
        assert!(!from.lock().reserve(TOO_MUCH));
        // A refused reservation accounts no memory, and the socket still sends.
        assert!(accounted_free(&from) < 4096);
        assert!(send_all(&from, &block) && reads_all(&to, block.len()));
        assert!(from.lock().memory_is_plenty());
        assert!(from.lock().reserve(RESERVED));
        assert!(accounted_free(&from) >= RESERVED as i32);
        Ok(())
    }

    #[test]
    fn a_charge_is_accounted_until_it_is_taken_back() -> Result {
        const TOO_MUCH: u32 = (1 << 31) - 4096;
        const OCTETS: u32 = 64 << 10;
        let (a, b) = connected()?;
        let (from, to) = (a.sock(), b.sock());
        let block = [0xc3; 4096];
        assert!(!from.lock().charge(TOO_MUCH));
        assert!(accounted_free(&from) < 4096);
        assert!(from.lock().charge(OCTETS));
        // Charged memory is not available to the skbs that the test allocates and frees.
        assert!(accounted_free(&from) < 4096);
        assert!(send_all(&from, &block) && reads_all(&to, block.len()));
        from.lock().uncharge(OCTETS);
        assert!(eventually(|| {
            // SAFETY: This is process context without a lock.
            unsafe { bindings::rsiw_test_feed_cpus() };
            accounted_free(&from) < 4096
        }));
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
            // The other end does not read, so the send buffer fills.
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
        assert!(reads_all(&to, sent));
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
            // The lock delays acknowledgments, so TCP finally keeps unsent octets.
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
            // The octets are in an skb of their own.
            assert_eq!(locked.unsent_tail(), 100);
            assert_eq!(locked.unsent(), unsent + 100);
        }
        assert!(reads_all(&to, sent));
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
        assert_eq!(locked.receive_walk(0, |view| view.len()), 3);
        locked.receive_done(3);
        assert_eq!(locked.receive_walk(0, |view| view.len()), 0);
        locked.receive_done(0);
        Ok(())
    }
}
