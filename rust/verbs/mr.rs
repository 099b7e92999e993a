// SPDX-License-Identifier: GPL-2.0

//! Memory regions: what an STag stands for, and its access rights.
//!
//! An STag belongs to one protection domain. It gives access to exactly its range with exactly its
//! rights (RFC 5041 section 8.2, RFC 5042; requirements.md DDP-80 to DDP-90). It can be revoked at
//! any time, and can not be guessed. Memory that a verb registers serves every stream of the
//! domain. A key that a work request registers serves the stream of that queue pair alone.
//!
//! - [`object`]: regions as `ib_core`'s objects
//! - [`table`]: from STag to region, and the choice of STags
//! - [`pin`]: access to the memory of a region that can not be revoked under the copy
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

/// A set of access rights; local reading always goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    /// Local reading alone.
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

    /// Whether all of `need` is there.
    #[inline]
    pub(crate) const fn has(self, need: Self) -> bool {
        self.0 & need.0 == need.0
    }
}

/// What makes a region's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of a process.
    User,
    /// All kernel memory, for local access.
    Dma,
    /// Kernel memory registered by work requests, at most so many pieces.
    FastReg(usize),
}

/// The range of a valid region, its rights and its memory.
pub(crate) struct Geometry {
    /// The one stream that may use it; `None`: every stream of the protection domain.
    stream: Option<StreamId>,
    /// The first valid tagged offset.
    base: u64,
    /// Octets.
    len: u64,
    /// The rights it gives.
    access: Access,
    /// The memory; `None` while the region is invalid.
    backing: Option<Backing>,
}

impl Geometry {
    /// Of a region that is not valid.
    const INVALID: Self = Self {
        stream: None,
        base: 0,
        len: 0,
        access: Access::NONE,
        backing: None,
    };

    /// Whether `by` may use it, as far as it is limited to one stream.
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
        // The last octet counts: a range may end with the address space.
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

    /// Where in the backing `addr` lies.
    #[inline]
    fn offset(&self, addr: u64) -> Result<u64, AccessError> {
        addr.checked_sub(self.base).ok_or(AccessError::Bounds)
    }
}

/// The memory that the next registration of a fast-registration region will use.
struct Staged {
    /// Filled by `map_mr_sg`, emptied by the registration.
    next: Option<Segments>,
    /// A list in reserve: that of the last registration.
    spare: Option<Segments>,
}

/// A memory region.
///
/// The table of the device and the verbs object hold it; it can be invalid for all of its life
/// but a moment.
#[pin_data]
pub(crate) struct Region {
    /// The high 24 bits of its STag.
    index: u32,
    /// The protection domain.
    pd: PdId,
    /// What kind it is.
    kind: Kind,
    /// What it stands for, while valid.
    cell: PinCell<Geometry>,
    /// For fast registration.
    #[pin]
    staged: SpinLockIrq<Staged>,
}

impl_has_pin_cell! {
    impl HasPinCell<Geometry> for Region { self.cell }
}

/// What a `REG_MR` work request says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegMr {
    /// The key which it shall get.
    pub(crate) stag: Stag,
    /// The tagged offset of its first octet.
    pub(crate) iova: u64,
    /// Octets.
    pub(crate) length: u64,
    /// The rights it shall give.
    pub(crate) access: Access,
}

impl Region {
    /// An invalid region of index `index`.
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

    /// The list of pieces which a fast-registration region starts with.
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

    /// What kind it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Makes a region of a process's memory valid, for as long as it lives.
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

    /// Takes the memory for the next registration: `fill` changes the list of pieces.
    ///
    /// Any context. Fails with `ENOMEM` when the region is valid, its list therefore in use, and
    /// there is no memory for another one.
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

    /// Gives the list in reserve away, of a region that is of no use.
    fn take_spare(&self) -> Option<Segments> {
        self.staged.lock().spare.take()
    }

    /// Carries out a `REG_MR` work request of the queue pair that `stream` belongs to.
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

    /// Whether it is valid, under whatever key.
    fn is_valid(&self) -> bool {
        self.cell.is_published()
    }

    /// Adds what there is to tell. Process context.
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
        // Copied, since the pin is held with bottom halves disabled.
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

    /// Makes it invalid if it is valid under `key` and serves `by`; the list of pieces becomes the
    /// spare one.
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

    /// Makes it invalid for good and gives its memory back, which the caller drops in process
    /// context.
    pub(crate) fn retire(&self) -> Option<Backing> {
        self.cell
            .revoke(|geometry| geometry.backing.take())
            .ok()
            .flatten()
    }
}
