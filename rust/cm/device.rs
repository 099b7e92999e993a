// SPDX-License-Identifier: GPL-2.0

//! A device, as the connection manager knows it.

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

/// A device with its connections and listeners. They hold it until their end.
#[pin_data]
pub(crate) struct CmDevice {
    /// The device.
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

    /// The queue pair that `iw_cm` is asked to connect. Process context.
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
