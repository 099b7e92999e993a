// SPDX-License-Identifier: GPL-2.0

//! The operations of the connection manager, which `iw_cm` calls.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    Rsiw,
    RsiwDevice, //
};
use crate::{
    cm::{
        accept,
        connect,
        listen::Listener,
        registry::Member, //
    },
    sys::rdma::{
        core_ref::CoreHold,
        event::CoreQp,
        iwcm::{
            AcceptCall,
            CmOps,
            ConnParam,
            ConnectCall,
            Handle,
            ListenCall, //
        }, //
        res::ResAttrs,
    }, //
};

impl CmOps for Rsiw {
    fn connect(device: &Arc<RsiwDevice>, call: ConnectCall<'_>, param: &ConnParam<'_>) -> Result {
        connect::connect(device.cm(), call, param)
    }

    fn accept(
        device: &Arc<RsiwDevice>,
        connection: Handle,
        call: AcceptCall<'_>,
        param: &ConnParam<'_>,
    ) -> Result {
        accept::accept(device.cm(), connection, call, param)
    }

    fn reject(device: &Arc<RsiwDevice>, connection: Handle, private_data: &[u8]) -> Result {
        accept::reject(device.cm(), connection, private_data)
    }

    fn listen(device: &Arc<RsiwDevice>, call: ListenCall, backlog: u32) -> Result<Handle> {
        Listener::start(device.cm(), call, backlog)
    }

    fn unlisten(device: &Arc<RsiwDevice>, listener: Handle) {
        if let Some(listener) = device.cm().registry().listener(listener) {
            listener.stop();
        }
    }

    fn describe_cm_id(device: &Arc<RsiwDevice>, handle: Handle, attrs: &mut ResAttrs<'_>) {
        match device.cm().registry().member(handle) {
            Some(Member::Endpoint(endpoint)) => endpoint.describe(attrs),
            Some(Member::Listener(listener)) => listener.describe(attrs),
            None => {}
        }
    }

    fn find_qp(device: &Arc<RsiwDevice>, number: u32) -> Option<CoreHold<CoreQp>> {
        device.globals().qps().for_cm(device.verbs(), number)
    }
}
