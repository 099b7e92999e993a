// SPDX-License-Identifier: GPL-2.0

//! The interface between `ib_core` and a driver: the trait [`Driver`], and the arguments of its
//! functions.
//!
//! A driver object is in an [`Arc`]. The structure that `ib_core` allocates holds one reference, so
//! the object may outlive that structure. Functions run in process context and may sleep, unless
//! their comments say otherwise.

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
    /// The minimum number of entries.
    pub(crate) entries: u32,
    /// The owner of the queue.
    pub(crate) owner: Owner,
    /// The `ib_cq` of the queue.
    pub(crate) core: Arc<CoreRef<CoreCq>>,
}

/// Parameters of a new queue pair.
pub(crate) struct QpRequest<'a, D: Driver> {
    /// The protection domain.
    pub(crate) pd: &'a Arc<D::Pd>,
    /// The completion queue of send work requests.
    pub(crate) send_cq: Arc<D::Cq>,
    /// The completion queue of receive work requests.
    pub(crate) recv_cq: Arc<D::Cq>,
    /// The shared receive queue, if any.
    pub(crate) srq: Option<Arc<D::Srq>>,
    /// The requested capacity.
    pub(crate) cap: Cap,
    /// Whether every send work request generates a completion (`IB_SIGNAL_ALL_WR`).
    pub(crate) signal_all: bool,
    /// The owner of the queue pair.
    pub(crate) owner: Owner,
    /// The `ib_qp` of the queue pair.
    pub(crate) core: Arc<CoreRef<CoreQp>>,
}

/// Attributes of a new queue pair.
pub(crate) struct QpInfo<'a> {
    /// The queue pair number.
    pub(crate) number: u32,
    /// The actual capacity.
    pub(crate) cap: Cap,
    /// The ring of the send queue.
    pub(crate) sq: &'a Arc<Ring>,
    /// The ring of the receive queue; `None` with a shared receive queue.
    pub(crate) rq: Option<&'a Arc<Ring>>,
}

/// Attributes of a shared receive queue (`struct ib_srq_attr`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqAttr {
    /// The maximum number of outstanding work requests.
    pub(crate) max_wr: u32,
    /// The maximum number of scatter-gather elements of a work request.
    pub(crate) max_sge: u32,
    /// The limit event is dispatched once when the queue has fewer work requests than this; 0: no
    /// event.
    pub(crate) limit: u32,
}

/// Parameters of a user memory region.
pub(crate) struct UserMr {
    /// The pinned pages.
    pub(crate) pages: UserPages,
    /// The low octet of the STag that the process requests; 0 by default.
    pub(crate) key: u8,
    /// The tagged offset of the first octet (`iova`).
    pub(crate) iova: u64,
    /// The length in octets, not 0.
    pub(crate) len: u64,
    /// Access flags (`enum ib_access_flags`).
    pub(crate) access: u32,
}

/// The completions that call the handler of a kernel user's armed completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// A solicited or unsuccessful completion (`IB_CQ_SOLICITED`).
    Solicited,
    /// Any completion (`IB_CQ_NEXT_COMP`).
    Next,
}

/// A driver of RDMA devices: the verbs, and callbacks about devices and interfaces.
///
/// # Safety
///
/// Kernel users give a driver access to their memory for a time that no type of this module
/// expresses. An implementation keeps these rules:
///
/// - [`KernelMemory`] of a ring is accessed only at addresses in work requests that a kernel user
///   has posted to that ring. The work request names the local DMA key, or the key of a region of
///   [`reg_dma_mr`](Self::reg_dma_mr). The access ends before the driver reports the completion of
///   the work request.
/// - Segments filled in by [`stage_mr`](Self::stage_mr) are accessed only between two work
///   requests: the one that registers them and the one that invalidates them. They are not accessed
///   after [`dereg_mr`](Self::dereg_mr) has returned.
/// - The queue pair of a completion is not destroyed when the completion is reported.
///
/// No type expresses the end of a network namespace either. Sockets of
/// `ListenSocket::create_shared` hold no reference to their namespace, nor do accepted sockets
/// before they are held. When [`netns_exit`](Self::netns_exit) has returned for a namespace, no
/// such socket of the namespace exists, and no reference to one.
///
/// A module has one implementation: the C tables of settings and counters are static.
pub(crate) unsafe trait Driver: Sized + 'static {
    /// The driver's data of an `ib_device`.
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

    /// The limits of each device.
    const LIMITS: Limits;
    /// The node description of each device, which `ibv_devinfo` prints.
    const DESCRIPTION: &'static CStr;
    /// The names of the counters of a port, at most 48.
    const COUNTERS: &'static [&'static CStr];

    /// Makes a device named `name` on an interface (`rdma link add`). The interface exists during
    /// the call.
    fn new_link(name: &CStr, netdev: &Netdev<'_>) -> Result;
    /// Handles an event of an interface. Called under the RTNL.
    fn netdev_event(event: NetdevEvent, netdev: &Netdev<'_>);
    /// Handles a change of the IP addresses or the link of any interface.
    fn interfaces_changed();
    /// Handles the exit of the network namespace with identity `net`, before its interfaces and
    /// sockets are removed. Called without the RTNL.
    fn netns_exit(net: usize);
    /// Called before `ib_core` adds the device to its clients: at registration, and after `rdma dev
    /// set netns`. After an error the device has no clients.
    fn enable(device: &Self::Device) -> Result;
    /// Called when no user of the device is left, or when its registration has failed. `ib_core`
    /// drops its reference to the object afterwards.
    fn removed(device: &Arc<Self::Device>);
    /// The last known link speed of the interface in megabits per second; 0: unknown. Any context.
    fn speed(device: &Self::Device) -> u32;
    /// The value of a sysfs setting.
    fn setting(device: &Self::Device, setting: Setting) -> u32;
    /// Changes a sysfs setting. `EINVAL`: the value is out of range.
    fn set_setting(device: &Self::Device, setting: Setting, value: u32) -> Result;
    /// The GID at `index` of the GID table; all zero for an empty entry. Any context.
    fn gid(device: &Self::Device, index: u32) -> [u8; 16];
    /// The value of the counter named `COUNTERS[index]`.
    fn counter(device: &Self::Device, index: usize) -> u64;

    /// Creates a protection domain.
    fn create_pd(device: &Arc<Self::Device>) -> Result<Arc<Self::Pd>>;

    /// Creates a completion queue.
    fn create_cq(device: &Arc<Self::Device>, request: CqRequest) -> Result<Arc<Self::Cq>>;
    /// The number and the ring of a completion queue.
    fn cq_info(cq: &Self::Cq) -> (u32, &Arc<Ring>);
    /// Destroys a completion queue. No handler of the queue runs after the return.
    fn destroy_cq(cq: &Arc<Self::Cq>);
    /// Moves completions to `room`, in order, until it is full or the queue is empty. Any context.
    fn poll_cq(device: &Self::Device, cq: &Self::Cq, room: &mut WcRoom<'_>);
    /// Arms the queue; returns whether it already has completions. Any context.
    fn arm_cq(cq: &Self::Cq, arm: Arm) -> bool;

    /// Creates a queue pair.
    fn create_qp(device: &Arc<Self::Device>, request: QpRequest<'_, Self>)
        -> Result<Arc<Self::Qp>>;
    /// The number, the capacity and the rings of a queue pair.
    fn qp_info(qp: &Self::Qp) -> QpInfo<'_>;
    /// Called when the `ib_qp` refers to the queue pair. `iw_cm` may take references from then on.
    fn qp_is_made(qp: &Arc<Self::Qp>);
    /// Adds the driver attributes of `rdma resource show qp`.
    fn describe_qp(qp: &Self::Qp, attrs: &mut ResAttrs<'_>);
    /// Changes attributes of a queue pair, its state included.
    fn modify_qp(device: &Arc<Self::Device>, qp: &Arc<Self::Qp>, change: &Change) -> Result;
    /// Reads the attributes of a queue pair.
    fn query_qp(qp: &Self::Qp) -> Attributes;
    /// Destroys a queue pair. It generates no completion and no event after the return.
    fn destroy_qp(device: &Arc<Self::Device>, qp: &Arc<Self::Qp>);
    /// Posts send work requests, up to the first that is refused. Any context.
    fn post_send(qp: &Arc<Self::Qp>, wrs: &mut SendWrs<'_>) -> Result;
    /// Posts receive work requests, up to the first that is refused. Any context.
    fn post_recv(qp: &Arc<Self::Qp>, wrs: &mut RecvWrs<'_>) -> Result;
    /// The doorbell of a process that has posted work requests to its mapped send queue.
    fn doorbell(qp: &Arc<Self::Qp>);

    /// Creates a shared receive queue.
    fn create_srq(
        device: &Arc<Self::Device>,
        pd: &Arc<Self::Pd>,
        attr: SrqAttr,
        owner: Owner,
        core: Arc<CoreRef<CoreSrq>>,
    ) -> Result<Arc<Self::Srq>>;
    /// The ring of a shared receive queue.
    fn srq_ring(srq: &Self::Srq) -> &Arc<Ring>;
    /// Reads the attributes of a shared receive queue.
    fn query_srq(srq: &Self::Srq) -> SrqAttr;
    /// Sets the limit of the limit event; 0 disarms it.
    fn limit_srq(srq: &Self::Srq, limit: u32) -> Result;
    /// Destroys a shared receive queue. It generates no event after the return.
    fn destroy_srq(srq: &Arc<Self::Srq>);
    /// Posts receive work requests, up to the first that is refused. Any context.
    fn post_srq(srq: &Self::Srq, wrs: &mut RecvWrs<'_>) -> Result;

    /// Registers pinned memory of a process.
    fn reg_user_mr(
        device: &Arc<Self::Device>,
        pd: &Arc<Self::Pd>,
        mr: UserMr,
    ) -> Result<Arc<Self::Mr>>;
    /// Registers all kernel memory. `access` are access flags (`enum ib_access_flags`).
    fn reg_dma_mr(
        device: &Arc<Self::Device>,
        pd: &Arc<Self::Pd>,
        memory: KernelMemory,
        access: u32,
    ) -> Result<Arc<Self::Mr>>;
    /// Creates a region for fast registration of at most `max` segments.
    fn alloc_mr(device: &Arc<Self::Device>, pd: &Arc<Self::Pd>, max: u32) -> Result<Arc<Self::Mr>>;
    /// The key (STag) of a region.
    fn mr_key(mr: &Self::Mr) -> u32;
    /// Adds the driver attributes of `rdma resource show mr`.
    fn describe_mr(mr: &Self::Mr, attrs: &mut ResAttrs<'_>);
    /// Lets `fill` store the segments of the next registration. Its second argument is their
    /// maximum number. Any context.
    fn stage_mr<R>(mr: &Self::Mr, fill: impl FnOnce(&mut Segments, usize) -> R) -> Result<R>;
    /// Deregisters a region. Its memory is not accessed after the return.
    fn dereg_mr(mr: &Arc<Self::Mr>);
}
