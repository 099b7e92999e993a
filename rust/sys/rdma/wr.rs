// SPDX-License-Identifier: GPL-2.0

//! Work requests and, in [`wc`], completions of kernel users.
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

/// What a send work request asks for (`enum ib_wr_opcode`), as far as an RNIC knows it.
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

/// One piece of local memory as the user named it.
#[derive(Clone, Copy)]
pub(crate) struct WrSge {
    /// The address.
    pub(crate) addr: u64,
    /// Octets.
    pub(crate) len: u32,
    /// The local key.
    pub(crate) lkey: u32,
}

/// What a `IB_WR_REG_MR` work request says.
pub(crate) struct WrReg {
    /// The local key of the region before.
    pub(crate) lkey: u32,
    /// The key it shall have.
    pub(crate) key: u32,
    /// The address of its first octet.
    pub(crate) iova: u64,
    /// Octets.
    pub(crate) length: u64,
    /// `enum ib_access_flags`.
    pub(crate) access: u32,
}

/// Copies the scatter-gather elements of a work request.
///
/// # Safety
///
/// `list` has `n` elements, or `n` is not positive.
unsafe fn sges<'a>(list: *const bindings::ib_sge, n: c_int) -> impl Iterator<Item = WrSge> + 'a {
    let n = usize::try_from(n).unwrap_or(0);
    let n = if list.is_null() { 0 } else { n };
    (0..n).map(move |i| {
        // SAFETY: By the caller's promise there is an element `i`.
        let sge = unsafe { &*list.add(i) };
        WrSge {
            addr: sge.addr,
            len: sge.length,
            lkey: sge.lkey,
        }
    })
}

/// A work request for a send queue.
///
/// A pointer, since a reference would not lead beyond the part that all kinds have in common.
///
/// # Invariants
///
/// Points to a work request of a kernel user which stays as it is during `'a`.
#[derive(Clone, Copy)]
pub(crate) struct SendWr<'a>(NonNull<bindings::ib_send_wr>, PhantomData<&'a ()>);

impl<'a> SendWr<'a> {
    /// The part that all kinds have in common.
    #[inline]
    fn common(self) -> &'a bindings::ib_send_wr {
        // SAFETY: By the invariant of the type.
        unsafe { self.0.as_ref() }
    }

    /// The user's name for it.
    pub(crate) fn id(self) -> u64 {
        // SAFETY: Both members of the union are 64 bits wide.
        unsafe { self.common().__bindgen_anon_1.wr_id }
    }

    /// What it asks for; `None` if an RNIC does not do that.
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

    /// A completion is wanted.
    pub(crate) fn signaled(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_SIGNALED)
    }

    /// The peer shall get a solicited event.
    pub(crate) fn solicited(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_SOLICITED)
    }

    /// The work request waits for earlier Reads.
    pub(crate) fn fence(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_FENCE)
    }

    /// The data is to be copied at once.
    pub(crate) fn inline(self) -> bool {
        self.flag(bindings::ib_send_flags_IB_SEND_INLINE)
    }

    /// The local memory, in order.
    pub(crate) fn sges(self) -> impl Iterator<Item = WrSge> + 'a {
        // SAFETY: The user of the verbs gives a list of that length.
        unsafe { sges(self.common().sg_list, self.common().num_sge) }
    }

    /// Copies the local memory of an inline work request into `out`. `None` if it is longer, or if
    /// the work request is not inline, as its addresses may be those of a region then.
    pub(crate) fn copy_inline(self, out: &mut [u8]) -> Option<u32> {
        if !self.inline() {
            return None;
        }
        let mut at: usize = 0;
        for sge in self.sges() {
            let end = at.checked_add(sge.len as usize)?;
            let dst = out.get_mut(at..end)?;
            if let Some(data) = NonNull::new(sge.addr as usize as *mut u8) {
                // SAFETY: Inline data of a kernel user is kernel memory of that length.
                unsafe { Octets::from_raw(data, dst.len()) }.copy_to(dst);
            }
            at = end;
        }
        u32::try_from(at).ok()
    }

    /// Where a Read or Write goes on the other side: offset and key. `None` for other requests.
    pub(crate) fn remote(self) -> Option<(u64, u32)> {
        match self.opcode()? {
            WrOpcode::Write | WrOpcode::Read | WrOpcode::ReadWithInv => {
                // SAFETY: Requests of these kinds are the first member of an `ib_rdma_wr`.
                let wr = unsafe { self.0.cast::<bindings::ib_rdma_wr>().as_ref() };
                Some((wr.remote_addr, wr.rkey))
            }
            _ => None,
        }
    }

    /// The key to invalidate, of `SEND_WITH_INV` and `LOCAL_INV`.
    pub(crate) fn invalidate_key(self) -> u32 {
        // SAFETY: Both members of the union are 32 bits wide.
        unsafe { self.common().ex.invalidate_rkey }
    }

    /// What `REG_MR` says. `None` for other requests.
    pub(crate) fn reg(self) -> Option<WrReg> {
        if self.opcode()? != WrOpcode::RegMr {
            return None;
        }
        // SAFETY: Requests of this kind are the first member of an `ib_reg_wr`.
        let wr = unsafe { self.0.cast::<bindings::ib_reg_wr>().as_ref() };
        let mr = NonNull::new(wr.mr)?.as_ptr();
        // SAFETY: The user of the verbs names a region of its own, which is not mapped anew
        // meanwhile. No reference to the whole is made: `ib_core` changes other fields.
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

/// A work request for a receive queue.
#[derive(Clone, Copy)]
pub(crate) struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvWr<'a> {
    /// The user's name for it.
    pub(crate) fn id(self) -> u64 {
        // SAFETY: Both members of the union are 64 bits wide.
        unsafe { self.0.__bindgen_anon_1.wr_id }
    }

    /// The local memory, in order.
    pub(crate) fn sges(self) -> impl Iterator<Item = WrSge> + 'a {
        // SAFETY: The user of the verbs gives a list of that length.
        unsafe { sges(self.0.sg_list, self.0.num_sge) }
    }
}

/// A work request that may be followed by another one.
pub(crate) trait Chained: 'static {
    /// What is made of a link.
    type Wr<'a>
    where
        Self: 'a;

    /// The one after `this`.
    fn next(this: &Self) -> *const Self;

    /// Wraps a link.
    ///
    /// # Safety
    ///
    /// `this` is a link of a chain that stays as it is during `'a`.
    unsafe fn wrap<'a>(this: NonNull<Self>) -> Self::Wr<'a>;
}

impl Chained for bindings::ib_send_wr {
    type Wr<'a> = SendWr<'a>;

    fn next(this: &Self) -> *const Self {
        this.next
    }

    unsafe fn wrap<'a>(this: NonNull<Self>) -> SendWr<'a> {
        // INVARIANT: The caller's promise.
        SendWr(this, PhantomData)
    }
}

impl Chained for bindings::ib_recv_wr {
    type Wr<'a> = RecvWr<'a>;

    fn next(this: &Self) -> *const Self {
        this.next
    }

    unsafe fn wrap<'a>(this: NonNull<Self>) -> RecvWr<'a> {
        // SAFETY: The caller's promise.
        RecvWr(unsafe { this.as_ref() })
    }
}

/// A chain of work requests that a kernel user posts.
///
/// # Invariants
///
/// `at` is null or the head of a valid chain that lives for `'a`.
pub(crate) struct Chain<'a, T: Chained> {
    /// The first request which is not accepted yet.
    at: *const T,
    /// The chain belongs to the caller.
    _chain: PhantomData<&'a T>,
}

impl<T: Chained> Chain<'_, T> {
    /// The chain that begins at `head`.
    ///
    /// # Safety
    ///
    /// `head` is null or a valid chain which stays so as long as the value lives.
    pub(super) unsafe fn new(head: *const T) -> Self {
        // INVARIANT: The caller's promise.
        Self {
            at: head,
            _chain: PhantomData,
        }
    }

    /// The first request which is not accepted yet.
    pub(crate) fn current(&self) -> Option<T::Wr<'_>> {
        // SAFETY: By the invariant of the type.
        NonNull::new(self.at.cast_mut()).map(|at| unsafe { T::wrap(at) })
    }

    /// Accepts the current request.
    pub(crate) fn accept(&mut self) {
        // SAFETY: By the invariant of the type.
        if let Some(at) = unsafe { self.at.as_ref() } {
            // INVARIANT: The rest of a valid chain.
            self.at = T::next(at);
        }
    }

    /// The request at fault, for the caller.
    pub(super) fn bad(&self) -> *const T {
        self.at
    }
}

/// Requests for a send queue.
pub(crate) type SendWrs<'a> = Chain<'a, bindings::ib_send_wr>;

/// Requests for a receive queue.
pub(crate) type RecvWrs<'a> = Chain<'a, bindings::ib_recv_wr>;
