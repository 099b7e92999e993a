// SPDX-License-Identifier: GPL-2.0

//! Work requests and completions of kernel users; the completions are in [`wc`].
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

mod wc;

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::prelude::*;

pub(crate) use self::wc::{
    IbWcOpcode,
    IbWcStatus,
    QpPtr,
    Wc,
    WcRoom, //
};
use crate::sys::{
    bindings,
    mm::octets::Octets, //
};

/// The operation of a send work request (`enum ib_wr_opcode`). An RNIC supports only these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrOpcode {
    /// `IB_WR_RDMA_WRITE`.
    Write,
    /// `IB_WR_SEND`.
    Send,
    /// `IB_WR_SEND_WITH_INV`.
    SendWithInv,
    /// `IB_WR_RDMA_READ`.
    Read,
    /// `IB_WR_RDMA_READ_WITH_INV`.
    ReadWithInv,
    /// `IB_WR_LOCAL_INV`.
    LocalInv,
    /// `IB_WR_REG_MR`.
    RegMr,
}

/// A scatter-gather element of a kernel user (`struct ib_sge`), unchecked.
#[derive(Clone, Copy)]
pub(crate) struct WrSge {
    pub(crate) addr: u64,
    /// The length in octets.
    pub(crate) len: u32,
    /// The local key.
    pub(crate) lkey: u32,
}

/// The fields of an `IB_WR_REG_MR` work request (`struct ib_reg_wr`).
pub(crate) struct WrReg {
    /// The current local key of the region.
    pub(crate) lkey: u32,
    /// The new key of the region.
    pub(crate) key: u32,
    /// The tagged offset of the first octet.
    pub(crate) iova: u64,
    /// The length in octets.
    pub(crate) length: u64,
    /// Access flags (`enum ib_access_flags`).
    pub(crate) access: u32,
}

/// Copies the scatter-gather elements of a work request.
///
/// # Safety
///
/// `list` has `n` elements, which stay valid during `'a`, or `n` is not positive.
unsafe fn sges<'a>(list: *const bindings::ib_sge, n: c_int) -> impl Iterator<Item = WrSge> + 'a {
    let n = usize::try_from(n).unwrap_or(0);
    let n = if list.is_null() { 0 } else { n };
    (0..n).map(move |i| {
        // SAFETY: By this function's contract `list` has an element `i`, since `i` is below `n`.
        let sge = unsafe { &*list.add(i) };
        WrSge {
            addr: sge.addr,
            len: sge.length,
            lkey: sge.lkey,
        }
    })
}

/// A work request for a send queue (`struct ib_send_wr`).
///
/// The value holds a pointer. A reference to the common part would not give access to the rest of
/// an `ib_rdma_wr` or `ib_reg_wr`.
///
/// # Invariants
///
/// The pointer names a work request of a kernel user, which does not change during `'a`.
#[derive(Clone, Copy)]
pub(crate) struct SendWr<'a>(NonNull<bindings::ib_send_wr>, PhantomData<&'a ()>);

impl<'a> SendWr<'a> {
    /// The part common to all kinds of work requests.
    #[inline]
    fn common(self) -> &'a bindings::ib_send_wr {
        // SAFETY: By the type invariant the work request is valid and does not change during `'a`.
        unsafe { self.0.as_ref() }
    }

    /// The user's identifier of the work request (`wr_id`).
    pub(crate) fn id(self) -> u64 {
        // SAFETY: Both members of the union are 64 bits wide, and any bits are a value.
        unsafe { self.common().__bindgen_anon_1.wr_id }
    }

    /// The operation; `None` for one that an RNIC does not support.
    pub(crate) fn opcode(self) -> Option<WrOpcode> {
        Some(match self.common().opcode {
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => WrOpcode::Write,
            bindings::ib_wr_opcode_IB_WR_SEND => WrOpcode::Send,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => WrOpcode::SendWithInv,
            bindings::ib_wr_opcode_IB_WR_RDMA_READ => WrOpcode::Read,
            bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV => WrOpcode::ReadWithInv,
            bindings::ib_wr_opcode_IB_WR_LOCAL_INV => WrOpcode::LocalInv,
            bindings::ib_wr_opcode_IB_WR_REG_MR => WrOpcode::RegMr,
            _ => return None,
        })
    }

    /// Whether a flag of `enum ib_send_flags` is set.
    fn flag(self, flag: bindings::ib_send_flags) -> bool {
        self.common().send_flags as u32 & flag as u32 != 0
    }

    /// Whether the user requests a completion (`IB_SEND_SIGNALED`).
    pub(crate) fn signaled(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_SIGNALED)
    }

    /// Whether the message requests a solicited event at the peer (`IB_SEND_SOLICITED`).
    pub(crate) fn solicited(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_SOLICITED)
    }

    /// Whether the work request waits for earlier Reads (`IB_SEND_FENCE`).
    pub(crate) fn fence(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_FENCE)
    }

    /// Whether posting copies the data (`IB_SEND_INLINE`).
    pub(crate) fn inline(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_INLINE)
    }

    /// The local memory, in order.
    pub(crate) fn sges(self) -> impl Iterator<Item = WrSge> + 'a {
        // SAFETY: By the type invariant the work request is valid, so `sg_list` has `num_sge`
        // elements.
        unsafe { sges(self.common().sg_list, self.common().num_sge) }
    }

    /// Copies the local memory of an inline work request into `out`; returns the length in octets.
    ///
    /// `None` if the data is longer than `out`, or if the work request is not inline. Without the
    /// flag the addresses may be those of a region.
    pub(crate) fn copy_inline(self, out: &mut [u8]) -> Option<u32> {
        if !self.inline() {
            return None;
        }
        let mut at: usize = 0;
        for sge in self.sges() {
            let end = at.checked_add(sge.len as usize)?;
            let dst = out.get_mut(at..end)?;
            if let Some(data) = NonNull::new(sge.addr as usize as *mut u8) {
                // SAFETY: With `IB_SEND_INLINE` the address is that of kernel memory of this
                // length.
                unsafe { Octets::from_raw(data, dst.len()) }.copy_to(dst);
            }
            at = end;
        }
        u32::try_from(at).ok()
    }

    /// The tagged offset and the remote key (STag) of a Read or Write; `None` for other operations.
    pub(crate) fn remote(self) -> Option<(u64, u32)> {
        match self.opcode()? {
            WrOpcode::Write | WrOpcode::Read | WrOpcode::ReadWithInv => {
                // SAFETY: By the opcode, the work request is the first member of an `ib_rdma_wr`.
                let wr = unsafe { self.0.cast::<bindings::ib_rdma_wr>().as_ref() };
                Some((wr.remote_addr, wr.rkey))
            }
            _ => None,
        }
    }

    /// The STag to invalidate. Valid for `SEND_WITH_INV` and `LOCAL_INV`.
    pub(crate) fn invalidate_key(self) -> u32 {
        // SAFETY: Both members of the union are 32 bits wide, and any bits are a value.
        unsafe { self.common().ex.invalidate_rkey }
    }

    /// The fields of a `REG_MR` work request; `None` for other operations.
    pub(crate) fn reg(self) -> Option<WrReg> {
        if self.opcode()? != WrOpcode::RegMr {
            return None;
        }
        // SAFETY: By the opcode, the work request is the first member of an `ib_reg_wr`.
        let wr = unsafe { self.0.cast::<bindings::ib_reg_wr>().as_ref() };
        let mr = NonNull::new(wr.mr)?.as_ptr();
        // SAFETY: `mr` is a live region of the kernel user, which does not map it again during the
        // call. The code forms no reference to the whole structure: `ib_core` changes other fields.
        let (lkey, iova, length) = unsafe { ((*mr).lkey, (*mr).iova, (*mr).length) };
        Some(WrReg {
            lkey,
            key: wr.key,
            iova,
            length,
            access: wr.access as u32,
        })
    }
}

/// A work request for a receive queue (`struct ib_recv_wr`).
#[derive(Clone, Copy)]
pub(crate) struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvWr<'a> {
    /// The user's identifier of the work request (`wr_id`).
    pub(crate) fn id(self) -> u64 {
        // SAFETY: Both members of the union are 64 bits wide, and any bits are a value.
        unsafe { self.0.__bindgen_anon_1.wr_id }
    }

    /// The local memory, in order.
    pub(crate) fn sges(self) -> impl Iterator<Item = WrSge> + 'a {
        // SAFETY: A valid work request has a `sg_list` of `num_sge` elements.
        unsafe { sges(self.0.sg_list, self.0.num_sge) }
    }
}

/// A C work request that is an element of a singly linked list.
pub(crate) trait Chained: 'static {
    /// The wrapper of a work request.
    type Wr<'a>
    where
        Self: 'a;

    /// The work request after `this`; null at the end.
    fn next(this: &Self) -> *const Self;

    /// Wraps a work request.
    ///
    /// # Safety
    ///
    /// `this` is a work request of a chain that does not change during `'a`.
    unsafe fn wrap<'a>(this: NonNull<Self>) -> Self::Wr<'a>;
}

impl Chained for bindings::ib_send_wr {
    type Wr<'a> = SendWr<'a>;

    fn next(this: &Self) -> *const Self {
        this.next
    }

    unsafe fn wrap<'a>(this: NonNull<Self>) -> SendWr<'a> {
        // INVARIANT: By this function's contract the work request does not change during `'a`.
        SendWr(this, PhantomData)
    }
}

impl Chained for bindings::ib_recv_wr {
    type Wr<'a> = RecvWr<'a>;

    fn next(this: &Self) -> *const Self {
        this.next
    }

    unsafe fn wrap<'a>(this: NonNull<Self>) -> RecvWr<'a> {
        // SAFETY: By this function's contract the work request does not change during `'a`.
        RecvWr(unsafe { this.as_ref() })
    }
}

/// A chain of work requests that a kernel user posts.
///
/// # Invariants
///
/// `at` is null or the head of a chain that is valid during `'a`.
pub(crate) struct Chain<'a, T: Chained> {
    /// The first work request that is not accepted yet; null at the end.
    at: *const T,
    _chain: PhantomData<&'a T>,
}

impl<T: Chained> Chain<'_, T> {
    /// Wraps the chain that begins at `head`.
    ///
    /// # Safety
    ///
    /// `head` is null or a valid chain, which stays valid as long as the value exists.
    pub(super) unsafe fn new(head: *const T) -> Self {
        // INVARIANT: By this function's contract the chain is valid as long as the value exists.
        Self {
            at: head,
            _chain: PhantomData,
        }
    }

    /// The first work request that is not accepted yet; `None` at the end.
    pub(crate) fn current(&self) -> Option<T::Wr<'_>> {
        // SAFETY: By the type invariant `at` is null or a work request of a valid chain.
        NonNull::new(self.at.cast_mut()).map(|at| unsafe { T::wrap(at) })
    }

    /// Accepts the current work request, and moves to the next one.
    pub(crate) fn accept(&mut self) {
        // SAFETY: By the type invariant `at` is null or a work request of a valid chain.
        if let Some(at) = unsafe { self.at.as_ref() } {
            // INVARIANT: The rest of a valid chain is a valid chain.
            self.at = T::next(at);
        }
    }

    /// The refused work request, for `*bad_wr`.
    pub(super) fn bad(&self) -> *const T {
        self.at
    }
}

/// Work requests for a send queue.
pub(crate) type SendWrs<'a> = Chain<'a, bindings::ib_send_wr>;

/// Work requests for a receive queue.
pub(crate) type RecvWrs<'a> = Chain<'a, bindings::ib_recv_wr>;
