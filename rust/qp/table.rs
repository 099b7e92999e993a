// SPDX-License-Identifier: GPL-2.0

//! Queue pairs by number. Numbers are unique on the host, so that two queue pairs can name each
//! other.
//!
//! The driver owns the table; the connection manager and the rendezvous look queue pairs up.

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};

use super::Qp;
use crate::{
    sys::{
        rdma::{
            core_ref::CoreHold,
            event::CoreQp,
            iwcm::ConnParam, //
            wr::QpPtr,
        }, //
        sync::{
            context::Caller,
            table::Table, //
        },
    },
    verbs::{
        Device,
        Qpn, //
    }, //
};

/// The table of queue pairs.
#[pin_data]
pub(crate) struct QpTable {
    /// Queue pairs by number.
    #[pin]
    qps: Table<Qp>,
}

impl QpTable {
    /// Makes an empty table. Process context; may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                qps <- Table::new(Qpn::MIN..Qpn::MAX),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds the queue pair that `make` makes for a new number. Process context; sleeps.
    pub(crate) fn insert_with(&self, make: impl FnOnce(Qpn) -> Result<Arc<Qp>>) -> Result<Arc<Qp>> {
        self.qps.insert_with(|number| make(Qpn::new(number)))
    }

    /// Removes a queue pair. Process context.
    pub(crate) fn remove(&self, qpn: Qpn) {
        drop(self.qps.remove(qpn.get()));
    }

    /// The queue pair with this number, if it is on the device. Any context.
    pub(crate) fn on(&self, device: &Device, number: u32) -> Option<Arc<Qp>> {
        let qp = self.qps.get_arc(number)?;
        is_on(&qp, device).then_some(qp)
    }

    /// The queue pair with this number, if its device is in the network namespace. Process
    /// context.
    pub(crate) fn in_net(&self, net: usize, number: u32) -> Option<Arc<Qp>> {
        let qp = self.qps.get_arc(number)?;
        qp.device().is_in(net).then_some(qp)
    }

    /// The queue pair in the parameters of a connect or accept call of `iw_cm`. Process context.
    ///
    /// `None` for a queue pair of a kernel user, unless this user or a
    /// [trusted](Caller::is_trusted) process makes the call.
    pub(crate) fn of_param(&self, device: &Device, param: &ConnParam<'_>) -> Option<Arc<Qp>> {
        self.on(device, param.qpn)
            .filter(|qp| qp.is_user() || param.is_of_owner(qp.core()) || Caller::is_trusted())
    }

    /// The queue pair with this number for `iw_cm`, as [`Qp::cm_get`]. Must not sleep: process
    /// context, with `iwcm_id_private::lock` held and interrupts off.
    pub(crate) fn for_cm(&self, device: &Device, number: u32) -> Option<CoreHold<CoreQp>> {
        let guard = rcu::read_lock();
        let qp = self.qps.get(number, &guard)?;
        is_on(qp, device).then(|| qp.cm_get()).flatten()
    }

    /// The number of segments that TCP has retransmitted for the running streams of a device.
    /// Process context.
    pub(crate) fn retransmits(&self, device: &Device) -> u64 {
        let mut sum: u64 = 0;
        self.qps.for_each(|qp| {
            if is_on(qp, device) {
                sum = sum.wrapping_add(qp.retransmits().into());
            }
        });
        sum
    }

    /// The `ib_qp` of the queue pair with this number. Any context.
    pub(crate) fn core(&self, device: &Device, number: u32) -> Option<QpPtr> {
        let guard = rcu::read_lock();
        let qp = self.qps.get(number, &guard)?;
        is_on(qp, device).then(|| qp.core())
    }
}

/// Whether a queue pair is on a device.
fn is_on(qp: &Qp, device: &Device) -> bool {
    core::ptr::eq(Arc::as_ptr(qp.device()), device)
}
