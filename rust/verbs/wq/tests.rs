// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of the work queues: elements that an owner stores, and their decoding.
//!
//! The tests store elements into the ring, as a process does through its mapping.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    abi::{
        flag,
        opcode,
        WqeHeader,
        RQE_WORDS,
        SQE_SGES,
        SQE_WORDS, //
    },
    recv::{
        RecvRing,
        RecvSource, //
    },
    send::SendQueue,
    wqe::{
        BadWqe,
        Payload,
        RecvWqe,
        SendOp,
        SendWqe,
        MAX_SGE, //
    },
};
use crate::{
    sys::{
        random, //
        rdma::ring::{
            Owner,
            Ring, //
        },
    },
    verbs::{
        cq::{
            WcOpcode,
            WcStatus, //
        },
        Stag, //
    }, //
};

/// A send queue of 4 elements.
fn send_queue(owner: Owner) -> Result<Arc<SendQueue>> {
    let queue = SendQueue::new(4, MAX_SGE as u8, 80, false, owner)?;
    Arc::pin_init(queue, GFP_KERNEL)
}

/// An element to post.
#[derive(Clone, Copy)]
struct Element {
    /// The header without the flag for "valid".
    header: WqeHeader,
    words: [u64; SQE_WORDS],
}

/// An element with `n` scatter-gather elements of 100 octets, the key of number `i` being `i + 1`.
fn element(op: u8, flags: u16, n: u8) -> Element {
    let mut words = [0; SQE_WORDS];
    let [id, _, to, sges @ ..] = &mut words;
    *id = 0x1234;
    *to = 0x10_0000;
    for (i, pair) in sges.chunks_exact_mut(2).enumerate() {
        if let [addr, rest] = pair {
            *addr = 0x1000 * i as u64;
            *rest = 100 | (i as u64 + 1) << 32;
        }
    }
    let header = WqeHeader::new(flags, n, op, Stag::new(0xabcd_ef01));
    Element { header, words }
}

/// Stores an element at `index`, as its owner does.
fn store(ring: &Ring, index: u32, element: &Element) {
    ring.write(index, &element.words);
    ring.publish(index, element.header.0 | u64::from(flag::VALID));
}

/// Posts an element to a new queue and fetches it.
fn fetched(owner: Owner, element: &Element) -> Result<core::result::Result<SendWqe, BadWqe>> {
    let queue = send_queue(owner)?;
    store(queue.ring(), 0, element);
    let wqe = queue.fetch().ok_or(ENOENT)?;
    // A fetch releases the element, valid or not.
    if WqeHeader(queue.ring().header(0)).has(flag::VALID) || queue.fetch().is_some() {
        return Err(EBUSY);
    }
    Ok(wqe)
}

/// The status with which an element is refused.
fn refused(owner: Owner, element: &Element) -> Result<(WcOpcode, WcStatus)> {
    match fetched(owner, element)? {
        Ok(_) => Err(EINVAL),
        Err(bad) if bad.id != 0x1234 => Err(ENXIO),
        Err(bad) => Ok((bad.opcode, bad.status)),
    }
}

/// The decoded work request of an element; a refusal fails the test.
fn accepted(owner: Owner, element: &Element) -> Result<SendWqe> {
    fetched(owner, element)?.map_err(|_| EINVAL)
}

#[kunit_tests(rsiw_verbs_queue)]
mod suite {
    use super::*;

    #[test]
    fn operations_of_a_process() -> Result {
        let wqe = accepted(
            Owner::User,
            &element(opcode::WRITE, flag::SIGNALLED | flag::READ_FENCE, 2),
        )?;
        assert!(wqe.signaled && wqe.fence && !wqe.solicited);
        assert_eq!(wqe.id, 0x1234);
        let SendOp::Write { local, remote, to } = wqe.op else {
            return Err(EINVAL);
        };
        assert_eq!(local.len(), 200);
        assert_eq!(remote.get(), 0xabcd_ef01);
        assert_eq!(to, 0x10_0000);

        let wqe = accepted(Owner::User, &element(opcode::SEND, flag::SOLICITED, 6))?;
        assert!(wqe.solicited && !wqe.signaled);
        let SendOp::Send { local, invalidate } = wqe.op else {
            return Err(EINVAL);
        };
        assert_eq!(local.len(), 600);
        assert!(invalidate.is_none());
        let Payload::Sgl(sgl) = local else {
            return Err(EINVAL);
        };
        for (i, sge) in sgl.as_slice().iter().enumerate() {
            assert_eq!(sge.addr, 0x1000 * i as u64);
            assert_eq!(sge.lkey.get() as usize, i + 1);
        }

        let wqe = accepted(Owner::User, &element(opcode::SEND_REMOTE_INV, 0, 0))?;
        let SendOp::Send { local, invalidate } = wqe.op else {
            return Err(EINVAL);
        };
        assert_eq!(local.len(), 0);
        assert_eq!(invalidate.ok_or(EINVAL)?.get(), 0xabcd_ef01);

        // A Read has all its scatter-gather elements.
        let wqe = accepted(Owner::User, &element(opcode::READ, 0, 3))?;
        let SendOp::Read {
            sink, local_inv, ..
        } = wqe.op
        else {
            return Err(EINVAL);
        };
        assert_eq!(sink.total(), 300);
        assert!(!local_inv);
        Ok(())
    }

    #[test]
    fn what_only_the_kernel_may_is_refused_of_a_process() -> Result {
        for op in [opcode::READ_LOCAL_INV, opcode::INVAL_STAG, opcode::REG_MR] {
            assert_eq!(
                refused(Owner::User, &element(op, 0, 1))?,
                (WcOpcode::Send, WcStatus::LocQpOp)
            );
            assert!(accepted(Owner::KERNEL, &element(op, 0, 1)).is_ok());
        }
        Ok(())
    }

    #[test]
    fn unknown_flags_of_a_process_are_ignored() -> Result {
        let known = flag::SIGNALLED | flag::SOLICITED | flag::READ_FENCE | flag::INLINE;
        let unknown = !(known | flag::VALID);
        let wqe = accepted(Owner::User, &element(opcode::SEND, unknown, 2))?;
        assert!(!wqe.signaled && !wqe.solicited && !wqe.fence);
        let SendOp::Send { local, invalidate } = wqe.op else {
            return Err(EINVAL);
        };
        assert_eq!(local.len(), 200);
        assert!(invalidate.is_none());
        Ok(())
    }

    #[test]
    fn unknown_opcodes_are_refused() -> Result {
        // SEND_WITH_IMM, atomics, RECEIVE, READ_RESPONSE, and unassigned values.
        for op in [4u8, 6, 7, 8, 9, 12, 13, 0x7f, 0x80, 0xff] {
            for owner in [Owner::User, Owner::KERNEL] {
                assert_eq!(refused(owner, &element(op, 0, 1))?.1, WcStatus::LocQpOp);
            }
        }
        Ok(())
    }

    #[test]
    fn counts_and_lengths_are_bounded() -> Result {
        for op in [opcode::WRITE, opcode::SEND, opcode::READ] {
            for n in [7u8, 8, 0x80, 0xff] {
                assert_eq!(
                    refused(Owner::User, &element(op, 0, n))?.1,
                    WcStatus::LocLen
                );
            }
            // The sum of twice 3 GiB exceeds 32 bits.
            let mut long = element(op, 0, 2);
            for index in [SQE_SGES + 1, SQE_SGES + 3] {
                *long.words.get_mut(index).ok_or(EINVAL)? = 0xc000_0000 | 1 << 32;
            }
            assert_eq!(refused(Owner::User, &long)?.1, WcStatus::LocLen);
        }
        Ok(())
    }

    #[test]
    fn inline_data_is_what_the_element_holds() -> Result {
        let mut element = element(opcode::SEND, flag::INLINE, 255);
        let [_, _, _, _, len, data @ ..] = &mut element.words;
        for (i, word) in data.iter_mut().enumerate() {
            *word = u64::from_le_bytes([i as u8; 8]);
        }
        *len = 80;
        let SendOp::Send { local, .. } = accepted(Owner::User, &element)?.op else {
            return Err(EINVAL);
        };
        let Payload::Inline(data) = local else {
            return Err(EINVAL);
        };
        assert_eq!(data.as_slice().len(), 80);
        for (i, octet) in data.as_slice().iter().enumerate() {
            assert_eq!(usize::from(*octet), i / 8);
        }
        for len in [81u32, 0x8000_0000, u32::MAX] {
            let mut element = element;
            let [_, _, _, _, word, ..] = &mut element.words;
            *word = u64::from(len);
            assert_eq!(refused(Owner::User, &element)?.1, WcStatus::LocLen);
        }
        // A Read has no payload, so no inline data.
        let element = super::element(opcode::READ, flag::INLINE, 1);
        assert_eq!(refused(Owner::User, &element)?.1, WcStatus::LocQpOp);
        Ok(())
    }

    #[test]
    fn the_local_dma_key_never_becomes_a_sink() -> Result {
        for owner in [Owner::User, Owner::KERNEL] {
            let mut element = element(opcode::READ, 0, 2);
            *element.words.get_mut(SQE_SGES + 3).ok_or(EINVAL)? = 100;
            assert_eq!(refused(owner, &element)?.1, WcStatus::LocProt);
            // An element without length names no memory.
            *element.words.get_mut(SQE_SGES + 3).ok_or(EINVAL)? = 0;
            assert!(accepted(owner, &element).is_ok());
        }
        // A Read that invalidates its sink has one element.
        assert_eq!(
            refused(Owner::KERNEL, &element(opcode::READ_LOCAL_INV, 0, 2))?.1,
            WcStatus::LocQpOp
        );
        Ok(())
    }

    #[test]
    fn order_is_kept_around_the_ring() -> Result {
        let queue = send_queue(Owner::User)?;
        let mut element = element(opcode::SEND, 0, 0);
        let mut expected = 0;
        for id in 0..40u64 {
            let [name, ..] = &mut element.words;
            *name = id;
            store(queue.ring(), id as u32, &element);
            if id % 4 == 3 {
                while let Some(wqe) = queue.fetch() {
                    let wqe = wqe.map_err(|_| EINVAL)?;
                    assert_eq!(wqe.id, expected);
                    expected += 1;
                }
            }
        }
        assert_eq!(expected, 40);
        Ok(())
    }

    #[test]
    fn what_waits_is_counted() -> Result {
        let queue = SendQueue::new(16, MAX_SGE as u8, 80, false, Owner::User)?;
        let queue = Arc::pin_init(queue, GFP_KERNEL)?;
        let element = element(opcode::SEND, 0, 0);
        let depth = queue.depth();
        // From each slot of the ring.
        for _ in 0..2 * depth {
            let get = queue.fetched();
            for waiting in 0..=depth {
                assert_eq!(queue.waiting(), waiting);
                assert_eq!(queue.is_pending(), waiting != 0);
                if waiting < depth {
                    store(queue.ring(), get.wrapping_add(waiting), &element);
                }
            }
            while queue.fetch().is_some() {}
            // The next round starts one slot later.
            store(queue.ring(), get.wrapping_add(depth), &element);
            assert!(queue.fetch().is_some());
        }
        Ok(())
    }

    /// RDMAP-65: elements posted before the closing are flushed too, in order.
    #[test]
    fn a_closed_queue_is_only_flushed() -> Result {
        let queue = send_queue(Owner::User)?;
        let receives = RecvSource::own(RecvRing::new(4, MAX_SGE as u8, Owner::User)?)?;
        let ring = receives.ring().ok_or(EINVAL)?.ring();
        for id in 0..3u64 {
            let mut element = element(opcode::SEND, 0, 0);
            let [name, ..] = &mut element.words;
            *name = id;
            store(queue.ring(), id as u32, &element);
            ring.write(id as u32, &[id; RQE_WORDS]);
            ring.publish(id as u32, element.header.0 | u64::from(flag::VALID));
        }
        assert!(queue.fetch().is_some() && receives.take().is_some());
        queue.set_closed(true);
        receives.set_closed(true);
        assert!(queue.fetch().is_none() && receives.take().is_none());
        assert!(queue.is_pending() && receives.is_pending());
        for id in 1..3u64 {
            assert!(matches!(queue.fetch_to_flush(), Some(Ok(wqe)) if wqe.id == id));
            assert!(matches!(receives.take_to_flush(), Some(Ok(wqe)) if wqe.id == id));
        }
        assert!(queue.fetch_to_flush().is_none() && receives.take_to_flush().is_none());
        // A reset queue pair continues at the same index.
        queue.set_closed(false);
        receives.set_closed(false);
        store(queue.ring(), 3, &element(opcode::SEND, 0, 0));
        ring.publish(3, u64::from(flag::VALID));
        assert!(queue.fetch().is_some() && receives.take().is_some());
        Ok(())
    }

    #[test]
    fn garbage_is_consumed_one_by_one() -> Result {
        let queue = send_queue(Owner::User)?;
        let ring = RecvRing::new(4, MAX_SGE as u8, Owner::User)?;
        let ring = Arc::pin_init(ring, GFP_KERNEL)?;
        for index in 0..4000u32 {
            let mut words = [0u64; SQE_WORDS];
            for word in &mut words {
                *word = u64::from(random::u32()) << 32 | u64::from(random::u32());
            }
            let [_, header, ..] = words;
            let header = WqeHeader(header);
            store(queue.ring(), index, &Element { header, words });
            if let Ok(wqe) = queue.fetch().ok_or(ENOENT)? {
                let sges = match &wqe.op {
                    SendOp::Write { local, .. } | SendOp::Send { local, .. } => match local {
                        Payload::Sgl(sgl) => sgl.as_slice().len(),
                        Payload::Inline(data) => data.as_slice().len() / 80,
                    },
                    SendOp::Read { sink, .. } => sink.as_slice().len(),
                    SendOp::LocalInv { .. } | SendOp::RegMr(_) => return Err(EPERM),
                };
                assert!(sges <= MAX_SGE);
            }
            assert!(queue.fetch().is_none());

            let [.., a, b] = words;
            let mut receive = [a; RQE_WORDS];
            let [.., last] = &mut receive;
            *last = b;
            ring.ring().write(index, &receive);
            ring.ring().publish(index, header.0 | 1);
            if let Ok(RecvWqe { sgl, .. }) = ring.take_at(index).ok_or(ENOENT)? {
                assert!(sgl.as_slice().len() <= MAX_SGE);
            }
            assert!(ring.take_at(index).is_none());
        }
        Ok(())
    }

    #[test]
    fn rings_of_processes_name_no_kernel_memory() -> Result {
        assert!(send_queue(Owner::User)?.ring().kernel_memory().is_none());
        Ok(())
    }
}
