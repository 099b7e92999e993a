// SPDX-License-Identifier: GPL-2.0

//! A device of the driver: the verbs device, and its connections and listeners.

use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use super::link::Globals;
use crate::{
    cm::CmDevice,
    qp::{
        peer::{
            Connector,
            ConnectorStart, //
        },
        Qp, //
    },
    rendezvous::{
        self,
        Host, //
    },
    sys::{
        rdma::attr::PeerAttributes,
        sync::work, //
    },
    verbs::Device, //
};

/// The driver's object of an `ib_device`.
#[pin_data]
pub(crate) struct RsiwDevice {
    /// The state that all devices of the module share.
    globals: Arc<Globals>,
    /// The verbs device.
    verbs: Arc<Device>,
    /// The device with its connections and listeners.
    cm: Arc<CmDevice>,
    /// Removes the device from the list of devices.
    #[pin]
    forget: Work<Self, 0>,
}

impl_has_work! {
    impl HasWork<Self, 0> for RsiwDevice { self.forget }
}

impl WorkItem<0> for RsiwDevice {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.globals.end(&this);
    }
}

impl RsiwDevice {
    /// Makes a device that is not registered yet. Process context; sleeps.
    pub(super) fn new(globals: Arc<Globals>, verbs: Arc<Device>) -> Result<Arc<Self>> {
        let cm = CmDevice::new(verbs.clone(), globals.qps().clone())?;
        Arc::pin_init(
            pin_init!(Self {
                globals,
                verbs,
                cm,
                forget <- new_work!("rsiw_device_forget"),
            }),
            GFP_KERNEL,
        )
    }

    /// The state that all devices of the module share.
    pub(super) fn globals(&self) -> &Globals {
        &self.globals
    }

    /// The verbs device.
    #[inline]
    pub(super) fn verbs(&self) -> &Arc<Device> {
        &self.verbs
    }

    /// The device with its connections and listeners.
    pub(super) fn cm(&self) -> &Arc<CmDevice> {
        &self.cm
    }

    /// Marks the device as being removed, and aborts its connections and listeners. Process
    /// context; sleeps, but does not wait until they have ended.
    pub(super) fn set_going(&self) {
        self.verbs.set_going();
        self.cm.registry().abort_all();
    }

    /// Handles the release of the device by `ib_core`. Process context.
    ///
    /// A work item removes the device from the list of devices when `ib_core`'s call has returned.
    /// The module waits for an empty list.
    pub(super) fn is_removed(self: &Arc<Self>) {
        self.verbs.set_removed();
        let _ = work::devices().enqueue::<Arc<Self>, 0>(self.clone());
    }
}

impl Connector for RsiwDevice {
    fn begin(
        &self,
        qp: &Arc<Qp>,
        peer: &PeerAttributes,
        commit: &mut dyn FnMut(ConnectorStart) -> Result,
    ) -> Result {
        let net = self.verbs.net_id();
        let host = Host {
            device: &self.cm,
            listeners: self.globals.rendezvous(),
            standing: &|gid| self.globals.gid_standing(net, gid),
        };
        rendezvous::begin(&host, qp, peer, commit)
    }
}
