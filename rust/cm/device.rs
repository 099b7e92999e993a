// SPDX-License-Identifier: GPL-2.0

//! The connection manager's state of a device.

use core::ops::Deref;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::registry::Registry;
use crate::{
    qp::{
        table::QpTable,
        Qp, //
    },
    sys::rdma::iwcm::ConnParam,
    verbs::Device, //
};

/// A device with its connections and listeners, which hold references to it until their end.
#[pin_data]
pub(crate) struct CmDevice {
    device: Arc<Device>,
    /// Queue pairs by number.
    qps: Arc<QpTable>,
    /// Connections and listeners of the device.
    #[pin]
    registry: Registry,
}

impl CmDevice {
    /// A device without connections. Process context; sleeps.
    pub(crate) fn new(device: Arc<Device>, qps: Arc<QpTable>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                device,
                qps,
                registry <- Registry::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Connections and listeners of the device.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The queue pair in the parameters of a connect or accept call, as [`QpTable::of_param`].
    /// Process context.
    pub(super) fn qp_of(&self, param: &ConnParam<'_>) -> Option<Arc<Qp>> {
        self.qps.of_param(&self.device, param)
    }
}

impl Deref for CmDevice {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}
