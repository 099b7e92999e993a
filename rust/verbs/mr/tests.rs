// SPDX-License-Identifier: GPL-2.0

//! KUnit suite of memory regions: access rights, invalidation, lifetime.

use kernel::{
    kvec,
    prelude::*,
    sync::Arc, //
};

use super::{
    Access,
    AccessError,
    Invalidator,
    Kind,
    RegMr,
    Region,
    RegionTable, //
};
use crate::{
    sys::rdma::memory::{
        Backing,
        Segments, //
    },
    verbs::{
        ids,
        Association,
        PdId,
        Stag,
        StreamId, //
    }, //
};

const PD: PdId = PdId::new(1);
/// The stream of the queue pair that registers.
const OURS: Association = stream(PD, 3);
/// The stream of another queue pair of the same domain.
const SISTER: Association = stream(PD, 4);
/// A stream of another protection domain. Its number equals that of `OURS`.
const FOREIGN: Association = stream(PdId::new(2), 3);
const ALL: Access = Access::from_ib(7);
const LOCAL_WRITE_REMOTE_READ: Access = Access::from_ib(5);

const fn stream(pd: PdId, number: u64) -> Association {
    Association {
        pd,
        stream: StreamId::new(number),
    }
}

/// A table with one region for fast registration of two pieces.
fn fast() -> Result<(Arc<RegionTable>, Arc<Region>)> {
    let table = Arc::pin_init(RegionTable::new(), GFP_KERNEL)?;
    let list = Region::segments(2, GFP_KERNEL)?;
    let region = table.create(PD, Kind::FastReg(2), Some(list))?;
    Ok((table, region))
}

/// Stages `buffers` and registers them for the stream `OURS`.
fn register(
    table: &RegionTable,
    region: &Region,
    key: u8,
    iova: u64,
    access: Access,
    buffers: &[KVec<u8>],
) -> Result<core::result::Result<Stag, AccessError>> {
    region.stage(|list| list.fill_for_test(buffers))??;
    let stag = region.stag(key);
    let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
    let reg = RegMr {
        stag,
        iova,
        length,
        access,
    };
    Ok(table.register(OURS, &reg).map(|()| stag))
}

/// Registers `buffers`; a refused registration fails the test.
fn registered(
    table: &RegionTable,
    region: &Region,
    key: u8,
    iova: u64,
    access: Access,
    buffers: &[KVec<u8>],
) -> Result<Stag> {
    register(table, region, key, iova, access, buffers)?.map_err(|_| EINVAL)
}

#[kunit_tests(rsiw_verbs_region)]
mod suite {
    use super::*;

    #[test]
    fn checks_come_in_order_and_count_octets() -> Result {
        let (table, region) = fast()?;
        let buffers = kvec![kvec![0u8; 100]?, kvec![0u8; 60]?]?;
        let base = 0x7fff_0000_0123;
        let stag = registered(&table, &region, 9, base, Access::REMOTE_READ, &buffers)?;
        let pin = table.pin(stag, OURS).map_err(|_| EINVAL)?;
        let check = |addr, len, need| pin.check(addr, len, need);
        let read = Access::REMOTE_READ;
        assert_eq!(check(base, 160, read), Ok(()));
        assert_eq!(check(base + 159, 1, read), Ok(()));
        assert_eq!(check(base, 161, read), Err(AccessError::Bounds));
        assert_eq!(check(base + 160, 1, read), Err(AccessError::Bounds));
        assert_eq!(check(base - 1, 1, read), Err(AccessError::Bounds));
        assert_eq!(check(base - 1, 2, read), Err(AccessError::Bounds));
        assert_eq!(check(0, u32::MAX, read), Err(AccessError::Bounds));
        assert_eq!(check(u64::MAX - 3, 8, read), Err(AccessError::Wrap));
        assert_eq!(check(u64::MAX, 1, read), Err(AccessError::Bounds));
        assert_eq!(
            check(base, 1, Access::REMOTE_WRITE),
            Err(AccessError::Rights)
        );
        assert_eq!(
            check(base, 1, LOCAL_WRITE_REMOTE_READ),
            Err(AccessError::Rights)
        );
        // The association is checked before the rights and the bounds.
        assert_eq!(
            table.pin(stag, FOREIGN).map(|_| ()),
            Err(AccessError::NotAssociated)
        );
        assert_eq!(
            check(u64::MAX, 8, Access::REMOTE_WRITE),
            Err(AccessError::Rights)
        );
        Ok(())
    }

    #[test]
    fn a_range_may_end_with_the_address_space() -> Result {
        let (table, region) = fast()?;
        let buffers = kvec![kvec![0u8; 16]?]?;
        // The region ends one octet before the end of the address space.
        let stag = registered(&table, &region, 0, u64::MAX - 16, ALL, &buffers)?;
        let pin = table.pin(stag, OURS).map_err(|_| EINVAL)?;
        assert_eq!(pin.check(u64::MAX - 16, 16, ALL), Ok(()));
        assert_eq!(pin.check(u64::MAX - 16, 17, ALL), Err(AccessError::Bounds));
        assert_eq!(pin.check(u64::MAX - 1, 3, ALL), Err(AccessError::Wrap));
        Ok(())
    }

    #[test]
    fn copies_go_where_the_address_says() -> Result {
        let (table, region) = fast()?;
        let buffers = kvec![kvec![0u8; 5]?, kvec![0u8; 5]?]?;
        let stag = registered(&table, &region, 1, 1000, ALL, &buffers)?;
        {
            let pin = table.pin(stag, OURS).map_err(|_| EINVAL)?;
            assert_eq!(pin.write_at(1003, (&[1u8, 2, 3, 4][..]).into()), Ok(()));
            let mut out = [9u8; 4];
            assert_eq!(pin.read_at(1002, &mut out), Ok(()));
            assert_eq!(out, [0, 1, 2, 3]);
            assert_eq!(
                pin.write_at(1008, (&[7u8; 3][..]).into()),
                Err(AccessError::Bounds)
            );
            assert_eq!(pin.read_at(999, &mut out), Err(AccessError::Bounds));
            let mut whole = [9u8; 10];
            assert_eq!(pin.read_at(1000, &mut whole), Ok(()));
            assert_eq!(whole, [0, 0, 0, 1, 2, 3, 4, 0, 0, 0]);
        }
        Ok(())
    }

    #[test]
    fn only_the_right_key_of_a_valid_region_pins() -> Result {
        let (table, region) = fast()?;
        let buffers = kvec![kvec![0u8; 8]?]?;
        let pins = |stag| table.pin(stag, OURS).map(|_| ());
        assert_eq!(pins(region.stag(0)), Err(AccessError::InvalidStag));
        let stag = registered(&table, &region, 3, 0, ALL, &buffers)?;
        assert_eq!(pins(stag), Ok(()));
        for key in [0, 2, 4, 255] {
            assert_eq!(pins(region.stag(key)), Err(AccessError::InvalidStag));
        }
        // The local DMA key, and the other keys of index 0, name no region (DDP-96).
        for key in 0..=255 {
            assert_eq!(pins(ids::stag(0, key)), Err(AccessError::InvalidStag));
        }
        assert_eq!(table.invalidate(stag, Invalidator::Local(OURS)), Ok(true));
        assert_eq!(pins(stag), Err(AccessError::InvalidStag));
        // A registration under another key does not make the old STag valid.
        let next = registered(&table, &region, 4, 0, ALL, &buffers)?;
        assert_eq!(pins(stag), Err(AccessError::InvalidStag));
        assert_eq!(pins(next), Ok(()));
        assert!(table.remove(&region).is_some());
        assert_eq!(pins(next), Err(AccessError::InvalidStag));
        Ok(())
    }

    /// DDP-80: both associations, RFC 5041 section 8.2.
    #[test]
    fn a_registered_key_serves_one_stream() -> Result {
        let (table, region) = fast()?;
        let buffers = kvec![kvec![0u8; 8]?]?;
        let pins = |stag, by| table.pin(stag, by).map(|_| ());
        let other = Err(AccessError::NotAssociated);
        let stag = registered(&table, &region, 3, 0, ALL, &buffers)?;
        assert_eq!(pins(stag, OURS), Ok(()));
        assert_eq!(pins(stag, SISTER), other);
        assert_eq!(pins(stag, FOREIGN), other);
        assert_eq!(table.invalidate(stag, Invalidator::Local(OURS)), Ok(true));
        // Another queue pair may register the region next.
        region.stage(|list| list.fill_for_test(&buffers))??;
        let stag = region.stag(4);
        let reg = RegMr {
            stag,
            iova: 0,
            length: 8,
            access: ALL,
        };
        assert_eq!(table.register(SISTER, &reg), Ok(()));
        assert_eq!(pins(stag, SISTER), Ok(()));
        assert_eq!(pins(stag, OURS), other);
        Ok(())
    }

    #[test]
    fn who_may_invalidate_what() -> Result {
        let (table, region) = fast()?;
        let buffers = kvec![kvec![0u8; 8]?]?;
        let stag = registered(&table, &region, 3, 0, ALL, &buffers)?;
        assert_eq!(
            table.invalidate(stag, Invalidator::Remote(FOREIGN)),
            Err(AccessError::NotAssociated)
        );
        // A late Send with Invalidate does not revoke the new registration.
        assert_eq!(
            table.invalidate(region.stag(4), Invalidator::Remote(OURS)),
            Ok(false)
        );
        assert!(table.pin(stag, OURS).is_ok());
        assert_eq!(table.invalidate(stag, Invalidator::Remote(OURS)), Ok(true));
        assert_eq!(table.pin(stag, OURS).err(), Some(AccessError::InvalidStag));
        assert_eq!(table.invalidate(stag, Invalidator::Remote(OURS)), Ok(false));
        // The local user may be later than the peer, but must name the current key.
        assert_eq!(table.invalidate(stag, Invalidator::Local(OURS)), Ok(false));
        let again = registered(&table, &region, 4, 0, ALL, &buffers)?;
        assert_eq!(
            table.invalidate(stag, Invalidator::Local(OURS)),
            Err(AccessError::InvalidStag)
        );
        assert_eq!(table.invalidate(again, Invalidator::Local(OURS)), Ok(true));
        // Another queue pair of the domain can not invalidate the region.
        let ours = registered(&table, &region, 5, 0, ALL, &buffers)?;
        for by in [Invalidator::Remote(SISTER), Invalidator::Local(SISTER)] {
            assert_eq!(table.invalidate(ours, by), Err(AccessError::NotAssociated));
        }
        assert!(table.pin(ours, OURS).is_ok());
        assert_eq!(table.invalidate(ours, Invalidator::Remote(OURS)), Ok(true));
        // All streams of the domain share a region of a process (DDP-89, RDMAP-36).
        let shared = table.create(PD, Kind::User, None)?;
        let mut list = Segments::with_capacity(1, GFP_KERNEL)?;
        list.fill_for_test(&buffers)?;
        shared.publish(5, 0, 8, ALL, Backing::Segments(list))?;
        for by in [
            Invalidator::Remote(OURS),
            Invalidator::Local(OURS),
            Invalidator::Remote(SISTER),
        ] {
            assert_eq!(
                table.invalidate(shared.stag(5), by),
                Err(AccessError::Rights)
            );
        }
        assert!(table.pin(shared.stag(5), OURS).is_ok());
        assert!(table.pin(shared.stag(5), SISTER).is_ok());
        assert!(table.remove(&shared).is_some());
        let late = table.pin(shared.stag(5), OURS).err();
        assert_eq!(late, Some(AccessError::InvalidStag));
        Ok(())
    }

    #[test]
    fn registration_takes_what_is_staged_and_no_more() -> Result {
        let (table, region) = fast()?;
        let first = kvec![kvec![1u8; 8]?]?;
        let second = kvec![kvec![2u8; 4]?, kvec![3u8; 4]?]?;
        let reg = |key, iova, length| RegMr {
            stag: region.stag(key),
            iova,
            length,
            access: ALL,
        };
        let invalid = Err(AccessError::InvalidStag);
        // No memory is staged.
        assert_eq!(table.register(OURS, &reg(1, 0, 8)), invalid);
        region.stage(|list| list.fill_for_test(&first))??;
        // The length is more than is staged, or the range leaves the address space.
        assert_eq!(table.register(OURS, &reg(1, 0, 9)), invalid);
        assert_eq!(table.register(OURS, &reg(1, u64::MAX - 6, 8)), invalid);
        assert_eq!(
            table.register(FOREIGN, &reg(1, 0, 8)),
            Err(AccessError::NotAssociated)
        );
        assert_eq!(table.register(OURS, &reg(1, 0, 8)), Ok(()));
        // While the region is valid, memory can be staged, but not registered.
        region.stage(|list| list.fill_for_test(&second))??;
        assert_eq!(table.register(OURS, &reg(2, 0, 8)), invalid);
        let mut out = [0u8; 8];
        let stag = region.stag(1);
        assert!(table
            .pin(stag, OURS)
            .is_ok_and(|pin| pin.read_at(0, &mut out).is_ok()));
        assert_eq!(out, [1; 8]);
        assert_eq!(table.invalidate(stag, Invalidator::Local(OURS)), Ok(true));
        assert_eq!(table.register(OURS, &reg(2, 0, 8)), Ok(()));
        let stag = region.stag(2);
        assert!(table
            .pin(stag, OURS)
            .is_ok_and(|pin| pin.read_at(0, &mut out).is_ok()));
        assert_eq!(out, [2, 2, 2, 2, 3, 3, 3, 3]);
        Ok(())
    }

    /// DDP-90: STag indices are spread over the whole range, without a constant step.
    #[test]
    fn stags_are_sparse_and_follow_no_rule() -> Result {
        const N: usize = 1000;
        let table = Arc::pin_init(RegionTable::new(), GFP_KERNEL)?;
        let mut indices = KVec::with_capacity(N, GFP_KERNEL)?;
        for _ in 0..N {
            let region = table.create(PD, Kind::User, None)?;
            indices.push(region.stag(0).index(), GFP_KERNEL)?;
        }
        let mut sixteenths = [0u32; 16];
        let mut near = 0;
        let mut same_step = 0;
        let mut before: Option<(u32, u32)> = None;
        for index in &indices {
            assert!(*index != 0);
            let part = sixteenths.get_mut((*index >> 20) as usize).ok_or(EINVAL)?;
            *part += 1;
            if let Some((last, step)) = before {
                let now = index.wrapping_sub(last);
                near += u32::from(last.abs_diff(*index) < 1024);
                same_step += u32::from(now == step);
                before = Some((*index, now));
            } else {
                before = Some((*index, 0));
            }
        }
        // Expected: 62 indices in each sixteenth; one step in 8000 below 1024.
        assert!(sixteenths.iter().all(|n| (20..130).contains(n)));
        assert!(near < 10);
        assert!(same_step == 0);
        indices.as_mut_slice().sort_unstable();
        assert!(indices.windows(2).all(|pair| pair.first() != pair.last()));
        Ok(())
    }
}
