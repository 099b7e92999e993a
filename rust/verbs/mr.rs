// SPDX-License-Identifier: GPL-2.0

//! Memory regions: the tagged buffers that STags name, and their access rights.
//!
//! An STag belongs to one protection domain. The STag permits access to exactly its range with
//! exactly its rights (RFC 5041 section 8.2, RFC 5042; requirements.md DDP-80 to DDP-90). An STag
//! can be revoked at any time, and is hard to guess. A region registered by a verb is valid for
//! every stream of the domain. A region registered by a work request is valid for the stream of
//! that queue pair alone.
//!
//! - [`object`]: regions as verbs objects
//! - [`table`]: the lookup of regions by STag, and the allocation of STags
//! - [`pin`]: pins, which delay the revocation of a region until a copy has ended
//! - [`local`]: the memory of local scatter-gather elements

mod local;
mod object;
mod pin;
mod table;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub(crate) use self::{
    local::{
        LocalBuf,
        LOCAL_DMA_LKEY, //
    },
    object::Mr,
    pin::PinnedRegion,
    table::{
        Invalidator,
        RegionTable, //
    },
};

pub(crate) use iwarp_wire::rdmap::terminate::AccessError;

use kernel::{
    alloc::Flags,
    prelude::*,
    sync::Arc, //
};

use crate::{
    sys::{
        rdma::{
            memory::{
                Backing,
                KernelMemory,
                Segments, //
            },
            pin::{
                impl_has_pin_cell,
                PinCell,
                Pinned, //
            },
            res::ResAttrs, //
        },
        sync::lock::{
            new_spinlock_irq,
            SpinLockIrq, //
        }, //
    },
    verbs::{
        ids,
        Association,
        PdId,
        Stag,
        StreamId, //
    }, //
};

/// A set of access rights; local reading is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    /// Only local reading.
    pub(crate) const NONE: Self = Self(0);
    /// Local writing: receives, sinks of Reads.
    pub(crate) const LOCAL_WRITE: Self = Self(1);
    /// Writing by the peer.
    pub(crate) const REMOTE_WRITE: Self = Self(2);
    /// Reading by the peer.
    pub(crate) const REMOTE_READ: Self = Self(4);

    /// The rights in `enum ib_access_flags` of the verbs.
    pub(crate) const fn from_ib(flags: u32) -> Self {
        // The three rights have the values of the C enumeration.
        Self((flags & 7) as u8)
    }

    /// Whether the set has all rights of `need`.
    #[inline]
    pub(crate) const fn has(self, need: Self) -> bool {
        self.0 & need.0 == need.0
    }
}

/// The kind of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of a process.
    User,
    /// All kernel memory, for local access.
    Dma,
    /// Kernel memory registered by work requests, with the largest number of segments.
    FastReg(usize),
}

/// The range of a valid region, its rights and its memory.
pub(crate) struct Geometry {
    /// The only stream that may use the region; `None`: every stream of the protection domain.
    stream: Option<StreamId>,
    /// The first valid tagged offset.
    base: u64,
    /// The length in octets.
    len: u64,
    access: Access,
    /// The memory; `None` while the region is invalid.
    backing: Option<Backing>,
}

impl Geometry {
    /// The geometry of an invalid region.
    const INVALID: Self = Self {
        stream: None,
        base: 0,
        len: 0,
        access: Access::NONE,
        backing: None,
    };

    /// Whether the stream of `by` may use the region. The protection domain is not checked.
    #[inline]
    fn serves(&self, by: Association) -> bool {
        self.stream.is_none_or(|stream| stream == by.stream)
    }

    /// The checks of [`PinnedRegion::check`].
    #[inline]
    fn check(&self, addr: u64, len: u32, need: Access) -> Result<(), AccessError> {
        if !self.access.has(need) {
            return Err(AccessError::Rights);
        }
        let len = u64::from(len);
        // The check uses the last octet, since a range may end with the address space.
        let last = match len.checked_sub(1) {
            Some(more) => addr.checked_add(more).ok_or(AccessError::Wrap)?,
            None => return Ok(()),
        };
        let first = addr.checked_sub(self.base).ok_or(AccessError::Bounds)?;
        let last = last.checked_sub(self.base).ok_or(AccessError::Bounds)?;
        if first < self.len && last < self.len {
            Ok(())
        } else {
            Err(AccessError::Bounds)
        }
    }

    /// The offset of `addr` in the backing, in octets.
    #[inline]
    fn offset(&self, addr: u64) -> Result<u64, AccessError> {
        addr.checked_sub(self.base).ok_or(AccessError::Bounds)
    }
}

/// The segments for the next registration of a fast-registration region.
struct Staged {
    /// Filled by `map_mr_sg`, taken by the registration.
    next: Option<Segments>,
    /// A list to reuse: that of the last registration.
    spare: Option<Segments>,
}

/// A memory region.
///
/// The table of the device and the verbs object hold references. A region is invalid outside the
/// time between registration and invalidation.
#[pin_data]
pub(crate) struct Region {
    /// The high 24 bits of its STag.
    index: u32,
    /// The protection domain.
    pd: PdId,
    kind: Kind,
    /// Range, rights and memory; published while the region is valid.
    cell: PinCell<Geometry>,
    /// The segments for fast registration.
    #[pin]
    staged: SpinLockIrq<Staged>,
}

impl_has_pin_cell! {
    impl HasPinCell<Geometry> for Region { self.cell }
}

/// The fields of a `REG_MR` work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegMr {
    /// The new STag of the region.
    pub(crate) stag: Stag,
    /// The tagged offset of the first octet.
    pub(crate) iova: u64,
    /// The length in octets.
    pub(crate) length: u64,
    /// The new access rights.
    pub(crate) access: Access,
}

impl Region {
    /// Makes an invalid region with STag index `index`.
    pub(crate) fn new(
        index: u32,
        pd: PdId,
        kind: Kind,
        spare: Option<Segments>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            index,
            pd,
            kind,
            cell: PinCell::new(Geometry::INVALID),
            staged <- new_spinlock_irq!(Staged { next: None, spare }, "rsiw_region"),
        })
    }

    /// Allocates the first segment list of a fast-registration region, for `max` segments.
    pub(crate) fn segments(max: usize, flags: Flags) -> Result<Segments> {
        Segments::with_capacity(max, flags)
    }

    /// The STag of the region with `key`.
    pub(crate) fn stag(&self, key: u8) -> Stag {
        ids::stag(self.index, key)
    }

    /// The protection domain.
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Makes a region valid until it is retired.
    pub(crate) fn publish(
        &self,
        key: u8,
        base: u64,
        len: u64,
        access: Access,
        backing: Backing,
    ) -> Result {
        self.cell.publish(key, |geometry| {
            *geometry = Geometry {
                stream: None,
                base,
                len,
                access,
                backing: Some(backing),
            };
            Ok(())
        })
    }

    /// Makes a DMA region valid.
    pub(crate) fn publish_kernel(&self, access: Access, memory: KernelMemory) -> Result {
        self.publish(0, 0, u64::MAX, access, Backing::Kernel(memory))
    }

    /// Stages the memory for the next registration: `fill` changes the segment list.
    ///
    /// Any context. `EINVAL` for a region of another kind. `ENOMEM` when the list is in use,
    /// because the region is valid, and another list cannot be allocated.
    pub(crate) fn stage<R>(&self, fill: impl FnOnce(&mut Segments) -> R) -> Result<R> {
        let Kind::FastReg(max) = self.kind else {
            return Err(EINVAL);
        };
        let mut staged = self.staged.lock();
        let mut list = match staged.next.take().or_else(|| staged.spare.take()) {
            Some(list) => list,
            None => Segments::with_capacity(max, GFP_ATOMIC)?,
        };
        let result = fill(&mut list);
        staged.next = Some(list);
        Ok(result)
    }

    /// Takes the spare list out of a region that the caller drops.
    fn take_spare(&self) -> Option<Segments> {
        self.staged.lock().spare.take()
    }

    /// Executes a `REG_MR` work request of the queue pair of `stream`.
    fn register(&self, stream: StreamId, reg: &RegMr) -> Result<(), AccessError> {
        if !matches!(self.kind, Kind::FastReg(_)) {
            return Err(AccessError::Rights);
        }
        let staged = &self.staged;
        self.cell
            .publish(reg.stag.key(), |geometry| {
                let mut staged = staged.lock();
                let list = staged.next.take().ok_or(EINVAL)?;
                if reg.length > list.total() || reg.iova.checked_add(reg.length).is_none() {
                    staged.next = Some(list);
                    return Err(EINVAL);
                }
                *geometry = Geometry {
                    stream: Some(stream),
                    base: reg.iova,
                    len: reg.length,
                    access: reg.access,
                    backing: Some(Backing::Segments(list)),
                };
                Ok(())
            })
            .map_err(|_| AccessError::InvalidStag)
    }

    /// Whether the region is valid, under any key.
    fn is_valid(&self) -> bool {
        self.cell.is_published()
    }

    /// Adds the driver attributes of the region (`rdma resource`). Process context.
    pub(crate) fn describe(self: &Arc<Self>, attrs: &mut ResAttrs<'_>) {
        attrs.text(
            c"kind",
            match self.kind {
                Kind::User => c"user",
                Kind::Dma => c"dma",
                Kind::FastReg(_) => c"fast_reg",
            },
        );
        if let Kind::FastReg(max) = self.kind {
            attrs.number(c"max_pieces", max as u32);
        }
        // The fields are copied, since the pin disables bottom halves.
        let valid = self.cell.key().and_then(|key| {
            let pin = Pinned::new(self.clone(), key)?;
            Some((self.stag(key), pin.base, pin.len, pin.access, pin.stream))
        });
        attrs.flag(c"valid", valid.is_some());
        if let Some((stag, base, len, access, stream)) = valid {
            attrs.hex(c"stag", stag.get().into());
            attrs.hex(c"iova", base);
            attrs.long(c"octets", len);
            attrs.flag(c"local_write", access.has(Access::LOCAL_WRITE));
            attrs.flag(c"remote_write", access.has(Access::REMOTE_WRITE));
            attrs.flag(c"remote_read", access.has(Access::REMOTE_READ));
            attrs.flag(c"one_qp_only", stream.is_some());
        }
    }

    /// Makes the region invalid if it is valid under `key` and `by` may use it. The segment list
    /// becomes the spare one.
    fn invalidate(&self, key: u8, by: Association) -> Result<(), AccessError> {
        let old = self
            .cell
            .revoke_if(
                key,
                |geometry| geometry.serves(by),
                |geometry| core::mem::replace(geometry, Geometry::INVALID),
            )
            .map_err(|error| match error {
                EPERM => AccessError::NotAssociated,
                _ => AccessError::InvalidStag,
            })?;
        if let Some(Backing::Segments(list)) = old.backing {
            let surplus = self.staged.lock().spare.replace(list);
            drop(surplus);
        }
        Ok(())
    }

    /// Makes the region invalid and returns its memory, which the caller drops in process context.
    pub(crate) fn retire(&self) -> Option<Backing> {
        self.cell
            .revoke(|geometry| geometry.backing.take())
            .ok()
            .flatten()
    }
}
