// SPDX-License-Identifier: GPL-2.0

//! The verbs, which `ib_core` calls. Each verb calls a function of its object.

use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};

use super::{
    link,
    RsiwDevice, //
};
use crate::{
    qp::{
        Qp,
        QpParts, //
    },
    sys::errno::EOPNOTSUPP,
    sys::rdma::{
        attr::{
            Attributes,
            Change,
            Limits, //
        },
        core_ref::CoreRef,
        driver::{
            Arm,
            CqRequest,
            Driver,
            QpInfo,
            QpRequest,
            SrqAttr,
            UserMr, //
        },
        event::CoreSrq,
        memory::{
            KernelMemory,
            Segments, //
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
    },
    verbs::{
        counters::{
            self,
            Counter, //
        },
        cq::Cq,
        device::{
            ObjectKind,
            ObjectSlot, //
        },
        gid::Gid,
        limits,
        mr::Mr,
        srq::Srq,
        wq::{
            recv::{
                RecvRing,
                RecvSource, //
            },
            wqe::MAX_SGE, //
        },
        PdId, //
    }, //
};

/// A protection domain: a number that its regions and queue pairs share.
pub(crate) struct Pd {
    /// Counts the protection domain in the device.
    _object_slot: ObjectSlot,
    /// The number of the protection domain.
    id: PdId,
}

/// The implementation of [`Driver`].
pub(crate) struct Rsiw;

// SAFETY: Kernel addresses come from the work requests in a kernel user's ring (`wq`).
// `mr::LocalBuf` accepts them with the local DMA key, or with the key of a `reg_dma_mr` region. The
// stream releases memory before the work request is completed (`MrCache`). The stream releases a
// region's memory before the revocation ends (`PinCell`); an invalidation and `dereg_mr` wait for
// that. `Cq::poll` looks up the queue pair of each completion. A shared listener is closed with its
// last share. Endpoints own the shares, and `link::netns_exit` waits for the devices of its
// namespace. The removal of a device waits for its endpoints.
unsafe impl Driver for Rsiw {
    type Device = RsiwDevice;
    type Pd = Pd;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;
    type Mr = Mr;

    const LIMITS: Limits = Limits {
        qp: limits::MAX_QP,
        qp_wr: limits::MAX_QP_WR,
        sge: MAX_SGE as u32,
        sge_rd: limits::MAX_SGE_RD,
        cq: limits::MAX_CQ,
        cqe: limits::MAX_CQE,
        mr: limits::MAX_MR,
        fast_reg: limits::MAX_FAST_REG,
        pd: limits::MAX_PD,
        rd_atom: limits::MAX_RD_ATOM,
        srq: limits::MAX_SRQ,
        srq_wr: limits::MAX_SRQ_WR,
        gids: limits::GID_TABLE,
        message: limits::MAX_MESSAGE,
    };
    const DESCRIPTION: &'static CStr = c"Soft-iWARP in Rust";
    const COUNTERS: &'static [&'static CStr] = counters::NAMES;

    fn new_link(name: &CStr, netdev: &Netdev<'_>) -> Result {
        link::add(name, netdev)
    }

    fn netdev_event(event: NetdevEvent, netdev: &Netdev<'_>) {
        link::netdev_event(event, netdev)
    }

    fn interfaces_changed() {
        link::interfaces_changed();
    }

    fn netns_exit(net: usize) {
        link::netns_exit(net)
    }

    fn enable(device: &RsiwDevice) -> Result {
        // A process must not use a network namespace that it is not in.
        if device.verbs().shares_netns() {
            Ok(())
        } else {
            Err(EOPNOTSUPP)
        }
    }

    fn removed(device: &Arc<RsiwDevice>) {
        device.set_going();
        device.cm().registry().shut_down();
        device.is_removed();
    }

    fn speed(device: &RsiwDevice) -> u32 {
        device.verbs().speed()
    }

    fn setting(device: &RsiwDevice, setting: Setting) -> u32 {
        device.verbs().settings().get(setting)
    }

    fn set_setting(device: &RsiwDevice, setting: Setting, value: u32) -> Result {
        device.verbs().settings().set(setting, value)
    }

    fn gid(device: &RsiwDevice, index: u32) -> Gid {
        device.verbs().gid(index)
    }

    fn counter(device: &RsiwDevice, index: usize) -> u64 {
        let running = match index == Counter::TcpRetransmits as usize {
            true => device.globals().qps().retransmits(device.verbs()),
            false => 0,
        };
        let told = device.verbs().counters().read(index);
        told.wrapping_add(running)
    }

    fn create_pd(device: &Arc<RsiwDevice>) -> Result<Arc<Pd>> {
        let pd = Pd {
            _object_slot: ObjectSlot::take(device.verbs(), ObjectKind::Pd)?,
            id: PdId::new(device.verbs().next_number()),
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    fn create_cq(device: &Arc<RsiwDevice>, request: CqRequest) -> Result<Arc<Cq>> {
        if request.entries == 0 || request.entries > limits::MAX_CQE {
            return Err(EINVAL);
        }
        let object_slot = ObjectSlot::take(device.verbs(), ObjectKind::Cq)?;
        // The process uses the number only to identify the queue.
        let number = device.verbs().next_number() as u32;
        Cq::new(
            object_slot,
            number,
            request.entries,
            request.owner,
            request.core,
        )
    }

    fn cq_info(cq: &Cq) -> (u32, &Arc<Ring>) {
        (cq.number(), cq.ring())
    }

    fn destroy_cq(cq: &Arc<Cq>) {
        cq.retire();
    }

    fn poll_cq(device: &RsiwDevice, cq: &Cq, room: &mut WcRoom<'_>) {
        let qps = device.globals().qps();
        cq.poll(room, |number| qps.core(device.verbs(), number));
    }

    fn arm_cq(cq: &Cq, arm: Arm) -> bool {
        cq.arm(arm)
    }

    fn create_qp(device: &Arc<RsiwDevice>, request: QpRequest<'_, Self>) -> Result<Arc<Qp>> {
        let cap = request.cap.checked(request.srq.is_some(), request.owner)?;
        let object_slot = ObjectSlot::take(device.verbs(), ObjectKind::Qp)?;
        let rq = match request.srq {
            Some(srq) if srq.pd() != request.pd.id => return Err(EINVAL),
            Some(srq) => RecvSource::Shared(srq),
            None => RecvSource::own(RecvRing::new(
                cap.recv_depth()?,
                cap.max_recv_sge(),
                request.owner,
            )?)?,
        };
        device.globals().qps().insert_with(|qpn| {
            Qp::new(QpParts {
                object_slot,
                qpn,
                pd: request.pd.id,
                send_cq: request.send_cq,
                recv_cq: request.recv_cq,
                rq,
                cap,
                signal_all: request.signal_all,
                owner: request.owner,
                core: request.core,
            })
        })
    }

    fn qp_info(qp: &Qp) -> QpInfo<'_> {
        QpInfo {
            number: qp.qpn().get(),
            cap: qp.attributes().cap,
            sq: qp.queues().sq().ring(),
            rq: qp.queues().rq().ring().map(RecvRing::ring),
        }
    }

    fn describe_qp(qp: &Qp, attrs: &mut ResAttrs<'_>) {
        qp.describe(attrs);
    }

    fn qp_is_made(qp: &Arc<Qp>) {
        qp.is_made();
    }

    fn modify_qp(device: &Arc<RsiwDevice>, qp: &Arc<Qp>, change: &Change) -> Result {
        qp.modify(change, &**device)
    }

    fn query_qp(qp: &Qp) -> Attributes {
        qp.attributes()
    }

    fn destroy_qp(device: &Arc<RsiwDevice>, qp: &Arc<Qp>) {
        qp.destroy();
        device.globals().qps().remove(qp.qpn());
    }

    fn post_send(qp: &Arc<Qp>, wrs: &mut SendWrs<'_>) -> Result {
        qp.post_send(wrs)
    }

    fn post_recv(qp: &Arc<Qp>, wrs: &mut RecvWrs<'_>) -> Result {
        qp.post_recv(wrs)
    }

    fn doorbell(qp: &Arc<Qp>) {
        qp.doorbell();
    }

    fn create_srq(
        device: &Arc<RsiwDevice>,
        pd: &Arc<Pd>,
        attr: SrqAttr,
        owner: Owner,
        core: Arc<CoreRef<CoreSrq>>,
    ) -> Result<Arc<Srq>> {
        Srq::new(
            ObjectSlot::take(device.verbs(), ObjectKind::Srq)?,
            pd.id,
            attr,
            owner,
            core,
        )
    }

    fn srq_ring(srq: &Srq) -> &Arc<Ring> {
        srq.ring()
    }

    fn query_srq(srq: &Srq) -> SrqAttr {
        srq.attr()
    }

    fn limit_srq(srq: &Srq, limit: u32) -> Result {
        srq.set_limit(limit)
    }

    fn destroy_srq(srq: &Arc<Srq>) {
        srq.retire();
    }

    fn post_srq(srq: &Srq, wrs: &mut RecvWrs<'_>) -> Result {
        srq.post(wrs)
    }

    fn reg_user_mr(device: &Arc<RsiwDevice>, pd: &Arc<Pd>, mr: UserMr) -> Result<Arc<Mr>> {
        Mr::user(device.verbs(), pd.id, mr)
    }

    fn reg_dma_mr(
        device: &Arc<RsiwDevice>,
        pd: &Arc<Pd>,
        memory: KernelMemory,
        access: u32,
    ) -> Result<Arc<Mr>> {
        Mr::dma(device.verbs(), pd.id, memory, access)
    }

    fn alloc_mr(device: &Arc<RsiwDevice>, pd: &Arc<Pd>, max: u32) -> Result<Arc<Mr>> {
        Mr::fast(device.verbs(), pd.id, max)
    }

    fn mr_key(mr: &Mr) -> u32 {
        mr.stag().get()
    }

    fn describe_mr(mr: &Mr, attrs: &mut ResAttrs<'_>) {
        mr.describe(attrs);
    }

    fn stage_mr<R>(mr: &Mr, fill: impl FnOnce(&mut Segments, usize) -> R) -> Result<R> {
        mr.stage(fill)
    }

    fn dereg_mr(mr: &Arc<Mr>) {
        mr.retire();
    }
}
