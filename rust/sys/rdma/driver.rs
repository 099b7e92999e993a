// SPDX-License-Identifier: GPL-2.0

//! What a driver provides to `ib_core`.
//!
//! The objects are the driver's own, in [`Arc`]s that the memory which `ib_core` allocates holds;
//! so they may outlive it. Unless it says otherwise a function is called in process context and
//! may sleep.

use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};

use crate::sys::rdma::{
    attr::{
        Attributes,
        Cap,
        Change,
        Limits, //
    },
    core_ref::CoreRef,
    event::{
        CoreCq,
        CoreQp,
        CoreSrq, //
    },
    memory::{
        KernelMemory,
        Segments,
        UserPages, //
    },
    netdev::{
        Netdev,
        NetdevEvent, //
    },
    res::ResAttrs,
    ring::{
        Owner,
        Ring, //
    },
    settings::Setting,
    wr::{
        RecvWrs,
        SendWrs,
        WcRoom, //
    }, //
};

/// Parameters of a new completion queue.
pub(crate) struct CqRequest {
    /// Entries at least.
    pub(crate) entries: u32,
    /// The owner.
    pub(crate) owner: Owner,
    /// The queue as `ib_core` knows it.
    pub(crate) core: Arc<CoreRef<CoreCq>>,
}

/// Parameters of a new queue pair.
pub(crate) struct QpRequest<'a, D: Driver> {
    /// The protection domain.
    pub(crate) pd: &'a Arc<D::Pd>,
    /// Where ends of send work requests go.
    pub(crate) send_cq: Arc<D::Cq>,
    /// Where ends of receive work requests go.
    pub(crate) recv_cq: Arc<D::Cq>,
    /// The receive queue it shares, if it does.
    pub(crate) srq: Option<Arc<D::Srq>>,
    /// The requested capacity.
    pub(crate) cap: Cap,
    /// Every send work request asks for a completion.
    pub(crate) signal_all: bool,
    /// The owner.
    pub(crate) owner: Owner,
    /// The queue pair as `ib_core` knows it.
    pub(crate) core: Arc<CoreRef<CoreQp>>,
}

/// Results of making a queue pair.
pub(crate) struct QpInfo<'a> {
    /// The number of the queue pair.
    pub(crate) number: u32,
    /// The actual capacity.
    pub(crate) cap: Cap,
    /// The ring of its send queue.
    pub(crate) sq: &'a Arc<Ring>,
    /// The ring of its own receive queue.
    pub(crate) rq: Option<&'a Arc<Ring>>,
}

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqAttr {
    /// Work requests.
    pub(crate) max_wr: u32,
    /// Scatter-gather elements of each.
    pub(crate) max_sge: u32,
    /// Fewer work requests than this give an event, once; 0: no event.
    pub(crate) limit: u32,
}

/// A registration of a process's memory.
pub(crate) struct UserMr {
    /// The pages.
    pub(crate) pages: UserPages,
    /// The key octet that the process wants.
    pub(crate) key: u8,
    /// The tagged offset of the first octet.
    pub(crate) iova: u64,
    /// Octets.
    pub(crate) len: u64,
    /// `enum ib_access_flags`.
    pub(crate) access: u32,
}

/// The condition under which a completion queue calls a kernel user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// At a solicited or unsuccessful completion.
    Solicited,
    /// At any completion.
    Next,
}

/// A driver of RDMA devices.
///
/// # Safety
///
/// Kernel users lend their memory for a time that no type here can follow. The driver promises to keep
/// to it:
///
/// - [`KernelMemory`] is accessed at addresses only that a kernel user's work request in that ring
///   names. It names them with the local DMA key, or with that of a region of
///   [`reg_dma_mr`](Self::reg_dma_mr). The access ends before the completion of the work request is
///   handed out.
/// - The pieces that [`stage_mr`](Self::stage_mr) has had filled in are accessed only between the
///   work request that registers them and the one that invalidates them. They are not accessed
///   after [`dereg_mr`](Self::dereg_mr) has returned.
/// - The queue pair that a completion names has not been destroyed.
///
/// Nor can one follow when a network namespace ends. Some sockets do not keep their namespace: those of
/// `ListenSocket::create_shared`, and what such a listener accepts until it is held. None of them, and
/// no reference to one, is left in a namespace when [`netns_exit`](Self::netns_exit) has returned for it.
pub(crate) unsafe trait Driver: Sized + 'static {
    /// A device.
    type Device: Send + Sync + 'static;
    /// A protection domain.
    type Pd: Send + Sync + 'static;
    /// A completion queue.
    type Cq: Send + Sync + 'static;
    /// A queue pair.
    type Qp: Send + Sync + 'static;
    /// A shared receive queue.
    type Srq: Send + Sync + 'static;
    /// A memory region.
    type Mr: Send + Sync + 'static;

    /// What its devices can do.
    const LIMITS: Limits;
    /// What `ibv_devinfo` calls it.
    const DESCRIPTION: &'static CStr;
    /// Names of the counters of a port.
    const COUNTERS: &'static [&'static CStr];

    /// Makes a device of that name on an interface (`rdma link add`).
    fn new_link(name: &CStr, netdev: &Netdev<'_>) -> Result;
    /// An event of an interface. Under the RTNL.
    fn netdev_event(event: NetdevEvent, netdev: &Netdev<'_>);
    /// IP addresses, or the link, of some interface have changed.
    fn interfaces_changed();
    /// A network namespace, identified by a number, is going.
    fn netns_exit(net: usize);
    /// The core is about to give the device to its clients: at its registration, and after
    /// `rdma dev set netns`. After an error the device has no clients. Process context.
    fn enable(device: &Self::Device) -> Result;
    /// The device is gone for its users; the core's reference to it is dropped after this.
    fn removed(device: &Arc<Self::Device>);
    /// Megabits per second of the interface, as far as known; 0: not known. Any context.
    fn speed(device: &Self::Device) -> u32;
    /// The value of a setting.
    fn setting(device: &Self::Device, setting: Setting) -> u32;
    /// Changes a setting, for what begins afterwards; `EINVAL` for a value out of range.
    fn set_setting(device: &Self::Device, setting: Setting, value: u32) -> Result;
    /// The GID at `index`; all zero for an empty entry. Any context.
    fn gid(device: &Self::Device, index: u32) -> [u8; 16];
    /// The counter of that number.
    fn counter(device: &Self::Device, index: usize) -> u64;

    /// Makes a protection domain.
    fn create_pd(device: &Arc<Self::Device>) -> Result<Arc<Self::Pd>>;

    /// Makes a completion queue.
    fn create_cq(device: &Arc<Self::Device>, request: CqRequest) -> Result<Arc<Self::Cq>>;
    /// The number and the ring of a completion queue.
    fn cq_info(cq: &Self::Cq) -> (u32, &Arc<Ring>);
    /// No handler of the queue is called any more after this.
    fn destroy_cq(cq: &Arc<Self::Cq>);
    /// Hands completions out. Any context.
    fn poll_cq(device: &Self::Device, cq: &Self::Cq, room: &mut WcRoom<'_>);
    /// Arms the queue; returns whether it has completions already. Any context.
    fn arm_cq(cq: &Self::Cq, arm: Arm) -> bool;

    /// Makes a queue pair.
    fn create_qp(device: &Arc<Self::Device>, request: QpRequest<'_, Self>)
        -> Result<Arc<Self::Qp>>;
    /// What there is to tell of it.
    fn qp_info(qp: &Self::Qp) -> QpInfo<'_>;
    /// The core's object refers to the queue pair from now on.
    fn qp_is_made(qp: &Arc<Self::Qp>);
    /// Adds attributes for `rdma resource show`.
    fn describe_qp(qp: &Self::Qp, attrs: &mut ResAttrs<'_>);
    /// Changes attributes.
    fn modify_qp(device: &Arc<Self::Device>, qp: &Arc<Self::Qp>, change: &Change) -> Result;
    /// Tells attributes.
    fn query_qp(qp: &Self::Qp) -> Attributes;
    /// The queue pair makes no completion and no event after this.
    fn destroy_qp(device: &Arc<Self::Device>, qp: &Arc<Self::Qp>);
    /// Posts send work requests; stops at the first that can not be. Any context.
    fn post_send(qp: &Arc<Self::Qp>, wrs: &mut SendWrs<'_>) -> Result;
    /// Posts receive work requests; stops at the first that can not be. Any context.
    fn post_recv(qp: &Arc<Self::Qp>, wrs: &mut RecvWrs<'_>) -> Result;
    /// A process has posted something.
    fn doorbell(qp: &Arc<Self::Qp>);

    /// Makes a shared receive queue.
    fn create_srq(
        device: &Arc<Self::Device>,
        pd: &Arc<Self::Pd>,
        attr: SrqAttr,
        owner: Owner,
        core: Arc<CoreRef<CoreSrq>>,
    ) -> Result<Arc<Self::Srq>>;
    /// The ring of a shared receive queue.
    fn srq_ring(srq: &Self::Srq) -> &Arc<Ring>;
    /// What it is like.
    fn query_srq(srq: &Self::Srq) -> SrqAttr;
    /// Arms the limit event.
    fn limit_srq(srq: &Self::Srq, limit: u32) -> Result;
    /// The queue makes no event after this.
    fn destroy_srq(srq: &Arc<Self::Srq>);
    /// Posts receive work requests; stops at the first that can not be. Any context.
    fn post_srq(srq: &Self::Srq, wrs: &mut RecvWrs<'_>) -> Result;

    /// Registers memory of a process.
    fn reg_user_mr(
        device: &Arc<Self::Device>,
        pd: &Arc<Self::Pd>,
        mr: UserMr,
    ) -> Result<Arc<Self::Mr>>;
    /// Registers all kernel memory; `access` are `enum ib_access_flags`.
    fn reg_dma_mr(
        device: &Arc<Self::Device>,
        pd: &Arc<Self::Pd>,
        memory: KernelMemory,
        access: u32,
    ) -> Result<Arc<Self::Mr>>;
    /// Makes a region for fast registration with `max` pieces.
    fn alloc_mr(device: &Arc<Self::Device>, pd: &Arc<Self::Pd>, max: u32) -> Result<Arc<Self::Mr>>;
    /// The key of a region.
    fn mr_key(mr: &Self::Mr) -> u32;
    /// Tells `rdma resource show` of a region.
    fn describe_mr(mr: &Self::Mr, attrs: &mut ResAttrs<'_>);
    /// Has `fill` take the pieces for the next registration; the number is how many it may take.
    /// Any context.
    fn stage_mr<R>(mr: &Self::Mr, fill: impl FnOnce(&mut Segments, usize) -> R) -> Result<R>;
    /// Nothing accesses the memory any more after this.
    fn dereg_mr(mr: &Arc<Self::Mr>);
}
