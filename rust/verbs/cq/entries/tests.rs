// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of the ring of a completion queue: producer, consumer, arming, overflow.

use kernel::prelude::*;

#[kunit_tests(rsiw_verbs_cq)]
mod suite {
    use super::super::*;
    use crate::verbs::Stag;

    fn ring(n: u32, owner: Owner) -> Result<Arc<Entries>> {
        Arc::pin_init(Entries::new(n, owner)?, GFP_KERNEL)
    }

    fn end(id: u64) -> Completion {
        Completion {
            id,
            opcode: WcOpcode::Send,
            status: WcStatus::Success,
            bytes: 0,
            invalidated: None,
            solicited: false,
        }
    }

    #[test]
    fn takes_out_what_was_put_in() -> Result {
        let cq = ring(4, Owner::KERNEL)?;
        let full = Completion {
            id: u64::MAX,
            opcode: WcOpcode::Recv,
            status: WcStatus::LocLen,
            bytes: u32::MAX,
            invalidated: Some(Stag::new(0xfedc_ba98)),
            solicited: true,
        };
        assert_eq!(cq.push(0x00ff_ffff, &full), Pushed::Quiet);
        assert_eq!(cq.push(2, &end(1)), Pushed::Quiet);
        let first = cq.take().ok_or(ENOENT)?;
        assert_eq!(first.id, u64::MAX);
        assert_eq!(first.opcode, IbWcOpcode::Recv);
        assert_eq!(first.status, IbWcStatus::LocLen);
        assert_eq!(first.bytes, u32::MAX);
        assert_eq!(first.qpn, 0x00ff_ffff);
        assert_eq!(first.invalidated, Some(0xfedc_ba98));
        let second = cq.take().ok_or(ENOENT)?;
        assert_eq!(second.id, 1);
        assert_eq!(second.invalidated, None);
        assert!(cq.take().is_none());
        Ok(())
    }

    #[test]
    fn every_opcode_and_status_survives() -> Result {
        let cq = ring(1, Owner::KERNEL)?;
        for (opcode, as_ib) in [
            (WcOpcode::Send, IbWcOpcode::Send),
            (WcOpcode::Write, IbWcOpcode::Write),
            (WcOpcode::Read, IbWcOpcode::Read),
            (WcOpcode::LocalInv, IbWcOpcode::LocalInv),
            (WcOpcode::RegMr, IbWcOpcode::RegMr),
            (WcOpcode::Recv, IbWcOpcode::Recv),
        ] {
            let _ = cq.push(2, &Completion { opcode, ..end(0) });
            assert_eq!(cq.take().ok_or(ENOENT)?.opcode, as_ib);
        }
        for (status, as_ib) in [
            (WcStatus::LocProt, IbWcStatus::LocProt),
            (WcStatus::LocQpOp, IbWcStatus::LocQpOp),
            (WcStatus::WrFlush, IbWcStatus::WrFlush),
            (WcStatus::LocAccess, IbWcStatus::LocAccess),
            (WcStatus::RemAccess, IbWcStatus::RemAccess),
            (WcStatus::RemInvReq, IbWcStatus::RemInvReq),
            (WcStatus::General, IbWcStatus::General),
        ] {
            let _ = cq.push(2, &Completion { status, ..end(0) });
            assert_eq!(cq.take().ok_or(ENOENT)?.status, as_ib);
        }
        Ok(())
    }

    #[test]
    fn overflow_loses_only_what_does_not_fit() -> Result {
        let cq = ring(3, Owner::KERNEL)?;
        assert_eq!(cq.ring().slots(), 4);
        for id in 0..4 {
            assert_eq!(cq.push(2, &end(id)), Pushed::Quiet);
        }
        assert_eq!(cq.push(2, &end(99)), Pushed::Full);
        assert_eq!(cq.take().ok_or(ENOENT)?.id, 0);
        assert_eq!(cq.push(2, &end(4)), Pushed::Quiet);
        for id in 1..5 {
            assert_eq!(cq.take().ok_or(ENOENT)?.id, id);
        }
        assert!(cq.take().is_none());
        Ok(())
    }

    /// A reader interrupted before it moves the index blocks no slot. During the interruption other
    /// readers take entries, and the producer adds as many.
    #[test]
    fn an_interrupted_poller_keeps_no_room() -> Result {
        let cq = ring(2, Owner::KERNEL)?;
        for id in 0..2 {
            assert_eq!(cq.push(2, &end(id)), Pushed::Quiet);
        }
        let (at, first) = cq.next().ok_or(ENOENT)?;
        assert_eq!(first.id, 0);
        assert!(cq.get.cmpxchg(at, at.wrapping_add(1), Full).is_ok());
        for id in 1..9 {
            assert_eq!(cq.push(2, &end(id + 1)), Pushed::Quiet);
            assert_eq!(cq.push(2, &end(99)), Pushed::Full);
            assert_eq!(cq.take().ok_or(ENOENT)?.id, id);
        }
        assert_eq!(cq.take().ok_or(ENOENT)?.id, 9);
        assert!(cq.take().is_none());
        assert!(!cq.arm(Arm::Next));
        Ok(())
    }

    #[test]
    fn an_entry_that_others_took_is_not_taken_again() -> Result {
        let cq = ring(2, Owner::KERNEL)?;
        for id in 0..2 {
            assert_eq!(cq.push(2, &end(id)), Pushed::Quiet);
        }
        let (at, _) = cq.next().ok_or(ENOENT)?;
        // The slot has another entry before the interrupted reader moves the index.
        for id in 0..2 {
            assert_eq!(cq.take().ok_or(ENOENT)?.id, id);
            assert_eq!(cq.push(2, &end(id + 2)), Pushed::Quiet);
        }
        assert!(cq.get.cmpxchg(at, at.wrapping_add(1), Full).is_err());
        assert!(cq.entry(at).is_none());
        assert_eq!(cq.take().ok_or(ENOENT)?.id, 2);
        Ok(())
    }

    /// A process can reach the kernel's poll by `ib_uverbs_poll_cq()`. An entry of its own ring
    /// could name a queue pair that does not exist.
    #[test]
    fn a_process_is_not_read_to_from_its_own_ring() -> Result {
        let cq = ring(2, Owner::User)?;
        assert_eq!(cq.push(2, &end(0)), Pushed::Quiet);
        assert!(cq.take().is_none());
        assert!(!cq.arm(Arm::Next));
        assert_eq!(cq.push(2, &end(1)), Pushed::Fire);
        Ok(())
    }

    #[test]
    fn indices_wrap() -> Result {
        let cq = ring(2, Owner::KERNEL)?;
        let last = u32::MAX - 2;
        *cq.put.lock() = last;
        cq.get.store(last, Relaxed);
        for id in 0..8 {
            assert_eq!(cq.push(2, &end(id)), Pushed::Quiet);
            assert_eq!(cq.take().ok_or(ENOENT)?.id, id);
            assert!(cq.take().is_none());
        }
        Ok(())
    }

    /// An arming between the producer's load of the control word and its change.
    #[test]
    fn an_arming_in_between_is_not_lost() -> Result {
        let cq = ring(8, Owner::KERNEL)?;
        let _ = cq.arm(Arm::Solicited);
        let armed = cq.ring().control_load();
        let _ = cq.arm(Arm::Next);
        cq.ring().control_change(armed, notify::NOT);
        assert_eq!(cq.push(2, &end(0)), Pushed::Fire);
        assert_eq!(cq.push(2, &end(1)), Pushed::Quiet);
        Ok(())
    }

    #[test]
    fn fires_once_for_each_arming() -> Result {
        let cq = ring(8, Owner::KERNEL)?;
        assert!(!cq.arm(Arm::Next));
        assert_eq!(cq.push(2, &end(0)), Pushed::Fire);
        assert_eq!(cq.push(2, &end(1)), Pushed::Quiet);
        // The arming reports the entry that was there before.
        assert!(cq.arm(Arm::Next));
        assert_eq!(cq.push(2, &end(2)), Pushed::Fire);
        Ok(())
    }

    #[test]
    fn solicited_arming_waits_for_solicited_or_failed() -> Result {
        let cq = ring(8, Owner::KERNEL)?;
        let solicited = Completion {
            solicited: true,
            ..end(0)
        };
        let failed = Completion {
            status: WcStatus::WrFlush,
            ..end(0)
        };
        let _ = cq.arm(Arm::Solicited);
        assert_eq!(cq.push(2, &end(0)), Pushed::Quiet);
        assert_eq!(cq.push(2, &solicited), Pushed::Fire);
        let _ = cq.arm(Arm::Solicited);
        assert_eq!(cq.push(2, &failed), Pushed::Fire);
        // The request for any completion stays in force.
        let _ = cq.arm(Arm::Next);
        let _ = cq.arm(Arm::Solicited);
        assert_eq!(cq.push(2, &end(0)), Pushed::Fire);
        Ok(())
    }

    #[test]
    fn a_process_can_not_confuse_its_ring() -> Result {
        let cq = ring(4, Owner::User)?;
        // Stores of the process to headers and control word do not change the order of entries.
        cq.ring().control_store(u32::MAX);
        assert_eq!(cq.push(2, &end(0)), Pushed::Fire);
        cq.ring().publish(1, u64::MAX);
        assert_eq!(cq.push(2, &end(1)), Pushed::Full);
        cq.ring().release(1);
        assert_eq!(cq.push(2, &end(1)), Pushed::Quiet);
        // A process receives no STag: `struct siw_cqe` has no flag that marks the field as valid.
        let invalidated = Some(Stag::new(7));
        let with_key = Completion {
            invalidated,
            ..end(2)
        };
        assert_eq!(cq.push(2, &with_key), Pushed::Quiet);
        assert_eq!(cq.ring().header(2) as u16 & flag::REM_INVAL, 0);
        Ok(())
    }
}
